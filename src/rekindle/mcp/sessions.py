"""Search and read the sessions of a project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from textwrap import indent

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.filter import parse_local_time
from rekindle.store.core.search_query import SnippetMaker, parse_query
from rekindle.types import JSON, Hit, Message, Session

from .access import Library
from .quoting import MAX_RESULT_CHARS, MAX_SOURCE_CHARS, Quoter
from .tools import DEFAULT_HITS, DEFAULT_MESSAGES
from .uris import make_session_uri, read_session_id

MAX_MESSAGE_CHARS = 1_500  # of a message among others
MAX_ARGUMENTS_CHARS = 600
MAX_SNIPPET_CHARS = 600
MAX_PAGE_CHARS = 12_000  # of a message with all its calls
_PLAIN_ID = re.compile(r"[\w.:-]{1,120}", re.ASCII)


# ── searching


def search_sessions(library: Library, arguments: Mapping[str, JSON]) -> str:
    """Return messages that match the query, or the newest sessions if there is none."""
    query = arguments.get("query", "").strip()
    limit, offset = arguments.get("limit", DEFAULT_HITS), arguments.get("offset", 0)
    since, until = _read_times(arguments)
    if not query:
        where = library.filter.with_(source=arguments.get("source"), since=since, until=until)
        sessions = library.store.recent(limit, offset=offset, where=where)
        lines = [_format_session(one, library.quoter) for one in sessions]
    else:
        hits = library.store.search(
            query,
            where=library.filter,
            session=_find_session_id(library, arguments),
            source=arguments.get("source"),
            role=arguments.get("role"),
            tool=arguments.get("tool"),
            since=since,
            until=until,
            order=arguments.get("order", "best"),
            limit=limit,
            offset=offset,
            context=0,
        )
        snippets = SnippetMaker(parse_query(query))
        lines = [_format_hit(one, snippets, library.quoter) for one in hits]
    if not lines:
        return "Nothing found. Try fewer or other words, a prefix*, or no query for the newest."
    if len(lines) == limit:
        lines.append(f"[There may be more: continue with offset={offset + limit}]")
    return library.quoter.quote(lines)


def _find_session_id(library: Library, arguments: Mapping[str, JSON]) -> str | None:
    id = arguments.get("session")
    return None if id is None else library.get_session(read_session_id(id)).id


def _read_times(arguments: Mapping[str, JSON]) -> tuple[float | None, float | None]:
    since, until = arguments.get("since"), arguments.get("until")
    return (
        None if since is None else parse_local_time(since),
        None if until is None else parse_local_time(until, is_end=True),
    )


def _format_hit(hit: Hit, snippets: SnippetMaker, quoter: Quoter) -> str:
    # The whole message is redacted before it is cut: half a secret is not recognized, nor is one
    # without the name of its argument.
    text = quoter.clean_search_text(hit.message)
    snippet = snippets.make(text)[:MAX_SNIPPET_CHARS]
    place = f"message {hit.message.position}, {quoter.clean_line(hit.message.role, 40)}"
    when = format_moment(hit.message.timestamp)
    return f"{_format_session(hit.session, quoter)}\n  {place}, {when}\n  {snippet}"


def _format_session(session: Session, quoter: Quoter) -> str:
    details = [
        quoter.clean_line(session.source, 40),
        format_moment(session.last_active),
        f"{session.message_count} messages",
    ]
    name, title = format_session_id(session.id), format_title(session, quoter)
    return f"- session {name}: {title} ({', '.join(details)})"


# ── reading


def read_session(library: Library, arguments: Mapping[str, JSON]) -> str:
    """Return messages of a session, each shortened, or one message from a character on."""
    session = library.get_session(read_session_id(arguments["session"]))
    if (position := arguments.get("message")) is not None:
        return _read_message(library, session, position, arguments.get("start", 0))
    return quote_session(
        library, session, arguments.get("after"), arguments.get("limit", DEFAULT_MESSAGES)
    )


def quote_session(library: Library, session: Session, after: int | None, limit: int) -> str:
    """Quote the messages after a position, as many as fit, and say where the next page begins."""
    messages = library.store.messages(session, after=after, limit=limit + 1)
    quoter = library.quoter
    lines = [*_describe_session(session, quoter)] if after is None else []
    used = sum(map(len, lines))
    last = after
    for message in messages[:limit]:
        text = _shorten_page("\n".join(_format_message(message, quoter)), message)
        if used + len(text) > MAX_RESULT_CHARS - 500 and last != after:
            break
        lines.append(text)
        used += len(text) + 1
        last = message.position
    if messages and messages[-1].position != last:
        lines.append(f"[More messages follow: continue with after={last}]")
    else:
        lines.append("[End of the session]")
    return quoter.quote(lines)


def _read_message(library: Library, session: Session, position: int, start: int) -> str:
    found = library.store.messages(session, after=position - 1, limit=1)
    if not found or found[0].position != position:
        raise NotFound(f"The session has no message {position}.")
    text = "\n".join(_iter_message_texts(found[0], library.quoter))[:MAX_SOURCE_CHARS]
    part = library.quoter.cut(text, MAX_RESULT_CHARS - 500, start)
    if start and not part.text:
        raise InvalidInput(f"start: message {position} is shorter than {start} characters")
    rest = [] if part.next is None else [f"[The text continues: read on with start={part.next}]"]
    role = library.quoter.clean_line(found[0].role, 40)
    return library.quoter.quote([f"message {position}, {role}:", part.text, *rest])


def _describe_session(session: Session, quoter: Quoter) -> Iterator[str]:
    details = {
        "title": session.title,
        "source": session.source,
        "model": session.model,
        "started": format_moment(session.started),
        "folder": session.cwd,
        "branch": session.git_branch,
    }
    yield f"session {format_session_id(session.id)}"
    for name, value in details.items():
        if value:
            yield f"{name}: {quoter.clean_line(value)}"
    yield f"messages: {session.message_count}"


def _format_message(message: Message, quoter: Quoter) -> Iterator[str]:
    name = f" {quoter.clean_line(message.name, 80)}" if message.name else ""
    yield f"[{message.position}] {quoter.clean_line(message.role, 40)}{name}:"
    if message.text:
        text = _shorten_text(message.text, MAX_MESSAGE_CHARS, message, quoter)
        yield indent(text, "  ")  # so that no text can look like the next message
    for call in message.tool_calls:
        text = quoter.clean_arguments(call.arguments)
        arguments = _shorten_text(text, MAX_ARGUMENTS_CHARS, message, quoter)
        yield indent(f"→ {quoter.clean_line(call.name, 80)} {arguments}", "  ")


def _shorten_page(text: str, message: Message) -> str:
    """Shorten a message with many calls, so that every page has room for one."""
    if len(text) <= MAX_PAGE_CHARS:
        return text
    return f"{text[:MAX_PAGE_CHARS]}…\n  [shortened: read it all with message={message.position}]"


def _shorten_text(text: str, limit: int, message: Message, quoter: Quoter) -> str:
    part = quoter.cut(text, limit)
    if part.next is None:
        return part.text
    return f"{part.text}… [shortened: read it all with message={message.position}]"


def _iter_message_texts(message: Message, quoter: Quoter) -> Iterable[str]:
    if message.text:
        yield message.text
    if message.reasoning:
        yield f"[thinking]\n{message.reasoning}"
    for call in message.tool_calls:
        yield f"→ {call.name} {quoter.clean_arguments(call.arguments)}"


def format_session_id(id: str) -> str:
    """Return an id that can be passed back: its URI if it contains unusual characters."""
    return id if _PLAIN_ID.fullmatch(id) else make_session_uri(id)


def format_title(session: Session, quoter: Quoter) -> str:
    """Return the title of a session, or else how it begins."""
    preview = session.preview or ""
    if preview.endswith("…"):  # it was cut, perhaps within a secret
        preview = f"{preview.rpartition(' ')[0]} …"
    return quoter.clean_line(session.title or preview, 120) or "untitled"


def format_moment(seconds: float | None) -> str:
    """Format a time of the store in UTC, to the minute."""
    try:
        return datetime.fromtimestamp(seconds or 0, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "unknown time"
