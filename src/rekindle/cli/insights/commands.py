"""`rekindle calls`, `profile`, `compare`, `compress-check` and `insights`: what became of the calls."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import AsJson, Owner, encode, note, progress, say, write_lines
from rekindle.cli.session_choice import WHERE_HELP, Name, Where, is_filter, parse_where
from rekindle.cli.store_access import reading
from rekindle.errors import NotFound

if TYPE_CHECKING:
    from rekindle.store import Filter, Store
    from rekindle.types import Call, Judged

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with plots that needs no network."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("calls")(calls)
    app.command("profile")(profile)
    app.command("compare")(compare)
    app.command("compress-check")(compress_check)
    app.command("insights")(insights)


def calls(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WHAT]...", help=f"A session, or a filter. {WHERE_HELP}"),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="The calls of every session.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls that failed.")] = False,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Show tool calls and what became of each: outcome, kind of error, and the rule that judged.

    With --json one call per line.

    \b
    Examples:
      rekindle calls 'My Project'
      rekindle calls source=codex 'messages>100' --failed
      rekindle calls --all --json | jq -r 'select(.failed) | .error_kind' | sort | uniq -c
    """
    words = what or []
    if bool(words) is all:
        raise typer.BadParameter("name a session, give a filter, or --all")
    with reading() as store:
        single = bool(words) and not is_filter(words)
        found = _found(store, words, owner)
        chosen = (call for one in found for call in one.calls if call.failed or not failed)
        if json:
            write_lines(map(_record, chosen))
            return
        shown = list(chosen)
    if shown:
        from .render import write_calls

        write_calls(shown, with_session=not single)
    else:
        note("No calls here.")


def _record(call: Call) -> dict[str, object]:
    record: dict[str, object] = {
        "session": call.session,
        "position": call.position,
        "call_id": call.id,
        "tool": call.tool,
        "work": call.work,
        "outcome": call.outcome,
        "failed": call.failed,
        "error_kind": call.error_kind,
        "fault": call.fault,
        "rule": call.rule,
        "confidence": call.confidence,
    }
    return record if call.duration is None else {**record, "duration": call.duration}


def profile(name: Name, owner: Owner = None, json: AsJson = False) -> None:
    """Show one session in numbers: errors, tools, what it worked on, whether it got better.

    \b
    Examples:
      rekindle profile 'My Project'
      rekindle profile 20260105_1403 --json
    """
    from rekindle.analytics import profile as profiles

    with reading() as store:
        found = profiles.profile(_one(store, name, owner))
    if json:
        say(encode(found).decode())
    else:
        from .render import write_profile

        write_profile(found)


_Side = Annotated[
    str,
    typer.Argument(help="A session, or a filter in quotes.", show_default=False),
]


def compare(a: _Side, b: _Side, owner: Owner = None, json: AsJson = False) -> None:
    """Compare two sessions, or two sets of them: errors, rates, improvement, interval, test.

    \b
    Examples:
      rekindle compare 'My Project' 'My Project #2'
      rekindle compare 'source=codex messages>30' 'source=claude-code messages>30'
      rekindle compare arm=cold arm=warm --json
    """
    from rekindle.analytics import compare as comparing

    with reading() as store:
        found = comparing.compare(
            list(_found(store, [a], owner)), list(_found(store, [b], owner)), (a, b)
        )
    if json:
        say(encode(found).decode())
    else:
        from .render import write_comparison

        write_comparison(found)


def compress_check(name: Name, owner: Owner = None, json: AsJson = False) -> None:
    """Did a conversation keep its proficiency when it was compressed?

    Its error rate before and after, and the calls right before against right after, over all
    compressions of the session and of those it continues or that continue it.

    \b
    Examples:
      rekindle compress-check 'My Project'
    """
    from rekindle.analytics import compression

    with reading() as store:
        session = store.resolve(name, owner=owner)
        chain = compression.chain_of(store.lineage(session, owner=owner), session)
        found = compression.check([_one(store, one.id, owner) for one in chain])
    if json:
        say(encode(found).decode())
    else:
        from .render import write_check

        write_check(found)


def insights(
    where: Where = None, html: Html = None, owner: Owner = None, json: AsJson = False
) -> None:
    """Show where calls fail over many sessions, and whether that changes as sessions go on.

    \b
    Examples:
      rekindle insights
      rekindle insights source=claude-code since=2026-01-01
      rekindle insights --html insights.html
    """
    from rekindle.analytics import insights

    if html is not None and not html.expanduser().absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {html.parent}")
    with reading() as store, _uncollected():
        found = insights.insight(_many(store, parse_where(where, owner)))
    if not found.totals.sessions:
        note("No sessions here." if where or owner else "No sessions yet: try `rekindle start`.")
    if html is not None:
        from .page import render

        html = html.expanduser()
        html.write_text("".join(render(found, " ".join(where or ()))), encoding="utf-8")
    if json:
        say(encode(found).decode())
    elif html is not None:
        say(f"The page is in {html}")
    elif found.totals.sessions:
        from .render import write_insight

        write_insight(found)


# ── from the store


@contextmanager
def _uncollected() -> Generator[None]:
    """Without the collector: so many small values, no cycle among them, and half the time it takes."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _one(store: Store, name: str, owner: str | None) -> Judged:
    from rekindle.learning import miner

    return miner.judged_session(store, store.resolve(name, owner=owner).id)


def _many(store: Store, where: Filter) -> Iterator[Judged]:
    from rekindle.learning import miner

    with progress("Judging") as show:
        miner.judge(store, where, progress=show)
    yield from miner.judged(store, where)


def _found(store: Store, words: list[str], owner: str | None) -> Iterable[Judged]:
    """One session by its name, or all that a filter finds."""
    if words and not is_filter(words):
        return [_one(store, " ".join(words), owner)]
    found = _many(store, parse_where(words, owner))
    if not words:
        return found
    first = next(found, None)
    if first is None:
        raise NotFound(f"no session is like {' '.join(words)}")
    return _with(first, found)


def _with(first: Judged, rest: Iterator[Judged]) -> Iterator[Judged]:
    yield first
    yield from rest
