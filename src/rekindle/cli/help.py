"""The help of a group of commands, with each summary in full."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

_NO_LIMIT = 10_000


class CommandGroup(TyperGroup):
    """A group whose help wraps the summaries of its commands instead of cutting them short."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with its summary, wrapped at words."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_NO_LIMIT))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def create_group(help: str) -> typer.Typer:
    """Create a group of commands that shows its help if none is given."""
    return typer.Typer(cls=CommandGroup, help=help, no_args_is_help=True, rich_markup_mode=None)
