"""`rekindle sessions rename`, `fork`, `undo`, `redo`, `end` and `reopen`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    encode_json,
    format_count,
    get_display_name,
    print_line,
    session_to_dict,
)
from rekindle.cli.session_choice import SessionArgument
from rekindle.cli.store_access import open_for_writing

if TYPE_CHECKING:
    from rekindle.types import Rewind, Session


def rename(
    name: SessionArgument,
    title: Annotated[str | None, typer.Argument(help="New title.", show_default=False)] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the title.")] = False,
    json: JsonOption = False,
) -> None:
    """Change the title of a session.

    \b
    Examples:
      rekindle sessions rename 20260105_1403 'My Project'
      rekindle sessions rename 'My Project' --clear
    """
    if (title is None) is not clear:
        raise typer.BadParameter("pass a title or --clear")
    with open_for_writing() as store:
        session = store.rename(store.resolve(name), title)
    _print_session(session, f"{session.id} is now {get_display_name(session)!r}", json)


def fork(
    name: SessionArgument,
    at: Annotated[
        int | None, typer.Option(help="Position (#) of the last message to keep.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the new session.")] = None,
    json: JsonOption = False,
) -> None:
    """Create a new session from any message of another.

    \b
    Examples:
      rekindle sessions fork 'My Project' --at 12
    """
    with open_for_writing() as store:
        session = store.fork(store.resolve(name), at=at, title=title)
    messages = format_count(session.message_count, "message")
    _print_session(
        session, f"Created {session.id} ({get_display_name(session)}) with {messages}", json
    )


def undo(
    name: SessionArgument,
    turns: Annotated[
        int, typer.Option("--turns", "-n", min=1, help="Number of turns to undo.")
    ] = 1,
    json: JsonOption = False,
) -> None:
    """Undo the last turns of a session.

    Nothing is deleted: `redo` restores them.

    \b
    Examples:
      rekindle sessions undo 'My Project'
      rekindle sessions undo 'My Project' --turns 3
    """
    with open_for_writing() as store:
        rewind = store.undo(store.resolve(name), turns)
    _print_rewind(rewind, "undone", json)


def redo(
    name: SessionArgument,
    rewind: Annotated[
        int | None, typer.Option(help="Rewind to redo. Default: the last one.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Restore the messages removed by the last undo.

    \b
    Examples:
      rekindle sessions redo 'My Project'
    """
    with open_for_writing() as store:
        done = store.redo(store.resolve(name), rewind)
    _print_rewind(done, "restored", json)


def end(
    name: SessionArgument,
    reason: Annotated[str, typer.Option(help="Reason; an earlier reason is kept.")] = "user",
    json: JsonOption = False,
) -> None:
    """Mark a session as ended.

    \b
    Examples:
      rekindle sessions end 'My Project' --reason done
    """
    with open_for_writing() as store:
        session = store.end(store.resolve(name), reason)
    _print_session(session, f"Ended {session.id}: {session.end_reason}", json)


def reopen(name: SessionArgument, json: JsonOption = False) -> None:
    """Reopen an ended session.

    \b
    Examples:
      rekindle sessions reopen 'My Project'
    """
    with open_for_writing() as store:
        session = store.reopen(store.resolve(name))
    _print_session(session, f"Reopened {session.id}", json)


def _print_session(session: Session, sentence: str, json: bool) -> None:
    print_line(encode_json(session_to_dict(session)).decode() if json else sentence)


def _print_rewind(rewind: Rewind, done: str, json: bool) -> None:
    sentence = f"{format_count(rewind.messages, 'message')} {done} (rewind {rewind.id})"
    print_line(encode_json(rewind._asdict()).decode() if json else sentence)
