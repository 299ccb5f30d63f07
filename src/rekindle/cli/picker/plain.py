"""What `rekindle` alone prints where no picker can be shown, or where there is nothing to pick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle.cli.output import format_count, print_line, print_notice
from rekindle.cli.store_access import load_settings
from rekindle.config import get_home_and_env

if TYPE_CHECKING:
    from rekindle.store import Store


def print_latest(store: Store) -> None:
    """List the latest sessions as `rekindle sessions list` does, and say what else there is."""
    from rekindle.cli.session_choice import select_sessions
    from rekindle.cli.sessions.read import write_list
    from rekindle.cli.sessions.sub_agents import build_session_table
    from rekindle.store import Filter

    selection = select_sessions(store, Filter(), every=False)
    found = store.recent(load_settings().list.limit, where=selection.where, fold=True)
    if found:
        write_list(build_session_table(store, found), selection)
    else:
        print_notice(f"No sessions{selection.suffix}")
    print_notice(
        "Run `rekindle` on a terminal to search and resume sessions."
        " More: rekindle sessions list, rekindle search WORDS, rekindle --help."
    )


def print_welcome() -> None:
    """Say what Rekindle does, which sessions this machine has, and how to begin."""
    from rekindle.transcripts.discovery import find_files, find_session_paths

    home, env = get_home_and_env()
    print_line("Rekindle finds, resumes and learns from the sessions of your coding agents.")
    print_line()
    counts = {
        path: sum(1 for _ in find_files([path], lambda path, reason: None))
        for path in find_session_paths(home, env)
    }
    found = {path: count for path, count in counts.items() if count}
    if found:
        print_line("Found on this machine:")
        for path, count in found.items():
            shown = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
            print_line(f"  {shown}  {format_count(count, 'file')}")
        print_line()
        print_line("Import them, then run `rekindle` again to search and resume them:")
    else:
        print_line("No agent sessions were found on this machine. Try it with a small sample:")
    print_line("  rekindle start")
    print_line()
    print_line("All commands: rekindle --help")
