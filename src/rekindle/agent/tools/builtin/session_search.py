"""`session_search`: what was said before, in the sessions of the owner alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rekindle.agent.tools.tool import Tool, ToolContext, schema
from rekindle.errors import NotFound, StoreError, ToolError
from rekindle.types import JSON, Hit, Message

DEFAULT_HITS = 5
MAX_HITS = 20
_AROUND_CHARACTERS = 300
_ROLES = ("user", "assistant", "tool", "system")


def _search(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    if context.store is None or context.owner is None:
        # Without an owner a search would show everybody's words.
        raise ToolError(_missing(context) or "cannot be used here")
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
        raise ToolError(f"the sessions cannot be searched now: {error}") from None
    if not hits:
        return f"No matches found for {query!r:.200}. Try fewer or other words, or a prefix*."
    return "\n\n".join(_shown(number, hit, context) for number, hit in enumerate(hits, 1))


def _shown(number: int, hit: Hit, context: ToolContext) -> str:
    session = hit.session
    title = session.title or "untitled"
    here = ", this conversation" if session.id == context.session else ""
    day = _day(hit.message.timestamp)
    lines = [f"{number}. {title} ({session.id}{here}), {day}, message {hit.message.position}"]
    lines += [f"   {_line(message)}" for message in hit.before]
    lines += [f" > {hit.message.role}: {_flat(hit.snippet, 4 * _AROUND_CHARACTERS)}"]
    lines += [f"   {_line(message)}" for message in hit.after]
    return "\n".join(lines)


def _line(message: Message) -> str:
    calls = ", ".join(f"{call.name}(…)" for call in message.tool_calls)
    return f"{message.role}: {_flat(message.text or calls, _AROUND_CHARACTERS)}"


def _flat(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _day(timestamp: float | None) -> str:
    if timestamp is None:
        return "unknown day"
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _missing(context: ToolContext) -> str | None:
    if context.store is None:
        return "there is no store of sessions"
    return None if context.owner is not None else "nobody is known to own this session"


SESSION_SEARCH = Tool(
    name="session_search",
    toolset="sessions",
    description=(
        'Search earlier conversations with this user. Words must all occur; "a phrase", prefix* and'
        " OR work too. Each hit shows its session, and the messages around it."
    ),
    parameters=schema(
        "query",
        query={"type": "string", "minLength": 1, "maxLength": 1000, "description": "what to find"},
        session={"type": "string", "minLength": 1, "description": "only in this one: id or title"},
        role={"type": "string", "enum": list(_ROLES), "description": "only what they said"},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_HITS,
            "description": f"how many hits to show (default {DEFAULT_HITS})",
        },
    ),
    handler=_search,
    missing=_missing,
    emoji="🔎",
    seconds=30,
)
