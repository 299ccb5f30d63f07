"""Truncate long texts in the middle, keeping beginning and end, and clean up program output."""

from __future__ import annotations

import codecs
import re

_OMISSION_MARK = "\n[… {count:,} characters left out …]\n"
_MARK_LENGTH = len(_OMISSION_MARK.format(count=10**15))
# Terminal colours, cursor movements and window titles; then other unprintable characters.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[@-_]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def truncate_middle(text: str, limit: int) -> str:
    """Return `text`, or its head and tail with the number of characters omitted between them."""
    if len(text) <= limit:
        return text
    room = max(limit - _MARK_LENGTH, 0)
    head = room * 2 // 3
    tail = room - head
    mark = _OMISSION_MARK.format(count=len(text) - head - tail)
    return f"{text[:head]}{mark}{text[len(text) - tail :]}"[: max(limit, len(mark))]


def strip_control_characters(text: str) -> str:
    """Strip colours and control characters from program output; overwritten lines stay separate."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("", text)


class HeadTailBuffer:
    """A bounded buffer for output of any length that never splits characters."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit * 2 // 3
        self._tail_room = limit - self._head_room
        self._head = ""
        self._tail = ""
        self._omitted = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        self._tail += text
        if len(self._tail) > 2 * self._tail_room:
            self._trim_tail()

    def _trim_tail(self) -> None:
        surplus = len(self._tail) - self._tail_room
        if surplus > 0:
            self._omitted += surplus
            self._tail = self._tail[surplus:]

    def get_text(self) -> str:
        """Return the kept output, with the number of characters omitted."""
        self.feed(b"", final=True)
        self._trim_tail()
        mark = _OMISSION_MARK.format(count=self._omitted) if self._omitted else ""
        return f"{self._head}{mark}{self._tail}"
