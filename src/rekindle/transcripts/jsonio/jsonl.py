"""JSON Lines as they are found in the wild: every good line is given, every bad one located."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rekindle.json_fields import Record
from rekindle.transcripts.events import Damage

# A line that is longer is no message of anybody; without a bound one file could take all memory.
LONGEST_LINE = 256 * 1024 * 1024
# Lines of ten kilobytes are common, and with the usual buffer each is put together from pieces.
BUFFER = 256 * 1024
_decode = msgspec.json.Decoder().decode


def decode(data: bytes | msgspec.Raw) -> Any:
    """The JSON value in `data`; ValueError says why there is none.

    The fast parser refuses what real writers leave behind: halves of surrogate pairs where a
    harness cut a text in the middle of an emoji, NaN, bytes that are not UTF-8. The standard
    library's reads all of these, so a line is only lost when it is not JSON at all.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(bytes(data).decode("utf-8", "replace"), parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def picking(shape: type) -> Callable[[bytes], Any]:
    """A decoder that builds the fields of a TypedDict alone and passes over all others.

    A line tells much that no message needs, such as a result that stands in it twice.
    """
    return msgspec.json.Decoder(shape).decode


def records(
    path: Path, decode_line: Callable[[bytes], Any] = _decode
) -> Iterator[tuple[int, Record] | Damage]:
    """Each line that holds a JSON object with its number, and the damage between them.

    Lines end with a line feed and with nothing else: JSON text may hold U+2028 and its kin raw.
    Blank lines and `//` comments are no damage. `decode_line` is the way of a reader that wants
    only some fields, see `picking`; a line that it refuses is read as any other.
    """
    number = 0
    with path.open("rb", buffering=BUFFER) as file:
        while line := file.readline(LONGEST_LINE):
            number += 1
            try:
                value = decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield from _odd_line(file, path, number, line)
                continue
            if isinstance(value, dict):
                yield number, value
            else:
                yield _no_object(path, number, value)


def _odd_line(
    file: BinaryIO, path: Path, number: int, line: bytes
) -> Iterator[tuple[int, Record] | Damage]:
    """The same for a line that the fast parser refuses."""
    if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
        _skip_line(file)
        yield Damage(str(path), number, f"longer than {LONGEST_LINE >> 20} MiB")
        return
    line = line.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
    if not line or line.startswith(b"//"):
        return
    try:
        value = decode(line)
    except ValueError as error:
        yield Damage(str(path), number, f"not JSON: {error}")
    else:
        yield (number, value) if isinstance(value, dict) else _no_object(path, number, value)


def _no_object(path: Path, number: int, value: object) -> Damage:
    return Damage(str(path), number, f"expected an object, got {type(value).__name__}")


def _skip_line(file: BinaryIO) -> None:
    line = file.readline(LONGEST_LINE)
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE)
