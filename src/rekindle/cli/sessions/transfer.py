"""`rekindle sessions`: out of the store, into it, and from one to another."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from rekindle.cli.output import (
    AsJson,
    Owner,
    Progress,
    Yes,
    confirm,
    counted,
    encode,
    note,
    printable,
    progress,
    say,
)
from rekindle.cli.session_choice import WHERE_HELP, is_filter, parse_where
from rekindle.cli.store_access import connect, must_exist, reading, settings, writing
from rekindle.config import located, masked
from rekindle.errors import NotFound

from .read import paged

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Session

_PAGE, _STEP = 500, 1_000_000


class Format(StrEnum):
    """How sessions are written."""

    jsonl = "jsonl"
    md = "md"
    html = "html"
    atif = "atif"


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("export")(export)
    app.command("import")(import_sessions)
    app.command("copy")(copy)


def export(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WHAT]...", help=f"A session, or a filter. {WHERE_HELP}"),
    ] = None,
    format: Annotated[
        Format, typer.Option("--format", "-f", help="jsonl imports again without loss.")
    ] = Format.jsonl,
    lineage: Annotated[bool, typer.Option("--lineage", help="With all it continues.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file; a folder gets a file per session."),
    ] = None,
    owner: Owner = None,
) -> None:
    """Write one session, a lineage, some, or all of them.

    \b
    Examples:
      rekindle sessions export -o all.jsonl
      rekindle sessions export 'My Project' --lineage | gzip > project.jsonl.gz
      rekindle sessions export 'My Project' -f html -o project.html
      rekindle sessions export source=telegram -f md -o notes/
    """
    with reading() as store:
        if not what and owner is None and format is Format.jsonl:
            _write(store.dump(), output)
            return
        chosen = list(_chosen(store, what or [], lineage, owner))
        if output is not None and output.is_dir():
            _write_folder(store, chosen, format, output)
            return
        if not chosen:
            raise NotFound("no session is like that")
        if format in (Format.html, Format.atif) and len(chosen) > 1:
            raise typer.BadParameter(
                f"{len(chosen)} sessions do not fit into one {format} file: give -o a folder"
            )
        _write(_written(store, chosen, format), output)


def _write(pieces: Iterable[bytes], output: Path | None) -> None:
    with outgoing(output) as out:
        if output is None:
            out.writelines(pieces)
            return
        with progress("Writing") as show:
            out.writelines(_watched(pieces, 0, show))


def _chosen(store: Store, what: list[str], lineage: bool, owner: str | None) -> Iterable[Session]:
    if what and not is_filter(what):
        session = store.resolve(" ".join(what), owner=owner)
        return store.lineage(session) if lineage else [session]
    if lineage:
        raise typer.BadParameter("--lineage needs one session")
    return every(store, what, owner)


def every(store: Store, words: list[str], owner: str | None = None) -> Iterator[Session]:
    """All sessions that a filter finds, archived ones too unless it says otherwise."""
    asked = any(term.startswith("archived") for term in words)
    where = parse_where(words if asked else [*words, "archived=any"], owner)
    offset = 0
    while page := store.recent(_PAGE, offset=offset, where=where):
        yield from page
        offset += len(page)


def _written(store: Store, sessions: Iterable[Session], format: Format) -> Iterator[bytes]:
    if format is Format.jsonl:
        yield from store.dump(sessions)
        return
    for index, session in enumerate(sessions):
        if index and format is Format.md:
            yield b"\n\n---\n\n"
        yield from _one(store, session, format)


def _one(store: Store, session: Session, format: Format) -> Iterator[bytes]:
    """One session, for people or for other tools."""
    if format is Format.atif:
        from rekindle.transcripts.export.atif import render
    elif format is Format.md:
        from rekindle.transcripts.export.markdown import render
    else:
        from rekindle.transcripts.export.html import render
    for piece in render(session, paged(store, session)):
        yield piece.encode("utf-8", "backslashreplace")


def _write_folder(store: Store, sessions: list[Session], format: Format, folder: Path) -> None:
    suffix = "json" if format is Format.atif else format.value
    with progress("Writing") as show:
        for done, session in enumerate(sessions, 1):
            safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in session.id).strip(".")
            with outgoing(folder / f"{safe}.{suffix}") as out:
                out.writelines(_written(store, [session], format))
            show(done, len(sessions))
    note(f"{counted(len(sessions), 'session')} written to {folder}")


@contextmanager
def outgoing(path: Path | None) -> Generator[BinaryIO]:
    """Stdout, or a file that is there only when it is whole."""
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        return
    path = path.expanduser()
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(partial, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def import_sessions(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files that `export` wrote; - is stdin.")
    ],
    json: AsJson = False,
) -> None:
    """Take in what `export` wrote.

    What is there already stays as it is.

    \b
    Examples:
      rekindle sessions import all.jsonl
      zcat project.jsonl.gz | rekindle sessions import -
    """
    sessions = messages = 0
    skipped: list[str] = []
    with writing(new=True) as store, progress("Importing") as show:
        for name in files:
            with _incoming(name) as file:
                report = store.load(_watched(file, _size(file), show))
            sessions += report.sessions
            messages += report.messages
            skipped += [f"{name}: {line}" if len(files) > 1 else line for line in report.skipped]
    if json:
        answer = {"sessions": sessions, "messages": messages, "skipped": skipped}
        say(encode(answer).decode())
    else:
        say(f"{counted(sessions, 'session')} and {counted(messages, 'message')} taken in")
        _tell_skipped(skipped)
    if skipped:  # the rest is in, but not everything that was given
        raise typer.Exit(1)


def _tell_skipped(skipped: list[str]) -> None:
    for line in skipped:
        note(f"skipped: {printable(line)}")


def _watched(lines: Iterable[bytes], total: int, show: Progress) -> Iterator[bytes]:
    """The same lines, with a bar that counts their bytes."""
    done = shown = 0
    for line in lines:
        yield line
        done += len(line)
        if done - shown > _STEP:
            shown = done
            show(done, total)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


@contextmanager
def _incoming(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with open(Path(name).expanduser(), "rb") as lines:
        yield lines


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A SQLite file or a URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another; made when missing.")],
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Copy everything from one store to another.

    Either may be a SQLite file or PostgreSQL.

    \b
    Examples:
      rekindle sessions copy sessions.db postgresql://localhost/rekindle
      rekindle sessions copy postgresql://localhost/rekindle sessions.db
    """
    config = settings()
    here, there = located(source), located(target)
    must_exist(here)
    if here == there:
        raise typer.BadParameter("FROM and TO are the same store")
    with connect(config, here) as old, connect(config, there) as new:
        held = new.stats().sessions
        if held:
            confirm(f"{masked(there)} holds {counted(held, 'session')} already; add?", yes=yes)
        with progress("Copying") as show:
            report = old.copy_to(new, progress=show)
    if json:
        counts = report._asdict()
        del counts["skipped"]
        say(encode({"from": masked(here), "to": masked(there), **counts}).decode())
    else:
        copied = f"{counted(report.sessions, 'session')} and {counted(report.messages, 'message')}"
        if report.routes or report.mail:
            copied += f", {counted(report.routes, 'route')} and {report.mail:,} of their mail"
        say(f"{copied} copied to {masked(there)}")
    _tell_skipped(report.skipped)
    if report.skipped:  # nobody should throw the old store away now
        raise typer.Exit(1)
