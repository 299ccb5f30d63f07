"""Reading `config.toml`: every value with its full name, or a refusal that names file and line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from rekindle.errors import InvalidSetting

from .lookup import LAYERED, NAMED, about_unknown, is_setting, is_table, named, setting_of
from .setting import Value, checked

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def read(file: Path) -> dict[str, Value]:
    """Every value of the file by its full name; nothing if there is no file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{file}: cannot be read: {error}") from error
    import tomllib

    try:
        tables = tomllib.loads(text, parse_float=Decimal)  # money must not pass through a float
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{file}: not valid TOML: {error}") from error
    values: dict[str, Value] = {}
    for name, value in _flat(tables):
        if not is_setting(name):
            raise InvalidSetting(f"{name} in {_place(file, text, name)}: {about_unknown(name)}")
        values[name] = checked(setting_of(name), value, _place(file, text, name))
    _check_servers(values, file, text)
    return values


def _flat(tables: Mapping[str, Any], under: str = "") -> list[tuple[str, Any]]:
    """Full names and values, with those of all tables inside."""
    pairs: list[tuple[str, Any]] = []
    for key, content in tables.items():
        name = f"{under}{key}"
        table = _table_in(content) if _holds_tables(under, key) else None
        if table is None:
            pairs.append((name, content))
        elif table:
            pairs += _flat(table, f"{name}.")
        elif not is_table(name):
            pairs.append((name, None))
    return pairs


def _holds_tables(under: str, key: str) -> bool:
    """May a table stand under this name? Elsewhere a table is a value, and mostly a wrong one."""
    within = under.removesuffix(".")
    return (
        not under
        or within.partition(".")[0] in LAYERED
        or f"{under}{key}" in NAMED
        or within in NAMED
    )


def _table_in(content: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def _check_servers(values: Mapping[str, Value], file: Path, text: str) -> None:
    """A server has a name that its tools can carry, and one way to be reached."""
    given: dict[str, set[str]] = {}
    for name in values:
        if (found := named(name)) and found[0] == "mcp.servers":
            given.setdefault(found[1], set()).add(found[2])
    for server, keys in given.items():
        name = f"mcp.servers.{server}"
        place = _place(file, text, name)
        if not _SERVER_NAME.fullmatch(server):
            allowed = "up to 32 letters, digits, _ and -"
            raise InvalidSetting(
                f"{name} in {place}: {server!r:.60} is not allowed as a name; allowed: {allowed}"
            )
        if len(keys & {"command", "url"}) != 1:
            raise InvalidSetting(f"{name} in {place}: needs either command or url")
        if "url" in keys and (of_command := keys & {"args", "env", "cwd"}):
            wrong = ", ".join(sorted(of_command))
            raise InvalidSetting(f"{name} in {place}: {wrong}: only for a server with a command")


def _place(file: Path, text: str, name: str) -> str:
    """The file and, where it is found, the line that sets `name`."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            current = re.sub(r"[\"'\s]", "", header[1])
            path = current if current == name else ""
        elif assigned := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = re.sub(r"[\"']", "", f"{current}.{assigned[1]}".lstrip("."))
        else:
            continue
        if path and (name == path or name.startswith(f"{path}.")):
            return f"{file}, line {number}"
    return str(file)
