"""`rekindle sessions`: what may go, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    AsJson,
    DryRun,
    Yes,
    confirm,
    counted,
    note,
    record,
    say,
    write_array,
    write_sessions,
)
from rekindle.cli.session_choice import Where, parse_where
from rekindle.cli.store_access import settings, writing

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Session

_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (archive, prune, restore):
        app.command()(command)


def archive(
    where: Where = None, dry_run: DryRun = False, yes: Yes = False, json: AsJson = False
) -> None:
    """Put sessions aside.

    They leave the lists, and are still there for `archived=yes` and `restore`.

    \b
    Examples:
      rekindle sessions archive 'idle>30d' --dry-run
      rekindle sessions archive source=cron 'idle>7d' --yes
    """
    with writing() as store:
        _remove(store, "archive", "archived", where, dry_run, yes, json)


def prune(
    where: Where = None, dry_run: DryRun = False, yes: Yes = False, json: AsJson = False
) -> None:
    """Delete sessions, never an active one.

    `restore` brings them back for the days of the setting retention.undo_days.

    \b
    Examples:
      rekindle sessions prune 'idle>90d' titled=no --dry-run
      rekindle sessions prune 'messages<2' 'idle>1d' --yes
    """
    days = settings().retention.undo_days
    with writing() as store:
        gone = _remove(store, "prune", "pruned", where, dry_run, yes, json)
    if gone and not json:
        say(f"For {days:g} days `rekindle sessions restore ID` brings one back.")


def _remove(
    store: Store,
    verb: str,
    done: str,
    words: list[str] | None,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Show what would go, ask, and do it; how many went."""
    if not words:
        raise typer.BadParameter(f"say which sessions to {verb}, such as 'idle>30d'")
    where = parse_where(words)
    remove: Callable[..., list[Session]] = getattr(store, verb)
    found = remove(where, dry_run=True)
    if dry_run or not found:
        _report(found, f"would be {done}", json)
        return 0
    if not json:
        _preview(found)
    confirm(f"{verb.capitalize()} {counted(len(found), 'session')}?", yes=yes)
    gone = remove(where)
    if json:
        write_array(map(record, gone))
    else:
        say(f"{counted(len(gone), 'session')} {done}")
    return len(gone)


def _report(found: list[Session], done: str, json: bool) -> None:
    if json:
        write_array(map(record, found))
        return
    _preview(found)
    say(f"{counted(len(found), 'session')} {done}")


def _preview(found: list[Session]) -> None:
    if found:
        write_sessions(found[:_SHOWN])
    if len(found) > _SHOWN:
        say(f"… and {len(found) - _SHOWN:,} more")


def restore(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Full ids.")],
    json: AsJson = False,
) -> None:
    """Bring back what was archived or pruned.

    A pruned session can be brought back for the days of the setting retention.undo_days.

    \b
    Examples:
      rekindle sessions restore 20260105_140301_ab12cd34
    """
    with writing() as store:
        back = store.restore(*ids)
    if json:
        write_array(map(record, back))
        return
    if back:
        write_sessions(back)
    note(f"{counted(len(back), 'session')} restored")
