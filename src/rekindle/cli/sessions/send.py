"""`rekindle sessions send`: spans of sessions for an OpenTelemetry collector."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    escape_control_chars,
    format_count,
    print_json,
    print_line,
    print_notice,
    show_progress,
)
from rekindle.cli.session_choice import SessionOrFilterArgument, is_filter
from rekindle.cli.store_access import call_at_stop_signal, load_settings, open_for_reading
from rekindle.config import get_home_and_env
from rekindle.errors import CollectorError

from .transfer import build_filter, create_session_redactor, iter_pages, print_removed

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.transcripts.otlp.collector import Collector, SendReport
    from rekindle.types import Session

_LATEST = 200


def send_sessions(
    what: SessionOrFilterArgument = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="Collector, such as http://localhost:4318.",
            show_default="OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep sending messages as they are stored.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Send sessions to an OpenTelemetry collector, Langfuse or Phoenix, as GenAI spans.

    Secrets and personal data are removed. Only what the collector has not received yet is sent, so
    the command can be repeated, also after a crash. Set headers with OTEL_EXPORTER_OTLP_HEADERS.

    \b
    Examples:
      rekindle sessions send --to http://localhost:4318
      rekindle sessions send project=api since=7d --to http://localhost:4318
      rekindle sessions send since=1h --follow
    """
    from rekindle.transcripts.otlp.collector import open_collector
    from rekindle.transcripts.otlp.progress import SendProgress
    from rekindle.transcripts.otlp.sender import SessionSender

    collector = open_collector(get_home_and_env()[1], to, attempts=None if follow else 6)
    collector.report_retry = _NoticeFilter()
    redactor = create_session_redactor()
    stop = threading.Event()
    printer = _SendPrinter(collector, is_json=json)
    with (
        open_for_reading() as store,
        SendProgress(load_settings().home / "otlp", collector.address) as progress,
    ):
        sender = SessionSender(store, collector, progress, redactor, stop.wait)
        find_sessions = _create_finder(store, what or [])
        if follow:
            call_at_stop_signal(stop.set)
            try:
                sender.follow(find_sessions, printer.show, print_notice)
            except CollectorError:
                if not stop.is_set():  # else it was interrupted; the next start sends the rest
                    raise
            return
        with show_progress("Sending"):
            report = sender.send_new(find_sessions(True))
    printer.show(report)
    print_removed(redactor.count_removed())
    if report.rejected:
        raise typer.Exit(1)


def _create_finder(store: Store, what: list[str]) -> Callable[[bool], Iterable[Session]]:
    """Return a function that finds the requested sessions: all of them, or only the latest."""
    if what and not is_filter(what):
        id = store.resolve(" ".join(what)).id
        return lambda is_sweep: [store.session(id)]
    # Once: `since=1h` counts from the start of the command.
    where = build_filter(store, what)
    return lambda is_sweep: (
        iter_pages(store, where) if is_sweep else store.recent(_LATEST, where=where)
    )


class _SendPrinter:
    """Prints sent sessions, as JSON or as a line."""

    def __init__(self, collector: Collector, *, is_json: bool) -> None:
        self.address = collector.address
        self.is_json = is_json

    def show(self, report: SendReport) -> None:
        """Show one report."""
        if self.is_json:
            print_json({"spans": report.spans, "rejected": report.rejected, "to": self.address})
        else:
            print_line(f"{format_count(report.spans, 'span')} sent to {self.address}")
        if report.rejected:
            reason = escape_control_chars(report.reason)
            print_notice(f"{format_count(report.rejected, 'span')} rejected: {reason}")
        sys.stdout.flush()


class _NoticeFilter:
    """Prints a notice unless it was the last one; only its number of seconds may differ."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, text: str) -> None:
        key = text.partition(" Trying again")[0]
        if key != self.last:
            self.last = key
            print_notice(escape_control_chars(text))
