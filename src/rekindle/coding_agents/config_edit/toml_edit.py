"""Add and remove a table of a TOML text; every other byte stays as it is.

The result is parsed and compared with what was wanted: where the text is written in a way that this
module does not know, it refuses instead of guessing.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rekindle.errors import InvalidInput

_HEADER = re.compile(r"\[\[?([^\[\]#]+)\]\]?[ \t]*(?:#.*)?")
_KEY = re.compile(r"""[ \t]*(?:"([^"\\]*)"|'([^']*)'|([A-Za-z0-9_-]+))[ \t]*(?:\.|$)""")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text; raise InvalidInput if it is not TOML."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"not valid TOML: {error or 'nested too deeply'}") from None


def find_table(text: str, path: Sequence[str]) -> dict[str, Any] | None:
    """Return the table at a path, or None."""
    table: Any = parse_toml(text)
    for key in path:
        if not isinstance(table, dict):
            return None
        table = cast("dict[str, Any]", table).get(key)
    return cast("dict[str, Any]", table) if isinstance(table, dict) else None


def add_table(text: str, path: Sequence[str], values: Mapping[str, Any]) -> str:
    """Add a table at the end of the text; it must not exist yet."""
    newline = "\r\n" if "\r\n" in text else "\n"
    start = "" if not text or text.endswith("\n") else newline
    blank = newline if text.strip() else ""
    added = text + start + blank + _render_table(path, values, newline)
    expected = parse_toml(text)
    _set_table(expected, path, dict(values))
    return _require_content(added, expected, path)


def remove_table(text: str, path: Sequence[str]) -> str:
    """Remove a table and the tables within it, and the blank line before it."""
    kept: list[str] = []
    is_inside = False
    for line in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(line.strip())
        keys = _split_keys(header[1].strip()) if header else None
        if keys is not None:
            is_inside = keys[: len(path)] == list(path)
            if is_inside and kept and not kept[-1].strip():
                kept.pop()
        if not is_inside:
            kept.append(line)
    expected = parse_toml(text)
    _set_table(expected, path, None)
    return _require_content("".join(kept), expected, path)


def replace_table(text: str, path: Sequence[str], values: Mapping[str, Any]) -> str:
    """Replace a table by a new one at the end of the text."""
    return add_table(remove_table(text, path), path, values)


def _render_table(path: Sequence[str], values: Mapping[str, Any], newline: str) -> str:
    lines = [f"[{'.'.join(path)}]"]
    lines += [f"{key} = {_render_value(value)}" for key, value in values.items()]
    return newline.join([*lines, ""])


def _render_value(value: Any) -> str:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{key} = {_render_value(one)}" for key, one in items) + " }"
    return json.dumps(value, ensure_ascii=False)  # strings and lists of them are the same in TOML


def _split_keys(header: str) -> list[str] | None:
    keys: list[str] = []
    position = 0
    while position < len(header):
        match = _KEY.match(header, position)
        if match is None or match.end() == position:
            return None
        keys.append(next(one for one in match.groups() if one is not None))
        position = match.end()
    return keys


def _set_table(tables: dict[str, Any], path: Sequence[str], values: dict[str, Any] | None) -> None:
    """Set or delete a table in parsed tables, and drop the ones above it that are then empty."""
    *outer, key = path
    if not outer:
        tables.pop(key, None)
        if values is not None:
            tables[key] = values
        return
    inner = tables.setdefault(outer[0], {})
    if not isinstance(inner, dict):
        raise InvalidInput(f"{outer[0]} is not a table")
    inner = cast("dict[str, Any]", inner)
    _set_table(inner, path[1:], values)
    if values is None and not inner:
        del tables[outer[0]]


def _require_content(text: str, expected: dict[str, Any], path: Sequence[str]) -> str:
    try:
        is_same = _drop_empty(parse_toml(text), path) == _drop_empty(expected, path)
    except InvalidInput:
        is_same = False
    if not is_same:
        name = ".".join(path)
        raise InvalidInput(f"[{name}] cannot be changed here; edit the file by hand")
    return text


def _drop_empty(tables: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Drop the table above `path` if it is empty: its header may or may not be written."""
    return {key: one for key, one in tables.items() if key != path[0] or one != {}}
