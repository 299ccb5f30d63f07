"""`rekindle sessions`: looking at what is stored."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    AsJson,
    Line,
    Owner,
    counted,
    encode,
    name_of,
    note,
    one_line,
    printable,
    record,
    say,
    time_of,
    usage_lines,
    usage_record,
    write_array,
    write_lines,
    write_sessions,
    write_styled,
)
from rekindle.cli.session_choice import Name, Where, parse_where
from rekindle.cli.store_access import reading, settings

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Hit, Message, Session

_PAGE = 1000

group = typer.Typer(
    help="List, read, search, change, move and mend stored sessions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("list")(list_sessions)
    app.command("show")(show)
    app.command("search")(search)


def list_sessions(
    where: Where = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="How many.", show_default="list.limit"),
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="How many to pass over.")] = 0,
    pruned: Annotated[
        bool, typer.Option("--pruned", help="What `restore` can bring back.")
    ] = False,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """List sessions, the most recently active first.

    \b
    Examples:
      rekindle sessions list
      rekindle sessions list source=telegram 'idle<7d' -n 50
      rekindle sessions list archived=yes --json
    """
    count = limit or settings().list.limit
    chosen = parse_where(where, owner).with_(pruned=pruned)
    with reading() as store:
        found = store.recent(count + 1, offset=offset, where=chosen)
    page = found[:count]
    if json:
        write_array(record(session) for session in page)
    elif page:
        write_sessions(page)
        if len(found) > count:
            note(f"There are more: --limit {count * 2}, or --offset {offset + count}.")
    else:
        note("No sessions here." if where or owner else "No sessions yet: try `rekindle start`.")


def show(
    name: Name,
    full: Annotated[bool, typer.Option("--full", "-f", help="Unfold everything.")] = False,
    rewound: Annotated[bool, typer.Option("--rewound", help="Also what was undone.")] = False,
    last: Annotated[int | None, typer.Option(min=1, help="Only the last messages.")] = None,
    usage: Annotated[bool, typer.Option("--usage", help="Only what each model took.")] = False,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Read a session as a conversation.

    With --json one message per line.

    \b
    Examples:
      rekindle sessions show 'My Project'
      rekindle sessions show 20260105_1403 --full | less
      rekindle sessions show 'My Project' --json | jq -r .role
      rekindle sessions show 'My Project' --usage --json
    """
    from .render import render

    with reading() as store:
        session = store.resolve(name, owner=owner)
        taken = store.usage(session)
        if usage:
            told = {**record(session), "usage": usage_record(taken)}
            lines = [encode(told).decode()] if json else [*usage_lines(taken)]
            for line in lines or ["No tokens were counted."]:
                say(line)
            return
        after = None
        if last is not None:
            kept = store.messages(session, rewound=rewound)[-last:]
            after = (kept[0].position or 0) - 1 if kept else None
        messages = paged(store, session, after, rewound)
        if json:
            write_lines(messages)
        else:
            width = get_terminal_size().columns
            write_styled(render(session, messages, full=full, width=width, usage=taken))


def paged(
    store: Store, session: Session, after: int | None = None, rewound: bool = False
) -> Iterator[Message]:
    """The messages, some at a time, so that the longest session shows at once."""
    while page := store.messages(session, rewound=rewound, after=after, limit=_PAGE):
        yield from page
        after = page[-1].position


def search(
    query: Annotated[
        list[str], typer.Argument(help='Words, "a phrase", prefix*, either OR or.', metavar="QUERY")
    ],
    role: Annotated[str | None, typer.Option(help="Only messages of this role.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
    session: Annotated[str | None, typer.Option(help="Only inside this session.")] = None,
    source: Annotated[str | None, typer.Option(help="Only sessions of this source.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DATE", help="From this day on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Up to this day.")] = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first, not best first.")] = False,
    rewound: Annotated[bool, typer.Option("--rewound", help="Also what was undone.")] = False,
    context: Annotated[int, typer.Option(min=0, help="Messages around each match.")] = 1,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="How many to pass over.")] = 0,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Find words in all messages.

    All words must occur, in any language; "a phrase", prefix*, either OR; identifiers are
    found as they are written.

    \b
    Examples:
      rekindle sessions search parse timeout
      rekindle sessions search '"no such file"' --role tool --newest
      rekindle sessions search read_file --since 2026-01-01 --json
    """
    days = [f"{key}={day}" for key, day in (("since", since), ("until", until)) if day]
    limits = parse_where(days)
    with reading() as store:
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
    _tell(hits, json)


def _tell(hits: list[Hit], json: bool) -> None:
    if json:
        write_array(map(_hit, hits))
    elif hits:
        write_styled(_hit_lines(hits))
    else:
        note("Nothing found.")


def _hit(hit: Hit) -> dict[str, object]:
    return {
        "session": record(hit.session),
        "message": hit.message,
        "snippet": hit.snippet,
        "before": hit.before,
        "after": hit.after,
    }


def _hit_lines(hits: list[Hit]) -> Iterator[list[Line]]:
    for index, hit in enumerate(hits):
        if index:
            yield [Line("")]
        title = Line(printable(one_line(name_of(hit.session), 60)), "bold")
        yield [title, Line(f"  {hit.session.id}", "cyan"), Line(f"  {hit.session.source}", "dim")]
        for message in hit.before:
            yield [_beside(message)]
        when = time_of(hit.message.timestamp or hit.session.last_active)
        where = Line(f"  {when}  #{hit.message.position} {hit.message.role}", "green")
        yield [where, *([Line("  undone", "red")] if hit.message.rewound else [])]
        yield [Line("    "), *_marked(printable(hit.snippet))]
        for message in hit.after:
            yield [_beside(message)]
    yield [Line("")]
    yield [Line(counted(len(hits), "hit"), "dim")]


def _beside(message: Message) -> Line:
    from .render import content_text

    calls = ", ".join(call.name for call in message.tool_calls)
    text = content_text(message) or (f"calls {calls}" if calls else "")
    return Line(f"  {message.role}: {printable(one_line(text, 68))}", "dim")


def _marked(snippet: str) -> Iterator[Line]:
    """The snippet, its matches bright on a terminal and between « » in a pipe."""
    for piece in re.split(r"(«[^»]*»)", snippet):
        bright = piece.startswith("«") and sys.stdout.isatty()
        yield Line(piece[1:-1], "bold black on yellow") if bright else Line(piece)
