"""Reads `config.toml`: returns every value by its full name, or an error with file and line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast

from rekindle.errors import InvalidSetting

from .lookup import (
    NAMED_TABLES,
    OVERRIDABLE_SECTIONS,
    explain_unknown,
    find_new_name,
    get_setting,
    is_setting,
    is_table,
    parse_table_entry,
)
from .schema import UNUSED
from .setting import Value, check_value

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class FileSettings(NamedTuple):
    """The values of a file by their full names, and a note on each that has an old name."""

    values: Mapping[str, Value] = {}
    notes: tuple[str, ...] = ()


def read_settings(file: Path) -> FileSettings:
    """Read the values of the file; none if there is no file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return FileSettings()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"cannot read {file}: {error}") from error
    import tomllib

    try:
        tables = tomllib.loads(text, parse_float=Decimal)  # keep amounts exact
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{file}: not valid TOML: {error}") from error
    pairs = _flatten_tables(tables)
    written = {name for name, _ in pairs}
    values: dict[str, Value] = {}
    notes: list[str] = []
    for name, value in pairs:
        if name in UNUSED:
            notes.append(f"{_find_location(file, text, name)}: {name} is no longer used")
            continue
        if new := find_new_name(name):
            location = _find_location(file, text, name)
            if new in written:
                raise InvalidSetting(f"{name} in {location}: renamed to {new}, which is set too")
            notes.append(f"{location}: {name} is now {new}")
            values[new] = check_value(get_setting(new), value, location)
            continue
        if not is_setting(name):
            raise InvalidSetting(
                f"{name} in {_find_location(file, text, name)}: {explain_unknown(name)}"
            )
        values[name] = check_value(get_setting(name), value, _find_location(file, text, name))
    _check_servers(values, file, text)
    return FileSettings(values, tuple(notes))


def _flatten_tables(tables: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return full names and values, including those of nested tables."""
    pairs: list[tuple[str, Any]] = []
    for key, content in tables.items():
        name = f"{prefix}{key}"
        table = _as_table(content) if _can_hold_tables(prefix, key) else None
        if table is None:
            pairs.append((name, content))
        elif table:
            pairs += _flatten_tables(table, f"{name}.")
        elif not is_table(name):
            pairs.append((name, None))
    return pairs


def _can_hold_tables(prefix: str, key: str) -> bool:
    """Return whether a table may appear under this name; elsewhere a table is a value."""
    parent = prefix.removesuffix(".")
    return (
        not prefix
        or parent.partition(".")[0] in OVERRIDABLE_SECTIONS
        or f"{prefix}{key}" in NAMED_TABLES
        or parent in NAMED_TABLES
    )


def _as_table(content: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def _check_servers(values: Mapping[str, Value], file: Path, text: str) -> None:
    """Check that each server has a usable name and either a command or a URL."""
    keys_by_server: dict[str, set[str]] = {}
    for name in values:
        if (found := parse_table_entry(name)) and found[0] == "mcp.servers":
            keys_by_server.setdefault(found[1], set()).add(found[2])
    for server, keys in keys_by_server.items():
        name = f"mcp.servers.{server}"
        location = _find_location(file, text, name)
        if not _SERVER_NAME.fullmatch(server):
            allowed = "up to 32 letters, digits, _ and -"
            raise InvalidSetting(
                f"{name} in {location}: invalid server name {server!r:.60}; use {allowed}"
            )
        if len(keys & {"command", "url"}) != 1:
            raise InvalidSetting(f"{name} in {location}: needs either command or url")
        if "url" in keys and (command_keys := keys & {"args", "env", "cwd"}):
            listed = ", ".join(sorted(command_keys))
            raise InvalidSetting(f"{name} in {location}: {listed}: only valid with command")


def _find_location(file: Path, text: str, name: str) -> str:
    """Return the file and, if found, the line that sets `name`."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            current = re.sub(r"[\"'\s]", "", header[1])
            path = current if current == name else ""
        elif assigned := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = re.sub(r"[\"']", "", f"{current}.{assigned[1]}".lstrip("."))
        else:
            continue
        if path and (name == path or name.startswith(f"{path}.")):
            return f"{file}, line {number}"
    return str(file)
