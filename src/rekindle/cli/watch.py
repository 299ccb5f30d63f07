"""`rekindle watch`: import what agents write as they write it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.config import get_home_and_env

from .output import (
    JsonOption,
    escape_control_chars,
    format_count,
    print_json,
    print_line,
    print_notice,
    to_one_line,
)
from .store_access import call_at_stop_signal, load_settings, open_for_writing

if TYPE_CHECKING:
    from rekindle.transcripts.importer import ImportReport
    from rekindle.watching.watcher import WatchEvent

_CLEAR_LINE = "\r\x1b[K"


def watch_sessions(
    once: Annotated[
        bool, typer.Option("--once", help="Import new sessions, learn from them, and exit.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Import the sessions of all agents while they grow, and learn from them when they rest.

    Runs until Ctrl-C or SIGTERM; one watcher per home. In a pipe it writes one line per import, with
    --json one object per line. `rekindle service install` keeps it running.

    \b
    Examples:
      rekindle watch
      rekindle watch --once
      rekindle watch --json >> imports.jsonl
    """
    from rekindle.watching.lock import lock_watcher
    from rekindle.watching.watcher import SessionWatcher

    printer = _WatchPrinter(is_json=json, is_live=not once and sys.stdout.isatty())
    with open_for_writing(may_create=True) as store:
        watcher = SessionWatcher(store, *get_home_and_env(), printer.show)
        if once:
            watcher.import_once()
            if not (printer.messages or json):
                print_line("Nothing new.")
            return
        with lock_watcher(load_settings().home):
            call_at_stop_signal(watcher.stop)
            watcher.run()
    printer.finish()


class _WatchPrinter:
    """Shows events: as JSON, as lines, or on a terminal as one line that changes."""

    def __init__(self, *, is_json: bool, is_live: bool) -> None:
        self.is_json = is_json
        self.is_live = is_live and not is_json
        self.messages = 0
        self.place = "nothing yet"

    def show(self, event: WatchEvent) -> None:
        """Show one event."""
        if self.is_json:
            print_json(_event_to_dict(event))
        else:
            self._show_text(event)
        sys.stdout.flush()

    def finish(self) -> None:
        """End the line that changes."""
        if self.is_live:
            sys.stdout.write("\n")

    def _show_text(self, event: WatchEvent) -> None:
        from rekindle.watching.watcher import FilesImported, WatchNotice, WatchStarted

        if isinstance(event, WatchNotice):
            if self.is_live:
                sys.stdout.write(_CLEAR_LINE)
            print_notice(event.text)
        elif isinstance(event, FilesImported):
            self.messages += event.report.messages
        if isinstance(event, WatchStarted):
            self.place = format_count(len(event.paths), "folder")
        if self.is_live:
            self._draw_status(event)
        elif line := _format_event(event):
            print_line(line)

    def _draw_status(self, event: WatchEvent) -> None:
        line = f"Watching {self.place}; {format_count(self.messages, 'message')} imported"
        if last := _format_event(event):
            line += f"; last: {time.strftime('%H:%M:%S')} {last}"
        width = max(20, get_terminal_size().columns - 1)  # a longer line could not be replaced
        shown = to_one_line(escape_control_chars(line), width)
        sys.stdout.write(f"{_CLEAR_LINE}{shown}")


def _format_event(event: WatchEvent) -> str:
    from rekindle.watching.watcher import FilesImported, SessionsLearned, WatchStarted

    if isinstance(event, WatchStarted):
        return f"Watching {format_count(len(event.paths), 'folder')}."
    if isinstance(event, FilesImported):
        return _format_import(event.report)
    if isinstance(event, SessionsLearned):
        return f"Learned from {format_count(event.report.sessions, 'session')}."
    return ""


def _format_import(report: ImportReport) -> str:
    agents = ", ".join(name for name, count in report.formats.items() if count.messages)
    counts = f"{format_count(report.messages, 'message')} of"
    return f"Imported {counts} {format_count(report.sessions, 'session')} ({agents})."


def _event_to_dict(event: WatchEvent) -> Mapping[str, Any]:
    from rekindle.watching.watcher import FilesImported, SessionsLearned, WatchStarted

    now = round(time.time(), 3)
    if isinstance(event, WatchStarted):
        return {
            "event": "start", "time": now, "paths": event.paths, "polling": event.is_polling,
        }  # fmt: skip
    if isinstance(event, FilesImported):
        report = event.report
        counts = {"sessions": report.sessions, "messages": report.messages, "calls": report.calls}
        agents = {name: one.messages for name, one in report.formats.items() if one.messages}
        return {
            "event": "import", "time": now, **counts, "formats": agents, "paths": event.paths,
            "seconds": round(event.seconds, 3),
        }  # fmt: skip
    if isinstance(event, SessionsLearned):
        return {"event": "learn", "time": now, **event.report._asdict()}
    return {"event": "notice", "time": now, "text": event.text}
