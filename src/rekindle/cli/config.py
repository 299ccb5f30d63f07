"""`rekindle config`: every setting, its value, and where it came from."""

from __future__ import annotations

import typer

from rekindle.config import SETTINGS, Config, Value, setting_of, strangers

from .output import AsJson, Column, note, say, write_array, write_table
from .store_access import settings


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("config")(show_settings)


def show_settings(json: AsJson = False) -> None:
    """Show every setting, its value and where it came from.

    \b
    Examples:
      rekindle config
      REKINDLE_STORE=postgresql://localhost/rekindle rekindle config --json
    """
    config = settings()
    names = [*SETTINGS, *config.more]
    if json:
        write_array(_row(config, name) for name in names)
        return
    exists = "" if config.file.exists() else " (not there; all defaults)"
    say(f"home  {config.home}")
    say(f"file  {config.file}{exists}")
    say()
    rows = [(name, config.shown(name), config.origins[name]) for name in names]
    write_table((Column("setting", style="cyan"), Column("value"), Column("from")), rows)
    for name in strangers():
        note(f"{name} is set, but there is no such setting")


def _row(config: Config, name: str) -> dict[str, Value | None]:
    one = setting_of(name)
    value = one.public(config.value(name))
    return {
        "name": name,
        "value": None if value == "" else value,
        "origin": config.origins[name],
        "default": None if one.default == "" else one.default,
        "allowed": one.expected,
        "env": one.env or None,
        "help": one.help,
    }
