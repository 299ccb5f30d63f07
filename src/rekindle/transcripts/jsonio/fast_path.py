"""A JSON document that is sound, taken apart by the parser, which is faster than any walk.

Nothing is built: every value stays raw until somebody decodes it, and knows where it stands, so that
what turns out to be wrong with it can be located. For documents that fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias, cast

import msgspec

# A larger document is walked through: the parser's list of its values takes memory too.
SMALL = 4 << 20

# A key or number, where its value stands in the text, and the value.
Part: TypeAlias = tuple[str | int, int, msgspec.Raw]

_Parts: TypeAlias = dict[str, msgspec.Raw] | list[msgspec.Raw]

_PARTS = msgspec.json.Decoder(_Parts)
# It always matches, if only nothing.
_before_item = cast("Callable[[bytes, int], re.Match[bytes]]", re.compile(rb"[\s,]*").match)
_BEFORE_VALUE = re.compile(rb'[\s,]*"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*:\s*')
_END = re.compile(rb"\s*\}")


class Sound:
    """The text of a document, what it is made of, and how far its lines are counted."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.line = 1
        self.counted = 0
        self.parts: list[Part] = []
        self.is_list = False

    @classmethod
    def of(cls, data: bytes) -> Sound | None:
        """The document, if there is one alone, an object or a list, and it is sound."""
        sound = cls(data)
        start = _before_item(data, 0).end()
        try:
            parts = sound.inside(data, start)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if parts is None:
            return None
        sound.is_list = sound.begins(start) == b"["
        sound.parts = parts
        return sound

    def inside(self, raw: msgspec.Raw | bytes, start: int) -> list[Part] | None:
        """What the object or list at `start` is made of.

        None where a key is there twice: the parser gives one value, and a walk gives both.
        """
        parts = cast(_Parts, _PARTS.decode(raw))
        data, at = self.data, start + 1
        found: list[Part] = []
        if isinstance(parts, list):
            for number, value in enumerate(parts):
                at = _before_item(data, at).end()
                found.append((number, at, value))
                at += len(value)
            return found
        for name, value in parts.items():
            gap = _BEFORE_VALUE.match(data, at)
            if gap is None or not data.startswith(value, gap.end()):
                return None
            found.append((name, gap.end(), value))
            at = gap.end() + len(value)
        return found if _END.match(data, at) else None

    def begins(self, at: int) -> bytes:
        """The character at a place."""
        return self.data[at : at + 1]

    def line_at(self, at: int) -> int:
        """The line of a place, which is never before the one that was asked for last."""
        if at > self.counted:
            self.line += self.data.count(b"\n", self.counted, at)
            self.counted = at
        return self.line
