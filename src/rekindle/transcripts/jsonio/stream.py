"""A JSON document with lists inside its lists, value by value.

A file may hold a list of sessions, each with its list of messages. `steps` walks down as far as
`opens` says and gives every value there with its place, so that reading costs the memory of the
largest of them (or of a line, where there is a document on each). A value that is not JSON is damage
and the walk goes on behind it; what follows a cut is lost, what came before it is not.
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

from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage

from .fast_path import SMALL, Part, Sound
from .jsonl import LONGEST_LINE, decode, records

Place: TypeAlias = tuple[str | int, ...]

_CHUNK = 1 << 18
# Containers below this depth are given whole: places of any length would cost memory without bound.
_DEEPEST = 128
_LONGEST_KEY = 1 << 16
_DECODER = json.JSONDecoder(parse_constant=lambda _: None, strict=False)
_AFTER = frozenset(",]} \t\r\n")
_SPACE = re.compile(r"[\s\ufeff]*")
_KEY = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*:', re.DOTALL)
# A string that is closed, a quote whose string goes on behind the buffer, or punctuation.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[{}\[\],]', re.DOTALL)


class Value(NamedTuple):
    """A value that was not taken apart, and the keys and numbers that lead to it."""

    document: int
    line: int
    place: Place
    value: Any


class Closed(NamedTuple):
    """The container at this place, which was taken apart, has ended."""

    document: int
    place: Place


Step: TypeAlias = Value | Closed | Damage


def steps(path: Path, opens: Callable[[Place], bool]) -> Iterator[Step]:
    """The values of a file. Where documents stand on lines of their own, a bad line costs no other."""
    head = Head.of(path)
    if is_lines(head):
        for document, entry in enumerate(records(path)):
            if isinstance(entry, Damage):
                yield entry
            else:
                yield from _apart(Value(document, entry[0], (), entry[1]), opens)
    else:
        yield from documents(path, opens)


def documents(path: Path, opens: Callable[[Place], bool]) -> Iterator[Step]:
    """The values of a file whose documents do not stand on lines of their own."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= SMALL:
            if (sound := Sound.of(file.read())) is not None:
                yield from _parsed(sound, str(path), opens)
                return
            file.seek(0)
        yield from values(file, str(path), opens)


def is_lines(head: Head) -> bool:
    """Whether a file that begins like this has its documents on lines of their own."""
    if not head.is_lines:
        return False
    data = head.data.rstrip()
    try:
        decode(data.split(b"\n", 1)[0])
    except ValueError:
        # A list that is laid out has its only element on a line of its own as well.
        laid_out = (data[:1], data[-1:]) in ((b"[", b"]"), (b"{", b"}"))
        return len(head.lines) > 1 or not laid_out
    return True


def _apart(whole: Value, opens: Callable[[Place], bool]) -> Iterator[Step]:
    """What a walk through the text of this value would give."""
    document, line, place, value = whole
    if isinstance(value, dict):
        children = list(cast("dict[str, Any]", value).items())
    else:
        children = list(enumerate(cast("list[Any]", value)))
    for key, child in children:
        below = Value(document, line, (*place, key), child)
        if isinstance(child, (dict, list)) and len(place) < _DEEPEST and opens(below.place):
            yield from _apart(below, opens)
        else:
            yield below
    yield Closed(document, place)


def _parsed(sound: Sound, name: str, opens: Callable[[Place], bool]) -> Iterator[Step]:
    """What a walk through a document that is sound would give."""
    data, line_at = sound.data, sound.line_at
    place: Place = ()
    inside = iter(sound.parts)
    above: list[tuple[Iterator[Part], Place]] = []
    while True:
        for key, at, raw in inside:
            below: Place = (*place, key)
            line = line_at(at)
            if data[at] in b"{[" and len(below) < _DEEPEST and opens(below):
                parts = sound.inside(raw, at)
                if parts is None:
                    yield from _Walk(BytesIO(bytes(raw)), name, opens, below, line).steps()
                    continue
                above.append((inside, place))
                inside, place = iter(parts), below
                break
            try:
                value = decode(raw)
            except ValueError as error:
                yield Damage(name, line, f"{_written(below)}: not JSON: {error}")
            else:
                yield Value(0, line, below, value)
        else:
            yield Closed(0, place)
            if not above:
                return
            inside, place = above.pop()


def values(file: BinaryIO, name: str, opens: Callable[[Place], bool]) -> Iterator[Step]:
    """The values of the documents in `file`; lists and objects that `opens` names are taken apart.

    The place of a document itself is `()`, and it is always taken apart. `name` is what damage says
    of the file.
    """
    return _Walk(file, name, opens).steps()


class _Frame:
    """A container that is being taken apart."""

    def __init__(self, place: Place, is_list: bool) -> None:
        self.place = place
        self.is_list = is_list
        self.index = 0


class _Walk:
    """Where in the text we are."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        opens: Callable[[Place], bool],
        root: Place = (),
        line: int = 1,
    ) -> None:
        self.file = file
        self.root = root
        self.name = name
        self.opens = opens
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""
        self.at = 0
        self.line = line
        self.counted = 0
        self.document = -1
        self.stack: list[_Frame] = []

    def steps(self) -> Iterator[Step]:
        while char := self._peek():
            if len(self.text) - self.at > LONGEST_LINE:
                yield self._damage(
                    f"a value longer than {LONGEST_LINE >> 20} MiB; the rest is lost"
                )
                return
            if not self.stack:
                yield from self._begin(char)
            elif char in "]}":
                self.at += 1
                yield Closed(self.document, self.stack.pop().place)
            elif char == ",":
                self.at += 1
            else:
                yield from self._child(self.stack[-1])
        if self.stack:
            yield self._damage(f"the document ends in the middle, {len(self.stack)} brackets deep")

    def _begin(self, char: str) -> Iterator[Damage]:
        if char in "{[":
            self.document += 1
            self._open(self.root, char)
            return
        start = self.at
        while (end := self.text.find("\n", self.at)) < 0 and self._more():
            start = self.at
        line = self.text[start : end if end >= 0 else len(self.text)]
        if not line.startswith("//"):
            yield self._damage("expected a JSON document")
        self.at = start + len(line)

    def _child(self, frame: _Frame) -> Iterator[Step]:
        if frame.is_list:
            place = (*frame.place, frame.index)
            frame.index += 1
        else:
            key = self._key()
            if key is None:
                yield self._damage(f"{_written(frame.place)}: expected a key")
                self._skip()
                return
            place = (*frame.place, key)
        char = self._peek()
        if char in ("{", "[") and len(self.stack) < _DEEPEST and self.opens(place):
            self._open(place, char)
        elif char not in ("", ",", "]", "}"):
            yield from self._value(place)

    def _open(self, place: Place, char: str) -> None:
        self.at += 1
        self.stack.append(_Frame(place, char == "["))

    def _value(self, place: Place) -> Iterator[Step]:
        line = self._line()
        try:
            value, end = _DECODER.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            end, value = len(self.text), None
        # Of a number that goes on behind the buffer, the first digits are a number too.
        if self.text[end : end + 1] in _AFTER:
            self.at = end
            yield Value(self.document, line, place, value)
            return
        # It may go on behind the buffer, or be no JSON: its brackets tell where it ends.
        whole = self._skip()
        if whole is None:
            return
        try:
            yield Value(self.document, line, place, _DECODER.decode(whole))
        except ValueError as error:
            yield Damage(self.name, line, f"{_written(place)}: not JSON: {error}")
        except RecursionError:
            yield Damage(self.name, line, f"{_written(place)}: nested too deeply")

    def _skip(self) -> str | None:
        """The text up to the end of a value; None when the file ends before."""
        depth, position, size = 0, self.at, _CHUNK
        while True:
            match = _TOKEN.search(self.text, position)
            if match is None or (match[0] == '"' and match.end() - match.start() == 1):
                position = match.start() if match else len(self.text)
                position -= self.at
                if len(self.text) - self.at > LONGEST_LINE:
                    return None
                if not self._more(size):
                    self.at = len(self.text)
                    return None
                # While a value goes on, read twice as much: to read a long one stays linear.
                size *= 2
                position += self.at
                continue
            token = match[0]
            if depth == 0 and token in ",]}":
                whole = self.text[self.at : match.start()]
                self.at = match.start()
                return whole
            depth += 1 if token in "{[" else -1 if token in "]}" else 0
            position = match.end()

    def _key(self) -> str | None:
        match = _KEY.match(self.text, self.at)
        while match is None and len(self.text) - self.at < _LONGEST_KEY and self._more():
            match = _KEY.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        try:
            return _DECODER.decode(match[1])
        except ValueError:
            return match[1][1:-1]

    def _peek(self) -> str:
        """The next character that is no space, without taking it; nothing at the end."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def _more(self, size: int = _CHUNK) -> bool:
        """Read on; what was taken is let go. Positions are then counted from the new beginning."""
        chunk = self.file.read(size)
        self.line = self._line()
        self.text = self.text[self.at :] + self.decoder.decode(chunk, final=not chunk)
        self.at = self.counted = 0
        return bool(chunk)

    def _line(self) -> int:
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def _damage(self, what: str) -> Damage:
        return Damage(self.name, self._line(), what)


def _written(place: Place) -> str:
    """A place as people write it: `samples[3].messages`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part:.80}" for part in place[:8])
    return "".join(parts).lstrip(".") or "the document"
