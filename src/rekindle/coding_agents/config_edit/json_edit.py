"""Add, replace and remove values in a JSON text in the style of the text around them.

`remove_value` undoes `add_member` and `add_element`: comments, order, indentation and the end of the
text stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput

from .json_text import JsonDocument, JsonKey, JsonMember, JsonNode

_SPACES = " \t\r\n"
_DEFAULT_UNIT = "  "


class _Style(NamedTuple):
    """How the members of a container are written."""

    is_multiline: bool
    newline: str
    unit: str  # indentation of one level
    indent: str  # of the members
    outer_indent: str  # of the closing bracket
    separators: tuple[str, str]


def add_member(text: str, path: Sequence[str], key: str, value: Any) -> str:
    """Add a member at the end of the object at `path`, which is created if it is missing."""
    text, missing = _find_missing(text, path)
    if missing:
        return add_member(text, missing[0], missing[1], _wrap_value(missing[2], {key: value}))
    document = JsonDocument(text)
    container = _require_container(document, path, "object")
    style = _detect_style(document, container)
    head = json.dumps(key, ensure_ascii=False) + style.separators[1]
    return _insert_piece(document, container, style, head + _render_value(value, style))


def add_element(text: str, path: Sequence[JsonKey], value: Any) -> str:
    """Add an element at the end of the array at `path`, whose last key may be missing."""
    document = JsonDocument(text)
    if document.find_node(*path) is None:
        *outer, key = path
        return add_member(text, [str(one) for one in outer], str(key), [value])
    container = _require_container(document, path, "array")
    style = _detect_style(document, container)
    return _insert_piece(document, container, style, _render_value(value, style))


def replace_value(text: str, path: Sequence[JsonKey], value: Any) -> str:
    """Replace the value at a path."""
    document = JsonDocument(text)
    container, member = _require_member(document, path)
    style = _detect_style(document, container)
    node = member.node
    return text[: node.start] + _render_value(value, style) + text[node.end :]


def remove_value(text: str, path: Sequence[JsonKey]) -> str:
    """Remove the member or element at a path."""
    container, member = _require_member(JsonDocument(text), path)
    index = container.members.index(member)
    start = _skip_spaces_back(text, member.start)
    if member.comma is not None:
        return text[:start] + text[member.comma + 1 :]
    if index:
        comma = container.members[index - 1].comma
        assert comma is not None
        return text[:comma] + text[comma + 1 : start] + text[member.node.end :]
    rest = text[member.node.end : container.end - 1]
    if not (text[container.start + 1 : start] + rest).strip():
        return text[: container.start + 1] + text[container.end - 1 :]
    return text[:start] + text[member.node.end :]


def _find_missing(
    text: str, path: Sequence[str]
) -> tuple[str, tuple[Sequence[str], str, Sequence[str]] | None]:
    """Return the text with a root, and the part of the path that has to be created, if any."""
    document = JsonDocument(text)
    if document.root.start == document.root.end:
        is_open = document.text.strip("\ufeff") and not document.text.endswith("\n")
        text += "\n{}\n" if is_open else "{}\n"
        document = JsonDocument(text)
    for depth in range(1, len(path) + 1):
        if document.find_node(*path[:depth]) is None:
            return text, (path[: depth - 1], path[depth - 1], path[depth:])
    return text, None


def _wrap_value(path: Sequence[str], value: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value


def _require_container(document: JsonDocument, path: Sequence[JsonKey], kind: str) -> JsonNode:
    node = document.find_node(*path)
    if node is None or node.kind != kind:
        name = ".".join(map(str, path))
        raise InvalidInput(f'"{name}" is not an {kind}')
    return node


def _require_member(document: JsonDocument, path: Sequence[JsonKey]) -> tuple[JsonNode, JsonMember]:
    container = document.find_node(*path[:-1])
    member = container and container.find_member(path[-1])
    if container is None or member is None:
        raise InvalidInput(f'"{".".join(map(str, path))}" does not exist')
    return container, member


def _insert_piece(document: JsonDocument, container: JsonNode, style: _Style, piece: str) -> str:
    text, close = document.text, container.end - 1
    last = container.members[-1] if container.members else None
    end = max(_skip_spaces_back(text, close), container.start + 1)
    if style.is_multiline:
        piece = style.newline + style.indent + piece
    elif last is not None:
        piece = style.separators[0][1:] + piece
    if last is not None and last.comma is not None:
        piece += ","
    tail = text[end:]
    if style.is_multiline and last is None and "\n" not in text[end:close]:
        tail = style.newline + style.outer_indent + text[close:]
    if last is None or last.comma is not None:
        return text[:end] + piece + tail
    return text[: last.node.end] + "," + text[last.node.end : end] + piece + tail


def _detect_style(document: JsonDocument, container: JsonNode) -> _Style:
    text, root = document.text, document.root
    inside = text[container.start + 1 : container.end - 1]
    is_multiline = "\n" in inside
    if not container.members and not is_multiline:
        is_multiline = container is root or "\n" in text[root.start : root.end]
    outer = _get_line_indent(text, container.end - 1)
    unit = _detect_unit(text, root)
    indent = outer + unit
    if container.members and _is_first_on_line(text, container.members[-1].start):
        indent = _get_line_indent(text, container.members[-1].start)
    return _Style(
        is_multiline,
        "\r\n" if "\r\n" in text else "\n",
        unit,
        indent,
        outer,
        _detect_separators(text, root),
    )


def _detect_unit(text: str, root: JsonNode) -> str:
    if root.members and _is_first_on_line(text, root.members[0].start):
        return _get_line_indent(text, root.members[0].start) or _DEFAULT_UNIT
    return _DEFAULT_UNIT


def _detect_separators(text: str, root: JsonNode) -> tuple[str, str]:
    """Return comma and colon as the root writes them, with or without a space."""
    if root.members and not text[: root.members[0].node.start].endswith((" ", "\t", "\n")):
        return ",", ":"
    return ", ", ": "


def _render_value(value: Any, style: _Style) -> str:
    if not style.is_multiline:
        return json.dumps(value, ensure_ascii=False, separators=style.separators)
    lines = json.dumps(
        value, ensure_ascii=False, indent=style.unit, separators=(",", style.separators[1])
    )
    return lines.replace("\n", style.newline + style.indent)


def _skip_spaces_back(text: str, position: int) -> int:
    while position and text[position - 1] in _SPACES:
        position -= 1
    return position


def _get_line_indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_first_on_line(text: str, position: int) -> bool:
    start = text.rfind("\n", 0, position) + 1
    return start > 0 and not text[start:position].strip(" \t")
