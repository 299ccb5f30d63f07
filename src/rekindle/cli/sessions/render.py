"""Render a session as a conversation.

Tool calls are folded to one line each, with the beginning of their arguments and the size of their
result; failures are shown with their text. With `full`, nothing is folded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rekindle.cli.output import (
    StyledText,
    escape_control_chars,
    format_cost,
    format_count,
    format_size,
    format_time,
    format_usage_lines,
    get_display_name,
    to_one_line,
)
from rekindle.projects import FOLDER_PREFIX, get_project_key, shorten_project
from rekindle.routing.speaker import format_speaker

from .sub_agents import format_sub_agent

if TYPE_CHECKING:
    from rekindle.types import Message, Session, SessionOutcome, ToolCall, Usage

_ROLE_STYLES = {"user": "bold green", "assistant": "bold blue", "system": "bold magenta"}
_MIN_ARGUMENTS_WIDTH, _MAX_ERROR_LENGTH, _MAX_FOLDED_LENGTH = 20, 2000, 100
_MAX_REQUEST_LENGTH = 160
_GUTTER = "  "

StyledLine = list[StyledText]


class MessageGroup(NamedTuple):
    """A message and, if it calls tools, their results by call id."""

    message: Message
    results: Mapping[str, Message]


def render_session(
    session: Session,
    messages: Iterable[Message],
    *,
    full: bool = False,
    width: int = 80,
    usage: Mapping[str, Usage] | None = None,
    outcome: SessionOutcome | None = None,
    sub_agents: Sequence[Session] = (),
    names: Mapping[str, str] | None = None,
) -> Iterator[StyledLine]:
    """Yield the lines of the whole conversation; a folded call fits into one line of `width`.

    `session` has the usage of its `sub_agents`, which are shown where they were started.
    """
    yield from render_heading(session, names, len(sub_agents))
    if outcome is not None and outcome.verdict != "unknown":
        yield [StyledText(_format_outcome(outcome), "dim")]
    if usage and len(usage) > 1:  # the heading already shows a single model's usage
        yield from ([StyledText(line, "dim")] for line in format_usage_lines(usage))
    waiting = list(sub_agents)
    for number, group in enumerate(group_tool_results(messages)):
        time = group.message.timestamp
        if number == 0 and group.message.position and time is not None:
            waiting = [one for one in waiting if one.started >= time]  # the beginning is not shown
        for one in [one for one in waiting if time is not None and one.started < time]:
            waiting.remove(one)
            yield _render_sub_agent(one, names)
        yield [StyledText("")]
        yield from _render_message(group, full, width)
        for one in [one for one in waiting if _is_started_by(one, group)]:
            waiting.remove(one)
            yield _render_sub_agent(one, names)
    yield from (_render_sub_agent(one, names) for one in waiting)


def _is_started_by(sub_agent: Session, group: MessageGroup) -> bool:
    """Return whether a result names the sub-agent by its id, or the part before its parent's."""
    own = sub_agent.id.partition("@")[0].removeprefix("agent-")
    ids = {sub_agent.id, own, f"agent-{own}"}
    return any((result.meta or {}).get("agent") in ids for result in group.results.values())


def _render_sub_agent(sub_agent: Session, names: Mapping[str, str] | None) -> StyledLine:
    facts = [format_count(sub_agent.message_count, "message")]
    facts += [f"{sub_agent.tokens.total:,} tokens"] if sub_agent.tokens.total else []
    facts += [f"${format_cost(sub_agent.cost)}"] if sub_agent.cost else []
    name = to_one_line(get_display_name(sub_agent, names), _MAX_FOLDED_LENGTH)
    return [
        StyledText(escape_control_chars(f"{_GUTTER}↳ {format_sub_agent(sub_agent)}: {name}")),
        StyledText(f"  {sub_agent.id}", "cyan"),
        StyledText(f"  {', '.join(facts)}", "dim"),
    ]


def _format_outcome(outcome: SessionOutcome) -> str:
    at = "" if outcome.where is None else f" at #{outcome.where}"
    return f"{outcome.verdict}: {outcome.rule}{at} (confidence {outcome.confidence:.0%})"


def render_heading(
    session: Session, names: Mapping[str, str] | None = None, sub_agent_count: int = 0
) -> Iterator[StyledLine]:
    """Yield a few lines with the title, requests, facts and times of the session."""
    name = get_display_name(session, names)
    yield [
        StyledText(escape_control_chars(name), "bold"),
        StyledText(f"  {session.id}", "cyan"),
    ]
    first, last = session.preview, session.last_request
    for label, request in (("first", first), ("last", last if last != first else None)):
        if request and not request.startswith(name.removesuffix("…")):
            text = to_one_line(request, _MAX_REQUEST_LENGTH)
            yield [StyledText(escape_control_chars(f"{label} request: {text}"), "dim")]
    facts = [session.source]
    facts += [f"owner {session.owner}"] if session.owner else []
    facts += [session.model] if session.model else []
    facts.append(format_count(session.message_count, "message"))
    facts += [format_count(session.tool_call_count, "tool call")] if session.tool_call_count else []
    facts += [f"{session.tokens.total:,} tokens"] if session.tokens.total else []
    facts += [f"cost ${format_cost(session.cost)}"] if session.cost else []
    facts += [f"with {format_count(sub_agent_count, 'sub-agent')}"] if sub_agent_count else []
    yield [StyledText(escape_control_chars(" · ".join(facts)), "dim")]
    first, last = format_time(session.started), format_time(session.last_active)
    span = f"{first} – {last[11:] if first[:10] == last[:10] else last}"
    state = f" · ended: {session.end_reason}" if session.ended else ""
    state += " · archived" if session.archived else ""
    key = get_project_key(session)
    state += f" · {shorten_project(key)}" if key and not key.startswith(FOLDER_PREFIX) else ""
    state += f" · in {session.cwd}" if session.cwd else ""
    state += f" ({session.git_branch})" if session.git_branch else ""
    yield [StyledText(escape_control_chars(span + state), "dim")]
    if session.parent:
        at = "" if session.forked_at is None else f" at #{session.forked_at}"
        role = f"{format_sub_agent(session)} of" if session.sub_agent else "continues"
        yield [StyledText(escape_control_chars(f"{role} {session.parent}{at}"), "dim")]


def group_tool_results(messages: Iterable[Message]) -> Iterator[MessageGroup]:
    """Group tool results with the message that called for them; other messages stand alone."""
    caller: Message | None = None
    results: dict[str, Message] = {}
    for message in messages:
        wanted = {call.id for call in caller.tool_calls} if caller else set[str]()
        key = message.tool_call_id
        if caller and message.role == "tool" and key in wanted and key not in results:
            results[key] = message
            continue
        if caller:
            yield MessageGroup(caller, results)
        caller, results = None, {}
        if message.tool_calls:
            caller = message
        else:
            yield MessageGroup(message, {})
    if caller:
        yield MessageGroup(caller, results)


def _render_message(group: MessageGroup, full: bool, width: int) -> Iterator[StyledLine]:
    message = group.message
    yield _render_byline(message)
    body = "dim" if message.rewound else ""
    if message.reasoning:
        yield from _render_folded("thinking", message.reasoning, full)
    if message.role == "tool":
        yield from _render_orphan_result(message, full)
    elif message.role == "system" and not full:
        yield from _render_folded("", get_content_text(message), full)
    else:
        yield from _render_block(get_content_text(message), body)
    for call in message.tool_calls:
        yield from _render_call(call, group.results.get(call.id), full, width)
    if message.finish_reason in ("length", "content_filter", "error"):
        yield [StyledText(f"{_GUTTER}✗ stopped: {message.finish_reason}", "red")]


def _render_byline(message: Message) -> StyledLine:
    name = format_speaker(message) or message.name
    role = message.role if not name else f"{message.role} {name}"
    row = [StyledText(escape_control_chars(role), _ROLE_STYLES.get(message.role, "bold yellow"))]
    if message.timestamp is not None:
        row.append(StyledText(f"  {format_time(message.timestamp)}", "dim"))
    if message.position is not None:
        row.append(StyledText(f"  #{message.position}", "dim"))
    if message.rewound:
        row.append(StyledText("  undone", "red"))
    return row


def _render_block(text: str, style: str) -> Iterator[StyledLine]:
    for line in escape_control_chars(text).split("\n") if text else ():
        yield [StyledText(_GUTTER + line, style)]


def _render_folded(label: str, text: str, full: bool) -> Iterator[StyledLine]:
    if full:
        yield from _render_block(f"[{label}]\n{text}" if label else text, "dim italic")
        return
    start = f"{label}: " if label else ""
    size = f"  ({format_size(_count_bytes(text))})" if len(text) > _MAX_FOLDED_LENGTH else ""
    yield [
        StyledText(
            f"{_GUTTER}{start}{escape_control_chars(to_one_line(text, _MAX_FOLDED_LENGTH))}{size}",
            "dim italic",
        )
    ]


def _render_call(
    call: ToolCall, result: Message | None, full: bool, width: int
) -> Iterator[StyledLine]:
    error = None if result is None else get_failure_text(result)
    mark, style = ("✗", "red") if error is not None else ("▸", "yellow")
    if full:
        yield [StyledText(f"{_GUTTER}{mark} {escape_control_chars(call.name)}", style)]
        yield from _render_block(_indent_text(_expand_arguments(call.arguments)), "")
    else:
        head = f"{_GUTTER}{mark} {escape_control_chars(call.name)}"
        size = (
            "no result" if result is None else format_size(_count_bytes(get_content_text(result)))
        )
        room = max(_MIN_ARGUMENTS_WIDTH, width - len(f"{head}()  → {size}"))
        preview = escape_control_chars(to_one_line(_inline_arguments(call.arguments), room))
        yield [
            StyledText(head, style),
            StyledText(f"({preview})"),
            StyledText(f"  → {size}", "dim"),
        ]
    if result is None:
        return
    if full:
        yield [
            StyledText(f"{_GUTTER}  → {format_size(_count_bytes(get_content_text(result)))}", "dim")
        ]
        yield from _render_block(
            _indent_text(get_content_text(result)), "red" if error is not None else "dim"
        )
    elif error is not None:
        yield from _render_block(_indent_text(_truncate_error(error)), "red")


def _render_orphan_result(message: Message, full: bool) -> Iterator[StyledLine]:
    """Yield the lines of a tool result whose call is missing."""
    text, error = get_content_text(message), get_failure_text(message)
    if full:
        yield from _render_block(text, "red" if error is not None else "dim")
    elif error is not None:
        yield from _render_block(_truncate_error(error), "red")
    else:
        yield from _render_folded("→", text, full)


def get_content_text(message: Message) -> str:
    """Return the text of the message; other parts appear as `[image]` and the like."""
    if isinstance(message.content, str) or message.content is None:
        return message.content or ""
    pieces: list[str] = []
    for part in message.content:
        text = part.get("text")
        pieces.append(text if isinstance(text, str) else f"[{part.get('type') or 'attachment'}]")
    return "\n".join(pieces)


def get_failure_text(message: Message) -> str | None:
    """Return the error text of a tool result, or None if the result reports no failure."""
    text = get_content_text(message)
    if message.meta and message.meta.get("is_error"):
        return text
    if not text.startswith("{") or len(text) > 1_000_000:
        return None
    try:
        body: Any = json.loads(text)
    except ValueError:
        return None
    if body.get("error"):
        error = body["error"]
        return error if isinstance(error, str) else _dump_json(error)
    code = body.get("exit_code")
    failed = body.get("is_error") is True or body.get("success") is False
    return text if failed or (isinstance(code, int) and code != 0) else None


def _parse_arguments(arguments: str | Mapping[str, Any]) -> Mapping[str, Any] | str:
    """Parse the arguments of a call; return the text as it is if that is not a JSON object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: Any = json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else arguments


def _inline_arguments(arguments: str | Mapping[str, Any]) -> str:
    """Format the arguments the way a call is written: `path="a.py", line=3`."""
    parsed = _parse_arguments(arguments)
    if isinstance(parsed, str):
        return parsed
    return ", ".join(f"{key}={_dump_json(value)}" for key, value in parsed.items())


def _expand_arguments(arguments: str | Mapping[str, Any]) -> str:
    """Format the arguments over several lines, with texts unescaped."""
    parsed = _parse_arguments(arguments)
    if isinstance(parsed, str):
        return parsed
    lines: list[str] = []
    for key, value in parsed.items():
        text = value if isinstance(value, str) else _dump_json(value)
        lines.append(f"{key}:\n{_indent_text(text)}" if "\n" in text else f"{key}: {text}")
    return "\n".join(lines)


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _indent_text(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _truncate_error(text: str) -> str:
    if len(text) <= _MAX_ERROR_LENGTH:
        return text
    return (
        f"{text[:_MAX_ERROR_LENGTH]}\n… ({format_size(_count_bytes(text))}; use --full to see all)"
    )


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
