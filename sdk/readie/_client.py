"""A connection to a service, and the one that functions use by default."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from readie import _settings
from readie._errors import ClientClosedError, InvalidRequestError, LogLine, SerializationError
from readie._loops import refuse_in_coroutine
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.http import ProblemCode
from readie_wire.versions import python_minor

if TYPE_CHECKING:
    from readie._call import Call
    from readie._exchange import Transport
    from readie._imports import Findings
    from readie._pickling import Payload
    from readie._service import Ended, Progress, Service, Submission
    from readie_wire.outcome import Receipt

CANCEL_S = 3.0  # that Ctrl-C may take to tell the service

_last_receipt: "ContextVar[Receipt | None]" = ContextVar("readie_last_receipt", default=None)


@dataclass(frozen=True, slots=True)
class Job:
    """A function with its arguments, ready to be sent."""

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    findings: "Findings"
    by_value: str


class Client:
    """A service to run functions on. Thread-safe; close it, or use it in a ``with`` block.

    Without ``url`` it is found as `readie.configure` describes. ``show_logs=False`` keeps what
    calls print off stderr; it is in the errors and in ``call.logs`` all the same.
    """

    def __init__(
        self,
        url: str | None = None,
        auth_token: str | None = None,
        *,
        show_logs: bool = True,
        transport: "Transport | None" = None,
    ) -> None:
        self._address = (
            _settings.Address("http://in-process")
            if transport is not None
            else _settings.resolve(url, auth_token)
        )
        self._show_logs = show_logs
        self._transport = transport
        self._lock = threading.Lock()
        self._open_service: Service | None = None
        self._closed = False

    @property
    def url(self) -> str:
        return self._address.url

    def run(self, job: Job) -> Any:
        """Run and wait. Ctrl-C cancels the call where it runs, then raises KeyboardInterrupt."""
        from readie._steps import drive

        submission, progress = self._prepare(job)
        try:
            with self._explaining_size(job):
                ended = drive(self._service().run(submission, progress))
        except BaseException as error:
            if progress.call_id and not isinstance(error, Exception):
                with contextlib.suppress(Exception):
                    drive(self._service().cancel(progress.call_id, CANCEL_S))
            raise
        return self._finish(ended, progress)

    async def run_async(self, job: Job) -> Any:
        """As `run`. Cancelling the task cancels the call."""
        import asyncio

        from readie._steps import drive_async

        submission, progress = self._prepare(job)
        try:
            with self._explaining_size(job):
                ended = await drive_async(self._service().run(submission, progress))
        except BaseException as error:
            if progress.call_id and not isinstance(error, Exception):
                telling = drive_async(self._service().cancel(progress.call_id, CANCEL_S))
                with contextlib.suppress(Exception):
                    await asyncio.shield(asyncio.ensure_future(telling))
            raise
        return self._finish(ended, progress)

    def spawn(self, job: Job) -> "Call[Any]":
        """Start without waiting."""
        from readie._steps import drive

        submission, _ = self._prepare(job)
        with self._explaining_size(job):
            return self.call(drive(self._service().submit(submission)))

    async def spawn_async(self, job: Job) -> "Call[Any]":
        """As `spawn`, for coroutines."""
        from readie._steps import drive_async

        submission, _ = self._prepare(job)
        with self._explaining_size(job):
            return self.call(await drive_async(self._service().submit(submission)))

    def call(self, call_id: str) -> "Call[Any]":
        """The handle of a call that was started anywhere, by its id."""
        from readie._call import Call
        from readie._service import Progress

        return Call(self._service(), Progress(self._relay(), call_id))

    def workers(self) -> list[dict[str, Any]]:
        """The workers that the service has, as it describes them."""
        refuse_in_coroutine("client.workers()", "a thread")
        from readie._steps import drive

        return list(drive(self._service().get("/workers")).get("workers", []))

    def explain(self, job: Job) -> dict[str, Any]:
        """What the service would do with a call, and what it expects each checkpoint to cost."""
        from readie._steps import drive

        header, payload = self._packed(job)
        answer = drive(self._service().explain(header))
        answer["seen"] = [asdict(sighting) for sighting in payload.seen]
        answer["modules"] = list(header.modules)
        answer["dynamic"] = sorted(job.findings.dynamic)
        return answer

    def close(self) -> None:
        """Close the connections. Calls that were spawned go on."""
        with self._lock:
            self._closed = True
            self._open_service = None
            if self._transport is not None:
                self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<readie.Client {self.url}>"

    def _service(self) -> "Service":
        # Imported here: who only decorates functions pays for no network code.
        from readie._service import Service

        with self._lock:
            if self._closed:
                raise ClientClosedError("this client is closed; make another one")
            if self._open_service is None:
                if self._transport is None:
                    from readie._transport import HttpTransport

                    self._transport = HttpTransport(self._address.url)
                self._open_service = Service(
                    self._transport, self._address.auth_token, f"readie/{_version()}"
                )
            return self._open_service

    def _prepare(self, job: Job) -> "tuple[Submission, Progress]":
        from readie._service import Progress, Submission

        header, payload = self._packed(job)
        relay = self._relay() if job.options.get("stream_logs", True) else None
        return Submission.of(header, payload.data), Progress(relay)

    def _packed(self, job: Job) -> "tuple[CallHeader, Payload]":
        from readie._distributions import installed_versions
        from readie._pickling import pack

        payload = pack(
            job.function, job.args, job.kwargs, findings=job.findings, by_value=job.by_value
        )
        header = CallHeader(
            kind=CallKind.PICKLE,
            function=job.name,
            python=python_minor(),
            imports=payload.imports,
            distributions=installed_versions(payload.imports),
            modules=payload.modules,
            options=job.options,
            client=f"readie/{_version()}",
        )
        return header, payload

    def _relay(self) -> Callable[[LogLine], None] | None:
        return _to_stderr if self._show_logs else None

    def _finish(self, ended: "Ended", progress: "Progress") -> Any:
        from readie._results import value_of

        _last_receipt.set(ended.outcome.receipt)
        return value_of(ended, progress.logs)

    @contextlib.contextmanager
    def _explaining_size(self, job: Job) -> Iterator[None]:
        try:
            yield
        except InvalidRequestError as error:
            if error.code != ProblemCode.TOO_LARGE:
                raise
            from readie._pickling import largest_parts

            tree = largest_parts(job.function, job.args, job.kwargs, by_value=job.by_value)
            raise SerializationError(f"{error}. The largest parts:\n{tree}") from error


def configure(url: str | None = None, auth_token: str | None = None) -> None:
    """Say where the service is, for every function without a client of its own.

    Without it: ``READIE_URL`` and ``READIE_AUTH_TOKEN``; without those, the service that
    ``readie up`` runs on this machine. Raises `ConfigurationError`.
    """
    _default.replace(Client(url, auth_token))


@contextlib.contextmanager
def using(client: Client) -> Iterator[None]:
    """Make ``client`` the default inside the block, in every thread."""
    with _default.set_for_a_while(client):
        yield


def default_client() -> Client:
    """The client of functions that were given none; made at its first use."""
    return _default.get()


def last_receipt() -> "Receipt | None":
    """The receipt of the latest call of this thread or task that came to an end, or None."""
    return _last_receipt.get()


class _Default:
    def __init__(self) -> None:
        self._client: Client | None = None
        self._lock = threading.Lock()

    def get(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = Client()
            return self._client

    def replace(self, client: Client) -> None:
        with self._lock:
            previous, self._client = self._client, client
        if previous is not None:
            previous.close()

    @contextlib.contextmanager
    def set_for_a_while(self, client: Client) -> Iterator[None]:
        with self._lock:
            previous, self._client = self._client, client
        try:
            yield
        finally:
            with self._lock:
                self._client = previous


_default = _Default()


def _to_stderr(line: LogLine) -> None:
    # A stderr that is closed, or not there at all, is no reason for a call to fail.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line.text)
        sys.stderr.flush()


@functools.cache
def _version() -> str:
    import importlib.metadata  # 20 ms, for who makes a call

    try:
        return importlib.metadata.version("readie")
    except importlib.metadata.PackageNotFoundError:  # run from a folder, not installed
        return "unknown"
