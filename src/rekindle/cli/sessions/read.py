"""`rekindle sessions list`, `show` and `search`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.insights.usage import fill_costs, fill_model_costs
from rekindle.cli.output import (
    JsonOption,
    OwnerOption,
    StyledText,
    encode_json,
    escape_control_chars,
    format_count,
    format_time,
    format_usage_lines,
    get_display_name,
    print_line,
    print_notice,
    session_to_dict,
    show_progress,
    to_one_line,
    usage_to_dict,
    write_json_array,
    write_json_lines,
    write_sessions,
    write_styled,
)
from rekindle.cli.session_choice import FilterArgument, SessionArgument, parse_filter
from rekindle.cli.store_access import load_settings, open_for_reading
from rekindle.errors import StoreReadOnly

if TYPE_CHECKING:
    from rekindle.store import Filter, Store
    from rekindle.types import Hit, Message, Session, SessionOutcome

_PAGE_SIZE = 1000
_MAX_JUDGED_MESSAGES = 2000  # of a session that is judged before it is shown

group = create_group("List, read, search, edit, export and repair stored sessions.")


def register(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("list")(list_sessions)
    app.command("show")(show_session)
    app.command("search")(search_messages)


def list_sessions(
    where: FilterArgument = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, help="Maximum number of sessions.", show_default="list.limit"
        ),
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Number of results to skip.")] = 0,
    pruned: Annotated[
        bool, typer.Option("--pruned", help="Only pruned sessions that `restore` can recover.")
    ] = False,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """List sessions, most recently active first.

    \b
    Examples:
      rekindle sessions list
      rekindle sessions list source=telegram 'idle<7d' -n 50
      rekindle sessions list outcome=failed since=2026-01-01
      rekindle sessions list archived=yes --json
    """
    count = limit or load_settings().list.limit
    chosen = parse_filter(where, owner).with_(pruned=pruned)
    with open_for_reading() as store:
        if chosen.outcome is not None:
            _judge_outcomes(store, chosen)
        found = store.recent(count + 1, offset=offset, where=chosen)
        page = found[:count]
        outcomes = store.session_outcomes.load([one.id for one in page]) if json else {}
        priced = fill_costs(store, page) if json else page
    if json:
        write_json_array(
            {
                **_describe_session(session, cost),
                "outcome": _outcome_to_dict(outcomes.get(session.id)),
            }
            for session, cost in zip(page, priced, strict=True)
        )
    elif page:
        write_sessions(page)
        if len(found) > count:
            print_notice(f"More available: use --limit {count * 2} or --offset {offset + count}.")
    else:
        print_notice(
            "No matching sessions."
            if where or owner
            else "No sessions yet. Import some with `rekindle start`."
        )


def _judge_outcomes(store: Store, where: Filter) -> None:
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes

    with suppress(StoreReadOnly), show_progress("Judging sessions") as show:
        judge_outcomes(store, where, progress=show)


def _load_outcome(store: Store, session: Session) -> SessionOutcome | None:
    """Return what became of a session, judged now unless that would delay a long one."""
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes

    if session.message_count <= _MAX_JUDGED_MESSAGES:
        with suppress(StoreReadOnly):
            judge_outcomes(store, session=session.id)
    return store.session_outcomes.load([session.id]).get(session.id)


def _outcome_to_dict(outcome: SessionOutcome | None) -> dict[str, object] | None:
    return None if outcome is None else outcome._asdict()


def show_session(
    name: SessionArgument,
    full: Annotated[bool, typer.Option("--full", "-f", help="Show everything in full.")] = False,
    rewound: Annotated[bool, typer.Option("--rewound", help="Include undone messages.")] = False,
    last: Annotated[int | None, typer.Option(min=1, help="Show only the last N messages.")] = None,
    usage: Annotated[
        bool, typer.Option("--usage", help="Show only token usage per model.")
    ] = False,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Show a session as a conversation.

    With --json, print one message per line.

    \b
    Examples:
      rekindle sessions show 'My Project'
      rekindle sessions show 20260105_1403 --full | less
      rekindle sessions show 'My Project' --json | jq -r .role
      rekindle sessions show 'My Project' --usage --json
    """
    from .render import render_session

    with open_for_reading() as store:
        session = store.resolve(name, owner=owner)
        usage_by_model = fill_model_costs(store, session, store.usage(session))
        (priced,) = fill_costs(store, [session])
        outcome = None if json and not usage else _load_outcome(store, session)
        if usage:
            result = {
                **_describe_session(session, priced),
                "outcome": _outcome_to_dict(outcome),
                "usage": usage_to_dict(usage_by_model),
            }
            lines = (
                [encode_json(result).decode()] if json else [*format_usage_lines(usage_by_model)]
            )
            for line in lines or ["No token usage recorded."]:
                print_line(line)
            return
        after = None
        if last is not None:
            last_messages = store.messages(session, rewound=rewound)[-last:]
            after = (last_messages[0].position or 0) - 1 if last_messages else None
        messages = iter_messages(store, session, after, rewound)
        if json:
            write_json_lines(messages)
        else:
            width = get_terminal_size().columns
            write_styled(
                render_session(
                    priced,
                    messages,
                    full=full,
                    width=width,
                    usage=usage_by_model,
                    outcome=outcome,
                )
            )


def _describe_session(session: Session, priced: Session) -> dict[str, Any]:
    """Return the fields of a session with its cost, and who says so: the agent or the prices."""
    source = "agent" if session.cost else "prices" if priced.cost else None
    return {**session_to_dict(priced), "cost_source": source}


def iter_messages(
    store: Store, session: Session, after: int | None = None, rewound: bool = False
) -> Iterator[Message]:
    """Yield the messages page by page, so that even the longest session shows at once."""
    while page := store.messages(session, rewound=rewound, after=after, limit=_PAGE_SIZE):
        yield from page
        after = page[-1].position


def search_messages(
    query: Annotated[
        list[str], typer.Argument(help='Words, "a phrase", prefix*, a OR b.', metavar="QUERY")
    ],
    role: Annotated[str | None, typer.Option(help="Only messages with this role.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
    session: Annotated[str | None, typer.Option(help="Only messages in this session.")] = None,
    source: Annotated[str | None, typer.Option(help="Only sessions from this source.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="On or after this date.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="On or before this date.")
    ] = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="Sort by date instead of relevance.")
    ] = False,
    rewound: Annotated[bool, typer.Option("--rewound", help="Include undone messages.")] = False,
    context: Annotated[int, typer.Option(min=0, help="Messages to show around each match.")] = 1,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of matches.")
    ] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Number of results to skip.")] = 0,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Search the messages of all sessions.

    All words must occur, in any language. Also supported: "a phrase", prefix*, a OR b. Identifiers
    match as written.

    \b
    Examples:
      rekindle sessions search parse timeout
      rekindle sessions search '"no such file"' --role tool --newest
      rekindle sessions search read_file --since 2026-01-01 --json
    """
    days = [f"{key}={day}" for key, day in (("since", since), ("until", until)) if day]
    limits = parse_filter(days)
    with open_for_reading() as store:
        hits = store.search(
            " ".join(query),
            limit=limit,
            offset=offset,
            role=role,
            tool=tool,
            session=store.resolve(session, owner=owner).id if session else None,
            source=source,
            since=limits.since,
            until=limits.until,
            owner=owner,
            rewound=rewound,
            order="newest" if newest else "best",
            context=context,
        )
    _print_hits(hits, json)


def _print_hits(hits: list[Hit], json: bool) -> None:
    if json:
        write_json_array(map(_hit_to_dict, hits))
    elif hits:
        write_styled(_render_hits(hits))
    else:
        print_notice("No matches found.")


def _hit_to_dict(hit: Hit) -> dict[str, object]:
    return {
        "session": session_to_dict(hit.session),
        "message": hit.message,
        "snippet": hit.snippet,
        "before": hit.before,
        "after": hit.after,
    }


def _render_hits(hits: list[Hit]) -> Iterator[list[StyledText]]:
    for index, hit in enumerate(hits):
        if index:
            yield [StyledText("")]
        title = StyledText(
            escape_control_chars(to_one_line(get_display_name(hit.session), 60)), "bold"
        )
        yield [
            title,
            StyledText(f"  {hit.session.id}", "cyan"),
            StyledText(f"  {hit.session.source}", "dim"),
        ]
        for message in hit.before:
            yield [_render_context(message)]
        when = format_time(hit.message.timestamp or hit.session.last_active)
        where = StyledText(f"  {when}  #{hit.message.position} {hit.message.role}", "green")
        yield [where, *([StyledText("  undone", "red")] if hit.message.rewound else [])]
        yield [StyledText("    "), *_render_snippet(escape_control_chars(hit.snippet))]
        for message in hit.after:
            yield [_render_context(message)]
    yield [StyledText("")]
    yield [StyledText(format_count(len(hits), "hit"), "dim")]


def _render_context(message: Message) -> StyledText:
    from .render import get_content_text

    calls = ", ".join(call.name for call in message.tool_calls)
    text = get_content_text(message) or (f"calls {calls}" if calls else "")
    return StyledText(f"  {message.role}: {escape_control_chars(to_one_line(text, 68))}", "dim")


def _render_snippet(snippet: str) -> Iterator[StyledText]:
    """Highlight the matches on a terminal; keep them between « » in a pipe."""
    for piece in re.split(r"(«[^«»]*»)", snippet):
        bright = piece.startswith("«") and sys.stdout.isatty()
        yield StyledText(piece[1:-1], "bold black on yellow") if bright else StyledText(piece)
