"""`rekindle start` and `rekindle import`: take in what agents left on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.config import masked, surroundings

from .output import (
    AsJson,
    Column,
    counted,
    encode,
    note,
    printable,
    progress,
    say,
    short_ids,
    write_sessions,
    write_table,
)
from .store_access import settings, writing

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.transcripts import Damage
    from rekindle.transcripts.importer import Intake

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
        _tell(intake)
        say(f"They live in {masked(settings().store.url)}")
        say()
        _show(store)
    if intake.failed or intake.damaged:
        raise typer.Exit(1)


def import_files(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files or folders; else what is on this machine."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Take in sessions that other agents wrote. Files that did not change are passed over.

    Exit code 1 when something had to be left out: a file that cannot be read, a damaged line, or
    a file that you name and that is no session.

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
    asked_for = [str(path.resolve()) for path in paths or ()]
    strangers = [path for path in asked_for if path in intake.unknown]
    if json:
        say(encode(intake._asdict()).decode())
    else:
        _tell(intake, strangers)
    if intake.failed or intake.damaged or strangers:
        raise typer.Exit(1)


def _places() -> list[Path]:
    from rekindle.transcripts.agent_folders import find

    return find(*surroundings())


def _sample() -> list[Path]:
    from rekindle import transcripts

    return [Path(transcripts.__path__[0]) / "sample"]


def _short(path: Path) -> str:
    """The path, from the home of the user if it is there."""
    home, _ = surroundings()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _take_in(store: Store, paths: Sequence[Path]) -> Intake:
    from rekindle.transcripts.importer import Intake, take_in

    if not paths:
        return Intake()
    with progress("Taking in") as show:
        return take_in(store, paths, progress=show)


def _tell(intake: Intake, strangers: Sequence[str] = ()) -> None:
    """What was taken in, by format where there are several, and what was not.

    Among the files of a folder, those that are no sessions are counted; `strangers` were asked for.
    """
    if len(intake.formats) > 1 and intake.files:
        titles = ("format", "files", "sessions", "messages", "calls", "damaged")
        columns = [Column(title, right=title != "format") for title in titles]
        shares = intake.formats.items()
        write_table(columns, [(name, *(f"{count:,}" for count in one)) for name, one in shares])
    say(_summary(intake))
    lines = [f"failed: {one.file}: {one.why}" for one in intake.failed]
    lines += [f"damaged: {_place(one)}: {one.what}" for one in intake.damage]
    lines += [f"not a session: {file}" for file in strangers]
    for line in lines[:_TOLD]:
        note(printable(line))
    if len(lines) > _TOLD:
        note(f"… and {len(lines) - _TOLD:,} more; `rekindle import --json` tells all")


def _summary(intake: Intake) -> str:
    if intake.files or not intake.unchanged:
        parts = [
            f"{counted(intake.sessions, 'session')} and {counted(intake.messages, 'message')}"
            f" taken in from {counted(intake.files, 'file')}"
        ]
        if intake.unchanged:
            parts.append(f"{counted(intake.unchanged, 'file')} unchanged")
    else:
        parts = [f"Nothing new: {counted(intake.unchanged, 'file')} unchanged"]
    if intake.damaged:
        parts.append(f"{counted(intake.damaged, 'damaged place')} left out")
    if intake.failed:
        parts.append(f"{counted(len(intake.failed), 'file')} failed")
    if intake.unknown:
        parts.append(f"{counted(len(intake.unknown), 'file')} in no format that we know")
    return "; ".join(parts) + "."


def _place(damage: Damage) -> str:
    # What the store refused has no line any more.
    return f"{damage.file}, line {damage.line}" if damage.line else damage.file


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
