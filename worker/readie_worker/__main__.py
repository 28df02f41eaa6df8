"""``python -m readie_worker``: reads the environment, composes one worker and runs it."""

import asyncio
import gc
import importlib.metadata
import os
import signal
import sys

import structlog

from readie_infra.blobs import open_blobs
from readie_infra.bucket import Bucket, Trust
from readie_infra.connecting import connect
from readie_infra.errors import InfraError
from readie_infra.logging import configure_logging
from readie_infra.objects import open_objects
from readie_infra.sealing import read_seal
from readie_infra.settings import load_settings
from readie_infra.store import CallStore
from readie_wire.catalogue import canonical_distribution
from readie_wire.keys import Keys, new_boot_id
from readie_worker.beating import silence
from readie_worker.errors import ConfigurationError, WorkerError
from readie_worker.runtimes import RuntimeWishes, choose_runtime
from readie_worker.sandbox.errors import SandboxError
from readie_worker.service import Plan, Worker
from readie_worker.settings import WorkerSettings
from readie_worker.sizing import core_count, memory_total
from readie_worker.supervision import Supervision
from readie_worker.syncing import Following

log = structlog.stdlib.get_logger("readie_worker")


def main() -> int:
    """Serve until SIGTERM or SIGINT; a second one ends at once. Answers the exit status."""
    try:
        settings = load_settings(WorkerSettings)
        configure_logging(settings.log_format, settings.log_level)
        asyncio.run(_serve(settings))
    except (InfraError, SandboxError, WorkerError) as error:
        print(f"readie_worker: {error}", file=sys.stderr)  # noqa: T201 - before or beside logging
        return 2
    return 0


async def _serve(settings: WorkerSettings) -> None:
    supervision = Supervision(silence(settings.beat))
    supervision.start()
    await _serve_supervised(settings, supervision)
    # Only now, and on no error: without this word it ends whatever sandboxes are left.
    supervision.close()


async def _serve_supervised(settings: WorkerSettings, supervision: Supervision) -> None:
    blobs = open_blobs(settings.blob_url) if settings.blob_url else None
    seal = read_seal(settings.seal_key_file) if settings.seal_key_file else None
    chosen = await choose_runtime(
        RuntimeWishes(
            name=settings.runtime,
            folder=settings.data_dir / "sandboxes",
            environment=os.environ,
            network=settings.network,
            strict=settings.strict_compat,
            ledger=supervision,
        )
    )
    log.info("runtime chosen", runtime=chosen.runtime.name, why=chosen.why, network=chosen.network)
    plan = Plan(
        boot=new_boot_id("worker"),
        flavor=settings.flavor,
        slots=settings.slots or core_count(),
        memory_total=settings.memory_total or memory_total(),
        network=chosen.network,
        artifacts=settings.artifacts,
        generations_later=settings.generations_later,
        following=_following(settings, chosen.rootfs),
        prefetch_budget=settings.prefetch_budget,
        strict_compat=settings.strict_compat,
        allow_unsandboxed=settings.allow_unsandboxed,
        spares=settings.spares,
        beat=settings.beat,
        start_timeout=settings.start_timeout,
        drain_grace=settings.drain_grace,
        outcome_patience=settings.outcome_patience,
        session_idle=settings.session_idle,
        result_limit=settings.result_limit,
        gpu_total=settings.gpu_total,
        version=importlib.metadata.version("readie"),
        distributions=await asyncio.to_thread(_installed),
        notes=[chosen.why],
    )

    def open_store() -> CallStore:
        return CallStore(connect(settings.redis_url), Keys(settings.redis_prefix))

    worker = Worker(plan, chosen.runtime, open_store, blobs, supervision.beat, seal)
    # What has been loaded lives as long as the process: the collector need not walk it again.
    gc.collect()
    gc.freeze()
    await worker.run(_stop_signal())


def _following(settings: WorkerSettings, rootfs: str) -> Following | None:
    if settings.bucket is None:
        return None
    if settings.artifacts is not None:
        raise ConfigurationError(
            "READIE_BUCKET and a folder of generations (READIE_GENERATIONS_DIR, ARTIFACTS_DIR) are "
            "both given; a worker serves one of them"
        )
    trust = Trust.of(settings.bucket_keys.split(","), unsigned=settings.bucket_unsigned)
    return Following(
        Bucket(open_objects(settings.bucket), trust),
        settings.data_dir / "bucket",
        rootfs,
        settings.bucket_poll,
        settings.disk_budget,
    )


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        log.info("told to stop", signal=number.name)
        stop.set()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(one)  # the next one does what it does by default

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)
    return stop


def _installed() -> dict[str, str]:
    """The distributions of this interpreter, for error messages about versions that differ."""
    return {
        canonical_distribution(name): found.version
        for found in importlib.metadata.distributions()
        if (name := found.metadata["Name"])
    }


if __name__ == "__main__":
    sys.exit(main())
