"""`rekindle sessions restore-to`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rekindle.cli.output import (
    DryRunOption,
    JsonOption,
    OwnerOption,
    format_count,
    print_json,
    print_line,
)
from rekindle.cli.session_choice import SessionArgument
from rekindle.cli.store_access import load_settings, open_for_reading, open_for_writing
from rekindle.config import get_home_and_env

if TYPE_CHECKING:
    from rekindle.transcripts.restore import RestorePlan


_COUNTED_NOUNS = ("result", "call")  # "result without its call", "call written as text"


RestoreAgent: TypeAlias = Literal["claude-code", "codex", "opencode", "pi", "gemini"]


def restore_session(
    agent: Annotated[
        RestoreAgent,
        typer.Argument(metavar="AGENT", help="claude-code, codex, opencode, pi or gemini."),
    ],
    session: SessionArgument,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder to resume in.", show_default="the session's, or this one"
        ),
    ] = None,
    owner: OwnerOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Put a session back where an agent resumes it from, after the agent deleted it.

    The file gets the name, place and ids it had. A file that is still there is never changed. With
    another agent than the one that wrote it, tools that the other does not have become text.

    \b
    Examples:
      rekindle sessions restore-to claude-code 4b1b8203
      rekindle sessions restore-to codex 'Fix the login test' --dry-run
      rekindle sessions restore-to pi 4b1b8203 --folder ~/src/app
    """
    from rekindle.coding_agents.resume import build_copy_title
    from rekindle.transcripts.restore import plan_restore, record_copy, write_restored_file
    from rekindle.transcripts.writers.places import UserFolders

    home, env = get_home_and_env()
    with open_for_reading() as store:
        found = store.resolve(session, owner=owner)
        chosen = str(folder.expanduser().absolute()) if folder else found.cwd or str(Path.cwd())
        plan = plan_restore(
            agent,
            found,
            store.messages(found),
            folder=chosen,
            folders=UserFolders(home, env, load_settings().home / "restored"),
            list_imports=store.find_imports,
            title=build_copy_title(found, agent),
        )
    if not (dry_run or plan.is_present):
        write_restored_file(plan)
        if plan.conversation.id != found.id:
            with open_for_writing() as store:
                record_copy(store, plan)
    if json:
        _print_plan_json(plan, dry_run=dry_run)
    else:
        _print_plan(plan, dry_run=dry_run)


def describe_changes(omitted: Mapping[str, int]) -> str:
    """Describe what was omitted or changed in a session for an agent."""
    changes: list[str] = []
    for what, count in omitted.items():
        noun = next((noun for noun in _COUNTED_NOUNS if what.startswith(f"{noun} ")), what)
        changes.append(format_count(count, noun) + what.removeprefix(noun))
    return f"Left out or changed: {', '.join(changes)}."


def _print_plan_json(plan: RestorePlan, *, dry_run: bool) -> None:
    conversation = plan.conversation
    print_json(
        {
            "agent": conversation.agent,
            "session": conversation.session.id,
            "id": conversation.id,
            "path": str(plan.path),
            "folder": conversation.folder,
            "bytes": len(plan.text),
            "written": not (dry_run or plan.is_present),
            "changed": dict(conversation.omitted),
            "commands": list(plan.commands),
        }
    )


def _print_plan(plan: RestorePlan, *, dry_run: bool) -> None:
    conversation = plan.conversation
    turns = format_count(len(conversation.turns), "prompt and answer")
    turns = turns.replace("prompt and answers", "prompts and answers")
    if plan.is_present:
        print_line(f"Already there: {plan.path}")
    else:
        print_line(f"{'Would write' if dry_run else 'Wrote'} {turns} to {plan.path}")
    if conversation.omitted:
        print_line(describe_changes(conversation.omitted))
    print_line("Resume it with:")
    for command in plan.commands:
        print_line(f"  {command}")
