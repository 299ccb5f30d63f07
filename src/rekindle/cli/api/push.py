"""`rekindle push`: send this machine's transcripts to a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    format_count,
    print_json,
    print_line,
    print_notice,
    show_progress,
)
from rekindle.cli.setup import find_agent_folders
from rekindle.cli.store_access import ignore_sigpipe, load_settings
from rekindle.errors import InvalidInput, ServerRefused, ServerUnreachable

if TYPE_CHECKING:
    from rekindle.api.client import ApiClient
    from rekindle.api.push import PushReport, TranscriptPusher
    from rekindle.config import Config

_WATCH_SECONDS, _MAX_WAIT_SECONDS = 2.0, 60.0
_ATTEMPTS = 5
_MAX_PROBLEMS = 5


def push_transcripts(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files and folders to send.", show_default="the session folders of all agents"
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="URL", help="Server to send to.", show_default="setting server.url"
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and send new messages.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Send the transcripts of this machine's agents to a server, which imports them.

    Only what the server lacks is sent, compressed; after a broken connection it goes on where it
    stopped. Transcripts are sent as they are, with what they contain. The API key is read from the
    environment variable REKINDLE_API_KEY or from the setting server.api_key.

    \b
    Examples:
      rekindle push --to https://rekindle.example
      rekindle push --to http://127.0.0.1:8766 ~/.codex/sessions
      rekindle push --watch
    """
    from rekindle.api.push import TranscriptPusher

    config = load_settings()
    url = to or config.server.url
    if not url:
        raise InvalidInput("No server: pass --to URL, or set server.url.")
    ignore_sigpipe()
    with connect_client(config, url) as client:
        pusher = TranscriptPusher(client, url, config.home)
        find_paths = (lambda: paths) if paths else find_agent_folders
        if watch:
            _push_forever(pusher, find_paths, is_json=json)
        with show_progress("Sending") as show:
            report = pusher.push_files(find_paths(), show)
    _print_report(report, is_json=json)
    if report.failed:
        raise typer.Exit(1)


def connect_client(config: Config, url: str) -> ApiClient:
    """Return a client with the configured key; a key never comes from the command line."""
    from rekindle.api.client import ApiClient

    if not config.server.api_key:
        raise InvalidInput("No API key: set REKINDLE_API_KEY, or the setting server.api_key.")
    _check_key_file(config)
    return ApiClient(url, config.server.api_key, attempts=_ATTEMPTS)


def _check_key_file(config: Config) -> None:
    if config.origins.get("server.api_key") == "file" and config.file.stat().st_mode & 0o077:
        raise InvalidInput(
            f"{config.file} contains an API key and others can read it; run: chmod 600"
            f" {config.file}"
        )


def _push_forever(
    pusher: TranscriptPusher, find_paths: Callable[[], list[Path]], *, is_json: bool
) -> None:
    """Send what changes until the program is stopped; wait longer while the server is away."""
    wait, said = _WATCH_SECONDS, ""
    while True:
        try:
            report = pusher.push_files(find_paths())
            if report.files or report.failed:
                _print_report(report, is_json=is_json)
            wait, said = _WATCH_SECONDS, ""
        except (ServerRefused, ServerUnreachable) as error:
            if (
                isinstance(error, ServerRefused)
                and error.retry_after is None
                and error.status < 500
            ):
                raise
            if str(error) != said:
                said = str(error)
                print_notice(f"The server does not answer: {said}. Trying again.")
            wait = min(2 * wait, _MAX_WAIT_SECONDS)
        time.sleep(wait)


def _print_report(report: PushReport, *, is_json: bool) -> None:
    if is_json:
        print_json({**report._asdict(), "failed": [one._asdict() for one in report.failed]})
        return
    if report.files:
        print_line(
            f"Sent {format_count(report.files, 'transcript')} ({report.sent_bytes:,} bytes):"
            f" {format_count(report.messages, 'new message')} in"
            f" {format_count(report.sessions, 'session')}."
        )
    elif not report.failed:
        print_line("Nothing new.")
    for one in report.failed[:_MAX_PROBLEMS]:
        print_notice(f"Not sent: {one.file}: {one.reason}.")
    if len(report.failed) > _MAX_PROBLEMS:
        print_notice(f"… and {format_count(len(report.failed) - _MAX_PROBLEMS, 'more file')}.")
