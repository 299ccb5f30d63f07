"""`rekindle sessions`: naming, branching, taking back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import AsJson, counted, encode, name_of, record, say
from rekindle.cli.session_choice import Name
from rekindle.cli.store_access import writing

if TYPE_CHECKING:
    from rekindle.types import Rewind, Session


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (rename, fork, undo, redo, end, reopen):
        app.command()(command)


def rename(
    name: Name,
    title: Annotated[str | None, typer.Argument(help="The new title.", show_default=False)] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take the title away.")] = False,
    json: AsJson = False,
) -> None:
    """Give a session another title.

    \b
    Examples:
      rekindle sessions rename 20260105_1403 'My Project'
      rekindle sessions rename 'My Project' --clear
    """
    if (title is None) is not clear:
        raise typer.BadParameter("give a title, or --clear")
    with writing() as store:
        session = store.rename(store.resolve(name), title)
    _answer(session, f"{session.id} is now {name_of(session)!r}", json)


def fork(
    name: Name,
    at: Annotated[int | None, typer.Option(help="The last message to keep, as # shows it.")] = None,
    title: Annotated[str | None, typer.Option(help="The new session's title.")] = None,
    json: AsJson = False,
) -> None:
    """Start a new session from any message of another.

    \b
    Examples:
      rekindle sessions fork 'My Project' --at 12
    """
    with writing() as store:
        session = store.fork(store.resolve(name), at=at, title=title)
    messages = counted(session.message_count, "message")
    _answer(session, f"{session.id} ({name_of(session)}) starts with {messages}", json)


def undo(
    name: Name,
    turns: Annotated[int, typer.Option("--turns", "-n", min=1, help="How many turns.")] = 1,
    json: AsJson = False,
) -> None:
    """Take back the last turns of a session.

    Nothing is destroyed: `redo` brings them back.

    \b
    Examples:
      rekindle sessions undo 'My Project'
      rekindle sessions undo 'My Project' --turns 3
    """
    with writing() as store:
        rewind = store.undo(store.resolve(name), turns)
    _answer_rewind(rewind, "taken back", json)


def redo(
    name: Name,
    rewind: Annotated[int | None, typer.Option(help="Which one; else the last.")] = None,
    json: AsJson = False,
) -> None:
    """Bring back what the last undo took out.

    \b
    Examples:
      rekindle sessions redo 'My Project'
    """
    with writing() as store:
        done = store.redo(store.resolve(name), rewind)
    _answer_rewind(done, "brought back", json)


def end(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why it ended; the first reason stays.")] = "user",
    json: AsJson = False,
) -> None:
    """Mark a session as ended.

    \b
    Examples:
      rekindle sessions end 'My Project' --reason done
    """
    with writing() as store:
        session = store.end(store.resolve(name), reason)
    _answer(session, f"{session.id} has ended: {session.end_reason}", json)


def reopen(name: Name, json: AsJson = False) -> None:
    """Open an ended session again.

    \b
    Examples:
      rekindle sessions reopen 'My Project'
    """
    with writing() as store:
        session = store.reopen(store.resolve(name))
    _answer(session, f"{session.id} is open again", json)


def _answer(session: Session, sentence: str, json: bool) -> None:
    say(encode(record(session)).decode() if json else sentence)


def _answer_rewind(rewind: Rewind, done: str, json: bool) -> None:
    sentence = f"{counted(rewind.messages, 'message')} {done} (rewind {rewind.id})"
    say(encode(rewind._asdict()).decode() if json else sentence)
