"""Parser for the beginning of a JSON document, wherever it was cut.

This is all that detection sees of a large file. Open containers are closed so that the fast parser can
read the text; a beginning with errors in it, or with several documents, is scanned instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple, cast

from rekindle.json_fields import JsonObject
from rekindle.types import JSON

from .fast_path import ParsedDocument, RawMember
from .jsonl import decode_json
from .scanner import ContainerEnd, JsonScanner, JsonValue

_NO_BRACKETS = bytes({*range(256)} - {*b"{}[]"})
_LITERAL_BYTES = b"0123456789+-.eEaflnrstu"  # a number or a literal, whose end may be missing
_CLOSING = bytes.maketrans(b"{[", b"}]")


class _ClosedPrefix(NamedTuple):
    """A truncated document whose open containers were closed.

    In the outermost `open_depth` containers, the last value is incomplete.
    """

    document: ParsedDocument
    open_depth: int = 0


@lru_cache(maxsize=4)
def _close_prefix(data: bytes) -> _ClosedPrefix | None:
    """Close the document's open containers; return None unless it is a single valid document."""
    if not data.startswith((b"{", b"[")):
        return None
    line, _, rest = data.partition(b"\n")
    if (document := _parse_if_closed(line)) is not None:
        return None if rest.strip() else _ClosedPrefix(document)
    if rest and (document := _parse_if_closed(data)) is not None:
        return _ClosedPrefix(document)
    # With escaped quotes removed, every other part between quotes is outside of strings.
    parts = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    still_open = b"".join(parts[::2]).translate(None, _NO_BRACKETS)
    text = (
        data.rstrip().rstrip(_LITERAL_BYTES) if len(parts) % 2 else data[: _find_last_quote(data)]
    )
    text = text.rstrip()
    while (reduced := still_open.replace(b"{}", b"").replace(b"[]", b"")) != still_open:
        still_open = reduced
    open_depth = len(still_open)
    if text.endswith(b":"):
        text += b"null"
    elif text.endswith(b","):  # the value before it is complete
        text, open_depth = text[:-1], open_depth - 1
    document = ParsedDocument.parse(text + still_open[::-1].translate(_CLOSING))
    return None if document is None else _ClosedPrefix(document, open_depth)


def _parse_if_closed(data: bytes) -> ParsedDocument | None:
    # Truncated text rarely ends with a bracket, and checking that is cheaper than parsing.
    return ParsedDocument.parse(data) if data.rstrip().endswith((b"}", b"]")) else None


def _find_last_quote(data: bytes) -> int:
    """Return the position of the last quote that is not escaped."""
    offset = data.rfind(b'"')
    while offset > 0:
        before = offset
        while data[before - 1 : before] == b"\\":
            before -= 1
        if (offset - before) % 2 == 0:
            break
        offset = data.rfind(b'"', 0, offset)
    return offset


def find_first_element(data: bytes, lists: Collection[str]) -> bytes:
    """Return the first list element of a document that begins like `data`, as far as it was read."""
    # Every format looks for a different list, which is usually absent.
    names = tuple([name for name in lists if b'"%s"' % name.encode() in data])
    if data.startswith(b"{") and not names:
        return b""
    prefix = _close_prefix(data)
    if prefix is None:
        return _scan_first_element(data, names)
    document, open_depth = prefix
    if document.is_list:
        return _slice_first_element(document.members, data, open_depth >= 1)
    for name, offset, raw in document.members:
        if name in names and document.get_byte(offset) == b"[":
            is_last = offset == document.members[-1][1]
            if first := _slice_first_element(
                document.split_container(raw, offset) or [], data, open_depth >= 2 and is_last
            ):
                return first
    return b""


def _slice_first_element(elements: Sequence[RawMember], data: bytes, is_cut: bool) -> bytes:
    """Return the first element of a list whose last element may be truncated."""
    if not elements:
        return b""
    _, offset, raw = elements[0]
    return data[offset:] if is_cut and len(elements) == 1 else bytes(raw)


@lru_cache(maxsize=4)
def _scan_first_element(data: bytes, names: Sequence[str]) -> bytes:
    scanner = JsonScanner(BytesIO(data), "", lambda json_path: json_path[-1] in names)
    for item in scanner.read_items():
        if isinstance(item, JsonValue) and isinstance(item.path[-1], int):
            return scanner.value_text.strip().encode("utf-8", "replace")
    is_element = scanner.cut_path is not None and isinstance(scanner.cut_path[-1], int)
    return scanner.cut_text.encode("utf-8", "replace") if is_element else b""


@lru_cache(maxsize=4)
def parse_partial_fields(data: bytes) -> JsonObject:
    """Parse an object that may be truncated; the last field then has only the right type."""
    prefix = _close_prefix(data)
    if prefix is None:
        return _scan_fields(data)
    if prefix.document.is_list:
        return {}
    found: JsonObject = {}
    for name, _, raw in prefix.document.members:
        try:
            found[cast(str, name)] = decode_json(raw)
        except ValueError:
            continue
    if prefix.open_depth and prefix.document.members:
        name, offset, _ = prefix.document.members[-1]
        found[cast(str, name)] = _make_empty_value(prefix.document.get_byte(offset))
    return found


def _scan_fields(data: bytes) -> JsonObject:
    """Parse the fields of the first document where there are several, or errors."""
    if data.rstrip().endswith(b"}"):
        try:
            document = decode_json(data)
        except ValueError:
            pass
        else:
            return cast(JsonObject, document) if isinstance(document, dict) else {}
    scanner = JsonScanner(BytesIO(data), "", lambda _: False)
    found: JsonObject = {}
    for item in scanner.read_items():
        if isinstance(item, JsonValue):
            if not isinstance(item.path[-1], str):
                return found
            found[item.path[-1]] = item.value
        elif isinstance(item, ContainerEnd):
            return found
    if scanner.cut_path is not None and isinstance(scanner.cut_path[-1], str):
        first_byte = scanner.cut_text[:1].encode("utf-8", "replace")
        found[scanner.cut_path[-1]] = _make_empty_value(first_byte)
    return found


def _make_empty_value(first_byte: bytes) -> JSON:
    return {} if first_byte == b"{" else [] if first_byte == b"[" else ""
