"""Exit with 0 when the worker of this container beats and can run calls; else say why not."""

import asyncio
import socket
import sys

from readie_infra.connecting import connect
from readie_infra.errors import InfraError
from readie_infra.settings import ServerSettings, load_settings
from readie_infra.store import CallStore
from readie_wire.keys import Keys


async def ailment(settings: ServerSettings) -> str:
    """Empty when nothing is wrong."""
    store = CallStore(connect(settings.redis_url), Keys(settings.redis_prefix))
    try:
        workers = await store.workers()
    finally:
        await store.close()
    for worker in workers:
        if worker.host == socket.gethostname():
            return worker.error
    return "no worker of this container has beaten lately"


def main() -> int:
    try:
        problem = asyncio.run(ailment(load_settings(ServerSettings)))
    except InfraError as error:
        problem = str(error)
    if problem:
        sys.stderr.write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
