"""Change one setting in `config.toml` and leave the rest of the file as the user wrote it."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any, cast

from rekindle.errors import InvalidSetting
from rekindle.files import write_new_file


def write_setting(file: Path, name: str, value: str | None) -> bool:
    """Set a text setting in the file, or remove it if None; return whether the file changed."""
    section, key = name.split(".")
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        text = ""
    expected = _parse_toml(file, text)
    found: Any = expected.setdefault(section, {})
    if not isinstance(found, dict):
        raise InvalidSetting(f"{file}: {section} is not a table")
    table = cast("dict[str, Any]", found)
    if table.get(key) == value:
        return False
    if value is None:
        del table[key]
        line = ""
    else:
        table[key] = value
        line = f"{key} = {json.dumps(value)}\n"
    changed = _replace_line(text, section, key, line)
    # The search above knows lines, not TOML: what it makes of a file is checked.
    try:
        is_right = tomllib.loads(changed) == expected
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        wanted = f"remove {name} from it" if value is None else f"set {name} to {value!r} in it"
        raise InvalidSetting(f"{file} cannot be changed safely; {wanted}")
    _replace_file(file, changed)
    return True


def _parse_toml(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{file}: not valid TOML: {error}") from error


def _replace_line(text: str, section: str, key: str, line: str) -> str:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    start = next((n for n, one in enumerate(lines) if _is_header(one, section)), None)
    if start is None:
        gap = "\n" if lines else ""
        return "".join(lines) + f"{gap}[{section}]\n{line}"
    for number in range(start + 1, len(lines)):
        if lines[number].lstrip().startswith("["):
            break
        if lines[number].partition("=")[0].strip() == key:
            lines[number] = line
            return "".join(lines)
    lines.insert(start + 1, line)
    return "".join(lines)


def _is_header(line: str, section: str) -> bool:
    return line.partition("#")[0].strip() == f"[{section}]"


def _replace_file(file: Path, text: str) -> None:
    Path(os.path.realpath(file)).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_new_file(file, text, in_place=True)
