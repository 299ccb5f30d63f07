"""`rekindle start` and `rekindle import`: import the sessions that agents left on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.config import get_home_and_env, mask_secrets

from .output import (
    Column,
    JsonOption,
    escape_control_chars,
    format_count,
    print_json,
    print_line,
    print_notice,
    shorten_ids,
    show_progress,
    write_sessions,
    write_table,
)
from .store_access import load_settings, open_for_writing

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.transcripts import UnreadableEntry
    from rekindle.transcripts.importer import ImportReport

_MAX_SESSIONS_SHOWN, _MAX_PROBLEMS_SHOWN = 10, 20


def import_local_sessions() -> None:
    """Import the agent sessions on this machine and list them.

    If there are none, import the small sample that ships with Rekindle instead.

    \b
    Examples:
      rekindle start
    """
    folders = find_agent_folders()
    with open_for_writing(may_create=True) as store:
        report = _import_paths(store, folders)
        if report.files + report.unchanged + len(report.failed):
            print_line(f"Scanned {' and '.join(map(_shorten_path, folders))}.")
        else:
            print_line(
                "No agent sessions found on this machine. Importing the bundled sample instead."
            )
            report = _import_paths(store, _get_sample_paths())
        _print_report(report)
        print_line(f"Store: {mask_secrets(load_settings().store.url)}")
        print_line()
        _print_recent_sessions(store)
    if report.failed or report.damaged:
        raise typer.Exit(1)


def import_files(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files or folders to import. Default: all known agents."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Import sessions written by other agents. Unchanged files are skipped.

    The chats in a named folder with `sessions.json` of a gateway also become conversations of this one,
    and go on where they stopped.

    Exit with code 1 if anything was left out: an unreadable file, a damaged line, or a named file
    that is not a session.

    \b
    Examples:
      rekindle import
      rekindle import ~/.claude/projects trajectory.json --json
    """
    from .gateway.import_routes import import_conversations, print_routes

    for path in paths or ():
        if not path.exists():
            raise typer.BadParameter(f"{path} does not exist")
    with open_for_writing(may_create=True) as store:
        report = _import_paths(store, paths or find_agent_folders())
        # Conversations of a gateway on this machine that is still in use are not taken over.
        routes = import_conversations(store, paths) if paths else None
    asked_for = [str(path.resolve()) for path in paths or ()]
    unrecognized = [path for path in asked_for if path in report.unknown]
    if json:
        print_json({**report._asdict(), "routes": routes and routes._asdict()})
    else:
        _print_report(report, unrecognized)
        if routes is not None:
            print_routes(routes)
    if report.failed or report.damaged or unrecognized or (routes and routes.problems):
        raise typer.Exit(1)


def find_agent_folders() -> list[Path]:
    """Return where the agents on this machine keep their sessions."""
    from rekindle.transcripts.discovery import find_session_paths

    return find_session_paths(*get_home_and_env())


def _get_sample_paths() -> list[Path]:
    from rekindle import transcripts

    return [Path(transcripts.__path__[0]) / "sample"]


def _shorten_path(path: Path) -> str:
    """Abbreviate the home folder to `~`."""
    home, _ = get_home_and_env()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _import_paths(store: Store, paths: Sequence[Path]) -> ImportReport:
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.transcripts.importer import ImportReport, import_transcripts

    if not paths:
        return ImportReport()
    with show_progress("Importing") as show:
        report = import_transcripts(store, paths, progress=show)
    if report.files:
        with show_progress("Learning") as show:
            learn_from_sessions(store, progress=show)
    return report


def _print_report(report: ImportReport, unrecognized: Sequence[str] = ()) -> None:
    """Print the imported counts, per format if there are several, and the problems.

    Unrecognized files in a folder are only counted; `unrecognized` lists those named by the user.
    """
    if len(report.formats) > 1 and report.files:
        titles = ("format", "files", "sessions", "messages", "calls", "damaged")
        columns = [Column(title, right=title != "format") for title in titles]
        counts = report.formats.items()
        write_table(
            columns,
            [(name, *(f"{getattr(one, title):,}" for title in titles[1:])) for name, one in counts],
        )
    print_line(_summarize_report(report))
    lines = [f"failed: {one.file}: {one.reason}" for one in report.failed]
    lines += [f"damaged: {_format_location(one)}: {one.what}" for one in report.damage]
    lines += [f"not a session: {file}" for file in unrecognized]
    for line in lines[:_MAX_PROBLEMS_SHOWN]:
        print_notice(escape_control_chars(line))
    if len(lines) > _MAX_PROBLEMS_SHOWN:
        print_notice(
            f"… and {len(lines) - _MAX_PROBLEMS_SHOWN:,} more; use `rekindle import --json` to see all"
        )


def _summarize_report(report: ImportReport) -> str:
    if report.files or not report.unchanged:
        parts = [
            f"{format_count(report.sessions, 'session')} and {format_count(report.messages, 'message')}"
            f" imported from {format_count(report.files, 'file')}"
        ]
        if report.unchanged:
            parts.append(f"{format_count(report.unchanged, 'file')} unchanged")
    else:
        parts = [f"Nothing new: {format_count(report.unchanged, 'file')} unchanged"]
    if report.damaged:
        parts.append(f"{format_count(report.damaged, 'damaged record')} skipped")
    if report.failed:
        parts.append(f"{format_count(len(report.failed), 'file')} failed")
    if report.unknown:
        parts.append(f"{format_count(len(report.unknown), 'file')} not recognized")
    return "; ".join(parts) + "."


def _format_location(damage: UnreadableEntry) -> str:
    # Records that the store rejected have no line number.
    return f"{damage.file}, line {damage.line}" if damage.line else damage.file


def _print_recent_sessions(store: Store) -> None:
    from rekindle.cli.sessions.sub_agents import build_session_table

    recent = store.recent(_MAX_SESSIONS_SHOWN, fold=True)
    if not recent:
        return
    table = build_session_table(store, recent)
    write_sessions(table.sessions, tails=table.tails)
    first = shorten_ids([recent[0].id])[0]
    print_line()
    print_line("Next steps:")
    for why, command in (
        ("read a session", f"rekindle sessions show {first}"),
        ("pick one to resume, or type to search", "rekindle"),
        ("search all messages", "rekindle search WORDS"),
        ("see everything in the browser", "rekindle web"),
        ("list all commands", "rekindle --help"),
    ):
        print_line(f"  {why}\n    {command}")
