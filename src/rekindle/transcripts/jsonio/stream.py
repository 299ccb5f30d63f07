"""Streaming readers for JSON files: value by value, with only the memory of the largest value.

A file may hold a list of sessions, each with its list of messages; `iter_values` descends as far as
`should_descend` allows. Most formats have one list, at the top or under a key; `iter_elements` yields
its elements and every other top-level value. Both continue with the next document, if any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import UnreadableEntry

from .fast_path import MAX_PARSED_BYTES, ParsedDocument, RawMember
from .jsonl import decode_json, read_json_lines
from .scanner import (
    MAX_DEPTH,
    ContainerEnd,
    JsonPath,
    JsonScanner,
    JsonValue,
    StreamItem,
    format_path,
)


class Element(NamedTuple):
    """One value of a document: an element of its list (with `position`), or the value of a key."""

    document: int
    line: int
    key: str | None
    position: int | None
    value: Any


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


def iter_elements(path: Path, lists: Collection[str]) -> Iterator[Element | UnreadableEntry]:
    """Yield the elements of a file's documents; `lists` names the keys whose lists are split."""
    for item in iter_document_values(path, lambda json_path: json_path[-1] in lists):
        if isinstance(item, UnreadableEntry):
            yield item
        elif isinstance(item, JsonValue):
            document, line, json_path, value = item
            key, position = json_path[0], json_path[-1]
            if isinstance(position, int):
                yield Element(
                    document, line, key if isinstance(key, str) else None, position, value
                )
            elif len(json_path) == 1:
                yield Element(document, line, position, None, value)


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
            and len(json_path) < MAX_DEPTH
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
            if data[offset] in b"{[" and len(child_path) < MAX_DEPTH and should_descend(child_path):
                child_members = parsed.split_container(raw, offset)
                if child_members is None:
                    yield from JsonScanner(
                        BytesIO(bytes(raw)), name, should_descend, child_path, line
                    ).read_items()
                    continue
                parents.append((members, json_path))
                members, json_path = iter(child_members), child_path
                break
            try:
                value = decode_json(raw)
            except ValueError as error:
                yield UnreadableEntry(name, line, f"{format_path(child_path)}: not JSON: {error}")
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
    return JsonScanner(file, name, should_descend).read_items()
