"""The settings of one platform, in a separate file that only the user can read.

<home>/platforms/<name>.toml    the settings, among them tokens
<home>/platforms/<name>/        what the platform must remember, such as the keys of a device
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from rekindle.errors import InvalidSetting

from .kind import PlatformKind

FOLDER_NAME = "platforms"


def get_settings_path(name: str, home: Path) -> Path:
    """Return the path of a platform's settings."""
    return home / FOLDER_NAME / f"{name}.toml"


def get_state_folder(name: str, home: Path) -> Path:
    """Return the folder for a platform's state, and create it."""
    folder = home / FOLDER_NAME / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def load_settings(
    kind: PlatformKind, home: Path, env: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Load the settings of a platform: from its file, else the environment, else the default."""
    path = get_settings_path(kind.name, home)
    given = read_settings_file(path)
    values: dict[str, str] = {}
    for field in kind.fields:
        value = given.pop(field.name, None)
        if value is None:
            value = (env.get(field.env) if field.env else None) or field.default
        if value is None:
            raise InvalidSetting(
                f"{path}: {field.name} is missing; run `rekindle gateway setup {kind.name}`"
            )
        values[field.name] = value
    if given:
        raise InvalidSetting(f"{path}: unknown setting {next(iter(given))!r:.80}")
    return values


def read_settings_file(path: Path) -> dict[str, str]:
    """Return the settings in a file; none if there is no file."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise InvalidSetting(f"{path}: {error}") from error
    for name, value in values.items():
        if not isinstance(value, (str, int, float, bool)):
            raise InvalidSetting(f"{path}: {name}: expected text")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def write_settings(name: str, home: Path, values: Mapping[str, str]) -> Path:
    """Write the settings of a platform, readable by the user alone, and return the path."""
    path = get_settings_path(name, home)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return path
