"""Control messages between the fork runtime and its zygotes: one JSON object a line.

The worker writes `StartRequest`; its connection, stdout and stderr travel beside it as file
descriptors, in this order. The zygote writes every reply as ``{"type": …}``:

ready    ``report``, once, when everything is imported and it may be forked
refused  ``reason``, ``package``, ``traceback``, once, instead of ``ready``; the zygote then ends
started  ``id``, ``pid``: the new process exists; it says HELLO on its connection
failed   ``id``, ``reason``: it could not be forked
stale    ``id``: packages on disk have changed since the imports; nothing was forked
exited   ``id``, ``status`` as of ``wait4``, ``peak_memory`` in bytes, ``cleared``: nothing was left in
         its folder, which is gone
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DESCRIPTORS = 3  # connection, stdout, stderr
MAX_LINE_BYTES = 4 << 20  # a report over thousands of modules stays far below


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One sandbox to start. ``fresh``: a new interpreter, nothing of the zygote's imports.

    ``folder`` is made for it and private to it; ``uid`` the user it runs as, `None` for the zygote's own.
    """

    id: str
    folder: str
    fresh: bool = False
    uid: int | None = None

    def to_json(self) -> dict[str, Any]:
        # Not dataclasses.asdict: it copies deeply, which took longer than the rest of the request.
        return {"id": self.id, "folder": self.folder, "fresh": self.fresh, "uid": self.uid}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            id=value["id"], folder=value["folder"], fresh=value["fresh"], uid=value.get("uid")
        )


def encode_line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class LineDecoder:
    """Cuts a byte stream into messages. Raises `ValueError` for what is not a line of JSON."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE_BYTES:
            raise ValueError(f"a control message is longer than {MAX_LINE_BYTES} bytes")
        return [json.loads(line) for line in lines]
