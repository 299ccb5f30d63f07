"""`rekindle sessions list`, `show` and `search`, and `rekindle search`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rekindle.cli.help import create_group
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
from rekindle.cli.session_choice import (
    AllOption,
    FilterArgument,
    SessionArgument,
    SessionSelection,
    parse_filter,
    select_sessions,
    split_terms,
)
from rekindle.cli.store_access import load_settings, open_for_reading
from rekindle.errors import StoreReadOnly
from rekindle.routing.speaker import format_speaker

if TYPE_CHECKING:
    from rekindle.store import Filter, Store
    from rekindle.types import Hit, Message, Session, SessionOutcome, Usage

    from .sub_agents import FoldedSession, SessionTable

_PAGE_SIZE = 1000
_EXCLUDED_MARK = "\0"  # no word of a command line has one
_MAX_JUDGED_MESSAGES = 2000  # of a session that is judged before it is shown

group = create_group("List, read, search, edit, export and repair stored sessions.")


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
    all: AllOption = False,
    sub_agents: Annotated[
        bool, typer.Option("--sub-agents", help="List sub-agents below their sessions.")
    ] = False,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """List sessions, most recently active first.

    In the folder of a project with sessions, list only those of the project, unless you pass --all or
    project=NAME. Sessions of sub-agents are folded into the one that started them, with their tokens
    and cost.

    \b
    Examples:
      rekindle sessions list
      rekindle sessions list --all since=7d
      rekindle sessions list project=api branch=main model~opus
      rekindle sessions list source=telegram 'idle<7d' -n 50
      rekindle sessions list outcome=failed since=2026-01-01
      rekindle sessions list --sub-agents
      rekindle sessions list archived=yes --json
    """
    from .sub_agents import build_session_table, merge_sub_agents

    count = limit or load_settings().list.limit
    terms = parse_filter(where, owner).with_(pruned=pruned)
    with open_for_reading(from_replica=True) as store:
        selection = select_sessions(store, terms, every=all)
        chosen = selection.where
        if chosen.outcome is not None:
            _judge_outcomes(store, chosen)
        found = store.recent(count + 1, offset=offset, where=chosen, fold=True)
        page = found[:count]
        table = build_session_table(store, [] if json else page, expand=sub_agents)
        if json:
            _write_json_list(store, merge_sub_agents(store, page, expand=sub_agents), selection)
    if page and not json:
        write_list(table, selection)
        if len(found) > count:
            print_notice(f"More available: use --limit {count * 2} or --offset {offset + count}.")
    if not page and (selection.project or not json):
        print_notice(
            f"No matching sessions{selection.suffix}"
            if where or owner or selection.project
            else "No sessions yet. Import some with `rekindle start`."
        )


def write_list(table: SessionTable, selection: SessionSelection) -> None:
    """Write the table; on a terminal without the project if that says nothing."""
    names = selection.list_names(table.sessions)
    is_known = len({*names, ""}) == 1 or (selection.project and len(set(names)) == 1)
    projects = None if is_known and sys.stdout.isatty() else names
    write_sessions(table.sessions, projects=projects, tails=table.tails)


def _write_json_list(
    store: Store, folded: list[FoldedSession], selection: SessionSelection
) -> None:
    outcomes = store.session_outcomes.load([one.session.id for one in folded])
    write_json_array(
        {
            **_describe_session(one),
            "project": selection.known.find_session_project(one.session),
            "outcome": _outcome_to_dict(outcomes.get(one.session.id)),
        }
        for one in folded
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
    from .sub_agents import load_model_usage, merge_sub_agents

    with open_for_reading() as store:
        session = store.resolve(name, owner=owner)
        (folded,) = merge_sub_agents(store, [session])
        usage_by_model = load_model_usage(store, folded)
        outcome = None if json and not usage else _load_outcome(store, session)
        if usage:
            _print_usage(folded, usage_by_model, outcome, json)
            return
        after = None
        if last is not None:
            last_messages = store.messages(session, rewound=rewound)[-last:]
            after = (last_messages[0].position or 0) - 1 if last_messages else None
        messages = iter_messages(store, session, after, rewound)
        if json:
            write_json_lines(messages)
        else:
            write_styled(
                render_session(
                    folded.total,
                    messages,
                    full=full,
                    width=get_terminal_size().columns,
                    usage=usage_by_model,
                    outcome=outcome,
                    sub_agents=folded.sub_agents,
                    names=store.load_names([session, *folded.sub_agents]),
                )
            )


def _print_usage(
    folded: FoldedSession,
    usage: Mapping[str, Usage],
    outcome: SessionOutcome | None,
    json: bool,
) -> None:
    result = {
        **_describe_session(folded),
        "outcome": _outcome_to_dict(outcome),
        "usage": usage_to_dict(usage),
    }
    lines = [encode_json(result).decode()] if json else [*format_usage_lines(usage)]
    for line in lines or ["No token usage recorded."]:
        print_line(line)


def _describe_session(folded: FoldedSession) -> dict[str, Any]:
    """Return the fields of a session with its sub-agents and their common usage and cost."""
    from .sub_agents import describe_sub_agents

    return {
        **session_to_dict(folded.total),
        "cost_source": folded.cost_source,
        "sub_agents": describe_sub_agents(folded.sub_agents),
    }


def iter_messages(
    store: Store, session: Session, after: int | None = None, rewound: bool = False
) -> Iterator[Message]:
    """Yield the messages page by page, so that even the longest session shows at once."""
    while page := store.messages(session, rewound=rewound, after=after, limit=_PAGE_SIZE):
        yield from page
        after = page[-1].position


class SearchCommand(TyperCommand):
    """A command whose words may begin with a dash: `-word` leaves out messages with the word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line with excluded words marked, so that none is read as an option."""
        with_value = {
            name
            for option in self.params
            if not getattr(option, "is_flag", True)
            for name in option.opts
        }
        marked: list[str] = []
        for index, word in enumerate(args):
            if word == "--":
                marked += args[index:]
                break
            is_value = index > 0 and args[index - 1] in with_value
            is_excluded = not is_value and re.match(r"-(?!n\d+$)[^\W_].|-\"", word, re.DOTALL)
            marked.append(f"{_EXCLUDED_MARK}{word}" if is_excluded else word)
        return super().parse_args(ctx, marked)


_QueryArgument = Annotated[
    list[str],
    typer.Argument(
        help='Words, "a phrase", prefix*, a OR b, -word; and filter terms such as project=api.',
        metavar="QUERY",
    ),
]
_SinceOption = Annotated[
    str | None, typer.Option(metavar="DATE", help="On or after this date; also 7d, yesterday.")
]
_UntilOption = Annotated[str | None, typer.Option(metavar="DATE", help="On or before this date.")]


def search_messages(
    query: _QueryArgument,
    role: Annotated[str | None, typer.Option(help="Only messages with this role.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
    session: Annotated[str | None, typer.Option(help="Only messages in this session.")] = None,
    source: Annotated[str | None, typer.Option(help="Only sessions from this source.")] = None,
    since: _SinceOption = None,
    until: _UntilOption = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="Sort by date instead of relevance.")
    ] = False,
    rewound: Annotated[bool, typer.Option("--rewound", help="Include undone messages.")] = False,
    context: Annotated[int, typer.Option(min=0, help="Messages to show around each match.")] = 1,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of matches.")
    ] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Number of results to skip.")] = 0,
    all: AllOption = False,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Search the messages of sessions.

    All words must occur, in any language. Also supported: "a phrase", prefix*, a OR b, and -word or
    -"a phrase" for what must not occur. Identifiers match as written. Words such as project=api or
    since=7d are filter terms, as for `sessions list`. In the folder of a project with sessions, only
    those of the project are searched, unless you pass --all, --session or project=NAME.

    \b
    Examples:
      rekindle search parse timeout
      rekindle search timeout -retry -"as expected" --all
      rekindle search '"no such file"' project=api since=7d
      rekindle search read_file --since 2026-01-01 --json
    """
    text, terms = split_terms(" ".join(map(_restore_exclusion, query)))
    days = [f"{key}={day}" for key, day in (("since", since), ("until", until)) if day]
    limits = parse_filter([*terms, *days], owner)
    with open_for_reading(from_replica=True) as store:
        where = limits.with_(source=source)._replace(since=None, until=None)
        selection = select_sessions(store, where, every=all or session is not None)
        hits = store.search(
            text,
            where=selection.where,
            limit=limit,
            offset=offset,
            role=role,
            tool=tool,
            session=store.resolve(session, owner=limits.owner).id if session else None,
            since=limits.since,
            until=limits.until,
            rewound=rewound,
            order="newest" if newest else "best",
            context=context,
        )
        names = store.load_names([hit.session for hit in hits])
    _print_hits(hits, names, json, selection)
    if not hits and (selection.project or not json):
        print_notice(_explain_no_hits(text, selection))


def _print_hits(
    hits: list[Hit], names: Mapping[str, str], json: bool, selection: SessionSelection
) -> None:
    if json:
        write_json_array(_hit_to_dict(hit, selection) for hit in hits)
    elif hits:
        projects = selection.list_names(hit.session for hit in hits)
        write_styled(_render_hits(hits, names, projects))


def _restore_exclusion(word: str) -> str:
    """Return a word of a search as it was typed: the shell takes the quotes off -"a phrase"."""
    if not word.startswith(_EXCLUDED_MARK):
        return word
    word = word.removeprefix(_EXCLUDED_MARK)
    return f'-"{word[1:]}"' if " " in word and '"' not in word else word


def _explain_no_hits(text: str, selection: SessionSelection) -> str:
    from rekindle.store.core.search_query import parse_query

    if not parse_query(text).groups:
        return "Nothing to search for. Name a word that messages must have."
    return f"No matches found{selection.suffix}"


def _hit_to_dict(hit: Hit, selection: SessionSelection) -> dict[str, object]:
    project = selection.known.find_session_project(hit.session)
    return {
        "session": {**session_to_dict(hit.session), "project": project},
        "message": hit.message,
        "snippet": hit.snippet,
        "before": hit.before,
        "after": hit.after,
    }


def _render_hits(
    hits: list[Hit], names: Mapping[str, str], projects: list[str]
) -> Iterator[list[StyledText]]:
    for index, (hit, project) in enumerate(zip(hits, projects, strict=True)):
        if index:
            yield [StyledText("")]
        if not index or hits[index - 1].session.id != hit.session.id:
            yield _render_hit_heading(hit.session, names, project)
        for message in hit.before:
            yield [_render_context(message)]
        when = format_time(hit.message.timestamp or hit.session.last_active)
        where = StyledText(
            f"  {when}  #{hit.message.position} {_format_role(hit.message)}", "green"
        )
        yield [where, *([StyledText("  undone", "red")] if hit.message.rewound else [])]
        yield [StyledText("    "), *_render_snippet(escape_control_chars(hit.snippet))]
        for message in hit.after:
            yield [_render_context(message)]
    yield [StyledText("")]
    yield [StyledText(format_count(len(hits), "hit"), "dim")]


def _render_hit_heading(
    session: Session, names: Mapping[str, str], project: str
) -> list[StyledText]:
    name = to_one_line(get_display_name(session, names), 60)
    return [
        StyledText(escape_control_chars(name), "bold"),
        StyledText(f"  {session.id}", "cyan"),
        StyledText(f"  {escape_control_chars(project)}" if project else "", "magenta"),
        StyledText(f"  {session.source}", "dim"),
    ]


def _render_context(message: Message) -> StyledText:
    from .render import get_content_text

    calls = ", ".join(call.name for call in message.tool_calls)
    text = get_content_text(message) or (f"calls {calls}" if calls else "")
    line = escape_control_chars(to_one_line(text, 68))
    return StyledText(f"  {_format_role(message)}: {line}", "dim")


def _format_role(message: Message) -> str:
    return f"{message.role} {format_speaker(message)}".rstrip()


def _render_snippet(snippet: str) -> Iterator[StyledText]:
    """Highlight the matches on a terminal; keep them between « » in a pipe."""
    for piece in re.split(r"(«[^«»]*»)", snippet):
        bright = piece.startswith("«") and sys.stdout.isatty()
        yield StyledText(piece[1:-1], "bold black on yellow") if bright else StyledText(piece)
