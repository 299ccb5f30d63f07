"""All settings together: from the environment, else from the file, else the default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rekindle.errors import InvalidSetting
from rekindle.types import KeyRule, Layered, Place, Policy, Price

from . import schema, toml_file
from .lookup import SECTIONS, SETTINGS, named, placed, setting_of
from .setting import Value, checked, from_text, is_zone


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting's value, where it came from, and the folder Rekindle lives in.

    `more` are those that the user has named: settings of some place, servers, prices.
    """

    home: Path
    store: schema.StoreSection
    retention: schema.RetentionSection
    list: schema.ListSection
    model: schema.ModelSection
    agent: schema.AgentSection
    reset: schema.ResetSection
    keys: schema.KeysSection
    chat: schema.ChatSection
    gateway: schema.GatewaySection
    processes: schema.ProcessesSection
    warm: schema.WarmSection
    mcp: schema.McpSection
    more: Mapping[str, Value]
    origins: Mapping[str, str]

    @property
    def file(self) -> Path:
        return self.home / "config.toml"

    def value(self, name: str) -> Value:
        """The value of the setting called `section.key`, or of one that the user has named."""
        if name in self.more:
            return self.more[name]
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

    @property
    def servers(self) -> dict[str, schema.McpServer]:
        """The MCP servers that are switched on, by name."""
        given = {name: schema.McpServer(**one) for name, one in self._tables("mcp.servers").items()}
        return {name: server for name, server in given.items() if server.enabled}

    def price_of(self, model: str) -> Price:
        """What a model costs; nothing where it is not set. A limit of cost is refused then."""
        given = self._tables("model.prices").get(model)
        if given is not None:
            one = schema.PriceTable(**given)
            cached = (one.cache_read, one.cache_write)
            read, write = (one.input if price is None else price for price in cached)
            return Price(one.input, one.output, read, write)
        if self.agent.cost:
            raise InvalidSetting(
                f"agent.cost: the price of {model!r} is not known, so the limit would never hold;"
                f' say it under [model.prices."{model}"] in {self.file}'
            )
        return Price()

    def _changes(self, section: str) -> dict[Place, dict[str, Value]]:
        changes: dict[Place, dict[str, Value]] = {}
        for name, value in self.more.items():
            if name.startswith(f"{section}.") and (found := placed(name)):
                place, base = found
                changes.setdefault(place, {})[base.rpartition(".")[2]] = value
        return changes

    def _tables(self, table: str) -> dict[str, dict[str, Any]]:
        """What is set under each name of the user's choice."""
        found: dict[str, dict[str, Any]] = {}
        for name, value in self.more.items():
            if (one := named(name)) and one[0] == table:
                found.setdefault(one[1], {})[one[2]] = value
        return found


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
    for name, value in toml_file.read(home / "config.toml").items():
        values[name], origins[name] = value, "file"
    _refuse_moved(env)
    for one in SETTINGS.values():
        if text := env.get(one.env):
            place = f"the environment variable {one.env}"
            values[one.name] = checked(one, from_text(one, text), place)
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
    given: dict[str, Any] = {
        section: cls(**{f.name: values.pop(f"{section}.{f.name}") for f in fields(cls)})
        for section, cls in SECTIONS.items()
    }
    rest = MappingProxyType(values)
    return Config(home=home, more=rest, origins=MappingProxyType(origins), **given)


def _refuse_moved(env: Mapping[str, str]) -> None:
    """A limit that is no longer looked at must not look as if it held."""
    for old, new in schema.MOVED.items():
        name = f"REKINDLE_{old.replace('.', '_')}".upper()
        if env.get(name):
            raise InvalidSetting(
                f"the environment variable {name} is called {SETTINGS[new].env} now"
            )


def zone_of_machine(env: Mapping[str, str] = os.environ) -> str:
    """The name of this machine's time zone; UTC where it tells none."""
    if (name := env.get("TZ", "").removeprefix(":")) and is_zone(name):
        return name
    _, marker, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return name if marker else "UTC"


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
