"""Settings: the only reader of environment variables and of TOML.

A setting is one line in one of the sections below: its type, its default, what is allowed and what
it is for. Its name is `section.key`, its environment variable `REKINDLE_SECTION_KEY`. The value
comes from the environment, else from `<home>/config.toml`, else it is the default; what is unknown
or not allowed is refused with its name and the place it came from.

The settings of `reset` and `keys` may differ by place. The file then holds, beside `[reset]`, tables
`[reset.type.<type>]`, `[reset.platform.<platform>]` and `[reset.platform.<platform>.<type>]` with the
settings that are other there. The words `type` and `platform` keep the names of platforms, which
plugins choose, apart from those of settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

from .errors import InvalidSetting
from .types import ChatType, KeyRule, Layered, Place, Policy

Value = str | int | float | bool
Form = Literal["plain", "path", "zone", "address", "secret"]

LAYERED = ("reset", "keys")


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
    form: Form = "plain",
) -> Any:
    """Declare a setting; `form` says what its text is: a `path` names a file unless it is a URL."""
    about = {"help": help, "env": env, "limits": limits, "form": form}
    return field(default=default, metadata=about, repr=form != "secret")


@dataclass(frozen=True, slots=True)
class StoreSection:
    url: str = setting(
        "sessions.db", "SQLite file or postgresql:// URL", env="REKINDLE_STORE", form="path"
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
class ModelSection:
    base_url: str = setting(
        "https://api.openai.com/v1",
        "where the model answers, in the OpenAI protocol",
        env="OPENAI_BASE_URL",
        form="address",
    )
    api_key: str = setting("", "the key for it; never shown", env="OPENAI_API_KEY", form="secret")
    name: str = setting("", "the model to ask", env="REKINDLE_MODEL")


@dataclass(frozen=True, slots=True)
class ResetSection:
    mode: Literal["none", "idle", "daily", "both"] = setting(
        "both", "when a conversation starts anew by itself"
    )
    idle_minutes: int = setting(
        1440, "minutes without a message before it does", limits=Limits(1, 525_600)
    )
    hour: int = setting(4, "hour of the daily reset", limits=Limits(0, 23))
    zone: str = setting("local", "time zone of that hour; local: that of this machine", form="zone")


@dataclass(frozen=True, slots=True)
class KeysSection:
    direct: Literal["single", "shared"] = setting(
        "single", "direct messages: one conversation for all, or (shared) one for each chat"
    )
    thread: bool = setting(False, "each thread has a conversation of its own")
    user: bool = setting(False, "each user has a conversation of their own")


@dataclass(frozen=True, slots=True)
class ChatSection:
    reasoning: Literal["dim", "hide"] = setting("dim", "what the model thinks, at the terminal")
    approval: Literal["always", "dangerous", "refuse", "never"] = setting(
        "dangerous",
        "ask before every command, or a dangerous one; refuse those; or never ask (run everything)",
    )
    tools: str = setting("all", "toolsets and tools that are switched on, separated by commas")
    folders: str = setting(
        "", "folders that file tools may use beside the one you are in, separated by colons"
    )
    steps: int = setting(60, "steps of the model in one turn", limits=Limits(1, 10_000))
    tokens: int = setting(0, "tokens in one turn; 0: no limit", limits=Limits(0))
    context: int = setting(
        0,
        "tokens that the model can look at; 0: not known, so that it must complain first",
        limits=Limits(0),
    )
    history: int = setting(
        1000, "typed lines that are kept for the next time", limits=Limits(0, 100_000)
    )


@dataclass(frozen=True, slots=True)
class GatewaySection:
    platforms: str = setting("", "what to connect: module:function[=argument], separated by spaces")
    arriving: Literal["queue", "steer", "interrupt"] = setting(
        "queue", "a message during a turn waits for its own, joins the turn, or stops it"
    )
    turns: int = setting(100, "turns that run at once", limits=Limits(1, 10_000))
    steps: int = setting(60, "steps of the model in one turn", limits=Limits(1, 10_000))
    tokens: int = setting(0, "tokens in one turn; 0: no limit", limits=Limits(0))
    context: int = setting(
        0,
        "tokens that the model can look at; 0: not known, so that it must complain first",
        limits=Limits(0),
    )
    tools: str = setting("all", "toolsets and tools that are switched on, separated by commas")
    approval: Literal["refuse", "never"] = setting(
        "refuse", "dangerous commands: refused, since nobody can be asked, or (never) run"
    )
    workdir: str = setting("work", "the folder where tools work", form="path")
    folders: str = setting("", "further folders that file tools may use, separated by colons")
    edit_seconds: float = setting(
        1.0, "between two looks at an answer that is being written; 0: whole ones", limits=Limits(0)
    )
    send_attempts: int = setting(8, "attempts to send something", limits=Limits(1, 1000))
    lease_seconds: float = setting(
        30.0, "seconds after which others take over what a dead gateway left", limits=Limits(1)
    )
    grace_seconds: float = setting(20.0, "for turns to end when it is stopped", limits=Limits(0))
    keep_days: float = setting(30.0, "days that delivered mail is remembered", limits=Limits(1))
    health_port: int = setting(
        0, "of the health page on this machine; 0: a free one", limits=Limits(0, 65_535)
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting's value, where it came from, and the folder Rekindle lives in."""

    home: Path
    store: StoreSection = StoreSection()
    retention: RetentionSection = RetentionSection()
    list: ListSection = ListSection()
    model: ModelSection = ModelSection()
    reset: ResetSection = ResetSection()
    keys: KeysSection = KeysSection()
    chat: ChatSection = ChatSection()
    gateway: GatewaySection = GatewaySection()
    by_place: Mapping[str, Value] = field(default_factory=dict[str, Value])
    origins: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def file(self) -> Path:
        return self.home / "config.toml"

    def value(self, name: str) -> Value:
        """The value of the setting called `section.key`, or of one that holds in some place only."""
        if name in self.by_place:
            return self.by_place[name]
        section, key = name.split(".")
        return getattr(getattr(self, section), key)

    def shown(self, name: str) -> str:
        """The value for people, without what is secret in it."""
        return setting_of(name).shown(self.value(name))

    @property
    def policies(self) -> Layered[Policy]:
        """When conversations are reset, everywhere and in some places."""
        one = self.reset
        return Layered(
            Policy(one.mode, one.idle_minutes, one.hour, one.zone), self._changes("reset")
        )

    @property
    def key_rules(self) -> Layered[KeyRule]:
        """What tells conversations apart, everywhere and in some places."""
        one = self.keys
        return Layered(KeyRule(one.direct, one.thread, one.user), self._changes("keys"))

    def _changes(self, section: str) -> dict[Place, dict[str, Value]]:
        changes: dict[Place, dict[str, Value]] = {}
        for name, value in self.by_place.items():
            if name.startswith(f"{section}.") and (found := _split(name)):
                place, base = found
                changes.setdefault(place, {})[base.rpartition(".")[2]] = value
        return changes


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
    form: Form = "plain"

    def shown(self, value: Value) -> str:
        """A value of it for people, without what is secret in it."""
        if value == "":
            return "not set"
        return "***" if self.form == "secret" else masked(value)

    @property
    def expected(self) -> str:
        """What is allowed, for people."""
        if self.allowed:
            return " or ".join(self.allowed)
        if self.form == "zone":
            return "a time zone such as Europe/Berlin, or local"
        if self.form == "address":
            return "an http:// or https:// URL"
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        text = words[self.kind]
        if self.limits is None:
            return text
        least, most = self.limits
        return f"{text} from {least:g}" + ("" if most == float("inf") else f" to {most:g}")


def _sections() -> dict[str, type]:
    hints = get_type_hints(Config)
    return {
        f.name: hints[f.name]
        for f in fields(Config)
        if f.name not in ("home", "by_place", "origins")
    }


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
                form=each.metadata["form"],
            )
    return table


SETTINGS: Mapping[str, Setting] = MappingProxyType(_table())

_TYPES = "|".join(get_args(ChatType))
_PLACED_NAME = re.compile(
    rf"({'|'.join(LAYERED)})\.(?:platform\.([a-z0-9_-]+)(?:\.({_TYPES}))?|type\.({_TYPES}))\.(\w+)"
)


def _split(name: str) -> tuple[Place, str] | None:
    """The place that `reset.platform.telegram.hour` speaks of, and the setting it changes there."""
    if found := _PLACED_NAME.fullmatch(name):
        section, platform, its_type, any_type, key = found.groups()
        chat_type, base = its_type or any_type, f"{section}.{key}"
        fits = base != "keys.direct" or chat_type in (None, "dm")
        if base in SETTINGS and fits:
            return (platform, chat_type), base
    return None


def setting_of(name: str) -> Setting:
    """The setting of that name; one that holds in some place only is like the one it changes."""
    if found := _split(name):
        return replace(SETTINGS[found[1]], name=name, env="")
    return SETTINGS[name]


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
    values = {name: one.default for name, one in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, "default")
    for name, value in _read_file(home / "config.toml").items():
        values[name], origins[name] = value, "file"
    for one in SETTINGS.values():
        if text := env.get(one.env):
            place = f"the environment variable {one.env}"
            values[one.name] = _checked(one, _from_text(one, text), place)
            origins[one.name] = f"environment ({one.env})"
    if store is not None:
        values["store.url"], origins["store.url"] = store, "command line (--store)"
    for name, value in values.items():
        form = setting_of(name).form
        if form == "path":
            base = home if origins[name] in ("default", "file") else Path.cwd()
            values[name] = located(str(value), base)
        elif form == "zone" and value == "local":
            values[name] = zone_of_machine(env)
    sections: dict[str, Any] = {
        section: cls(**{f.name: values.pop(f"{section}.{f.name}") for f in fields(cls)})
        for section, cls in _sections().items()
    }
    rest = MappingProxyType(values)
    return Config(home=home, by_place=rest, origins=MappingProxyType(origins), **sections)


def zone_of_machine(env: Mapping[str, str] = os.environ) -> str:
    """The name of this machine's time zone; UTC where it tells none."""
    if (name := env.get("TZ", "").removeprefix(":")) and _is_zone(name):
        return name
    _, marker, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return name if marker else "UTC"


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder
        return False
    return True


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
        if name not in SETTINGS and not _split(name):
            raise InvalidSetting(f"{name} in {_place(file, text, name)}: {_unknown(name)}")
        values[name] = _checked(setting_of(name), value, _place(file, text, name))
    return values


def _flat(tables: Mapping[str, Any], under: str = "") -> list[tuple[str, Any]]:
    """Full names and values. Tables hold tables where settings may differ by place, else values."""
    pairs: list[tuple[str, Any]] = []
    deeper = not under or under.partition(".")[0] in LAYERED
    for key, content in tables.items():
        name = f"{under}{key}"
        table = _table_in(content) if deeper else None
        if table is None:
            pairs.append((name, content))
        elif table:
            pairs += _flat(table, f"{name}.")
        elif not _is_table(name):
            pairs.append((name, None))
    return pairs


def _table_in(content: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def _is_table(name: str) -> bool:
    """May a table be called so? (An empty one holds no setting by whose name it could be refused.)"""
    section, _, rest = name.partition(".")
    if section not in LAYERED or not rest:
        return section in _sections() and not rest
    return rest in ("platform", "type") or any(
        _split(f"{name}.{key}") for key in ("hour", "thread")
    )


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    section, _, rest = name.partition(".")
    if section in LAYERED and "." in rest:
        places = f"{section}.type.<type>, {section}.platform.<platform>[.<type>]"
        keys = ", ".join(
            known.partition(".")[2] for known in SETTINGS if known.startswith(f"{section}.")
        )
        types = _TYPES.replace("|", ", ")
        return f"there is no such setting; allowed: {keys} under {places}, where a type is {types}"
    if near := get_close_matches(name, SETTINGS, n=1):
        return f"there is no such setting; did you mean {near[0]}?"
    return f"there is no such setting; allowed: {', '.join(SETTINGS)}"


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
    if type(value) is not one.kind or not _fits(one, value):
        shown = "***" if one.form == "secret" else masked(repr(value))
        raise InvalidSetting(
            f"{one.name} in {place}: {shown} is not allowed; allowed: {one.expected}"
        )
    return value


def _fits(one: Setting, value: Any) -> bool:
    """Is a value of the right type one of those allowed?"""
    if one.allowed:
        return value in one.allowed
    if one.limits:
        return one.limits.least <= value <= one.limits.most
    if one.form == "zone":
        return value == "local" or _is_zone(value)
    if one.form == "address":
        return re.match(r"https?://[^\s/]+\S*$", value) is not None
    return value != ""
