"""Streaming reader for large JSON documents, using only the memory of the largest element.

Formats that keep a whole session in one document put the messages into one list, at the top level or
under a key. `iter_elements` scans the text without building objects, yields each element of that list
and each other top-level value as raw bytes, and continues with the next document, if any. In a
truncated file, everything before the cut is still read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec

from rekindle.transcripts.events import UnreadableEntry

from .fast_path import MAX_PARSED_BYTES, ParsedDocument
from .jsonl import decode_json

_ELEMENT_CHUNK_BYTES = 1 << 20
# A closed string, a quote whose string continues beyond the buffer, or punctuation.
_ELEMENT_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[{}\[\],:]', re.DOTALL)
# Between documents there may be prose, so commas have no meaning there.
_OUTSIDE_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
# Inside an element only brackets matter: this skips everything up to the next one, or nothing if a
# string continues beyond the buffer. (Bounded, because repetition costs memory.)
_BRACKET = re.compile(
    rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"){0,1000}+([{}\[\]]?)', re.DOTALL
)


class Element(NamedTuple):
    """One value of a document: an element of its list (with `position`), or the value of a key."""

    document: int
    line: int
    key: str | None
    position: int | None
    data: bytes


class DecodedElement(NamedTuple):
    """An element and its value."""

    document: int
    line: int
    key: str | None
    position: int | None
    value: Any


def iter_elements(path: Path, lists: Collection[str]) -> Iterator[Element | UnreadableEntry]:
    """Yield the elements of the documents in a file.

    `lists` names the keys whose lists are split into elements.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= MAX_PARSED_BYTES:
            if (parsed := ParsedDocument.parse(file.read())) is not None:
                yield from _iter_parsed_elements(parsed, lists)
                return
            file.seek(0)
        stream = JsonStream(file, lists)
        yield from stream.read_elements()
        if stream.depth:
            reason = f"unexpected end of document, {stream.depth} levels deep"
            yield UnreadableEntry(str(path), stream.count_line(len(stream.buffer)), reason)


def iter_decoded_elements(
    path: Path, lists: Collection[str], wanted_keys: Collection[str] | None = None
) -> Iterator[DecodedElement | UnreadableEntry]:
    """Yield the elements of the documents in a file as values, and an entry for each that is not JSON.

    With `wanted_keys`, values of other keys are skipped.
    """
    for element in iter_elements(path, lists):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        document, line, key, position, data = element
        if wanted_keys is not None and key not in wanted_keys:
            continue
        try:
            yield DecodedElement(document, line, key, position, decode_json(data))
        except ValueError as error:
            where = f"{key:.80}: " if key else ""
            yield UnreadableEntry(str(path), line, f"{where}not JSON: {error}")


def _iter_parsed_elements(parsed: ParsedDocument, lists: Collection[str]) -> Iterator[Element]:
    for name, offset, raw in parsed.members:
        if isinstance(name, int):
            yield Element(0, parsed.count_line(offset), None, name, bytes(raw))
        elif name in lists and parsed.get_byte(offset) == b"[":
            for item, element_offset, element in parsed.split_container(raw, offset) or ():
                yield Element(
                    0, parsed.count_line(element_offset), name, cast(int, item), bytes(element)
                )
        else:
            yield Element(0, parsed.count_line(offset), name, None, bytes(raw))


class JsonStream:
    """A scanner over the text of JSON documents that tracks position and depth."""

    def __init__(self, file: BinaryIO, lists: Collection[str]) -> None:
        self.file = file
        self.lists = lists
        self.buffer = b""
        self.line = 1
        self.counted_to = 0
        self.start = 0
        self.depth = 0
        self.list_depth = 1
        self.document = -1
        self.index: int | None = None
        self.key: str | None = None
        self.last_string: bytes | None = None

    def count_line(self, position: int) -> int:
        """Return the line of a position, which must not precede the one asked for last."""
        self.line += self.buffer.count(b"\n", self.counted_to, position)
        self.counted_to = max(position, self.counted_to)
        return self.line

    def read_elements(self) -> Iterator[Element]:
        """Yield the elements of all documents in the stream."""
        for token, begin, end in self._iter_tokens():
            if token in b"{[":
                self._descend(token, end)
            elif token in b"}]":
                yield from self._ascend(begin, end)
            elif token == b"," and self.depth == self.list_depth:
                yield from self._read_element(begin)
                self._start_next(end)
            elif token == b":" and self.depth == self.list_depth == 1 and self.key is None:
                self.key = _decode_key(self.last_string)
                self.start = end
            elif token[:1] == b'"' and self.depth == 1:
                self.last_string = token

    def _iter_tokens(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield the file's tokens. Positions are valid until the next token is requested."""
        position, size = 0, _ELEMENT_CHUNK_BYTES
        while chunk := self.file.read(size):
            # Keep only the element being read.
            keep = min(self.start, position) if self.depth else position
            self.count_line(keep)
            self.buffer = self.buffer[keep:] + chunk
            self.start, position = max(0, self.start - keep), position - keep
            self.counted_to -= keep
            # Double the read size while a string is open, so that long strings stay linear.
            size *= 2
            while match := self._match_token(position):
                begin, end = match.span(match.lastindex or 0)
                if end == position or self.buffer[begin:end] == b'"':
                    position = begin
                    break
                position, size = end, _ELEMENT_CHUNK_BYTES
                if begin < end:
                    yield self.buffer[begin:end], begin, end
            else:
                position = len(self.buffer)

    def _match_token(self, position: int) -> re.Match[bytes] | None:
        if position == len(self.buffer):
            return None
        if self.depth > self.list_depth:
            return _BRACKET.match(self.buffer, position)
        return (_ELEMENT_TOKEN if self.depth else _OUTSIDE_TOKEN).search(self.buffer, position)

    def _descend(self, token: bytes, end: int) -> None:
        self.depth += 1
        if self.depth == 1:
            self.document += 1
            self.list_depth, self.key, self.last_string = 1, None, None
            self.index = 0 if token == b"[" else None
            self.start = end
        elif self.depth == 2 and token == b"[" and self.key in self.lists and self.list_depth == 1:
            self.list_depth, self.index, self.start = 2, 0, end

    def _ascend(self, begin: int, end: int) -> Iterator[Element]:
        if self.depth == self.list_depth:
            yield from self._read_element(begin)
            if self.list_depth == 2:
                # The list has ended, and with it the value of its key.
                self.list_depth, self.index, self.key, self.start = 1, None, None, end
        self.depth = max(0, self.depth - 1)

    def _read_element(self, end: int) -> Iterator[Element]:
        data = self.buffer[self.start : end].strip()
        if data and (self.index is not None or self.key is not None):
            line = self.count_line(self.buffer.find(data[:1], self.start))
            yield Element(self.document, line, self.key, self.index, data)

    def _start_next(self, end: int) -> None:
        self.start = end
        if self.index is None:
            self.key = None
        else:
            self.index += 1


def _decode_key(token: bytes | None) -> str | None:
    try:
        return msgspec.json.decode(token or b"null", type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
