"""`rekindle config`: every setting, its value and its origin."""

from __future__ import annotations

from rekindle.config import SETTINGS, Config, Value, find_unknown_env_vars, get_setting

from .output import Column, JsonOption, print_line, print_notice, write_json_array, write_table
from .store_access import load_settings


def show_settings(json: JsonOption = False) -> None:
    """Show every setting, its value and its origin.

    \b
    Examples:
      rekindle config
      REKINDLE_STORE=postgresql://localhost/rekindle rekindle config --json
    """
    config = load_settings()
    names = [*SETTINGS, *config.extra_values]
    if json:
        write_json_array(_setting_to_dict(config, name) for name in names)
        return
    exists = "" if config.file.exists() else " (not found; using defaults)"
    print_line(f"home  {config.home}")
    print_line(f"file  {config.file}{exists}")
    print_line()
    rows = [(name, config.format_value(name), config.origins[name]) for name in names]
    write_table((Column("setting", style="cyan"), Column("value"), Column("from")), rows)
    for name in find_unknown_env_vars():
        print_notice(f"{name} is set but is not a known setting")


def _setting_to_dict(config: Config, name: str) -> dict[str, Value | None]:
    setting = get_setting(name)
    value = setting.mask_value(config.get_value(name))
    return {
        "name": name,
        "value": None if value == "" else value,
        "origin": config.origins[name],
        "default": None if setting.default == "" else setting.default,
        "allowed": setting.expected,
        "env": setting.env or None,
        "help": setting.help,
    }
