"""Settings: the only reader of environment variables and of TOML.

A setting is one line in one of the sections below: its type, its default, what is allowed and what
it is for. Its name is `section.key`, its environment variable `REKINDLE_SECTION_KEY`. The value
comes from the environment, else from `<home>/config.toml`, else it is the default; what is unknown
or not allowed is refused with its name and the place it came from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

from .errors import InvalidSetting

Value = str | int | float | bool


class Limits(NamedTuple):
    """The smallest and largest value of a number."""

    least: float
    most: float = float("inf")


def setting(
    default: Any,
    help: str,
    *,
    env: str = "",
    limits: Limits | None = None,
    path: bool = False,
) -> Any:
    """Declare a setting; `path` marks text that names a file when it is not a URL."""
    return field(
        default=default, metadata={"help": help, "env": env, "limits": limits, "path": path}
    )


@dataclass(frozen=True, slots=True)
class StoreSection:
    url: str = setting(
        "sessions.db", "SQLite file or postgresql:// URL", env="REKINDLE_STORE", path=True
    )
    durability: Literal["full", "relaxed"] = setting("full", "full: a message survives power loss")
    busy_seconds: float = setting(30.0, "how long to wait for another writer", limits=Limits(0))


@dataclass(frozen=True, slots=True)
class RetentionSection:
    undo_days: float = setting(7.0, "days a pruned session can be brought back", limits=Limits(0))
    active_hours: float = setting(
        24.0, "hours without activity before a session may go", limits=Limits(0)
    )


@dataclass(frozen=True, slots=True)
class ListSection:
    limit: int = setting(20, "rows that `sessions list` shows", limits=Limits(1, 100_000))


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting's value, where it came from, and the folder Rekindle lives in."""

    home: Path
    store: StoreSection = StoreSection()
    retention: RetentionSection = RetentionSection()
    list: ListSection = ListSection()
    origins: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def file(self) -> Path:
        return self.home / "config.toml"

    def value(self, name: str) -> Value:
        """The value of the setting called `section.key`."""
        section, key = name.split(".")
        return getattr(getattr(self, section), key)


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table of settings."""

    name: str
    kind: type
    default: Value
    help: str
    env: str
    allowed: tuple[str, ...] = ()
    limits: Limits | None = None
    path: bool = False

    @property
    def expected(self) -> str:
        """What is allowed, for people."""
        if self.allowed:
            return " or ".join(self.allowed)
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        text = words[self.kind]
        if self.limits is None:
            return text
        least, most = self.limits
        return f"{text} from {least:g}" + ("" if most == float("inf") else f" to {most:g}")


def _sections() -> dict[str, type]:
    hints = get_type_hints(Config)
    return {f.name: hints[f.name] for f in fields(Config) if f.name not in ("home", "origins")}


def _table() -> dict[str, Setting]:
    table: dict[str, Setting] = {}
    for section, cls in _sections().items():
        hints = get_type_hints(cls)
        for each in fields(cls):
            name, hint = f"{section}.{each.name}", hints[each.name]
            choices = cast("tuple[str, ...]", get_args(hint) if get_origin(hint) is Literal else ())
            table[name] = Setting(
                name=name,
                kind=str if choices else hint,
                default=cast("Value", each.default),
                help=each.metadata["help"],
                env=each.metadata["env"] or f"REKINDLE_{section}_{each.name}".upper(),
                allowed=choices,
                limits=each.metadata["limits"],
                path=each.metadata["path"],
            )
    return table


SETTINGS: Mapping[str, Setting] = MappingProxyType(_table())


def find_home(env: Mapping[str, str] = os.environ) -> Path:
    """The folder Rekindle keeps its files in: $REKINDLE_HOME, else the user's data folder."""
    if chosen := env.get("REKINDLE_HOME"):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("rekindle", appauthor=False))


def surroundings() -> tuple[Path, Mapping[str, str]]:
    """The user's home and environment, to look where other programs keep their files."""
    return Path.home(), os.environ


def is_colourful(env: Mapping[str, str] = os.environ) -> bool:
    """Does the user let programs colour what they write to a terminal?"""
    return not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def load(env: Mapping[str, str] = os.environ, *, store: str | None = None) -> Config:
    """Read the settings; `store` is what the command line asks for and wins over everything."""
    home = find_home(env)
    file = home / "config.toml"
    values = {name: one.default for name, one in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, "default")
    for name, value in _read_file(file).items():
        values[name], origins[name] = value, "file"
    for one in SETTINGS.values():
        if text := env.get(one.env):
            place = f"the environment variable {one.env}"
            values[one.name] = _checked(one, _from_text(one, text), place)
            origins[one.name] = f"environment ({one.env})"
    if store is not None:
        values["store.url"], origins["store.url"] = store, "command line (--store)"
    for one in SETTINGS.values():
        if one.path:
            base = home if origins[one.name] in ("default", "file") else Path.cwd()
            values[one.name] = located(str(values[one.name]), base)
    sections: dict[str, Any] = {
        section: cls(**{f.name: values[f"{section}.{f.name}"] for f in fields(cls)})
        for section, cls in _sections().items()
    }
    return Config(home=home, origins=MappingProxyType(origins), **sections)


def located(target: str, base: Path | None = None) -> str:
    """`target` itself when it is a URL, else the full path of the file it names."""
    if is_url(target):
        return target
    return str(((base or Path.cwd()) / Path(target).expanduser()).absolute())


def is_url(target: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]+://", target) is not None


def strangers(env: Mapping[str, str] = os.environ) -> list[str]:
    """Environment variables that look like settings and are none."""
    known = {one.env for one in SETTINGS.values()} | {"REKINDLE_HOME"}
    return sorted(name for name in env if name.startswith("REKINDLE_") and name not in known)


def masked(value: Value) -> str:
    """The value for people, without the password of a URL."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = re.sub(r"(?<=://)([^/@:\s]*):([^/\s]*)@", r"\1:***@", text)
    return re.sub(r"(?i)([?&](?:password|sslpassword)=)[^&\s]*", r"\1***", text)


def _read_file(file: Path) -> dict[str, Value]:
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{file}: cannot be read: {error}") from error
    import tomllib

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{file}: not valid TOML: {error}") from error
    values: dict[str, Value] = {}
    for name, value in _flat(tables):
        if name not in SETTINGS:
            raise InvalidSetting(f"{name} in {_place(file, text, name)}: {_unknown(name)}")
        values[name] = _checked(SETTINGS[name], value, _place(file, text, name))
    return values


def _flat(tables: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for section, content in tables.items():
        if isinstance(content, dict):
            inner = cast("dict[str, Any]", content)
            pairs += [(f"{section}.{key}", value) for key, value in inner.items()]
            if not inner and section not in _sections():
                pairs.append((section, None))
        else:
            pairs.append((section, content))
    return pairs


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    if near := get_close_matches(name, SETTINGS, n=1):
        return f"there is no such setting; did you mean {near[0]}?"
    return f"there is no such setting; allowed: {', '.join(SETTINGS)}"


def _place(file: Path, text: str, name: str) -> str:
    """The file and, where it is found, the line that sets `name`."""
    section, _, key = name.partition(".")
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            current = header[1]
        elif assigned := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = re.sub(r"[\"']", "", f"{current}.{assigned[1]}".lstrip("."))
            if path == name or (path == section and key):
                return f"{file}, line {number}"
        if current == section and not key:
            return f"{file}, line {number}"
    return str(file)


def _from_text(one: Setting, text: str) -> Any:
    """An environment variable's text as the type the setting wants; as it is when it cannot be."""
    if one.kind is bool:
        words = {"1": True, "true": True, "yes": True, "on": True}
        words |= {"0": False, "false": False, "no": False, "off": False}
        return words.get(text.lower(), text)
    try:
        return one.kind(text)
    except ValueError:
        return text


def _checked(one: Setting, value: Any, place: str) -> Value:
    if one.kind is float and type(value) is int:
        value = float(value)
    fits = type(value) is one.kind
    if fits and one.allowed:
        fits = value in one.allowed
    if fits and one.limits:
        fits = one.limits.least <= value <= one.limits.most
    if fits and one.kind is str:
        fits = bool(value)
    if not fits:
        raise InvalidSetting(
            f"{one.name} in {place}: {value!r} is not allowed; allowed: {one.expected}"
        )
    return value
