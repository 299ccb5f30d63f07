"""`rekindle start` and `rekindle import`: take in what agents left on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..config import masked, surroundings
from .opening import settings, writing
from .output import (
    AsJson,
    counted,
    encode,
    note,
    printable,
    progress,
    say,
    short_ids,
    write_sessions,
)

if TYPE_CHECKING:
    from ..store import Store
    from ..transcripts.intake import Intake

_SHOWN, _TOLD = 10, 20


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("start")(start)
    app.command("import")(import_files)


def start() -> None:
    """Take in the agents' sessions of this machine, and show them.

    Where there are none, a small sample that ships with Rekindle is taken in instead.

    \b
    Examples:
      rekindle start
    """
    places = _places()
    with writing(new=True) as store:
        intake = _take_in(store, places)
        if intake.files + intake.unchanged + len(intake.failed):
            say(f"Looked into {' and '.join(map(_short, places))}.")
        else:
            say("No agent left sessions on this machine yet: here is the sample we ship.")
            intake = _take_in(store, _sample())
        say(_summary(intake))
        _tell_trouble(intake)
        say(f"They live in {masked(settings().store.url)}")
        say()
        _show(store)
    if intake.failed:
        raise typer.Exit(1)


def import_files(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files or folders; else what is on this machine."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Take in sessions that other agents wrote. Files that did not change are passed over.

    Exit code 1 when a file could not be taken in, or one that you name is no session.

    \b
    Examples:
      rekindle import
      rekindle import ~/.claude/projects trajectory.json --json
    """
    for path in paths or ():
        if not path.exists():
            raise typer.BadParameter(f"{path} does not exist")
    with writing(new=True) as store:
        intake = _take_in(store, paths or _places())
    if json:
        say(encode(intake._asdict()).decode())
    else:
        say(_summary(intake))
        _tell_trouble(intake)
    asked_for = {str(path.resolve()) for path in paths or ()}
    if intake.failed or asked_for.intersection(intake.unknown):
        raise typer.Exit(1)


def _places() -> list[Path]:
    from ..transcripts.places import find

    return find(*surroundings())


def _sample() -> list[Path]:
    from .. import transcripts

    return [Path(transcripts.__path__[0]) / "sample"]


def _short(path: Path) -> str:
    """The path, from the home of the user if it is there."""
    home, _ = surroundings()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _take_in(store: Store, paths: Sequence[Path]) -> Intake:
    from ..transcripts.intake import Intake, take_in

    if not paths:
        return Intake()
    with progress("Taking in") as show:
        return take_in(store, paths, progress=show)


def _summary(intake: Intake) -> str:
    if not intake.files and intake.unchanged:
        return f"Nothing new: {counted(intake.unchanged, 'file')} unchanged."
    parts = [
        f"{counted(intake.sessions, 'session')} and {counted(intake.messages, 'message')} taken in"
        f" from {counted(intake.files, 'file')}"
    ]
    if intake.damaged:
        parts.append(f"{counted(intake.damaged, 'damaged line')} left out")
    if intake.unchanged:
        parts.append(f"{counted(intake.unchanged, 'file')} unchanged")
    return "; ".join(parts) + "."


def _tell_trouble(intake: Intake) -> None:
    """What could not be taken in, and why; the first of each kind."""
    lines = [f"failed: {one.file}: {one.why}" for one in intake.failed]
    lines += [f"damaged: {one.file}, line {one.line}: {one.what}" for one in intake.damage]
    lines += [f"not a session: {file}" for file in intake.unknown]
    for line in lines[:_TOLD]:
        note(printable(line))
    if len(lines) > _TOLD:
        note(f"… and {len(lines) - _TOLD:,} more; `rekindle import --json` tells all")


def _show(store: Store) -> None:
    recent = store.recent(_SHOWN)
    if not recent:
        return
    write_sessions(recent)
    first = short_ids([recent[0].id])[0]
    say()
    say("Next:")
    for why, command in (
        ("read one as a conversation", f"rekindle sessions show {first}"),
        ("find what was said in any of them", "rekindle sessions search WORDS"),
        ("share one", f"rekindle sessions export {first} -f html -o page.html"),
        ("see all there is", "rekindle --help"),
    ):
        say(f"  {why}\n    {command}")
