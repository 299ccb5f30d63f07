"""The help of a group of commands: grouped by purpose, with each summary in full."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

MAX_HELP_WIDTH = 1_000  # in effect that of the terminal
_NO_LIMIT = 10_000
# What the commands of the program are for. A new command belongs into one of these.
_SECTIONS = {
    "Find and continue sessions": (
        "search",
        "resume",
        "share",
        "projects",
        "sessions",
        "chat",
        "web",
    ),
    "Import sessions": ("start", "import", "watch", "service"),
    "Share sessions between machines": ("serve", "push"),
    "Cost and reliability": ("usage", "insights", "calls", "profile", "compare", "compress-check"),
    "Learn from sessions": ("lessons", "warm"),
    "Background processes": (*("run", "ps", "logs", "wait", "kill", "restart", "send", "attach"),),
    "Other agents": ("install", "uninstall", "doctor", "mcp", "skill", "plugin", "hook"),
    "Chat platforms": ("gateway", "matrix", "schedule", "deliver", "memory"),
    "Settings": ("config", "tenants"),
}


class CommandGroup(TyperGroup):
    """A group whose help wraps the summaries of its commands instead of cutting them short."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with its summary, wrapped at words."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = {
            name: command.get_short_help_str(_NO_LIMIT)
            for name, command in commands
            if command is not None and not command.hidden
        }
        sections = _SECTIONS if ctx.parent is None else {}
        named = {title: [n for n in names if n in rows] for title, names in sections.items()}
        listed = {name for names in named.values() for name in names}
        named["Other commands" if listed else "Commands"] = [n for n in rows if n not in listed]
        width = max(map(len, rows), default=0)
        for title, names in named.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), rows[name]) for name in names])


def create_group(help: str) -> typer.Typer:
    """Create a group of commands that shows its help if none is given."""
    return typer.Typer(cls=CommandGroup, help=help, no_args_is_help=True, rich_markup_mode=None)
