"""Pairing and formatting of messages, shared by the exports."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, cast

from rekindle.pages.text import replace_surrogates
from rekindle.types import Message, Session, Tokens, ToolCall

_PREVIEW_LENGTH = 100
_READ_FOR_PREVIEW = 4_000
_TITLE_LENGTH = 120
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
    name = session.title or session.preview or f"Session {session.id}"
    return replace_surrogates(name if len(name) <= _TITLE_LENGTH else name[:_TITLE_LENGTH] + "…")


def format_time(seconds: float | None) -> str:
    """Format a time in UTC; return an empty string if it is unknown."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_day(seconds: float) -> str:
    """Format a day in UTC: `5 January 2026`."""
    day = datetime.fromtimestamp(seconds, UTC)
    return f"{day.day} {day:%B %Y}"


def format_cost(cost: Decimal) -> str:
    """Format an amount of dollars: to the cent, or more exactly if it is less than one."""
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.3f}"


def format_duration(seconds: float) -> str:
    """Format a duration: `12 min`, `3 h 5 min`, `4 days`."""
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} days"


_REMOVED_NOUNS = {
    "home": "home folder",
    "mail": "mail address",
    "user": "user name",
    "phone": "phone number",
    "card": "card number",
    "image": "image",
    "password": "password",
    "secret": "secret",
    "known": "value of your environment",
}


def describe_removed(removed: Mapping[str, int]) -> str:
    """Format what was redacted: `3 home folders, 1 github-token`."""
    parts: list[str] = []
    for kind, count in removed.items():
        noun = _REMOVED_NOUNS.get(kind, kind)
        ending = "" if count == 1 else "es" if noun.endswith("ss") else "s"
        parts.append(f"{count:,} {noun}{ending if kind in _REMOVED_NOUNS else ''}")
    return ", ".join(parts)


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
        "Tokens": _format_tokens(tokens) if any(tokens) else None,
        "Cost": f"${session.cost.normalize():f}" if session.cost else None,
    }
    yield from ((name, replace_surrogates(value)) for name, value in details.items() if value)


def _format_tokens(tokens: Tokens) -> str:
    parts = [f"{tokens.input:,} in", f"{tokens.output:,} out"]
    parts += [f"{tokens.cache_read:,} read from the cache"] if tokens.cache_read else []
    parts += [f"{tokens.cache_write:,} written to the cache"] if tokens.cache_write else []
    return ", ".join(parts)


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
    try:
        text = json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):  # nested too deeply
        text = _dump_flat(call.arguments)
    return replace_surrogates(text)


def _dump_flat(arguments: object) -> str:
    """Return arguments that are nested too deeply as they were written, or that they cannot be shown."""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


def preview_call(call: ToolCall) -> str:
    """Return a one-line preview of the call."""
    arguments = parse_arguments(call)
    if isinstance(arguments, Mapping):
        fields = cast("Mapping[str, Any]", arguments)
        preferred = next((fields[name] for name in _PREVIEW_ARGUMENTS if fields.get(name)), None)
        arguments = preferred or next(iter(fields.values()), "")
    try:
        if isinstance(arguments, (list, tuple)):
            arguments = " ".join(str(item) for item in cast("list[Any]", arguments))
        words = " ".join(str(arguments)[:_READ_FOR_PREVIEW].split())
    except RecursionError:  # nested too deeply
        words = "…"
    return replace_surrogates(
        words if len(words) <= _PREVIEW_LENGTH else words[: _PREVIEW_LENGTH - 1] + "…"
    )


class CallResult(NamedTuple):
    """How a call ended.

    `state` is ok, failed, negative (it ran and found nothing, or tests failed), rejected, missing or
    unknown; `label` says it in a few words, and `words` are those of the user who rejected it.
    """

    state: str
    label: str = ""
    words: str = ""


def describe_result(call: ToolCall, result: Message | None) -> CallResult:
    """Return how the call ended, in words for a reader."""
    if result is None:
        return CallResult("missing", "no result")
    meta = result.meta or {}
    from rekindle.judging.judge import judge_call  # slow to load, and chats load this file

    verdict = judge_call(call, result)
    code = meta.get("exit_code")
    exit_label = f"exit code {code}" if isinstance(code, int) and code else ""
    if verdict.outcome == "refused":
        if meta.get("interrupted") or verdict.error_kind == "interrupted":
            return CallResult("rejected", "interrupted")
        words = find_rejection_words(result.text)
        by = "rejected by the user" if words or _REJECTED_BY_USER.search(result.text[:400]) else ""
        return CallResult("rejected", by or "not allowed", words)
    if verdict.outcome == "error":
        if meta.get("interrupted"):
            return CallResult("failed", "interrupted")
        return CallResult("failed", exit_label or _ERROR_LABELS.get(verdict.error_kind, "failed"))
    if verdict.outcome == "expected":
        return CallResult("negative", exit_label or "negative result")
    return CallResult("ok" if verdict.outcome == "ok" else "unknown")


_ERROR_LABELS: Mapping[str | None, str] = {
    "path": "not found",
    "permission": "permission denied",
    "timeout": "timed out",
    "network": "network error",
    "rate_limit": "rate limit",
    "service": "service error",
    "arguments": "wrong arguments",
}
_REJECTED_BY_USER = re.compile(r"(?i)\buser\b|rejected")
_WORDS_MARK = re.compile(
    r"(?i)(?:the user said|(?:following|with) (?:reason|feedback)(?: for the rejection)?"
    r"|user(?:'s)? (?:feedback|reason)|reason for the rejection)\s{0,20}:\s{0,20}"
)
_WORDS_END = re.compile(r"\n\n(?:Note: |\[|<system)|<system-reminder>")


def find_rejection_words(text: str) -> str:
    """Return what the user said when they rejected a call; empty if they only rejected it."""
    mark = _WORDS_MARK.search(text, 0, 2_000)
    if mark is None:
        return ""
    end = _WORDS_END.search(text, mark.end())
    return text[mark.end() : end.start() if end else len(text)].strip()[:4_000]


_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+\Z")


def find_image(part: Mapping[str, Any]) -> str | None:
    """Return the image of a part as a data URL; None if it is no image or elsewhere."""
    image = part.get("image_url")
    url = cast("Mapping[str, Any]", image).get("url") if isinstance(image, Mapping) else image
    return url if isinstance(url, str) and _DATA_IMAGE.match(url) else None


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


_MAX_OPEN_EXCHANGES = 64


def pair_distant_results(messages: Iterable[Message]) -> Iterator[Exchange]:
    """Yield each message with the results of its calls, also if they come after other messages.

    A result is looked for until the user speaks again.
    """
    waiting: deque[Exchange] = deque()
    missing: dict[str, Exchange] = {}  # by call
    for message in messages:
        if message.role == "tool" and (owner := missing.pop(message.tool_call_id or "", None)):
            owner.results[message.tool_call_id or ""] = message
            continue
        if message.role == "user":
            missing.clear()
        exchange = Exchange(message, {})
        waiting.append(exchange)
        missing |= {call.id: exchange for call in message.tool_calls}
        is_waiting = {id(one) for one in missing.values()}
        while waiting and (id(waiting[0]) not in is_waiting or len(waiting) > _MAX_OPEN_EXCHANGES):
            first = waiting.popleft()
            missing = {call: one for call, one in missing.items() if one is not first}
            yield first
    yield from waiting
