"""Which workers there are, and the server they all meet on."""

from readie_infra.store import endings
from readie_infra.store.reading import outcome_text, pairs
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.submitting import DEFAULT_RESULT_TTL_S
from readie_infra.store.values import Health
from readie_wire.records import WorkerRecord

WORKER_GONE = "its worker is gone"  # why sessions end


class Fleet:
    _steps: Steps

    async def beat(self, record: WorkerRecord, ttl_s: float) -> int:
        """Advertise a worker for ``ttl_s`` seconds; answers its beats so far."""
        fields: list[str] = []
        for name, value in record.to_fields().items():
            fields += (name, value)
        return int(await self._steps.run("beat", record.boot, milliseconds(ttl_s), *fields))

    async def leave(self, boot: str) -> tuple[list[str], list[str]]:
        """Forget a worker. Answers the calls that are queued again and those that are lost.

        Queued again is what it had not started, and what ran and has a rerun left.
        """
        requeued, lost = await self._steps.run(
            "leave",
            boot,
            outcome_text(endings.lost()),
            milliseconds(DEFAULT_RESULT_TTL_S),
            WORKER_GONE,
            outcome_text(endings.session_ended(WORKER_GONE)),
        )
        return [call.decode() for call in requeued], [call.decode() for call in lost]

    async def workers(self) -> list[WorkerRecord]:
        """The workers that beat within their TTL and whose record this build reads, by boot id."""
        records = []
        for flat in await self._steps.run("workers"):
            try:
                records.append(WorkerRecord.from_fields(pairs(flat)))
            except (ValueError, KeyError, TypeError):
                continue  # of another version: its own gateways see it
        return sorted(records, key=lambda record: record.boot)

    async def health(self) -> Health:
        """Ask the server how it is. Raises `StoreUnavailableError` when it does not answer."""
        text = (await self._steps.ask("INFO", "server", "memory", "replication")).decode()
        info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        eviction = info.get("maxmemory_policy", "")
        limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
        warnings = []
        if limit and eviction != "noeviction":
            warnings.append(
                f"maxmemory-policy is {eviction}: calls can vanish; set it to noeviction"
            )
        if limit and used >= limit:
            warnings.append("memory is full: new calls are refused until some of it is free")
        if info.get("role") not in ("master", None):
            warnings.append("the server is a replica: connect to its primary")
        name = info.get("server_name", "redis")
        version = info.get(f"{name}_version", info.get("redis_version", "?"))
        return Health(f"{name} {version}", used, limit, eviction, tuple(warnings))
