"""A session as a conversation to read.

Tool calls are folded to one line each, with the beginning of their arguments and the size of their
result; what failed is shown with its text. Unfolded, everything is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rekindle.cli.output import (
    Line,
    counted,
    name_of,
    one_line,
    printable,
    size_of,
    time_of,
    usage_lines,
)

if TYPE_CHECKING:
    from rekindle.types import Message, Session, ToolCall, Usage

_ROLE_STYLES = {"user": "bold green", "assistant": "bold blue", "system": "bold magenta"}
_ARGUMENTS, _ERROR, _FOLDED = 20, 2000, 100
_GUTTER = "  "

Row = list[Line]


class Group(NamedTuple):
    """A message and, when it calls tools, the results that answer it, by call."""

    message: Message
    results: Mapping[str, Message]


def render(
    session: Session,
    messages: Iterable[Message],
    *,
    full: bool = False,
    width: int = 80,
    usage: Mapping[str, Usage] | None = None,
) -> Iterator[Row]:
    """The lines of the whole conversation; a folded call fits into one of that width."""
    yield from heading(session)
    if usage and len(usage) > 1:  # of a single model the heading tells all
        yield from ([Line(line, "dim")] for line in usage_lines(usage))
    for group in grouped(messages):
        yield [Line("")]
        yield from _message(group, full, width)


def heading(session: Session) -> Iterator[Row]:
    """Who, what and when, in a few lines."""
    yield [Line(printable(name_of(session)), "bold"), Line(f"  {session.id}", "cyan")]
    facts = [session.source]
    facts += [f"owner {session.owner}"] if session.owner else []
    facts += [session.model] if session.model else []
    facts.append(counted(session.message_count, "message"))
    facts += [counted(session.tool_call_count, "tool call")] if session.tool_call_count else []
    facts += [f"{session.tokens.total:,} tokens"] if session.tokens.total else []
    facts += [f"cost {session.cost}"] if session.cost else []
    yield [Line(printable(" · ".join(facts)), "dim")]
    first, last = time_of(session.started), time_of(session.last_active)
    span = f"{first} – {last[11:] if first[:10] == last[:10] else last}"
    state = f" · ended: {session.end_reason}" if session.ended else ""
    state += " · archived" if session.archived else ""
    state += f" · in {session.cwd}" if session.cwd else ""
    state += f" ({session.git_branch})" if session.git_branch else ""
    yield [Line(printable(span + state), "dim")]
    if session.parent:
        at = "" if session.forked_at is None else f" at #{session.forked_at}"
        yield [Line(f"continues {session.parent}{at}", "dim")]


def grouped(messages: Iterable[Message]) -> Iterator[Group]:
    """Put results with the message that called for them; the others stand alone."""
    caller: Message | None = None
    results: dict[str, Message] = {}
    for message in messages:
        wanted = {call.id for call in caller.tool_calls} if caller else set[str]()
        key = message.tool_call_id
        if caller and message.role == "tool" and key in wanted and key not in results:
            results[key] = message
            continue
        if caller:
            yield Group(caller, results)
        caller, results = None, {}
        if message.tool_calls:
            caller = message
        else:
            yield Group(message, {})
    if caller:
        yield Group(caller, results)


def _message(group: Group, full: bool, width: int) -> Iterator[Row]:
    message = group.message
    yield _byline(message)
    body = "dim" if message.rewound else ""
    if message.reasoning:
        yield from _folded("thinking", message.reasoning, full)
    if message.role == "tool":
        yield from _result(message, full)
    elif message.role == "system" and not full:
        yield from _folded("", content_text(message), full)
    else:
        yield from _block(content_text(message), body)
    for call in message.tool_calls:
        yield from _call(call, group.results.get(call.id), full, width)
    if message.finish_reason in ("length", "content_filter", "error"):
        yield [Line(f"{_GUTTER}✗ stopped: {message.finish_reason}", "red")]


def _byline(message: Message) -> Row:
    role = message.role if not message.name else f"{message.role} {message.name}"
    row = [Line(printable(role), _ROLE_STYLES.get(message.role, "bold yellow"))]
    if message.timestamp is not None:
        row.append(Line(f"  {time_of(message.timestamp)}", "dim"))
    if message.position is not None:
        row.append(Line(f"  #{message.position}", "dim"))
    if message.rewound:
        row.append(Line("  undone", "red"))
    return row


def _block(text: str, style: str) -> Iterator[Row]:
    for line in printable(text).split("\n") if text else ():
        yield [Line(_GUTTER + line, style)]


def _folded(label: str, text: str, full: bool) -> Iterator[Row]:
    if full:
        yield from _block(f"[{label}]\n{text}" if label else text, "dim italic")
        return
    start = f"{label}: " if label else ""
    size = f"  ({size_of(_bytes(text))})" if len(text) > _FOLDED else ""
    yield [Line(f"{_GUTTER}{start}{printable(one_line(text, _FOLDED))}{size}", "dim italic")]


def _call(call: ToolCall, result: Message | None, full: bool, width: int) -> Iterator[Row]:
    error = None if result is None else failure(result)
    mark, style = ("✗", "red") if error is not None else ("▸", "yellow")
    if full:
        yield [Line(f"{_GUTTER}{mark} {printable(call.name)}", style)]
        yield from _block(_indented(_unfolded(call.arguments)), "")
    else:
        head = f"{_GUTTER}{mark} {printable(call.name)}"
        size = "no result" if result is None else size_of(_bytes(content_text(result)))
        room = max(_ARGUMENTS, width - len(f"{head}()  → {size}"))
        preview = printable(one_line(_inline(call.arguments), room))
        yield [Line(head, style), Line(f"({preview})"), Line(f"  → {size}", "dim")]
    if result is None:
        return
    if full:
        yield [Line(f"{_GUTTER}  → {size_of(_bytes(content_text(result)))}", "dim")]
        yield from _block(_indented(content_text(result)), "red" if error is not None else "dim")
    elif error is not None:
        yield from _block(_indented(_cut(error)), "red")


def _result(message: Message, full: bool) -> Iterator[Row]:
    """A tool's result whose call is not here."""
    text, error = content_text(message), failure(message)
    if full:
        yield from _block(text, "red" if error is not None else "dim")
    elif error is not None:
        yield from _block(_cut(error), "red")
    else:
        yield from _folded("→", text, full)


def content_text(message: Message) -> str:
    """What the message says; parts that are no text stand as `[image]` and the like."""
    if isinstance(message.content, str) or message.content is None:
        return message.content or ""
    pieces: list[str] = []
    for part in message.content:
        text = part.get("text")
        pieces.append(text if isinstance(text, str) else f"[{part.get('type') or 'attachment'}]")
    return "\n".join(pieces)


def failure(message: Message) -> str | None:
    """The text of a tool's failure; nothing when it went well as far as the result itself says."""
    text = content_text(message)
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
        return error if isinstance(error, str) else _json(error)
    code = body.get("exit_code")
    failed = body.get("is_error") is True or body.get("success") is False
    return text if failed or (isinstance(code, int) and code != 0) else None


def _parsed(arguments: str | Mapping[str, Any]) -> Mapping[str, Any] | str:
    """The arguments by name, or the text when that is not what the model wrote."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: Any = json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else arguments


def _inline(arguments: str | Mapping[str, Any]) -> str:
    """The arguments the way a call is written: `path="a.py", line=3`."""
    parsed = _parsed(arguments)
    if isinstance(parsed, str):
        return parsed
    return ", ".join(f"{key}={_json(value)}" for key, value in parsed.items())


def _unfolded(arguments: str | Mapping[str, Any]) -> str:
    """The arguments with text as it is, over as many lines as it has."""
    parsed = _parsed(arguments)
    if isinstance(parsed, str):
        return parsed
    lines: list[str] = []
    for key, value in parsed.items():
        text = value if isinstance(value, str) else _json(value)
        lines.append(f"{key}:\n{_indented(text)}" if "\n" in text else f"{key}: {text}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _cut(text: str) -> str:
    if len(text) <= _ERROR:
        return text
    return f"{text[:_ERROR]}\n… ({size_of(_bytes(text))}; --full shows all)"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
