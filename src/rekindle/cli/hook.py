"""The command that agents run as a hook."""

from __future__ import annotations

from typing import Annotated

import typer


def hook(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="claude-code, codex, opencode, gemini or pi."),
    ],
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="start, prompt, failure, end or compact.")
    ],
) -> None:
    """Answer a hook of another agent: read the event's JSON, print notes for its model.

    It prints JSON or nothing and succeeds, whatever happens: trouble is recorded in the home. Agents run
    a faster launcher instead, which does the same.

    \b
    Examples:
      echo '{"session_id": "s1", "cwd": "/src/app"}' | rekindle hook claude-code start
    """
    from rekindle.hooks.command import run_hook

    run_hook(agent, event)
