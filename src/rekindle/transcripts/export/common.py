"""Pairing and formatting of messages, shared by the exports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from rekindle.types import Message, Session, ToolCall

_PREVIEW_LENGTH = 100
# The most informative arguments of a call, best first.
_PREVIEW_ARGUMENTS = (
    "command",
    "cmd",
    "file_path",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
)


def format_title(session: Session) -> str:
    """Return the session's title, its preview, or its id."""
    return replace_surrogates(session.title or session.preview or f"Session {session.id}")


def format_time(seconds: float | None) -> str:
    """Format a time in UTC; return an empty string if it is unknown."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def list_session_details(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the session's known details as (label, value) pairs."""
    tokens = session.tokens
    details = {
        "Session": session.id,
        "Source": session.source,
        "Model": session.model,
        "Started": format_time(session.started),
        "Folder": session.cwd,
        "Branch": session.git_branch,
        "Parent": session.parent,
        "Tokens": f"{tokens.input:,} in, {tokens.output:,} out" if tokens.total else None,
        "Cost": f"${session.cost}" if session.cost else None,
    }
    yield from ((name, replace_surrogates(value)) for name, value in details.items() if value)


def parse_arguments(call: ToolCall) -> Any:
    """Return the arguments as a value if they are JSON, else as the text the model wrote."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments


def format_arguments(call: ToolCall) -> str:
    """Return the arguments as indented text."""
    arguments = parse_arguments(call)
    if isinstance(arguments, str):
        return replace_surrogates(arguments)
    return replace_surrogates(json.dumps(arguments, indent=2, ensure_ascii=False, default=str))


def preview_call(call: ToolCall) -> str:
    """Return a one-line preview of the call."""
    arguments = parse_arguments(call)
    if isinstance(arguments, Mapping):
        fields = cast("Mapping[str, Any]", arguments)
        preferred = next((fields[name] for name in _PREVIEW_ARGUMENTS if fields.get(name)), None)
        arguments = preferred or next(iter(fields.values()), "")
    if isinstance(arguments, (list, tuple)):
        arguments = " ".join(str(item) for item in cast("list[Any]", arguments))
    words = " ".join(str(arguments).split())
    return replace_surrogates(
        words if len(words) <= _PREVIEW_LENGTH else words[: _PREVIEW_LENGTH - 1] + "…"
    )


def describe_failure(result: Message) -> str | None:
    """Return a short description of why a call failed, or None if it did not."""
    meta = result.meta or {}
    code = meta.get("exit_code")
    if code and meta.get("is_error") is not False:
        return f"exit code {code}"
    if meta.get("refused") or meta.get("denial"):
        return "refused"
    if meta.get("interrupted"):
        return "interrupted"
    return "error" if meta.get("is_error") or meta.get("success") is False else None


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


class Exchange(NamedTuple):
    """A message and the results of its tool calls, by call id."""

    message: Message
    results: dict[str, Message]


def pair_results(messages: Iterable[Message]) -> Iterator[Exchange]:
    """Yield each message with the results of its calls.

    A result without a matching call is yielded on its own.
    """
    current: Exchange | None = None
    for message in messages:
        if message.role == "tool" and current is not None:
            call_id = message.tool_call_id or ""
            if call_id not in current.results and any(
                known.id == call_id for known in current.message.tool_calls
            ):
                current.results[call_id] = message
                continue
        if current is not None:
            yield current
        current = Exchange(message, {})
    if current is not None:
        yield current
