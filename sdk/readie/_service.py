"""What the SDK says to a service and how it reads the answers, as steps (see `readie._steps`).

A call is posted with an idempotency key, so that a lost answer is asked for again and never runs
twice. Its events are followed until the end, over as many exchanges as that takes; the number of
the last event seen makes sure that none is lost or shown twice.
"""

import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from readie._errors import (
    ClusterUnavailableError,
    InvalidRequestError,
    LogLine,
    ResultExpiredError,
    StillRunningError,
)
from readie._exchange import (
    Broken,
    Fault,
    Request,
    Response,
    Silent,
    Transport,
    Unreachable,
    read_all,
)
from readie._problems import problem_of
from readie._steps import Sleep, Steps
from readie_wire.envelope import CallHeader
from readie_wire.framing import Decoder, FrameType, Message, ProtocolError, encode_message
from readie_wire.http import (
    API_PREFIX,
    IDEMPOTENCY_KEY,
    MEDIA_CALL,
    MEDIA_FRAMES,
    MEDIA_JSON,
    PREFER,
    ProblemCode,
)
from readie_wire.outcome import Outcome

SILENCE_S = 60.0  # services send a sign of life every 15 s while a call runs
ANSWER_S = 30.0  # for what is answered at once
LAST_BYTES_S = 1.0  # for the end of an answer whose content is complete
MAX_JSON_BYTES = 64 << 20
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 2.0
UNREACHABLE_TRIES = 3  # of a service never heard of: a wrong address should be told soon
BROKEN_TRIES = 10  # some nine seconds; a service keeps a call for ten whose client has gone
_random = random.Random()  # noqa: S311 - spreads retries; the caller's own generator stays untouched


@dataclass(slots=True)
class Progress:
    """What is known of one call. ``relay`` gets each log line once, as it comes."""

    relay: Callable[[LogLine], None] | None = None
    call_id: str = ""
    seq: int = 0
    logs: list[LogLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ended:
    """``body`` is the result, or the pickled exception, as ``outcome.encoding`` says."""

    outcome: Outcome
    body: bytes


@dataclass(frozen=True, slots=True)
class Submission:
    """A call ready to be sent, as often as it takes: the same bytes under the same key."""

    body: Sequence[bytes]
    key: str

    @classmethod
    def of(cls, header: CallHeader, payload: bytes) -> "Submission":
        frames = encode_message(FrameType.CALL, header.to_json(), payload)
        return cls(tuple(frames), uuid.uuid4().hex)


class Service:
    """The routes of a service that the SDK uses."""

    def __init__(self, transport: Transport, auth_token: str, user_agent: str) -> None:
        self._transport = transport
        self._headers = {"User-Agent": user_agent}
        if auth_token:
            self._headers["Authorization"] = f"Bearer {auth_token}"

    def run(self, submission: Submission, progress: Progress) -> Steps[Ended]:
        """Post a call and follow it to its end."""
        post = self._post(submission, {"Accept": MEDIA_FRAMES})
        return (yield from self._until_ended(progress, post, None))

    def submit(self, submission: Submission) -> Steps[str]:
        """Post a call without waiting for it; gives its id."""
        post = self._post(submission, {"Accept": MEDIA_JSON, PREFER: "respond-async"})
        return str((yield from self._json(post))["call_id"])

    def follow(self, progress: Progress, deadline: float | None) -> Steps[Ended]:
        """Follow a call that is known by id. ``deadline`` is of `time.monotonic`.

        Raises `StillRunningError` at the deadline.
        """
        return (yield from self._until_ended(progress, None, deadline))

    def cancel(self, call_id: str, patience: float = ANSWER_S) -> Steps[None]:
        yield from self._json(self._request("DELETE", f"/calls/{call_id}", patience=patience))

    def get(self, path: str) -> Steps[dict[str, Any]]:
        return (yield from self._json(self._request("GET", path)))

    def get_lines(self, path: str) -> Steps[list[dict[str, Any]]]:
        """An answer of a JSON object a line."""
        body = yield from self._body(self._request("GET", path))
        return [json.loads(line) for line in body.splitlines() if line]

    def open_session(self, options: Mapping[str, Any]) -> Steps[str]:
        body = json.dumps({"options": dict(options)}).encode()
        opened = yield from self._json(self._request("POST", "/sessions", body=(body,)))
        return str(opened["session_id"])

    def end_session(self, session_id: str) -> Steps[None]:
        """One that has ended is left as it is, and so is one that ended so long ago as to be unknown."""
        try:
            yield from self._json(self._request("DELETE", f"/sessions/{session_id}"))
        except InvalidRequestError as error:
            if error.code != ProblemCode.NOT_FOUND:
                raise

    def requeue(self, call_id: str) -> Steps[str]:
        """Run a parked call once more; gives its new id."""
        answer = yield from self._json(self._request("POST", f"/dead/{call_id}/requeue"))
        return str(answer["call_id"])

    def drop_dead(self, call_id: str) -> Steps[None]:
        yield from self._json(self._request("DELETE", f"/dead/{call_id}"))

    def explain(self, header: CallHeader) -> Steps[dict[str, Any]]:
        asked = {key: header.to_json()[key] for key in ("imports", "modules", "options")}
        body = json.dumps(asked).encode()
        return (yield from self._json(self._request("POST", "/explain", body=(body,))))

    def _post(self, submission: Submission, headers: Mapping[str, str]) -> Request:
        headers = {
            **headers,
            "Content-Type": MEDIA_CALL,
            IDEMPOTENCY_KEY: submission.key,
        }
        return self._request("POST", "/invoke", headers, submission.body, SILENCE_S)

    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Sequence[bytes] = (),
        patience: float = ANSWER_S,
    ) -> Request:
        kind = {"Content-Type": MEDIA_JSON} if body else {}
        given = {"Accept": MEDIA_JSON, **kind, **self._headers, **(headers or {})}
        return Request(method, API_PREFIX + path, given, body, patience)

    def _until_ended(
        self, progress: Progress, post: Request | None, deadline: float | None
    ) -> Steps[Ended]:
        tries = _Tries()
        while True:
            seen = progress.seq
            if post is None or progress.call_id:
                path = f"/calls/{progress.call_id}/events?after={progress.seq}"
                patience = _patience(deadline, progress)
                request = self._request("GET", path, {"Accept": MEDIA_FRAMES}, (), patience)
            else:
                request = post
            try:
                response = yield from self._open(request)
                try:
                    ended = yield from _read_events(response, progress, deadline)
                finally:
                    response.close()
            except Fault as fault:
                if isinstance(fault, Silent):
                    _patience(deadline, progress)
                if progress.seq > seen:
                    tries = _Tries()
                yield from tries.failed(fault, known=bool(progress.call_id))
                continue
            if ended is not None:
                return ended
            tries = _Tries()

    def _json(self, request: Request) -> Steps[dict[str, Any]]:
        value = json.loads((yield from self._body(request)) or b"{}")
        return value if isinstance(value, dict) else {"value": value}

    def _body(self, request: Request) -> Steps[bytes]:
        tries = _Tries()
        while True:
            try:
                response = yield from self._open(request)
                try:
                    return (yield from read_all(response, ANSWER_S, MAX_JSON_BYTES))
                finally:
                    response.close()
            except Fault as fault:
                yield from tries.failed(fault)

    def _open(self, request: Request) -> Steps[Response]:
        """The response of an exchange that was not refused; a refusal is raised."""
        response = yield from self._transport.exchange(request)
        if response.head.status < 400:
            return response
        try:
            body = yield from read_all(response, ANSWER_S, MAX_JSON_BYTES)
        finally:
            response.close()
        raise problem_of(response.head, body)


class _Tries:
    """Counts the failures in a row and waits longer after each."""

    def __init__(self) -> None:
        self._count = 0

    def failed(self, fault: Fault, *, known: bool = False) -> Steps[None]:
        """``known``: the service has answered before, so its address is right."""
        self._count += 1
        strange = isinstance(fault, Unreachable) and not known
        allowed = UNREACHABLE_TRIES if strange else BROKEN_TRIES
        if self._count >= allowed:
            raise ClusterUnavailableError(
                f"the service cannot be reached ({fault}); is it running, and is the address right?"
            ) from fault
        delay = min(FIRST_DELAY_S * 2 ** (self._count - 1), MAX_DELAY_S)
        yield Sleep(delay * _random.uniform(0.5, 1.0))


def _patience(deadline: float | None, progress: Progress) -> float:
    """How long to wait for the next sign. Raises `StillRunningError` when the time is over."""
    if deadline is None:
        return SILENCE_S
    left = deadline - time.monotonic()
    if left <= 0:
        raise StillRunningError(
            f"{progress.call_id} has not ended within the time given; it goes on"
        )
    return min(left, SILENCE_S)


def _read_events(
    response: Response, progress: Progress, deadline: float | None
) -> Steps[Ended | None]:
    """The end of the call, or None when the service wants to be asked again."""
    decoder = Decoder()
    try:
        while data := (yield from response.read(_patience(deadline, progress))):
            for message in decoder.feed(data):
                if (ended := _note(message, progress)) is not None:
                    # The body's own end follows: reading it lets the connection be used again.
                    with contextlib.suppress(Fault):
                        yield from read_all(response, LAST_BYTES_S, 0)
                    return ended
                if message.type is FrameType.BYE:
                    _check_goodbye(message)
                    return None
    except ProtocolError as error:
        raise Broken(f"the answer is not made of frames: {error}") from error
    raise Broken("the answer broke off")


def _note(message: Message, progress: Progress) -> Ended | None:
    header = message.header
    match message.type:
        case FrameType.ACCEPTED:
            progress.call_id = str(header["call_id"])
        case FrameType.LOG:
            line = LogLine(str(header["stream"]), str(header["text"]), int(header["seq"]))
            if line.seq > progress.seq:
                progress.seq = line.seq
                progress.logs.append(line)
                if progress.relay is not None:
                    progress.relay(line)
        case FrameType.RESULT | FrameType.ERROR:
            progress.call_id = str(header.get("call_id", progress.call_id))
            return Ended(Outcome.from_json(header["outcome"]), message.body)
    return None


def _check_goodbye(message: Message) -> None:
    """The call goes on and this answer does not: because its time is over, or for a reason."""
    reason = message.header.get("reason")
    if reason == ProblemCode.RESULT_EXPIRED:
        raise ResultExpiredError("the call has ended, and its result is no longer kept")
    if reason != "window":
        raise Broken(f"the service broke off: {reason}")
