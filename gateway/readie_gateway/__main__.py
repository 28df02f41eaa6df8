"""``python -m readie_gateway``: reads the environment, composes the gateway and serves it."""

import logging
import signal
import sys
from types import FrameType

from readie_gateway.app import create_app
from readie_gateway.auth import InvalidTokenFileError, read_tokens
from readie_gateway.bucket_view import BucketView
from readie_gateway.catalogues import Catalogues
from readie_gateway.fleet import FleetWatch
from readie_gateway.metrics import Metrics
from readie_gateway.published import PublishedCatalogues
from readie_gateway.recording import ImportLedger
from readie_gateway.services import Services
from readie_gateway.serving import GatewayServer, address, listen
from readie_gateway.sessions import SessionBook
from readie_gateway.settings import GatewaySettings
from readie_gateway.waiting import WaitingBoard
from readie_infra.blobs import open_blobs
from readie_infra.connecting import connect
from readie_infra.errors import InfraError
from readie_infra.logging import configure_logging
from readie_infra.objects import open_objects
from readie_infra.sealing import read_seal
from readie_infra.settings import load_settings
from readie_infra.store import CallStore
from readie_wire.keys import Keys, new_boot_id

log = logging.getLogger("readie_gateway")


def compose(settings: GatewaySettings) -> Services:
    """Everything the gateway works with. Connects to nothing yet. Raises `SettingsError`."""
    store = CallStore(connect(settings.redis_url), Keys(settings.redis_prefix))
    objects = open_objects(settings.bucket) if settings.bucket else None
    catalogues = Catalogues(
        generations=settings.generations_dir,
        folder=settings.catalogue_dir,
        published=PublishedCatalogues(objects) if objects else None,
    )
    bucket = BucketView(objects) if objects else None
    return Services(
        store=store,
        blobs=open_blobs(settings.blob_url) if settings.blob_url else None,
        catalogues=catalogues,
        fleet=FleetWatch(store, catalogues, bucket),
        board=WaitingBoard(store, new_boot_id("gateway")),
        metrics=Metrics(),
        limits=settings.limits,
        sessions=SessionBook(store),
        imports=ImportLedger(store, settings.record_imports_days)
        if settings.record_imports_days
        else None,
        seal=read_seal(settings.seal_key_file) if settings.seal_key_file else None,
        bucket=bucket,
    )


def main() -> int:
    """Serve until SIGTERM or SIGINT. Answers the process's exit status."""
    try:
        settings = load_settings(GatewaySettings)
        configure_logging(settings.log_format, settings.log_level)
        tokens = read_tokens(settings.token_file)
        services = compose(settings)
        listener = listen(settings.host, settings.port)
    except (InfraError, InvalidTokenFileError, OSError) as error:
        print(f"readie_gateway: {error}", file=sys.stderr)  # noqa: T201 - before or beside logging
        return 2
    server = GatewayServer(create_app(services, tokens), services.board)
    log.info("listening on %s as %s", address(listener), services.board.boot)
    if settings.exposed:
        log.warning("reachable from other machines: calls run on workers that isolate them only")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)  # uvicorn shuts down first, then raises the signal anew
    server.run(sockets=[listener])
    return 0 if server.started else 1


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
