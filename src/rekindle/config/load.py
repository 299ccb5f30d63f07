"""Loads all settings: from the environment, else from the file, else the default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rekindle.errors import InvalidSetting
from rekindle.types import KeyRule, Overridable, OverrideScope, Price, ResetPolicy

from . import schema, toml_file
from .context_sizes import find_context_size
from .lookup import (
    SECTIONS,
    SETTINGS,
    SettingSections,
    get_setting,
    parse_override,
    parse_table_entry,
)
from .setting import Value, check_value, is_time_zone, parse_text


@dataclass(frozen=True, slots=True)
class Config(SettingSections):
    """Every setting's value and origin, and the folder that Rekindle keeps its files in.

    `extra_values` holds settings whose names the user chooses: overrides, servers, prices.
    """

    home: Path
    extra_values: Mapping[str, Value]
    origins: Mapping[str, str]
    notes: tuple[str, ...] = ()  # for the user: settings of the file that have an old name

    @property
    def file(self) -> Path:
        return self.home / "config.toml"

    def get_value(self, name: str) -> Value:
        """Return the value of the setting `section.key`, or of one that the user named."""
        if name in self.extra_values:
            return self.extra_values[name]
        section, key = name.split(".")
        return getattr(getattr(self, section), key)

    def format_value(self, name: str) -> str:
        """Return the value as text for display, with secrets masked."""
        return get_setting(name).format_value(self.get_value(name))

    @property
    def policies(self) -> Overridable[ResetPolicy]:
        """The reset policy, with its overrides per platform and chat type."""
        section = self.reset
        return Overridable(
            ResetPolicy(section.mode, section.idle_minutes, section.hour, section.time_zone),
            self._collect_overrides("reset"),
        )

    @property
    def key_rules(self) -> Overridable[KeyRule]:
        """The rule that separates conversations, with its overrides per platform and chat type."""
        section = self.keys
        return Overridable(
            KeyRule(section.direct, section.per_thread, section.per_user),
            self._collect_overrides("keys"),
        )

    @property
    def servers(self) -> dict[str, schema.McpServer]:
        """The enabled MCP servers by name."""
        servers = {
            name: schema.McpServer(**values)
            for name, values in self._collect_tables("mcp.servers").items()
        }
        return {name: server for name, server in servers.items() if server.enabled}

    def get_price(self, model: str) -> Price:
        """Return the price of a model.

        Return zero if none is set; raise an error if `agent.max_cost` limits the cost then.
        """
        values = self._collect_tables("model.prices").get(model)
        if values is not None:
            return make_price(values)
        if self.agent.max_cost:
            raise InvalidSetting(
                f"agent.max_cost: the price of {model!r} is unknown, so the limit cannot be enforced;"
                f' set it under [model.prices."{model}"] in {self.file}'
            )
        return Price()

    def get_limits(self, model: str) -> schema.LimitTable:
        """Return the context of a model and the room for its answer; 0 for an unknown context."""
        table = schema.LimitTable(**self._collect_tables("model.limits").get(model, {}))
        context = table.context or self.agent.context or find_context_size(model)
        return schema.LimitTable(context, table.answer or self.agent.answer_tokens)

    @property
    def prices(self) -> dict[str, Price]:
        """The prices of models that are set here, which go before those of the shipped table."""
        tables = self._collect_tables("model.prices")
        return {model: make_price(values) for model, values in tables.items()}

    def _collect_overrides(self, section: str) -> dict[OverrideScope, dict[str, Value]]:
        overrides: dict[OverrideScope, dict[str, Value]] = {}
        for name, value in self.extra_values.items():
            if name.startswith(f"{section}.") and (found := parse_override(name)):
                scope, base = found
                overrides.setdefault(scope, {})[base.rpartition(".")[2]] = value
        return overrides

    def _collect_tables(self, table: str) -> dict[str, dict[str, Any]]:
        """Collect the values of `[table.<name>]` by name."""
        found: dict[str, dict[str, Any]] = {}
        for name, value in self.extra_values.items():
            if (entry := parse_table_entry(name)) and entry[0] == table:
                found.setdefault(entry[1], {})[entry[2]] = value
        return found


def make_price(values: Mapping[str, Any]) -> Price:
    """Make a price of the fields of a price table; the others have their defaults."""
    table = schema.PriceTable(**values)
    write = table.input if table.cache_write is None else table.cache_write
    return Price(
        input=table.input,
        output=table.output,
        cache_read=table.input if table.cache_read is None else table.cache_read,
        cache_write=write,
        cache_write_1h=write if table.cache_write_1h is None else table.cache_write_1h,
    )


def find_home(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for Rekindle's files: $REKINDLE_HOME, else the user's data folder."""
    if chosen := env.get("REKINDLE_HOME"):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("rekindle", appauthor=False))


def _check_path_encoding(home: Path) -> None:
    """Refuse a home whose path SQLite and the supervisor's protocol cannot express."""
    try:
        str(home).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(home).decode("utf-8", "backslashreplace")
        raise InvalidSetting(
            f"home {shown}: the path is not UTF-8; set REKINDLE_HOME to another folder"
        ) from None


def get_home_and_env() -> tuple[Path, Mapping[str, str]]:
    """Return the user's home folder and environment, to locate files of other programs."""
    return Path.home(), os.environ


def get_login_name() -> str:
    """Return the login name from the system, whatever the environment says."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a uid without an account
        return str(os.getuid())


def allows_color(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user allows colored terminal output."""
    return not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def should_force_color(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user wants colored output in a pipe too."""
    return env.get("FORCE_COLOR", "") not in ("", "0") and not env.get("NO_COLOR")


def find_pager(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the command of the user's pager: PAGER, or else less; nothing if there is none."""
    import shlex
    import shutil

    try:
        words = shlex.split(env.get("PAGER", "less"))
    except ValueError:
        return ()
    if not words or words[0] == "cat" or env.get("TERM") == "dumb":
        return ()
    found = shutil.which(words[0], path=env.get("PATH"))
    return (found, *words[1:]) if found else ()


def load_config(env: Mapping[str, str] = os.environ, *, store: str | None = None) -> Config:
    """Load the settings; `store` comes from the command line and overrides everything."""
    home = find_home(env)
    _check_path_encoding(home)
    values = {name: setting.default for name, setting in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, "default")
    in_file = toml_file.read_settings(home / "config.toml")
    for name, value in in_file.values.items():
        values[name], origins[name] = value, "file"
    _reject_moved(env)
    for setting in SETTINGS.values():
        if text := env.get(setting.env):
            location = f"the environment variable {setting.env}"
            values[setting.name] = check_value(setting, parse_text(setting, text), location)
            origins[setting.name] = f"environment ({setting.env})"
    if store is not None:
        values["store.url"], origins["store.url"] = store, "command line (--store)"
    for name, value in values.items():
        form = get_setting(name).form
        if form == "path":
            base = home if origins[name] in ("default", "file") else Path.cwd()
            values[name] = resolve_path(str(value), base)
        elif form == "zone" and value == "local":
            values[name] = get_local_zone(env)
    section_values: dict[str, Any] = {
        section: cls(**{f.name: values.pop(f"{section}.{f.name}") for f in fields(cls)})
        for section, cls in SECTIONS.items()
    }
    extra_values = MappingProxyType(values)
    return Config(
        home=home,
        extra_values=extra_values,
        origins=MappingProxyType(origins),
        notes=in_file.notes,
        **section_values,
    )


def _reject_moved(env: Mapping[str, str]) -> None:
    """Reject environment variables of renamed settings, which would be ignored silently."""
    for old, new in schema.MOVED.items():
        name = f"REKINDLE_{old.replace('.', '_')}".upper()
        if env.get(name):
            raise InvalidSetting(
                f"the environment variable {name} was renamed to {SETTINGS[new].env}"
            )


def get_local_zone(env: Mapping[str, str] = os.environ) -> str:
    """Return the name of this machine's time zone, or UTC if it is unknown."""
    if (name := env.get("TZ", "").removeprefix(":")) and is_time_zone(name):
        return name
    _, marker, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return name if marker else "UTC"


def resolve_path(target: str, base: Path | None = None) -> str:
    """Return `target` if it is a URL, else the absolute path of the file it names."""
    if is_url(target):
        return target
    return str(((base or Path.cwd()) / Path(target).expanduser()).absolute())


def is_url(target: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]+://", target) is not None


def find_unknown_env_vars(env: Mapping[str, str] = os.environ) -> list[str]:
    """Return environment variables that look like settings but are not."""
    known = {setting.env for setting in SETTINGS.values()} | {"REKINDLE_HOME"}
    return sorted(name for name in env if name.startswith("REKINDLE_") and name not in known)
