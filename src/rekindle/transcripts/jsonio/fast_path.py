"""Fast path for small, valid JSON documents: the parser splits them, which is faster than scanning.

Values stay raw until they are decoded, and keep their offset so that errors can be located. Only for
documents that fit into memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, cast

import msgspec

# Larger documents are scanned, because the parser's list of values takes memory too.
MAX_PARSED_BYTES = 4 << 20

# A key or index, the offset of its value in the text, and the raw value.
RawMember: TypeAlias = tuple[str | int, int, msgspec.Raw]

_RawContainer: TypeAlias = dict[str, msgspec.Raw] | list[msgspec.Raw]

_CONTAINER_DECODER = msgspec.json.Decoder(_RawContainer)
_PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# It always matches, possibly the empty string.
_match_gap = cast("Callable[[bytes, int], re.Match[bytes]]", re.compile(rb"[\s,]*").match)
_KEY_GAP = re.compile(rb'[\s,]*"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*:\s*')
_OBJECT_END = re.compile(rb"\s*\}")


def is_document(path: Path) -> bool:
    """Return whether the whole content of a small file is one valid object or list."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_PARSED_BYTES:
            return False
        try:
            _CONTAINER_DECODER.decode(file.read())
        except _PARSE_ERRORS:
            return False
    return True


class ParsedDocument:
    """A valid document split into its top-level members."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.line = 1
        self.counted_to = 0
        self.members: list[RawMember] = []
        self.is_list = False

    @classmethod
    def parse(cls, data: bytes) -> ParsedDocument | None:
        """Parse `data`; return None unless it is a single valid object or list."""
        document = cls(data)
        start = _match_gap(data, 0).end()
        try:
            members = document.split_container(data, start)
        except _PARSE_ERRORS:
            return None
        if members is None:
            return None
        document.is_list = document.get_byte(start) == b"["
        document.members = members
        return document

    def split_container(self, raw: msgspec.Raw | bytes, start: int) -> list[RawMember] | None:
        """Return the members of the object or list at `start`.

        Return None if a key is repeated: the parser keeps one value, a scan yields both.
        """
        container = cast(_RawContainer, _CONTAINER_DECODER.decode(raw))
        data, offset = self.data, start + 1
        members: list[RawMember] = []
        if isinstance(container, list):
            for number, value in enumerate(container):
                offset = _match_gap(data, offset).end()
                members.append((number, offset, value))
                offset += len(value)
            return members
        for name, value in container.items():
            gap = _KEY_GAP.match(data, offset)
            if gap is None or not data.startswith(value, gap.end()):
                return None
            members.append((name, gap.end(), value))
            offset = gap.end() + len(value)
        return members if _OBJECT_END.match(data, offset) else None

    def get_byte(self, offset: int) -> bytes:
        """Return the byte at an offset."""
        return self.data[offset : offset + 1]

    def count_line(self, offset: int) -> int:
        """Return the line of an offset, which must not precede the one asked for last."""
        if offset > self.counted_to:
            self.line += self.data.count(b"\n", self.counted_to, offset)
            self.counted_to = offset
        return self.line
