"""One large JSON document in pieces, so that reading it costs the memory of its largest piece.

Formats that keep a whole session in one document put the messages into one list, either at the
top or under a key. `pieces` walks the text without building anything, gives each element of that
list and each other value of the top as raw bytes, and goes on to the next document if there is
one. What follows a cut is lost, what came before it is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from .fields import Record
from .lines import decode
from .transcript import Damage

_CHUNK = 1 << 20
_SMALL = 4 << 20
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# A string that is closed, a quote whose string goes on behind the buffer, or punctuation.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[{}\[\],:]', re.DOTALL)
# Inside a piece only brackets matter: this runs over what comes before the next one, and over
# nothing where a string goes on behind the buffer. (With a bound, since repeating costs memory.)
_BRACKET = re.compile(
    rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"){0,1000}+([{}\[\]]?)', re.DOTALL
)


class Piece(NamedTuple):
    """One value of a document: an element of its list (`item`), or the value of a key."""

    document: int
    line: int
    key: str | None
    item: int | None
    data: bytes


def pieces(path: Path, lists: Collection[str]) -> Iterator[Piece | Damage]:
    """The pieces of the documents in a file. `lists` names the keys whose lists are taken apart."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= _SMALL:
            data = file.read()
            if (whole := _decoded(data)) is not None:
                yield from _pieces_of(whole, data, lists)
                return
            file.seek(0)
        walk = _Walk(file, lists)
        yield from walk.pieces()
        if walk.depth:
            what = f"the document ends in the middle, {walk.depth} brackets deep"
            yield Damage(str(path), walk.line_at(len(walk.buffer)), what)


def _decoded(data: bytes) -> dict[str, msgspec.Raw] | list[msgspec.Raw] | None:
    """A small document that is sound, its values still raw: the parser is faster than any walk."""
    try:
        return _TOP.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _pieces_of(
    whole: dict[str, msgspec.Raw] | list[msgspec.Raw], data: bytes, lists: Collection[str]
) -> Iterator[Piece]:
    place, line = 0, 1

    def piece(key: str | None, item: int | None, raw: msgspec.Raw) -> Piece:
        nonlocal place, line
        value = bytes(raw)
        begins = data.find(value, place)
        line += data.count(b"\n", place, begins)
        place = begins
        return Piece(0, line, key, item, value)

    if isinstance(whole, list):
        for item, raw in enumerate(whole):
            yield piece(None, item, raw)
        return
    for key, raw in whole.items():
        if key in lists and bytes(memoryview(raw)[:1]) == b"[":
            for item, element in enumerate(_LIST.decode(raw)):
                yield piece(key, item, element)
        else:
            yield piece(key, None, raw)


def opening(data: bytes, lists: Collection[str]) -> bytes:
    """The first element of the list in a document that begins like `data`, as far as it goes."""
    # Each format that is asked about a file wants to see another list, and it is mostly not there.
    if data.startswith(b"{") and not any(b'"%s"' % name.encode() in data for name in lists):
        return b""
    walk = _Walk(BytesIO(data), lists)
    for piece in walk.pieces():
        if piece.item is not None:
            return piece.data
    return walk.buffer[walk.start :] if walk.index is not None else b""


@lru_cache(maxsize=4)
def fields_so_far(data: bytes) -> Record:
    """The fields of an object that may be cut; of the last one only its kind is known."""
    if data.rstrip().endswith(b"}"):
        try:
            whole = decode(data)
        except ValueError:
            pass
        else:
            return cast(Record, whole) if isinstance(whole, dict) else {}
    walk = _Walk(BytesIO(data), ())
    found: Record = {}
    for piece in walk.pieces():
        if piece.document or piece.key is None:
            return found
        try:
            found[piece.key] = decode(piece.data)
        except ValueError:
            continue
    if walk.depth and walk.key is not None:
        begins = walk.buffer[walk.start :].lstrip()[:1]
        found[walk.key] = {} if begins == b"{" else [] if begins == b"[" else ""
    return found


class _Walk:
    """Where in the text we are."""

    def __init__(self, file: BinaryIO, lists: Collection[str]) -> None:
        self.file = file
        self.lists = lists
        self.buffer = b""
        self.line = 1
        self.counted = 0
        self.start = 0
        self.depth = 0
        self.level = 1
        self.document = -1
        self.index: int | None = None
        self.key: str | None = None
        self.name: bytes | None = None

    def line_at(self, position: int) -> int:
        """The line of a position, which is never before the one that was asked for last."""
        self.line += self.buffer.count(b"\n", self.counted, position)
        self.counted = max(position, self.counted)
        return self.line

    def pieces(self) -> Iterator[Piece]:
        for token, begin, end in self._tokens():
            if token in b"{[":
                self._descend(token, end)
            elif token in b"}]":
                yield from self._ascend(begin, end)
            elif token == b"," and self.depth == self.level:
                yield from self._piece(begin)
                self._next(end)
            elif token == b":" and self.depth == self.level == 1 and self.key is None:
                self.key = _key(self.name)
                self.start = end
            elif token[:1] == b'"' and self.depth == 1:
                self.name = token

    def _tokens(self) -> Iterator[tuple[bytes, int, int]]:
        """The tokens of the file. Positions are good until the next one is asked for."""
        position, size = 0, _CHUNK
        while chunk := self.file.read(size):
            # Only the piece that is being gathered has to stay.
            keep = min(self.start, position) if self.depth else position
            self.line_at(keep)
            self.buffer = self.buffer[keep:] + chunk
            self.start, position = max(0, self.start - keep), position - keep
            self.counted -= keep
            # While a string stays open, read twice as much: to read a long one stays linear.
            size *= 2
            while match := self._match(position):
                begin, end = match.span(match.lastindex or 0)
                if end == position or self.buffer[begin:end] == b'"':
                    position = begin
                    break
                position, size = end, _CHUNK
                if begin < end:
                    yield self.buffer[begin:end], begin, end
            else:
                position = len(self.buffer)

    def _match(self, position: int) -> re.Match[bytes] | None:
        if position == len(self.buffer):
            return None
        if self.depth > self.level:
            return _BRACKET.match(self.buffer, position)
        return _TOKEN.search(self.buffer, position)

    def _descend(self, token: bytes, end: int) -> None:
        self.depth += 1
        if self.depth == 1:
            self.document += 1
            self.level, self.key, self.name = 1, None, None
            self.index = 0 if token == b"[" else None
            self.start = end
        elif self.depth == 2 and token == b"[" and self.key in self.lists and self.level == 1:
            self.level, self.index, self.start = 2, 0, end

    def _ascend(self, begin: int, end: int) -> Iterator[Piece]:
        if self.depth == self.level:
            yield from self._piece(begin)
            if self.level == 2:
                # The list is done; what is left of its key's value is nothing.
                self.level, self.index, self.key, self.start = 1, None, None, end
        self.depth = max(0, self.depth - 1)

    def _piece(self, end: int) -> Iterator[Piece]:
        data = self.buffer[self.start : end].strip()
        if data and (self.index is not None or self.key is not None):
            line = self.line_at(self.buffer.find(data[:1], self.start))
            yield Piece(self.document, line, self.key, self.index, data)

    def _next(self, end: int) -> None:
        self.start = end
        if self.index is None:
            self.key = None
        else:
            self.index += 1


def _key(token: bytes | None) -> str | None:
    try:
        return msgspec.json.decode(token or b"null", type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
