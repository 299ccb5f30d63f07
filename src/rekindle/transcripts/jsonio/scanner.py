"""Scanner over the text of JSON documents, which costs the memory of the largest value.

It descends as far as `should_descend` allows and yields every value there with its path. A value that is
not JSON is reported and skipped; in a truncated file, everything before the cut is still read.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from rekindle.json_fields import describe_json_error
from rekindle.transcripts.events import UnreadableEntry

from .jsonl import MAX_LINE_BYTES

JsonPath: TypeAlias = tuple[str | int, ...]

# Deeper containers are yielded whole, because paths of any length would cost unbounded memory.
MAX_DEPTH = 128

_VALUE_CHUNK_BYTES = 1 << 18
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


class _OpenContainer:
    """A container that is being read."""

    def __init__(self, path: JsonPath, is_list: bool) -> None:
        self.path = path
        self.is_list = is_list
        self.index = 0


class JsonScanner:
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
        self.offset: int = 0
        self.line = line
        self.counted_to = 0
        self.document = -1
        self.stack: list[_OpenContainer] = []
        # Text between documents is reported once.
        self.is_between_documents = False
        self.value_start: int = 0
        # Where the file ends inside a value, and the beginning of that value.
        self.cut_path: JsonPath | None = None
        self.cut_text = ""
        self.cut_depth = 0

    @property
    def value_text(self) -> str:
        """The text of the value that was yielded last."""
        return self.text[self.value_start : self.offset]

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
            depth = len(self.stack) + self.cut_depth
            yield self._report(f"unexpected end of document, {depth} levels deep")

    def _read_document_start(self, char: str) -> Iterator[UnreadableEntry]:
        if char in "{[":
            self.is_between_documents = False
            self.document += 1
            self._open_container(self.root, char)
            return
        start = self.offset
        while (end := self.text.find("\n", self.offset)) < 0 and self._read_more():
            start = self.offset
        is_comment = self.text.startswith("//", start)
        if not (is_comment or self.is_between_documents):
            yield self._report("expected a JSON document")
            self.is_between_documents = True
        if _KEY.match(self.text, start):
            # The beginning of its document is lost.
            self.document += 1
            self.stack.append(_OpenContainer(self.root, is_list=False))
        else:
            self.offset = end if end >= 0 else len(self.text)

    def _read_child(self, frame: _OpenContainer) -> Iterator[StreamItem]:
        if frame.is_list:
            json_path = (*frame.path, frame.index)
            frame.index += 1
        else:
            key = self._read_key()
            if key is None:
                yield self._report(f"{format_path(frame.path)}: expected a key")
                self._skip_value()
                return
            json_path = (*frame.path, key)
        char = self._peek()
        if char in ("{", "[") and len(self.stack) < MAX_DEPTH and self.should_descend(json_path):
            self._open_container(json_path, char)
        elif char == "":
            self.cut_path = json_path
        elif char not in (",", "]", "}"):
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
            self.value_start, self.offset = self.offset, end
            yield JsonValue(self.document, line, json_path, value)
            return
        # It continues beyond the buffer or is not JSON: find its end by its brackets.
        whole = self._skip_value()
        if whole is None:
            self.cut_path = json_path
            return
        try:
            yield JsonValue(self.document, line, json_path, _DECODER.decode(whole))
        except ValueError as error:
            problem = f"not JSON: {describe_json_error(error)}"
            yield UnreadableEntry(self.name, line, f"{format_path(json_path)}: {problem}")
        except RecursionError:
            yield UnreadableEntry(self.name, line, f"{format_path(json_path)}: nested too deeply")

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
                    self.cut_depth = depth
                    self.cut_text = self.text[self.offset : self.offset + _MAX_KEY_LENGTH]
                    self.offset = len(self.text)
                    return None
                # Double the read size for long values, so that reading stays linear.
                size *= 2
                position += self.offset
                continue
            token = match[0]
            if depth == 0 and token in ",]}":
                whole = self.text[self.offset : match.start()]
                self.value_start, self.offset = self.offset, match.start()
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


def format_path(json_path: JsonPath) -> str:
    """Format a path for people: `samples[3].messages`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part:.80}" for part in json_path[:8])
    return "".join(parts).lstrip(".") or "the document"
