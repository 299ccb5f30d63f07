"""Long texts cut to a length, with the cut said: the beginning and the end are kept."""

from __future__ import annotations

import codecs
import re

_MARK = "\n[… {count:,} characters left out …]\n"
_MARK_ROOM = len(_MARK.format(count=10**15))
# Colours and cursor movements of a terminal, titles of its window, and other unprintable characters.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[@-_]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def cut(text: str, limit: int) -> str:
    """`text`, or its head and tail with how many characters are missing between them."""
    if len(text) <= limit:
        return text
    room = max(limit - _MARK_ROOM, 0)
    head = room * 2 // 3
    tail = room - head
    mark = _MARK.format(count=len(text) - head - tail)
    return f"{text[:head]}{mark}{text[len(text) - tail :]}"[: max(limit, len(mark))]


def speakable(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot say, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def plain(text: str) -> str:
    """Output of a program without colours and control characters; overwritten lines stay apart."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("", text)


class HeadTail:
    """Collects output of any length in bounded memory; characters are never cut in two."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit * 2 // 3
        self._tail_room = limit - self._head_room
        self._head = ""
        self._tail = ""
        self._left_out = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        self._tail += text
        if len(self._tail) > 2 * self._tail_room:
            self._drop()

    def _drop(self) -> None:
        surplus = len(self._tail) - self._tail_room
        if surplus > 0:
            self._left_out += surplus
            self._tail = self._tail[surplus:]

    def text(self) -> str:
        """What was kept, with how many characters are missing."""
        self.feed(b"", final=True)
        self._drop()
        mark = _MARK.format(count=self._left_out) if self._left_out else ""
        return f"{self._head}{mark}{self._tail}"
