"""The names of settings: which exist, how overrides are parsed, and hints for misspelled ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from rekindle.types import ChatType, OverrideScope

from . import schema
from .setting import Setting, build_setting

# Settings that can be overridden per platform and chat type.
OVERRIDABLE_SECTIONS = ("reset", "keys")


@dataclass(frozen=True, slots=True)
class SettingSections:
    """The sections of `config.toml`."""

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
    parallel: schema.ParallelSection
    sandbox: schema.SandboxSection
    permissions: schema.PermissionsSection
    mcp: schema.McpSection
    server: schema.ServerSection


SECTIONS: Mapping[str, type] = get_type_hints(SettingSections)
# Tables that the user names: `[mcp.servers.files]`.
NAMED_TABLES: Mapping[str, type] = {
    "mcp.servers": schema.McpServer,
    "model.prices": schema.PriceTable,
    "model.limits": schema.LimitTable,
}
ANY_NAME = "<name>"  # placeholder for such a name


def _iter_settings(table: str, cls: type) -> Iterator[Setting]:
    hints = get_type_hints(cls)
    for declared in fields(cls):
        default: Any = declared.default
        if default is MISSING:
            default = {}
        yield build_setting(
            f"{table}.{declared.name}", hints[declared.name], default, declared.metadata
        )


def _build_table() -> dict[str, Setting]:
    table: dict[str, Setting] = {}
    for section, cls in SECTIONS.items():
        for setting in _iter_settings(section, cls):
            env = setting.env or f"REKINDLE_{setting.name.replace('.', '_')}".upper()
            table[setting.name] = replace(setting, env=env)
    return table


SETTINGS: Mapping[str, Setting] = MappingProxyType(_build_table())
NAMED_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        one.name: one
        for table, cls in NAMED_TABLES.items()
        for one in _iter_settings(f"{table}.{ANY_NAME}", cls)
    }
)

CHAT_TYPE_PATTERN = "|".join(get_args(ChatType))
_OVERRIDE_NAME = re.compile(
    rf"({'|'.join(OVERRIDABLE_SECTIONS)})\.(?:platform\.([a-z0-9_-]+)(?:\.({CHAT_TYPE_PATTERN}))?|type\.({CHAT_TYPE_PATTERN}))\.(\w+)"
)


def parse_override(name: str) -> tuple[OverrideScope, str] | None:
    """Return the scope of `reset.platform.telegram.hour`, and the setting it overrides."""
    if found := _OVERRIDE_NAME.fullmatch(name):
        section, platform, platform_type, any_type, key = found.groups()
        chat_type, base = platform_type or any_type, f"{section}.{key}"
        is_applicable = base != "keys.direct" or chat_type in (None, "dm")
        if base in SETTINGS and is_applicable:
            return (platform, chat_type), base
    return None


def parse_table_entry(name: str) -> tuple[str, str, str] | None:
    """Return table, name and key of `mcp.servers.files.command`; only names may contain dots."""
    for table in NAMED_TABLES:
        if name.startswith(f"{table}."):
            entry, _, key = name[len(table) + 1 :].rpartition(".")
            if entry and f"{table}.{ANY_NAME}.{key}" in NAMED_SETTINGS:
                return table, entry, key
    return None


def is_setting(name: str) -> bool:
    """Return whether a setting has this name."""
    return (
        name in SETTINGS or parse_override(name) is not None or parse_table_entry(name) is not None
    )


def get_setting(name: str) -> Setting:
    """Return the setting with this name; an override is declared like the setting it changes."""
    if found := parse_override(name):
        return replace(SETTINGS[found[1]], name=name, env="")
    if entry := parse_table_entry(name):
        table, _, key = entry
        return replace(NAMED_SETTINGS[f"{table}.{ANY_NAME}.{key}"], name=name)
    return SETTINGS[name]


def find_new_name(name: str) -> str | None:
    """Return the present name of a renamed setting, or of an override of one."""
    if name in schema.RENAMED:
        return schema.RENAMED[name]
    section, _, rest = name.partition(".")
    scope, _, key = rest.rpartition(".")
    new_key = schema.RENAMED.get(f"{section}.{key}", "").rpartition(".")[2]
    new = f"{section}.{scope}.{new_key}"
    return new if scope and new_key and parse_override(new) else None


def is_table(name: str) -> bool:
    """Return whether a table may have this name, even if it is empty."""
    section, _, rest = name.partition(".")
    if name in SECTIONS or name in NAMED_TABLES:
        return True
    if section not in OVERRIDABLE_SECTIONS or not rest:
        return False
    return rest in ("platform", "type") or any(
        parse_override(f"{name}.{key}") for key in ("hour", "per_thread")
    )


def explain_unknown(name: str) -> str:
    """Return a hint for a setting that does not exist."""
    from difflib import get_close_matches

    if name in schema.MERGED:
        return f"renamed to {schema.MERGED[name]}, which applies to chat and gateway"
    if new := find_new_name(name):
        return f"renamed to {new}"
    section, _, rest = name.partition(".")
    if table := next((one for one in NAMED_TABLES if name.startswith(f"{one}.")), None):
        keys = ", ".join(each.name for each in fields(NAMED_TABLES[table]))
        hint = 'quote a name that contains a dot, such as [model.prices."small-1.5"]'
        return f"unknown setting; allowed: {keys} under [{table}.NAME]; {hint}"
    if section in OVERRIDABLE_SECTIONS and "." in rest:
        tables = f"{section}.type.<type>, {section}.platform.<platform>[.<type>]"
        keys = ", ".join(
            known.partition(".")[2] for known in SETTINGS if known.startswith(f"{section}.")
        )
        types = CHAT_TYPE_PATTERN.replace("|", ", ")
        return f"unknown setting; allowed: {keys} under {tables}, where a type is {types}"
    if near := get_close_matches(name, SETTINGS, n=1):
        return f"unknown setting; did you mean {near[0]}?"
    return f"unknown setting; allowed: {', '.join(SETTINGS)}"
