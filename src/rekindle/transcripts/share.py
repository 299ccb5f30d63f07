"""A session as one page to show to others: without secrets, and with its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rekindle.pages.text import get_display_name, make_file_name, shorten_ids, to_one_line

from .export.redact import SessionRedactor
from .export.subagents import AgentRun

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Message, Session

MAX_AGENTS = 50
_MAX_NAME_CHARS = 50
_PAGE_SIZE = 500


class SharedSession(NamedTuple):
    """A redacted session: a name for its file, how many sub-agents it has, and the page in pieces."""

    file_name: str
    agents: int
    pieces: Iterator[str]


def share_session(
    store: Store, session: Session, redactor: SessionRedactor, *, markdown: bool = False
) -> SharedSession:
    """Redact a session, which has its name and cost, and render it as HTML or Markdown.

    The messages are read while the pieces are taken: only then has the redactor counted everything.
    """
    shown = redactor.redact_session(session)
    agents = list(_iter_agents(store, session, redactor))
    messages = redactor.redact_messages(_iter_messages(store, session))
    name = f"{_build_name(shown)}.{'md' if markdown else 'html'}"
    if markdown:
        from .export.markdown import render_session

        pieces = render_session(
            shown, messages, agents=agents, count_removed=redactor.count_removed
        )
        return SharedSession(name, len(agents), pieces)
    from .export.html import SHARE_LIMIT
    from .export.html import render_session as render_page

    pieces = render_page(
        shown, messages, agents=agents, count_removed=redactor.count_removed, limit=SHARE_LIMIT
    )
    return SharedSession(name, len(agents), pieces)


def _iter_messages(store: Store, session: Session) -> Iterator[Message]:
    after: int | None = None
    while page := store.messages(session, after=after, limit=_PAGE_SIZE):
        yield from page
        after = page[-1].position


def _iter_agents(store: Store, parent: Session, redactor: SessionRedactor) -> Iterator[AgentRun]:
    """Yield the sub-agents of a session and of its sub-agents, redacted."""
    found = store.find_sub_agents([parent.id]).get(parent.id, [])
    for child in sorted(found, key=lambda one: one.started)[:MAX_AGENTS]:
        yield AgentRun(
            redactor.redact_session(child),
            lambda one=child: redactor.redact_messages(_iter_messages(store, one)),
        )


def _build_name(session: Session) -> str:
    words = to_one_line(get_display_name(session), _MAX_NAME_CHARS).lower().split()
    title = "-".join(filter(None, (make_file_name(word).strip("_") for word in words)))
    (short,) = shorten_ids([session.id])
    return f"{title}-{make_file_name(short)}" if title else make_file_name(session.id)
