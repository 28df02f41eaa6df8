"""The HTTP server around the application: uvicorn, with a stop that lets waiting requests answer."""

import gc
import logging
import socket

import uvicorn
from starlette.types import ASGIApp

from readie_gateway.joining import JoiningProtocol
from readie_gateway.waiting import WaitingBoard

log = logging.getLogger(__name__)

BACKLOG = 2048
KEEP_ALIVE_S = 75  # longer than proxies keep an idle connection, so that they close it, not we
STOP_S = 10  # after a signal: for waiting requests to be told, and for answers to be sent


class GatewayServer(uvicorn.Server):
    """Stops in this order: waiting requests answer 202 or end their stream, so that their clients
    go on with another gateway; connections are closed; then the lifespan ends the side tasks.
    """

    def __init__(self, app: ASGIApp, board: WaitingBoard) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=JoiningProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nothing here asks where a request came from
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
            )
        )
        self._board = board

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What has been loaded lives as long as the process: the collector need not walk it again.
        gc.collect()
        gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._board.close()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def address(listener: socket.socket) -> str:
    """``http://127.0.0.1:8777`` of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
