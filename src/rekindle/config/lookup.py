"""The names of settings: which there are, what they mean, and what a wrong one was meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from rekindle.types import ChatType, Place

from . import schema
from .setting import Setting, setting_from

# Settings that may differ by place: platform and type of chat.
LAYERED = ("reset", "keys")
SECTIONS: Mapping[str, type] = {
    "store": schema.StoreSection,
    "retention": schema.RetentionSection,
    "list": schema.ListSection,
    "model": schema.ModelSection,
    "agent": schema.AgentSection,
    "reset": schema.ResetSection,
    "keys": schema.KeysSection,
    "chat": schema.ChatSection,
    "gateway": schema.GatewaySection,
    "processes": schema.ProcessesSection,
    "warm": schema.WarmSection,
    "mcp": schema.McpSection,
}
# Tables under names of the user's choice: `[mcp.servers.files]`.
NAMED: Mapping[str, type] = {
    "mcp.servers": schema.McpServer,
    "model.prices": schema.PriceTable,
}
ANY = "<name>"  # stands for such a name


def _settings_of(table: str, cls: type) -> Iterator[Setting]:
    hints = get_type_hints(cls)
    for each in fields(cls):
        default: Any = each.default
        if default is MISSING:
            default = {}
        yield setting_from(f"{table}.{each.name}", hints[each.name], default, each.metadata)


def _table() -> dict[str, Setting]:
    table: dict[str, Setting] = {}
    for section, cls in SECTIONS.items():
        for one in _settings_of(section, cls):
            env = one.env or f"REKINDLE_{one.name.replace('.', '_')}".upper()
            table[one.name] = replace(one, env=env)
    return table


SETTINGS: Mapping[str, Setting] = MappingProxyType(_table())
NAMED_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {one.name: one for table, cls in NAMED.items() for one in _settings_of(f"{table}.{ANY}", cls)}
)

TYPES = "|".join(get_args(ChatType))
_PLACED_NAME = re.compile(
    rf"({'|'.join(LAYERED)})\.(?:platform\.([a-z0-9_-]+)(?:\.({TYPES}))?|type\.({TYPES}))\.(\w+)"
)


def placed(name: str) -> tuple[Place, str] | None:
    """The place that `reset.platform.telegram.hour` speaks of, and the setting it changes there."""
    if found := _PLACED_NAME.fullmatch(name):
        section, platform, its_type, any_type, key = found.groups()
        chat_type, base = its_type or any_type, f"{section}.{key}"
        fits = base != "keys.direct" or chat_type in (None, "dm")
        if base in SETTINGS and fits:
            return (platform, chat_type), base
    return None


def named(name: str) -> tuple[str, str, str] | None:
    """Table, name and key of `mcp.servers.files.command`; names may have dots, keys have none."""
    for table in NAMED:
        if name.startswith(f"{table}."):
            entry, _, key = name[len(table) + 1 :].rpartition(".")
            if entry and f"{table}.{ANY}.{key}" in NAMED_SETTINGS:
                return table, entry, key
    return None


def is_setting(name: str) -> bool:
    return name in SETTINGS or placed(name) is not None or named(name) is not None


def setting_of(name: str) -> Setting:
    """The setting of that name; one that holds in some place only is like the one it changes."""
    if found := placed(name):
        return replace(SETTINGS[found[1]], name=name, env="")
    if entry := named(name):
        table, _, key = entry
        return replace(NAMED_SETTINGS[f"{table}.{ANY}.{key}"], name=name)
    return SETTINGS[name]


def is_table(name: str) -> bool:
    """May a table be called so? (An empty one holds no setting by whose name it could be refused.)"""
    section, _, rest = name.partition(".")
    if name in SECTIONS or name in NAMED:
        return True
    if section not in LAYERED or not rest:
        return False
    return rest in ("platform", "type") or any(
        placed(f"{name}.{key}") for key in ("hour", "thread")
    )


def about_unknown(name: str) -> str:
    """What to say to somebody who set something that does not exist."""
    from difflib import get_close_matches

    if name in schema.MOVED:
        return f"it is called {schema.MOVED[name]} now, and holds for chat and gateway alike"
    section, _, rest = name.partition(".")
    if table := next((one for one in NAMED if name.startswith(f"{one}.")), None):
        keys = ", ".join(each.name for each in fields(NAMED[table]))
        hint = 'a name with a dot stands in quotes, such as [model.prices."small-1.5"]'
        return f"there is no such setting; allowed: {keys} under [{table}.NAME]; {hint}"
    if section in LAYERED and "." in rest:
        places = f"{section}.type.<type>, {section}.platform.<platform>[.<type>]"
        keys = ", ".join(
            known.partition(".")[2] for known in SETTINGS if known.startswith(f"{section}.")
        )
        types = TYPES.replace("|", ", ")
        return f"there is no such setting; allowed: {keys} under {places}, where a type is {types}"
    if near := get_close_matches(name, SETTINGS, n=1):
        return f"there is no such setting; did you mean {near[0]}?"
    return f"there is no such setting; allowed: {', '.join(SETTINGS)}"
