"""`rekindle calls`, `profile`, `compare`, `compress-check` and `insights`: tool call reliability."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    OwnerOption,
    print_json,
    print_line,
    print_notice,
    show_progress,
    write_json_lines,
)
from rekindle.cli.session_choice import (
    FilterArgument,
    SessionArgument,
    SessionOrFilterArgument,
    is_filter,
    parse_filter,
)
from rekindle.cli.store_access import open_for_reading
from rekindle.errors import NotFound

if TYPE_CHECKING:
    from rekindle.analytics.outcome_rates import OutcomeRate
    from rekindle.store import Filter, Store
    from rekindle.types import JudgedCall, JudgedSession

HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a self-contained page with plots."),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("calls")(list_calls)
    app.command("profile")(profile)
    app.command("compare")(compare)
    app.command("compress-check")(compress_check)
    app.command("insights")(show_insights)


def list_calls(
    what: SessionOrFilterArgument = None,
    all: Annotated[bool, typer.Option("--all", help="Include all sessions.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls that failed.")] = False,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """List tool calls with their outcome, kind of error and the rule that judged them.

    With --json, print one call per line.

    \b
    Examples:
      rekindle calls 'My Project'
      rekindle calls source=codex 'messages>100' --failed
      rekindle calls --all --json | jq -r 'select(.failed) | .error_kind' | sort | uniq -c
    """
    words = what or []
    if bool(words) is all:
        raise typer.BadParameter("specify a session, a filter, or --all")
    with open_for_reading() as store:
        single = bool(words) and not is_filter(words)
        found = _judge_selection(store, words, owner)
        chosen = (call for one in found for call in one.calls if call.failed or not failed)
        if json:
            write_json_lines(map(_call_to_dict, chosen))
            return
        shown = list(chosen)
    if shown:
        from .render import write_calls

        write_calls(shown, with_session=not single)
    else:
        print_notice("No matching calls.")


def _call_to_dict(call: JudgedCall) -> dict[str, object]:
    result: dict[str, object] = {
        "session": call.session,
        "position": call.position,
        "call_id": call.id,
        "tool": call.tool,
        "kind": call.kind,
        "outcome": call.outcome,
        "failed": call.failed,
        "error_kind": call.error_kind,
        "fault": call.fault,
        "rule": call.rule,
        "confidence": call.confidence,
    }
    return result if call.duration is None else {**result, "duration": call.duration}


def profile(name: SessionArgument, owner: OwnerOption = None, json: JsonOption = False) -> None:
    """Show the statistics of a session: errors, tools, kind of work, improvement over time.

    \b
    Examples:
      rekindle profile 'My Project'
      rekindle profile 20260105_1403 --json
    """
    from rekindle.analytics import profile as profiles

    with open_for_reading() as store:
        found = profiles.build_profile(_judge_session(store, name, owner))
    if json:
        print_json(found)
    else:
        from .render import write_profile

        write_profile(found)


_SideArgument = Annotated[
    str,
    typer.Argument(help="Session, or a filter in quotes.", show_default=False),
]


def compare(
    a: _SideArgument, b: _SideArgument, owner: OwnerOption = None, json: JsonOption = False
) -> None:
    """Compare the error rates of two sessions or two sets of sessions.

    \b
    Examples:
      rekindle compare 'My Project' 'My Project #2'
      rekindle compare 'source=codex messages>30' 'source=claude-code messages>30'
      rekindle compare arm=cold arm=warm --json
    """
    from rekindle.analytics import compare as comparing

    with open_for_reading() as store:
        found = comparing.compare_sessions(
            list(_judge_selection(store, [a], owner)),
            list(_judge_selection(store, [b], owner)),
            (a, b),
        )
    if json:
        print_json(found)
    else:
        from .render import write_comparison

        write_comparison(found)


def compress_check(
    name: SessionArgument, owner: OwnerOption = None, json: JsonOption = False
) -> None:
    """Check whether a conversation kept its proficiency when it was compressed.

    Compares error rates before and after, and just before with just after, over all compressions of
    the session and of those it continues or that continue it.

    \b
    Examples:
      rekindle compress-check 'My Project'
    """
    from rekindle.analytics import compression

    with open_for_reading() as store:
        session = store.resolve(name, owner=owner)
        chain = compression.find_conversation_chain(store.lineage(session, owner=owner), session)
        found = compression.check_compressions(
            [_judge_session(store, one.id, owner) for one in chain]
        )
    if json:
        print_json(found)
    else:
        from .render import write_compression_check

        write_compression_check(found)


def show_insights(
    where: FilterArgument = None,
    html: HtmlOption = None,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Show where tool calls fail across sessions and whether that changes over a session.

    \b
    Examples:
      rekindle insights
      rekindle insights source=claude-code since=2026-01-01
      rekindle insights --html insights.html
    """
    from rekindle.analytics import insights

    if html is not None and not html.expanduser().absolute().parent.is_dir():
        raise typer.BadParameter(f"folder not found: {html.parent}")
    chosen = parse_filter(where, owner)
    with open_for_reading() as store, _disable_gc():
        found = insights.compute_insights(_judge_sessions(store, chosen))
        found = found._replace(outcomes=_summarize_outcomes(store, chosen))
    if not found.totals.sessions:
        print_notice(
            "No matching sessions."
            if where or owner
            else "No sessions yet. Import some with `rekindle start`."
        )
    if html is not None:
        from .page import render_page

        html = html.expanduser()
        html.write_text("".join(render_page(found, " ".join(where or ()))), encoding="utf-8")
    if json:
        print_json(found)
    elif html is not None:
        print_line(f"Wrote {html}")
    elif found.totals.sessions:
        from .outcomes import write_outcomes
        from .render import write_insight, write_legend

        write_insight(found)
        write_outcomes(found.outcomes)
        write_legend()


# ── access to the store


@contextmanager
def _disable_gc() -> Generator[None]:
    """Disable garbage collection: judging allocates many acyclic values; this halves the run time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _judge_session(store: Store, name: str, owner: str | None) -> JudgedSession:
    from rekindle.learning.verdicts import judged_sessions

    return judged_sessions.load_judged_session(store, store.resolve(name, owner=owner).id)


def _judge_sessions(store: Store, where: Filter) -> Iterator[JudgedSession]:
    from rekindle.learning.verdicts import judged_sessions

    with show_progress("Judging") as show:
        judged_sessions.judge_sessions(store, where, progress=show)
    yield from judged_sessions.iter_judged_sessions(store, where)


def _summarize_outcomes(store: Store, where: Filter) -> tuple[OutcomeRate, ...]:
    from rekindle.analytics.outcome_rates import summarize_outcomes
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes

    with show_progress("Judging sessions") as show:
        judge_outcomes(store, where, progress=show)
    return summarize_outcomes(store.session_outcomes.count(where))


def _judge_selection(store: Store, words: list[str], owner: str | None) -> Iterable[JudgedSession]:
    """Judge the named session, or all sessions that match a filter."""
    if words and not is_filter(words):
        return [_judge_session(store, " ".join(words), owner)]
    found = _judge_sessions(store, parse_filter(words, owner))
    if not words:
        return found
    first = next(found, None)
    if first is None:
        raise NotFound(f"No sessions match {' '.join(words)}")
    return _prepend_session(first, found)


def _prepend_session(
    first: JudgedSession, rest: Iterator[JudgedSession]
) -> Iterator[JudgedSession]:
    yield first
    yield from rest
