"""A session: calls that share one sandbox, one after another."""

from typing import TYPE_CHECKING, Any, Self, Unpack

from readie._client import Client, default_client
from readie._errors import ConfigurationError
from readie._loops import refuse_in_coroutine
from readie._options import SandboxOptions, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from readie._service import Service


class Session:
    """Calls that find what the calls before them left in memory, such as a loaded model::

        with readie.Session(memory="4G") as session:
            load.bind(session=session)("weights.bin")
            answer = predict.bind(session=session)(question)

    Its calls run one at a time, in the order in which they were made, in one sandbox that the first
    of them starts. Options of the sandbox are given here, options of a call as always. Use it in a
    ``with`` or ``async with`` block, or call `open` and `close`. Another process joins by its `id`:
    ``bind(session="sess-…")``. A session that is not used for some minutes (a setting of the service)
    ends, as it does when its sandbox dies; then calls raise `SessionExpiredError`.
    """

    def __init__(self, *, client: Client | None = None, **options: Unpack[SandboxOptions]) -> None:
        self._client = client
        self._options: Mapping[str, Any] = checked(options)
        for name in self._options:
            if name not in SandboxOptions.__annotations__:
                raise ConfigurationError(
                    f"{name} is an option of calls; a session has "
                    + ", ".join(SandboxOptions.__annotations__)
                )
        self._id = ""

    @property
    def id(self) -> str:
        """What the service knows the session by. Raises `ConfigurationError` before it is open."""
        if not self._id:
            raise ConfigurationError("open the session first: use it in a with block")
        return self._id

    @property
    def client(self) -> Client:
        """The client that its calls go through, where they have none of their own."""
        if self._client is None:
            self._client = default_client()
        return self._client

    def open(self) -> Self:
        """Open it, once. Its sandbox is made by the first call."""
        from readie._steps import drive

        refuse_in_coroutine("session.open()", "async with session")
        if not self._id:
            self._id = drive(self._service.open_session(self._options))
        return self

    def close(self) -> None:
        """End it and its sandbox. A call that runs is cancelled. Closing it again does nothing."""
        from readie._steps import drive

        refuse_in_coroutine("session.close()", "async with session")
        if self._id:
            drive(self._service.end_session(self._id))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        from readie._steps import drive_async

        if not self._id:
            self._id = await drive_async(self._service.open_session(self._options))
        return self

    async def __aexit__(self, *_: object) -> None:
        from readie._steps import drive_async

        await drive_async(self._service.end_session(self.id))

    def __repr__(self) -> str:
        return f"<readie.Session {self._id or 'not open'}>"

    @property
    def _service(self) -> "Service":
        return self.client._service()
