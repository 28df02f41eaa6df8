"""Every Redis key of the system, in one place.

| key                          | type     | owner and end of life                                      |
|------------------------------|----------|------------------------------------------------------------|
| ``calls:{flavor}:{token}``   | stream   | queued calls; an entry is removed when its call is taken   |
| ``back:{flavor}:{token}``    | stream   | calls that a worker handed back; they are taken first      |
| ``ready:{flavor}``           | zset     | tokens with queued calls, scored by virtual time           |
| ``bell:{flavor}``            | stream   | wakes idle workers; trimmed to a few entries               |
| ``due``                      | zset     | call ids by the time (ms) at which they expire or are lost |
| ``session:{id}``             | hash     | an open session; once it has ended, its tombstone, TTL     |
| ``calls:session:{id}``       | stream   | a session's waiting calls; gone when none waits            |
| ``sessions``                 | zset     | open sessions by the time (ms) at which they are idle too  |
|                              |          | long; those with calls never are                           |
| ``call:{id}``                | hash     | the truth; TTL from its terminal state on                  |
| ``ev:{call}``                | stream   | accepted, log, item, result; TTL with the call             |
| ``subs:{call}``              | set      | gateways that wait for the call; TTL with the call         |
| ``events:{gateway}``         | stream   | a gateway's doorbells, which tell a short end along: a     |
|                              |          | hint, for any may be lost; bounded, TTL renewed by each    |
| ``ctl:{worker}``             | stream   | orders to a worker; TTL renewed by its beat                |
| ``held:{worker}``            | hash     | call ids the worker owns → take tickets; gone when empty   |
| ``worker:{boot}``            | hash     | a worker's advertisement; TTL renewed by its beat          |
| ``beat:{boot}``              | counter  | TTL renewed by its beat                                    |
| ``workers``                  | set      | boot ids; the sweep removes those that stopped beating     |
| ``news``                     | stream   | something was published: look; a few entries, TTL renewed  |
|                              |          | by each                                                    |
| ``recent:{token}``           | zset     | latest call ids of a token by creation time; bounded       |
| ``idem:{token}:{key}``       | string   | call id and body hash; TTL                                 |
| ``dead:{flavor}``            | stream   | parked calls; bounded, kept until dropped or requeued      |
| ``imports:{day}``            | hash     | import sets of the calls of a UTC day (``2026-11-29``), as |
|                              |          | JSON lists, and how many; bounded, TTL                     |

``{token}`` is a token's id, never its secret. Ids come from this system or are checked by
`check_id` before they become part of a key or a path.
"""

import re
import secrets
import time
from dataclasses import dataclass

from readie_wire.briefly import brief

DEFAULT_PREFIX = "readie:"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}")


class InvalidIdError(ValueError):
    """An id from outside holds characters that could climb out of a key or a path."""


def check_id(value: str, what: str = "id") -> str:
    """Return ``value`` when it is a safe id: 1 to 128 of letters, digits, ``_ . -``."""
    if not _ID.fullmatch(value) or ".." in value:
        raise InvalidIdError(
            f"{what} {brief(value)} is not valid: 1 to 128 letters, digits, '_', '-' or '.', "
            "starting with a letter or digit and without '..'"
        )
    return value


def new_call_id() -> str:
    """``call-`` and a UUIDv7 in hex: ids sort by creation time, also within a millisecond."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80
    # Twelve bits tell the part of the millisecond (RFC 9562, 6.2): a quarter of a microsecond each.
    value |= 0x7 << 76 | (rest << 12) // 1_000_000 << 64
    value |= 0b10 << 62 | secrets.randbits(62)
    return f"call-{value:032x}"


def new_session_id() -> str:
    return f"sess-{secrets.token_hex(16)}"


def new_boot_id(kind: str) -> str:
    """A fresh id for one run of a process, such as ``worker-9f…``."""
    return f"{kind}-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names below one prefix, so that several installations can share a server."""

    prefix: str = DEFAULT_PREFIX

    def calls(self, flavor: str, token: str) -> str:
        return f"{self.prefix}calls:{flavor}:{token}"

    def returned(self, flavor: str, token: str) -> str:
        return f"{self.prefix}back:{flavor}:{token}"

    def ready(self, flavor: str) -> str:
        return f"{self.prefix}ready:{flavor}"

    def bell(self, flavor: str) -> str:
        return f"{self.prefix}bell:{flavor}"

    @property
    def due(self) -> str:
        return f"{self.prefix}due"

    def session(self, session_id: str) -> str:
        return f"{self.prefix}session:{session_id}"

    def session_calls(self, session_id: str) -> str:
        return f"{self.prefix}calls:session:{session_id}"

    @property
    def sessions(self) -> str:
        return f"{self.prefix}sessions"

    def call(self, call_id: str) -> str:
        return f"{self.prefix}call:{call_id}"

    def events(self, call_id: str) -> str:
        return f"{self.prefix}ev:{call_id}"

    def subscribers(self, call_id: str) -> str:
        return f"{self.prefix}subs:{call_id}"

    def doorbell(self, gateway: str) -> str:
        return f"{self.prefix}events:{gateway}"

    def control(self, worker: str) -> str:
        return f"{self.prefix}ctl:{worker}"

    def held(self, worker: str) -> str:
        return f"{self.prefix}held:{worker}"

    def worker(self, boot: str) -> str:
        return f"{self.prefix}worker:{boot}"

    def beat(self, boot: str) -> str:
        return f"{self.prefix}beat:{boot}"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers"

    @property
    def news(self) -> str:
        return f"{self.prefix}news"

    def recent(self, token: str) -> str:
        return f"{self.prefix}recent:{token}"

    def idempotency(self, token: str, key: str) -> str:
        return f"{self.prefix}idem:{token}:{key}"

    def dead(self, flavor: str) -> str:
        return f"{self.prefix}dead:{flavor}"

    def imports(self, day: str) -> str:
        return f"{self.prefix}imports:{day}"
