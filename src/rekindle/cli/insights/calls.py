"""`rekindle calls`: what calls did, how they ended, and what went wrong."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    Column,
    JsonOption,
    OwnerOption,
    StyledText,
    build_number_columns,
    fit_ids,
    fit_name,
    format_time,
    get_display_name,
    print_line,
    print_notice,
    to_one_line,
    write_json_lines,
    write_styled,
    write_table,
)
from rekindle.cli.session_choice import AllOption, SessionOrFilterArgument, fill_names, is_filter
from rekindle.cli.store_access import open_for_reading

from .selection import judge_selection

if TYPE_CHECKING:
    from rekindle.learning.verdicts.call_details import CallDetail
    from rekindle.store import Store
    from rekindle.types import JudgedCall, JudgedSession, Session

_MAX_NAME_LENGTH, _MAX_TITLE_LENGTH = 24, 60


def list_calls(
    what: SessionOrFilterArgument = None,
    all: AllOption = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Show failed calls and their errors.")
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="Show calls that a person, a hook or a rule refused.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, help="Maximum number, newest first.", show_default="all"
        ),
    ] = None,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """List tool calls and how they ended, or with --failed what went wrong.

    In the folder of a project with sessions, only those of the project count, unless you pass --all or
    project=NAME. With --json, print one call per line.

    \b
    Examples:
      rekindle calls --failed
      rekindle calls --failed --all -n 20
      rekindle calls 'My Project'
      rekindle calls source=codex 'messages>100' --failed
      rekindle calls --all --json | jq -r 'select(.failed) | .error_kind' | sort | uniq -c
    """
    words = what or []
    if words and all and not is_filter(words):
        raise typer.BadParameter("specify a session or --all")
    is_detailed = failed or refused
    with open_for_reading() as store:
        found = judge_selection(store, words, owner, every=all)
        chosen = _choose_calls(found, failed, refused)
        if limit is not None:
            chosen = _keep_newest(chosen, limit)
        if is_detailed:
            _show_details(store, chosen, json=json)
        elif json:
            calls = ((one.session, call) for one in chosen for call in one.calls)
            write_json_lines(_call_to_dict(session, call) for session, call in calls)
        else:
            single = bool(words) and not is_filter(words)
            _write_calls([call for one in chosen for call in one.calls], with_session=not single)


def _choose_calls(
    found: Iterable[JudgedSession], failed: bool, refused: bool
) -> Iterator[JudgedSession]:
    """Yield the sessions that have such calls, with no others."""
    for one in found:
        calls = one.calls
        if failed or refused:
            calls = tuple(
                call
                for call in calls
                if (failed and call.failed) or (refused and call.outcome == "refused")
            )
        if calls:
            yield one._replace(calls=calls)


def _keep_newest(found: Iterable[JudgedSession], limit: int) -> list[JudgedSession]:
    """Keep the last calls of the sessions that started last."""
    kept: deque[JudgedSession] = deque()
    count = 0
    for one in found:
        kept.append(one)
        count += len(one.calls)
        while count - len(kept[0].calls) >= limit:
            count -= len(kept.popleft().calls)
    if kept and count > limit:
        kept[0] = kept[0]._replace(calls=kept[0].calls[count - limit :])
    return [*kept]


def _call_to_dict(session: Session, call: JudgedCall) -> dict[str, object]:
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
        "source": session.source,
        "project": session.project,
    }
    return result if call.duration is None else {**result, "duration": call.duration}


# ── what went wrong


def _show_details(store: Store, found: Iterable[JudgedSession], *, json: bool) -> None:
    from rekindle.learning.verdicts.call_details import load_call_details

    detailed = ((one.session, load_call_details(store, one.session, one.calls)) for one in found)
    if json:
        write_json_lines(
            _detail_to_dict(session, detail) for session, details in detailed for detail in details
        )
        return
    shown = list(detailed)
    if not shown:
        print_notice("No matching calls.")
        return
    known = store.load_projects()
    ids = fit_ids([session.id for session, _ in shown])
    named = fill_names(store, [session for session, _ in shown])
    for index, (id, session, (_, details)) in enumerate(zip(ids, named, shown, strict=True)):
        project = known.find_session_project(session)
        place = known.get_name(project) if project else ""
        if index:
            print_line()
        write_styled(_format_session(id, session, place, details))
    print_notice("Show a session with `rekindle sessions show ID`.")


def _detail_to_dict(session: Session, detail: CallDetail) -> dict[str, object]:
    more = {"summary": detail.summary, "problem": detail.problem, "time": detail.time}
    return {**_call_to_dict(session, detail.call), **more}


def _format_session(
    id: str, session: Session, place: str, details: Sequence[CallDetail]
) -> Iterator[Sequence[StyledText]]:
    places = [place] if place else []
    about = " · ".join([*places, session.source, format_time(session.started)])
    room = _MAX_TITLE_LENGTH
    if sys.stdout.isatty():  # all of it in one line
        room = min(room, max(16, get_terminal_size().columns - len(id) - len(about) - 4))
    title = to_one_line(get_display_name(session), room)
    yield StyledText(id, "cyan"), StyledText(f"  {title}  ", "bold"), StyledText(about, "dim")
    for detail in details:
        yield from _format_detail(detail)


def _format_detail(detail: CallDetail) -> Iterator[Sequence[StyledText]]:
    call = detail.call
    moment = "" if not detail.time else _format_clock(detail.time)
    yield (
        StyledText(f"  {call.position:>5}  {moment:<5}  ", "dim"),
        StyledText(detail.summary),
    )
    is_refused = call.outcome == "refused"
    problem = detail.problem
    if is_refused:
        problem = f"{call.error_kind}: {problem}" if problem else f"{call.error_kind}"
    yield StyledText(" " * 16), StyledText(problem, "yellow" if is_refused else "red")


def _format_clock(seconds: float) -> str:
    try:
        return time.strftime("%H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return ""


# ── all calls


def _write_calls(calls: Sequence[JudgedCall], *, with_session: bool) -> None:
    """Print a table of calls, in order."""
    if not calls:
        print_notice("No matching calls.")
        return
    ids = dict(zip(names := list({c.session: None for c in calls}), fit_ids(names), strict=True))
    columns = [
        *([Column("session", style="cyan")] if with_session else []),
        Column("#", right=True),
        Column("tool"),
        Column("outcome"),
        Column("error"),
        Column("rule", flexible=True, style="dim"),
        *build_number_columns("conf.", "time"),
    ]
    write_table(
        columns, ([*([ids[c.session]] if with_session else []), *_format_call(c)] for c in calls)
    )


def _format_call(call: JudgedCall) -> Iterator[str]:
    yield f"{call.position}"
    yield fit_name(call.tool, _MAX_NAME_LENGTH)
    yield "failed" if call.failed else call.outcome
    yield " · ".join(part for part in (call.error_kind, call.fault) if part)
    yield call.rule
    yield f"{call.confidence:.2f}"
    yield "" if call.duration is None else f"{call.duration:.1f} s"
