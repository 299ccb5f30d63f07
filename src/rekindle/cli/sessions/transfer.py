"""`rekindle sessions export`, `import` and `copy`."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from rekindle.cli.output import (
    JsonOption,
    OwnerOption,
    ProgressCallback,
    YesOption,
    escape_control_chars,
    escape_json_control_chars,
    format_count,
    print_json,
    print_line,
    print_notice,
    require_confirmation,
    show_progress,
)
from rekindle.cli.session_choice import (
    SessionOrFilterArgument,
    is_filter,
    parse_filter,
    select_sessions,
)
from rekindle.cli.store_access import (
    connect_store,
    load_settings,
    open_for_reading,
    open_for_writing,
    require_store_file,
)
from rekindle.config import get_home_and_env, mask_secrets, resolve_path
from rekindle.errors import NotFound, StoreReadOnly
from rekindle.pages.text import make_file_name

from .read import iter_messages

if TYPE_CHECKING:
    from rekindle.store import Filter, Store
    from rekindle.store.transfer.jsonl import CopyReport
    from rekindle.transcripts.export.redact import SessionRedactor
    from rekindle.types import Message, Session

_PAGE_SIZE, _PROGRESS_STEP_BYTES = 500, 1_000_000


class ExportFormat(StrEnum):
    """A file format for exported sessions."""

    jsonl = "jsonl"
    md = "md"
    html = "html"
    atif = "atif"
    otlp = "otlp"
    parquet = "parquet"


def export_sessions(
    what: SessionOrFilterArgument = None,
    format: Annotated[
        ExportFormat, typer.Option("--format", "-f", help="Output format; jsonl is lossless.")
    ] = ExportFormat.jsonl,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="Include the sessions it continues.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Output file, or a folder (existing, or ending in /) for one file per session,"
            " or with parquet per month.",
        ),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Remove secrets and personal data.")
    ] = False,
    owner: OwnerOption = None,
) -> None:
    """Export one session, a lineage, a selection, or all sessions.

    The export contains everything that was said, secrets included, unless you pass --redact. To show
    a session to others, use `rekindle share`.

    \b
    Examples:
      rekindle sessions export -o all.jsonl
      rekindle sessions export 'My Project' --redact -o for-others.jsonl
      rekindle sessions export 'My Project' --lineage | gzip > project.jsonl.gz
      rekindle sessions export 'My Project' -f html -o project.html
      rekindle sessions export project=api since=7d -f md -o notes/
      rekindle sessions export since=7d -f otlp --redact -o spans.jsonl
      rekindle sessions export -f parquet -o archive/
    """
    path = None if output in (None, "-") else Path(output).expanduser()
    folder = path if output and path and (output.endswith(os.sep) or path.is_dir()) else None
    redactor = create_session_redactor() if redact else None
    if format is ExportFormat.parquet and path is None:
        raise typer.BadParameter("parquet needs a folder; pass one with -o")
    with open_for_reading() as store:
        if not what and owner is None and format is ExportFormat.jsonl and folder is None:
            _write_output(_redact_lines(store.dump(), redactor), path)
        else:
            chosen = list(_select_sessions(store, what or [], lineage, owner))
            if not chosen:
                raise NotFound("No sessions match.")
            _write_chosen(store, chosen, format, path, folder, redactor)
    if redactor is None:
        print_notice(
            "Not redacted: the export may contain secrets and personal data. Remove them with --redact."
        )
    else:
        print_removed(redactor.count_removed())


def _write_chosen(
    store: Store,
    chosen: list[Session],
    format: ExportFormat,
    path: Path | None,
    folder: Path | None,
    redactor: SessionRedactor | None,
) -> None:
    if format is ExportFormat.parquet and path is not None:
        _write_archive(store, chosen, path, redactor)
    elif folder is not None:
        _write_folder(store, chosen, format, folder, redactor)
    elif format in (ExportFormat.html, ExportFormat.atif) and len(chosen) > 1:
        raise typer.BadParameter(
            f"cannot write {len(chosen)} sessions to one {format} file; pass a folder with -o"
        )
    else:
        _write_output(_render_sessions(store, chosen, format, redactor), path)


def _write_output(pieces: Iterable[bytes], output: Path | None) -> None:
    with open_output(output) as out:
        if output is None:
            out.writelines(map(escape_json_control_chars, pieces))
            return
        with show_progress("Writing") as show:
            out.writelines(_track_progress(pieces, 0, show))


def _select_sessions(
    store: Store, what: list[str], lineage: bool, owner: str | None
) -> Iterable[Session]:
    if what and not is_filter(what):
        session = store.resolve(" ".join(what), owner=owner)
        return store.lineage(session) if lineage else [session]
    if lineage:
        raise typer.BadParameter("--lineage requires a single session")
    return iter_sessions(store, what, owner)


def iter_sessions(store: Store, words: list[str], owner: str | None = None) -> Iterator[Session]:
    """Yield all sessions that match a filter, archived ones included unless it says otherwise."""
    yield from iter_pages(store, build_filter(store, words, owner))


def build_filter(store: Store, words: list[str], owner: str | None = None) -> Filter:
    """Build a filter that matches archived sessions too, unless it says otherwise."""
    has_archived_term = any(term.startswith("archived") for term in words)
    terms = parse_filter(words if has_archived_term else [*words, "archived=any"], owner)
    return select_sessions(store, terms).where


def iter_pages(store: Store, where: Filter) -> Iterator[Session]:
    """Yield all sessions that match, the latest first, page by page."""
    offset = 0
    while page := store.recent(_PAGE_SIZE, offset=offset, where=where):
        yield from page
        offset += len(page)


def create_session_redactor(*, keeps_images: bool = False) -> SessionRedactor:
    """Create a redactor of sessions that knows this machine's user, home folder and secrets."""
    from rekindle.cli.warm.options import create_redactor
    from rekindle.transcripts.export.redact import SessionRedactor

    return SessionRedactor(create_redactor(), keeps_images=keeps_images)


def print_removed(removed: Mapping[str, int]) -> None:
    """Print the number of redactions by kind to stderr."""
    if not removed:
        print_notice("Redacted: no secrets or personal data found.")
        return
    print_notice(f"Redacted {format_count(sum(removed.values()), 'passage')}:")
    for kind, count in removed.items():
        print_notice(f"  {count:>6,}  {kind}")


def _redact_lines(lines: Iterable[bytes], redactor: SessionRedactor | None) -> Iterator[bytes]:
    if redactor is None:
        yield from lines
        return
    from rekindle.transcripts.export.redact import redact_line

    for line in lines:
        yield redact_line(line, redactor)


def _render_sessions(
    store: Store,
    sessions: Iterable[Session],
    format: ExportFormat,
    redactor: SessionRedactor | None,
) -> Iterator[bytes]:
    if format is ExportFormat.jsonl:
        yield from _redact_lines(store.dump(sessions), redactor)
        return
    for index, session in enumerate(sessions):
        if index and format is ExportFormat.md:
            yield b"\n\n---\n\n"
        yield from _render_session(store, session, format, redactor)


def _render_session(
    store: Store, session: Session, format: ExportFormat, redactor: SessionRedactor | None
) -> Iterator[bytes]:
    """Render one session in a format for people or other tools."""
    messages: Iterable[Message] = iter_messages(store, session)
    if redactor is not None:
        session, messages = redactor.redact_session(session), redactor.redact_messages(messages)
    for piece in _render_text(session, messages, format, redactor):
        is_json = format in (ExportFormat.atif, ExportFormat.otlp)
        text = piece if is_json else escape_control_chars(piece)
        yield text.encode("utf-8", "backslashreplace")


def _render_text(
    session: Session,
    messages: Iterable[Message],
    format: ExportFormat,
    redactor: SessionRedactor | None,
) -> Iterator[str]:
    if format is ExportFormat.atif:
        from rekindle.transcripts.export import atif

        return atif.render_session(session, messages)
    if format is ExportFormat.otlp:
        from rekindle.transcripts.otlp import collector, files

        return files.render_session(
            session, messages, collector.load_resource(get_home_and_env()[1])
        )
    count_removed = redactor.count_removed if redactor else None
    if format is ExportFormat.md:
        from rekindle.transcripts.export import markdown

        return markdown.render_session(session, messages, count_removed=count_removed)
    from rekindle.transcripts.export import html

    return html.render_session(session, messages, count_removed=count_removed)


def _write_folder(
    store: Store,
    sessions: list[Session],
    format: ExportFormat,
    folder: Path,
    redactor: SessionRedactor | None,
) -> None:
    suffix = {ExportFormat.atif: "json", ExportFormat.otlp: "jsonl"}.get(format, format.value)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with show_progress("Writing") as show:
        for done, session in enumerate(sessions, 1):
            with open_output(folder / f"{make_file_name(session.id)}.{suffix}") as out:
                out.writelines(_render_sessions(store, [session], format, redactor))
            show(done, len(sessions))
    print_notice(f"{format_count(len(sessions), 'session')} written to {folder}")


def _write_archive(
    store: Store, sessions: list[Session], folder: Path, redactor: SessionRedactor | None
) -> None:
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes
    from rekindle.store import Filter
    from rekindle.transcripts.parquet.writer import write_parquet

    # The archive says which project a session belongs to.
    with suppress(StoreReadOnly), show_progress("Learning") as show:
        learn_from_sessions(store, progress=show)
    with show_progress("Judging") as show:
        judge_outcomes(store, Filter(archived=None), progress=show)
    chosen = {session.id for session in sessions}
    with show_progress("Writing") as show:
        report = write_parquet(
            store, chosen, folder, redactor, lambda done, _: show(done, len(sessions))
        )
    unchanged = f", {len(report.unchanged):,} unchanged" if report.unchanged else ""
    print_notice(
        f"{format_count(report.sessions, 'session')} in {folder}:"
        f" {format_count(len(report.written), 'month')} written{unchanged}"
    )


@contextmanager
def open_output(path: Path | None) -> Generator[BinaryIO]:
    """Open stdout, or a file for this user alone that appears only once it is complete."""
    if path is None:
        yield sys.stdout.buffer
        return
    from rekindle.files import open_new_file

    with open_new_file(path) as out:
        yield out


def import_sessions(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files written by `export`; - for stdin.")
    ],
    json: JsonOption = False,
) -> None:
    """Import sessions written by `export`.

    Existing sessions are left unchanged.

    \b
    Examples:
      rekindle sessions import all.jsonl
      zcat project.jsonl.gz | rekindle sessions import -
    """
    sessions = messages = 0
    skipped: list[str] = []
    with open_for_writing(may_create=True) as store, show_progress("Importing") as show:
        for name in files:
            with _open_input(name) as file:
                report = store.load(_track_progress(file, _get_file_size(file), show))
            sessions += report.sessions
            messages += report.messages
            skipped += [f"{name}: {line}" if len(files) > 1 else line for line in report.skipped]
    if json:
        print_json({"sessions": sessions, "messages": messages, "skipped": skipped})
    else:
        print_line(
            f"{format_count(sessions, 'session')} and {format_count(messages, 'message')} imported"
        )
        _print_skipped(skipped)
    if skipped:  # the rest was imported, but not everything
        raise typer.Exit(1)


def _print_skipped(skipped: list[str]) -> None:
    for line in skipped:
        print_notice(f"skipped: {escape_control_chars(line)}")


def _track_progress(lines: Iterable[bytes], total: int, show: ProgressCallback) -> Iterator[bytes]:
    """Yield the lines unchanged and report their bytes as progress."""
    done = reported = 0
    for line in lines:
        yield line
        done += len(line)
        if done - reported > _PROGRESS_STEP_BYTES:
            reported = done
            show(done, total)


def _get_file_size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


@contextmanager
def _open_input(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with open(Path(name).expanduser(), "rb") as lines:
        yield lines


def copy_store(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Source: a SQLite file or a URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Target; created if missing.")],
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Copy everything from one store to another.

    Each may be a SQLite file or PostgreSQL.

    \b
    Examples:
      rekindle sessions copy sessions.db postgresql://localhost/rekindle
      rekindle sessions copy postgresql://localhost/rekindle sessions.db
    """
    config = load_settings()
    source_location, target_location = resolve_path(source), resolve_path(target)
    require_store_file(source_location)
    if source_location == target_location:
        raise typer.BadParameter("FROM and TO are the same store")
    with (
        connect_store(config, source_location) as old,
        connect_store(config, target_location) as new,
    ):
        held = new.stats().sessions
        if held:
            require_confirmation(
                f"{mask_secrets(target_location)} already holds {format_count(held, 'session')}."
                " Add to it?",
                yes=yes,
            )
        with show_progress("Copying") as show:
            report = old.copy_to(new, progress=show)
    if json:
        counts = report._asdict()
        del counts["skipped"]
        print_json(
            {
                "from": mask_secrets(source_location),
                "to": mask_secrets(target_location),
                **counts,
            }
        )
    else:
        print_line(f"{_format_copied(report)} copied to {mask_secrets(target_location)}")
    _print_skipped(report.skipped)
    if report.skipped:  # warn before the old store is deleted
        raise typer.Exit(1)


def _format_copied(report: CopyReport) -> str:
    sessions, messages, routes, queued = (
        format_count(count, noun)
        for count, noun in (
            (report.sessions, "session"),
            (report.messages, "message"),
            (report.routes, "route"),
            (report.queued_messages, "queued message"),
        )
    )
    copied = f"{sessions} and {messages}"
    if report.routes or report.queued_messages:
        copied += f", {routes} and {queued}"
    for count, noun in (
        (report.people, "identity"),
        (report.jobs, "job"),
        (report.memories, "memory"),
        (report.decisions, "decision about notes"),
        (report.experiments, "experiment"),
        (report.framework_rows, "row of a framework"),
    ):
        if count:
            first, space, rest = noun.partition(" ")
            plural = f"{first[:-1]}ies" if first.endswith("y") else f"{first}s"
            copied += f", {count:,} {first if count == 1 else plural}{space}{rest}"
    return copied
