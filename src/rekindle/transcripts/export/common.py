"""What the pages for people share: how a time, a call and its end are put into words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rekindle.types import Message, Session, ToolCall

_PREVIEW = 100
# The argument that says most about a call, where a tool has one.
_TELLING = (
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


def title_of(session: Session) -> str:
    return printable(session.title or session.preview or f"Session {session.id}")


def time_of(seconds: float | None) -> str:
    """A time as people write it, in UTC; nothing when it is not known."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def facts_of(session: Session) -> Iterator[tuple[str, str]]:
    """What is known about the session, by name."""
    tokens = session.tokens
    facts = {
        "Session": session.id,
        "Source": session.source,
        "Model": session.model,
        "Started": time_of(session.started),
        "Folder": session.cwd,
        "Branch": session.git_branch,
        "Parent": session.parent,
        "Tokens": f"{tokens.input:,} in, {tokens.output:,} out" if tokens.total else None,
        "Cost": f"${session.cost}" if session.cost else None,
    }
    yield from ((name, printable(fact)) for name, fact in facts.items() if fact)


def arguments_of(call: ToolCall) -> Any:
    """The arguments as a value where they are JSON, else as the text that the model wrote."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments


def written_arguments(call: ToolCall) -> str:
    """The arguments, laid out for reading."""
    arguments = arguments_of(call)
    if isinstance(arguments, str):
        return printable(arguments)
    return printable(json.dumps(arguments, indent=2, ensure_ascii=False, default=str))


def preview(call: ToolCall) -> str:
    """The call in a few words."""
    arguments = arguments_of(call)
    if isinstance(arguments, Mapping):
        fields = cast("Mapping[str, Any]", arguments)
        told = next((fields[name] for name in _TELLING if fields.get(name)), None)
        arguments = told or next(iter(fields.values()), "")
    if isinstance(arguments, (list, tuple)):
        arguments = " ".join(str(item) for item in cast("list[Any]", arguments))
    words = " ".join(str(arguments).split())
    return printable(words if len(words) <= _PREVIEW else words[: _PREVIEW - 1] + "…")


def trouble(result: Message) -> str | None:
    """What the protocol says went wrong with a call, in a word or two."""
    facts = result.meta or {}
    code = facts.get("exit_code")
    if code and facts.get("is_error") is not False:
        return f"exit code {code}"
    if facts.get("refused") or facts.get("denial"):
        return "refused"
    if facts.get("interrupted"):
        return "interrupted"
    return "error" if facts.get("is_error") or facts.get("success") is False else None


def printable(text: str) -> str:
    """Text that every file can hold: halves of surrogate pairs are replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
