"""`session_search`: search earlier messages, in the owner's sessions only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.errors import NotFound, StoreError, ToolError
from rekindle.types import JSON, Hit, Message

DEFAULT_HITS = 5
MAX_HITS = 20
_CONTEXT_CHARACTERS = 300
_ROLES = ("user", "assistant", "tool", "system")


def _search_sessions(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    if context.store is None or context.owner is None:
        # Without an owner, the search would cover everyone's sessions.
        raise ToolError(_find_missing(context) or "not available")
    query: str = arguments["query"]
    try:
        session = None
        if name := arguments.get("session"):
            session = context.store.resolve(name, owner=context.owner)
        hits = context.store.search(
            query,
            owner=context.owner,
            session=session,
            role=arguments.get("role"),
            limit=arguments.get("limit", DEFAULT_HITS),
        )
    except NotFound as error:
        raise ToolError(str(error)) from None
    except StoreError as error:
        raise ToolError(f"could not search the sessions: {error}") from None
    if not hits:
        return f"No matches found for {query!r:.200}. Try fewer or different words, or a prefix*."
    return "\n\n".join(_format_hit(number, hit, context) for number, hit in enumerate(hits, 1))


def _format_hit(number: int, hit: Hit, context: ToolContext) -> str:
    session = hit.session
    title = session.title or "untitled"
    marker = ", this conversation" if session.id == context.session else ""
    day = _format_time(hit.message.timestamp)
    lines = [f"{number}. {title} ({session.id}{marker}), {day}, message {hit.message.position}"]
    lines += [f"   {_format_message(message)}" for message in hit.before]
    lines += [f" > {hit.message.role}: {_flatten_text(hit.snippet, 4 * _CONTEXT_CHARACTERS)}"]
    lines += [f"   {_format_message(message)}" for message in hit.after]
    return "\n".join(lines)


def _format_message(message: Message) -> str:
    calls = ", ".join(f"{call.name}(…)" for call in message.tool_calls)
    return f"{message.role}: {_flatten_text(message.text or calls, _CONTEXT_CHARACTERS)}"


def _flatten_text(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _format_time(timestamp: float | None) -> str:
    if timestamp is None:
        return "unknown time"
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _find_missing(context: ToolContext) -> str | None:
    if context.store is None:
        return "there is no session store"
    return None if context.owner is not None else "this session has no known owner"


SESSION_SEARCH = Tool(
    name="session_search",
    toolset="sessions",
    description=(
        'Search earlier conversations with this user. All words must occur; "a phrase", prefix*, OR'
        " and -word are supported. Each hit shows its session and the surrounding messages."
    ),
    parameters=build_schema(
        "query",
        query={"type": "string", "minLength": 1, "maxLength": 1000, "description": "words to find"},
        session={"type": "string", "minLength": 1, "description": "only this session: id or title"},
        role={"type": "string", "enum": list(_ROLES), "description": "limit to this role"},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_HITS,
            "description": f"maximum number of hits (default {DEFAULT_HITS})",
        },
    ),
    handler=_search_sessions,
    missing=_find_missing,
    emoji="🔎",
    seconds=30,
)
