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
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from rekindle.transcripts.events import Damage

from .fast_path import SMALL, Sound

_CHUNK = 1 << 20
# A string that is closed, a quote whose string goes on behind the buffer, or punctuation.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[{}\[\],:]', re.DOTALL)
# Outside of documents, where others write prose, commas mean nothing.
_OUTSIDE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
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
        if os.fstat(file.fileno()).st_size <= SMALL:
            if (sound := Sound.of(file.read())) is not None:
                yield from _pieces_of(sound, lists)
                return
            file.seek(0)
        walk = Walk(file, lists)
        yield from walk.pieces()
        if walk.depth:
            what = f"the document ends in the middle, {walk.depth} brackets deep"
            yield Damage(str(path), walk.line_at(len(walk.buffer)), what)


def _pieces_of(sound: Sound, lists: Collection[str]) -> Iterator[Piece]:
    for name, at, raw in sound.parts:
        if isinstance(name, int):
            yield Piece(0, sound.line_at(at), None, name, bytes(raw))
        elif name in lists and sound.begins(at) == b"[":
            for item, place, element in sound.inside(raw, at) or ():
                yield Piece(0, sound.line_at(place), name, cast(int, item), bytes(element))
        else:
            yield Piece(0, sound.line_at(at), name, None, bytes(raw))


class Walk:
    """Where in the text we are, and how deep."""

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
        return (_TOKEN if self.depth else _OUTSIDE).search(self.buffer, position)

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
