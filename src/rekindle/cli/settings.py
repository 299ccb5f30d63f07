"""`rekindle config`: every setting, its value, and where it came from."""

from __future__ import annotations

import typer

from ..config import SETTINGS, masked, strangers
from .opening import settings
from .output import AsJson, Column, note, say, write_array, write_table


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
    if json:
        write_array(
            {
                "name": one.name,
                "value": masked(value) if isinstance(value := config.value(name), str) else value,
                "origin": config.origins[name],
                "default": one.default,
                "allowed": one.expected,
                "env": one.env,
                "help": one.help,
            }
            for name, one in SETTINGS.items()
        )
        return
    exists = "" if config.file.exists() else " (not there; all defaults)"
    say(f"home  {config.home}")
    say(f"file  {config.file}{exists}")
    say()
    rows = [(name, masked(config.value(name)), config.origins[name]) for name in SETTINGS]
    write_table((Column("setting", style="cyan"), Column("value"), Column("from")), rows)
    for name in strangers():
        note(f"{name} is set, but there is no such setting")
