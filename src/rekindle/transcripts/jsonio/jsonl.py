"""Tolerant JSON Lines reader: yields every valid line and the location of every invalid one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from rekindle.json_fields import JsonObject, describe_json_error
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry

# No real message is longer; without a limit one file could exhaust the memory.
MAX_LINE_BYTES = 256 * 1024 * 1024
# Lines of 10 KB are common; the default buffer would assemble each from several reads.
READ_BUFFER_BYTES = 256 * 1024
_decode_strict = msgspec.json.Decoder().decode


def decode_json(data: bytes | msgspec.Raw) -> Any:
    """Decode the JSON value in `data`; raise ValueError if it is not valid JSON.

    The fast parser rejects what real writers produce: lone surrogates where a harness cut a text in the
    middle of an emoji, NaN, bytes that are not UTF-8. The standard library accepts all of these, so a
    line is lost only if it is not JSON at all.
    """
    try:
        return _decode_strict(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(bytes(data).decode("utf-8", "replace"), parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        raise ValueError(describe_json_error(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def make_typed_decoder(shape: type) -> Callable[[bytes], Any]:
    """Return a decoder that builds only the fields of a TypedDict and skips all others.

    Lines hold much that no message needs, such as a second copy of a tool result.
    """
    return msgspec.json.Decoder(shape).decode


def read_json_lines(
    path: Path, decode_line: Callable[[bytes], Any] = _decode_strict
) -> Iterator[tuple[int, JsonObject] | UnreadableEntry]:
    """Yield each line that holds a JSON object with its number, and an entry for each bad line.

    Only a line feed ends a line, because JSON text may contain a raw U+2028. Blank lines and `//`
    comments are skipped. `decode_line` lets a reader decode only some fields, see `make_typed_decoder`;
    a line that it rejects is decoded in full.
    """
    number = 0
    with path.open("rb", buffering=READ_BUFFER_BYTES) as file:
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            try:
                value = decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield from _read_line_leniently(file, path, number, line)
                continue
            if isinstance(value, dict):
                yield number, value
            else:
                yield _report_non_object(path, number, value)


def read_line_events(
    path: Path,
    read_entry: Callable[[int, JsonObject], Iterable[TranscriptEvent]],
    decode_line: Callable[[bytes], Any] = _decode_strict,
) -> Iterator[TranscriptEvent]:
    """Yield the events that `read_entry` returns for each line, and an entry for each bad line."""
    for entry in read_json_lines(path, decode_line):
        if isinstance(entry, UnreadableEntry):
            yield entry
        elif events := read_entry(*entry):
            yield from events


def _read_line_leniently(
    file: BinaryIO, path: Path, number: int, line: bytes
) -> Iterator[tuple[int, JsonObject] | UnreadableEntry]:
    """Read a line that the fast parser rejects."""
    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
        _skip_line(file)
        yield UnreadableEntry(str(path), number, f"line is longer than {MAX_LINE_BYTES >> 20} MiB")
        return
    line = line.strip().removeprefix(b"\xef\xbb\xbf").lstrip()
    if not line or line.startswith(b"//"):
        return
    try:
        value = decode_json(line)
    except ValueError as error:
        yield UnreadableEntry(str(path), number, f"not JSON: {error}")
    else:
        yield (
            (number, value) if isinstance(value, dict) else _report_non_object(path, number, value)
        )


def read_json_object(path: Path) -> JsonObject | UnreadableEntry:
    """Return the JSON object that is the whole content of a small file."""
    try:
        if path.stat().st_size > MAX_LINE_BYTES:
            return UnreadableEntry(str(path), 1, f"file is longer than {MAX_LINE_BYTES >> 20} MiB")
        value = decode_json(path.read_bytes())
    except OSError as error:
        return UnreadableEntry(str(path), 1, error.strerror or str(error))
    except ValueError as error:
        return UnreadableEntry(str(path), 1, f"not JSON: {error}")
    if isinstance(value, dict):
        return cast(JsonObject, value)
    return _report_non_object(path, 1, value)


def _report_non_object(path: Path, number: int, value: object) -> UnreadableEntry:
    return UnreadableEntry(str(path), number, f"expected an object, got {type(value).__name__}")


def _skip_line(file: BinaryIO) -> None:
    line = file.readline(MAX_LINE_BYTES)
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)
