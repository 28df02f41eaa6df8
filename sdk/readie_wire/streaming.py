"""Reads one JSON document piece by piece, so that a file of 400 MB needs the memory of its pieces."""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

_SPACE = " \t\n\r"


class JsonStream:
    """A document that arrives in chunks of bytes.

    The caller walks it in order: `members` of an object or `elements` of a list, and for each either of
    them again or `value`, which decodes whatever is there at once. Every method raises `ValueError` for what is
    not JSON, `RecursionError` for what is nested too deeply.
    """

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks = iter(chunks)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; take each one's value before going on."""
        self._expect("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise ValueError(f"a string expected as key, {key!r} found")  # noqa: TRY004 - not JSON
            self._expect(":")
            yield key
            if self._peek() == "}":
                self._at += 1
                return
            self._expect(",")

    def elements(self) -> Iterator[None]:
        """One turn for each element of the list that comes next; take it before going on."""
        self._expect("[")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._peek() == "]":
                self._at += 1
                return
            self._expect(",")

    def is_object(self) -> bool:
        return self._peek() == "{"

    def is_list(self) -> bool:
        return self._peek() == "["

    def value(self) -> Any:
        """The next value, decoded."""
        while True:
            self._peek()
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError:
                if self._read_more():
                    continue
                raise
            if end + len("e-") >= len(self._text) and self._read_more():
                continue  # a number may go on in the next chunk: "1", "1.", "1e-"
            self._at = end
            return value

    def end(self) -> None:
        """Nothing but space may follow."""
        if self._peek():
            raise ValueError("something follows the document's end")

    def _peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise ValueError(f"{character!r} expected, {self._peek() or 'the end'!r} found")
        self._at += 1

    def _read_more(self) -> bool:
        """Doubles what is there, so that a long value is not scanned again for every chunk.

        When nothing came, False, and every position stays as it was.
        """
        if self._ended:
            return False
        pieces = [self._text[self._at :]]
        wanted, length = 2 * len(pieces[0]), len(pieces[0])
        while length <= wanted and not self._ended:
            chunk = next(self._chunks, None)
            self._ended = chunk is None
            piece = self._decode(chunk or b"", self._ended)
            pieces.append(piece)
            length += len(piece)
        if length == len(pieces[0]):
            return False
        self._text, self._at = "".join(pieces), 0
        return True
