"""How long a service is waited for, and how often it is asked again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import requests
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import MaxRetryError, ReadTimeoutError
from urllib3.util import Retry

from readie_pipeline.errors import ServiceError

T = TypeVar("T")

DEADLINE_S = 30.0  # for one answer; public services take a second, and ten on a bad day
CONNECT_S = 10.0  # for a connection, where an answer may take longer
BUSY = frozenset({429, 500, 502, 503, 504})  # answers after which asking again may help


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds throughout.

    An answer may take ``deadline_s`` to begin, and to go on. It is asked for again ``retries``
    times, after ``pause_s`` that doubles each time, or after what the service asks for, if that is
    at most ``longest_pause_s``.
    """

    deadline_s: float = DEADLINE_S
    retries: int = 3
    pause_s: float = 0.5
    longest_pause_s: float = 60.0

    def session(self) -> requests.Session:
        """A session of `requests` with these limits on every request, POST included."""
        session = requests.Session()
        self.mount(session)
        return session

    def mount(self, session: requests.Session) -> None:
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Adapter(self))

    def ask(self, question: Callable[[], T]) -> T:
        """Ask again while it raises a `ServiceError` that names a pause within these limits."""
        pause_s = self.pause_s
        for _ in range(self.retries):
            try:
                return question()
            except ServiceError as error:
                if error.retry_after_s is None or error.retry_after_s > self.longest_pause_s:
                    raise
                time.sleep(max(error.retry_after_s, pause_s))
            pause_s *= 2
        return question()


class _Adapter(HTTPAdapter):
    """Without a time-out of its own `requests` waits for ever."""

    def __init__(self, patience: Patience) -> None:
        self._deadlines = (min(CONNECT_S, patience.deadline_s), patience.deadline_s)
        retry = _Retry(
            total=patience.retries,
            connect=min(1, patience.retries),  # where there is no network, all would wait for it
            read=0,  # a service that is slow would be waited for several times over
            backoff_factor=patience.pause_s,
            status_forcelist=BUSY,
            allowed_methods=None,  # nothing that is asked changes anything
            raise_on_status=False,
            retry_after_max=int(patience.longest_pause_s),
        )
        super().__init__(max_retries=retry)

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        options["timeout"] = options.get("timeout") or self._deadlines
        return super().send(*arguments, **options)


class _Retry(Retry):
    """Takes the answer as it is when the service asks for a longer pause than it will get."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        if response is not None and (self.get_retry_after(response) or 0) >= self.retry_after_max:
            raise MaxRetryError(_pool, url)  # type: ignore[arg-type] # nothing reads the pool
        return super().increment(method, url, response, error, _pool, _stacktrace)


def failure(service: str, error: Exception) -> ServiceError:
    """A foreign error of an exchange as ours, in words of ours: foreign ones may quote addresses."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is not None:
        return refusal(service, int(status))
    if isinstance(error, requests.JSONDecodeError):
        return ServiceError(f"{service} sends an answer that is cut short, or no JSON")
    if _is_late(error):
        return ServiceError(f"{service} does not answer in time")
    return ServiceError(f"{service} cannot be reached")


def _is_late(error: Exception) -> bool:
    """`requests` tells of a late answer as of a broken connection when it was to be asked again."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.Timeout) or isinstance(reason, ReadTimeoutError)


def refusal(service: str, status: int) -> ServiceError:
    """What an HTTP status of 400 and above says."""
    if status in (401, 403):
        return ServiceError(f"{service} refuses the credentials, or wants some ({status})")
    if status == 429:
        return ServiceError(f"{service} wants to be asked less often (429): try again later")
    return ServiceError(f"{service} answers {status}")
