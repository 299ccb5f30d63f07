"""`rekindle sessions archive`, `prune` and `restore`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    DryRunOption,
    JsonOption,
    YesOption,
    format_count,
    print_line,
    print_notice,
    require_confirmation,
    session_to_dict,
    write_json_array,
    write_sessions,
)
from rekindle.cli.session_choice import FilterArgument, parse_filter, select_sessions
from rekindle.cli.store_access import load_settings, open_for_writing

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Session

_MAX_SESSIONS_SHOWN = 20


def archive(
    where: FilterArgument = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Archive sessions.

    Archived sessions are hidden from lists. Find them with `archived=yes`; undo with `restore`.

    \b
    Examples:
      rekindle sessions archive 'idle>30d' --dry-run
      rekindle sessions archive source=cron 'idle>7d' --yes
    """
    with open_for_writing() as store:
        _remove_sessions(store, "archive", "archived", where, dry_run, yes, json)


def prune(
    where: FilterArgument = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete sessions. Active sessions are never deleted.

    `restore` can recover them for the number of days set by retention.undo_days.

    \b
    Examples:
      rekindle sessions prune 'idle>90d' titled=no --dry-run
      rekindle sessions prune 'messages<2' 'idle>1d' --yes
    """
    days = load_settings().retention.undo_days
    with open_for_writing() as store:
        removed_count = _remove_sessions(store, "prune", "pruned", where, dry_run, yes, json)
    if removed_count and not json:
        print_line(f"Restore one within {days:g} days with `rekindle sessions restore SESSION`.")


def _remove_sessions(
    store: Store,
    verb: str,
    done: str,
    words: list[str] | None,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Show the matching sessions, ask, and remove them; return how many were removed."""
    if not words:
        raise typer.BadParameter(f"specify which sessions to {verb}, e.g. 'idle>30d'")
    where = select_sessions(store, parse_filter(words)).where
    remove: Callable[..., list[Session]] = getattr(store, verb)
    found = remove(where, dry_run=True)
    if dry_run or not found:
        _print_sessions(found, f"would be {done}", json)
        return 0
    if not json:
        _print_preview(found)
    require_confirmation(f"{verb.capitalize()} {format_count(len(found), 'session')}?", yes=yes)
    removed = remove(where)
    if json:
        write_json_array(map(session_to_dict, removed))
    else:
        print_line(f"{format_count(len(removed), 'session')} {done}")
    return len(removed)


def _print_sessions(found: list[Session], done: str, json: bool) -> None:
    if json:
        write_json_array(map(session_to_dict, found))
        return
    _print_preview(found)
    print_line(f"{format_count(len(found), 'session')} {done}")


def _print_preview(found: list[Session]) -> None:
    if found:
        write_sessions(found[:_MAX_SESSIONS_SHOWN])
    if len(found) > _MAX_SESSIONS_SHOWN:
        print_line(f"… and {len(found) - _MAX_SESSIONS_SHOWN:,} more")


def restore(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SESSION...", help="Session ids, id prefixes, or titles."),
    ],
    json: JsonOption = False,
) -> None:
    """Restore archived or pruned sessions.

    A pruned session can be restored for the number of days set by retention.undo_days.

    \b
    Examples:
      rekindle sessions restore 20260105_1403
      rekindle sessions restore 'My Project'
    """
    with open_for_writing() as store:
        restored = store.restore(*names)
    if json:
        write_json_array(map(session_to_dict, restored))
        return
    if restored:
        write_sessions(restored)
    print_notice(f"{format_count(len(restored), 'session')} restored")
