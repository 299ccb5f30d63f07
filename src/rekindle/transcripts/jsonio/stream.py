"""Streaming reader for JSON documents with nested lists, value by value.

A file may hold a list of sessions, each with its list of messages. `iter_values` descends as far as
`should_descend` allows and yields every value there with its path, so that reading costs the memory of
the largest value (or of a line, for one document per line). A value that is not JSON is reported and
skipped; in a truncated file, everything before the cut is still read.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import UnreadableEntry

from .fast_path import MAX_PARSED_BYTES, ParsedDocument, RawMember
from .jsonl import MAX_LINE_BYTES, decode_json, read_json_lines

JsonPath: TypeAlias = tuple[str | int, ...]

_VALUE_CHUNK_BYTES = 1 << 18
# Deeper containers are yielded whole, because paths of any length would cost unbounded memory.
_MAX_DEPTH = 128
_MAX_KEY_LENGTH = 1 << 16
_DECODER = json.JSONDecoder(parse_constant=lambda _: None, strict=False)
_VALUE_DELIMITERS = frozenset(",]} \t\r\n")
_SPACE = re.compile(r"[\s\ufeff]*")
_KEY = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*:', re.DOTALL)
# A closed string, a quote whose string continues beyond the buffer, or punctuation.
_VALUE_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[{}\[\],]', re.DOTALL)


class JsonValue(NamedTuple):
    """A value that was not descended into, and the keys and indexes that lead to it."""

    document: int
    line: int
    path: JsonPath
    value: Any


class ContainerEnd(NamedTuple):
    """Marks the end of a container that was descended into."""

    document: int
    path: JsonPath


StreamItem: TypeAlias = JsonValue | ContainerEnd | UnreadableEntry


def iter_values(path: Path, should_descend: Callable[[JsonPath], bool]) -> Iterator[StreamItem]:
    """Yield a file's values. With one document per line, a bad line does not affect the others."""
    if FileHead.read(path).has_document_per_line:
        for document, entry in enumerate(read_json_lines(path)):
            if isinstance(entry, UnreadableEntry):
                yield entry
            else:
                yield from _iter_decoded(
                    JsonValue(document, entry[0], (), entry[1]), should_descend
                )
    else:
        yield from iter_document_values(path, should_descend)


def iter_document_values(
    path: Path, should_descend: Callable[[JsonPath], bool]
) -> Iterator[StreamItem]:
    """Yield the values of a file whose documents are not on lines of their own."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= MAX_PARSED_BYTES:
            if (parsed := ParsedDocument.parse(file.read())) is not None:
                yield from _iter_parsed(parsed, str(path), should_descend)
                return
            file.seek(0)
        yield from iter_stream_values(file, str(path), should_descend)


def _iter_decoded(
    container: JsonValue, should_descend: Callable[[JsonPath], bool]
) -> Iterator[StreamItem]:
    """Yield the items that streaming the text of this decoded container would yield."""
    document, line, json_path, value = container
    if isinstance(value, dict):
        children = list(cast("dict[str, Any]", value).items())
    else:
        children = list(enumerate(cast("list[Any]", value)))
    for key, child in children:
        child_value = JsonValue(document, line, (*json_path, key), child)
        if (
            isinstance(child, (dict, list))
            and len(json_path) < _MAX_DEPTH
            and should_descend(child_value.path)
        ):
            yield from _iter_decoded(child_value, should_descend)
        else:
            yield child_value
    yield ContainerEnd(document, json_path)


def _iter_parsed(
    parsed: ParsedDocument, name: str, should_descend: Callable[[JsonPath], bool]
) -> Iterator[StreamItem]:
    """Yield the items that streaming a valid document would yield."""
    data, count_line = parsed.data, parsed.count_line
    json_path: JsonPath = ()
    members = iter(parsed.members)
    parents: list[tuple[Iterator[RawMember], JsonPath]] = []
    while True:
        for key, offset, raw in members:
            child_path: JsonPath = (*json_path, key)
            line = count_line(offset)
            if (
                data[offset] in b"{["
                and len(child_path) < _MAX_DEPTH
                and should_descend(child_path)
            ):
                child_members = parsed.split_container(raw, offset)
                if child_members is None:
                    yield from _ValueStream(
                        BytesIO(bytes(raw)), name, should_descend, child_path, line
                    ).read_items()
                    continue
                parents.append((members, json_path))
                members, json_path = iter(child_members), child_path
                break
            try:
                value = decode_json(raw)
            except ValueError as error:
                yield UnreadableEntry(name, line, f"{_format_path(child_path)}: not JSON: {error}")
            else:
                yield JsonValue(0, line, child_path, value)
        else:
            yield ContainerEnd(0, json_path)
            if not parents:
                return
            members, json_path = parents.pop()


def iter_stream_values(
    file: BinaryIO, name: str, should_descend: Callable[[JsonPath], bool]
) -> Iterator[StreamItem]:
    """Yield the values of the documents in `file`, descending where `should_descend` allows.

    The path of a document is `()`, and it is always descended into. `name` is the file name used in
    reports.
    """
    return _ValueStream(file, name, should_descend).read_items()


class _OpenContainer:
    """A container that is being read."""

    def __init__(self, path: JsonPath, is_list: bool) -> None:
        self.path = path
        self.is_list = is_list
        self.index = 0


class _ValueStream:
    """A scanner over the text of JSON documents."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        should_descend: Callable[[JsonPath], bool],
        root: JsonPath = (),
        line: int = 1,
    ) -> None:
        self.file = file
        self.root = root
        self.name = name
        self.should_descend = should_descend
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""
        self.offset = 0
        self.line = line
        self.counted_to = 0
        self.document = -1
        self.stack: list[_OpenContainer] = []

    def read_items(self) -> Iterator[StreamItem]:
        """Yield the values and container ends of all documents."""
        while char := self._peek():
            if len(self.text) - self.offset > MAX_LINE_BYTES:
                yield self._report(
                    f"value is longer than {MAX_LINE_BYTES >> 20} MiB; the rest is skipped"
                )
                return
            if not self.stack:
                yield from self._read_document_start(char)
            elif char in "]}":
                self.offset += 1
                yield ContainerEnd(self.document, self.stack.pop().path)
            elif char == ",":
                self.offset += 1
            else:
                yield from self._read_child(self.stack[-1])
        if self.stack:
            yield self._report(f"unexpected end of document, {len(self.stack)} levels deep")

    def _read_document_start(self, char: str) -> Iterator[UnreadableEntry]:
        if char in "{[":
            self.document += 1
            self._open_container(self.root, char)
            return
        start = self.offset
        while (end := self.text.find("\n", self.offset)) < 0 and self._read_more():
            start = self.offset
        line = self.text[start : end if end >= 0 else len(self.text)]
        if not line.startswith("//"):
            yield self._report("expected a JSON document")
        self.offset = start + len(line)

    def _read_child(self, frame: _OpenContainer) -> Iterator[StreamItem]:
        if frame.is_list:
            json_path = (*frame.path, frame.index)
            frame.index += 1
        else:
            key = self._read_key()
            if key is None:
                yield self._report(f"{_format_path(frame.path)}: expected a key")
                self._skip_value()
                return
            json_path = (*frame.path, key)
        char = self._peek()
        if char in ("{", "[") and len(self.stack) < _MAX_DEPTH and self.should_descend(json_path):
            self._open_container(json_path, char)
        elif char not in ("", ",", "]", "}"):
            yield from self._read_value(json_path)

    def _open_container(self, json_path: JsonPath, char: str) -> None:
        self.offset += 1
        self.stack.append(_OpenContainer(json_path, char == "["))

    def _read_value(self, json_path: JsonPath) -> Iterator[StreamItem]:
        line = self._count_line()
        try:
            value, end = _DECODER.raw_decode(self.text, self.offset)
        except (ValueError, RecursionError):
            end, value = len(self.text), None
        # The first digits of a number that continues beyond the buffer are a number too.
        if self.text[end : end + 1] in _VALUE_DELIMITERS:
            self.offset = end
            yield JsonValue(self.document, line, json_path, value)
            return
        # It continues beyond the buffer or is not JSON: find its end by its brackets.
        whole = self._skip_value()
        if whole is None:
            return
        try:
            yield JsonValue(self.document, line, json_path, _DECODER.decode(whole))
        except ValueError as error:
            yield UnreadableEntry(self.name, line, f"{_format_path(json_path)}: not JSON: {error}")
        except RecursionError:
            yield UnreadableEntry(self.name, line, f"{_format_path(json_path)}: nested too deeply")

    def _skip_value(self) -> str | None:
        """Skip a value and return its text, or None if the file ends first."""
        depth, position, size = 0, self.offset, _VALUE_CHUNK_BYTES
        while True:
            match = _VALUE_TOKEN.search(self.text, position)
            if match is None or (match[0] == '"' and match.end() - match.start() == 1):
                position = match.start() if match else len(self.text)
                position -= self.offset
                if len(self.text) - self.offset > MAX_LINE_BYTES:
                    return None
                if not self._read_more(size):
                    self.offset = len(self.text)
                    return None
                # Double the read size for long values, so that reading stays linear.
                size *= 2
                position += self.offset
                continue
            token = match[0]
            if depth == 0 and token in ",]}":
                whole = self.text[self.offset : match.start()]
                self.offset = match.start()
                return whole
            depth += 1 if token in "{[" else -1 if token in "]}" else 0
            position = match.end()

    def _read_key(self) -> str | None:
        match = _KEY.match(self.text, self.offset)
        while (
            match is None and len(self.text) - self.offset < _MAX_KEY_LENGTH and self._read_more()
        ):
            match = _KEY.match(self.text, self.offset)
        if match is None:
            return None
        self.offset = match.end()
        try:
            return _DECODER.decode(match[1])
        except ValueError:
            return match[1][1:-1]

    def _peek(self) -> str:
        """Return the next non-space character without consuming it; empty at the end."""
        while True:
            match = _SPACE.match(self.text, self.offset)
            self.offset = match.end() if match else self.offset
            if self.offset < len(self.text):
                return self.text[self.offset]
            if not self._read_more():
                return ""

    def _read_more(self, size: int = _VALUE_CHUNK_BYTES) -> bool:
        """Read another chunk, drop consumed text, and restart offsets from the new beginning."""
        chunk = self.file.read(size)
        self.line = self._count_line()
        self.text = self.text[self.offset :] + self.decoder.decode(chunk, final=not chunk)
        self.offset = self.counted_to = 0
        return bool(chunk)

    def _count_line(self) -> int:
        self.line += self.text.count("\n", self.counted_to, self.offset)
        self.counted_to = self.offset
        return self.line

    def _report(self, reason: str) -> UnreadableEntry:
        return UnreadableEntry(self.name, self._count_line(), reason)


def _format_path(json_path: JsonPath) -> str:
    """Format a path for people: `samples[3].messages`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part:.80}" for part in json_path[:8])
    return "".join(parts).lstrip(".") or "the document"
