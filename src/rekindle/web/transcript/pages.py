"""Build the values of a session's page, or of a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from markupsafe import Markup

from rekindle.config import Config
from rekindle.errors import InvalidInput
from rekindle.learning.verdicts.judged_sessions import RULES_VERSION
from rekindle.pages.text import replace_surrogates
from rekindle.store import Store
from rekindle.types import Session
from rekindle.web.addresses import build_session_url
from rekindle.web.projects.summary import load_prices

from .entries import PAGE_MESSAGES, EntryRenderer, load_range
from .facts import HeadFacts, TurnNotes, load_facts
from .outline import Outline, OutlineCache

MAX_POSITION = 2**62
_MESSAGES_BEFORE = 8  # what stands above the message that a link leads to
# What a first page waits for: judging so many new messages, listing the places of so many judged ones.
# A longer session's outline is fetched when its first page is on the screen.
_JUDGED_AT_ONCE, _LISTED_AT_ONCE = 400, 20_000
LISTED_PROMPTS = 300


class PageQuery(NamedTuple):
    """Which part of a session is asked for.

    `at` is a message that a whole page shows; `after` and `before` ask for the next part in one
    direction. With `inline`, the part goes into the page of another session.
    """

    at: int | None = None
    after: int | None = None
    before: int | None = None
    until: int | None = None
    prompts_after: int | None = None
    inline: bool = False


class PagePart(NamedTuple):
    """Some messages as HTML, and the addresses of what is before and after them."""

    html: Markup
    earlier: str  # a fragment
    earlier_page: str
    later: str
    later_page: str


class TranscriptPage(NamedTuple):
    """Everything that the template shows; without an outline, it is fetched later."""

    session: Session
    address: str
    facts: HeadFacts
    outline: Outline | None
    part: PagePart
    last: int
    is_inline: bool


def parse_query(params: Mapping[str, str]) -> PageQuery:
    """Parse the query of an address."""
    names = ("at", "after", "before", "until", "prompts_after")
    numbers = {name: _parse_position(name, params[name]) for name in names if name in params}
    return PageQuery(**numbers, inline="inline" in params)


def _parse_position(name: str, text: str) -> int:
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
        raise InvalidInput(f"{name}: expected the position of a message, got {text!r:.40}")
    return max(-1, min(MAX_POSITION, int(text[:20])))


class PageBuilder:
    """Builds the pages of a store's sessions."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._config = config
        self.outlines = OutlineCache()

    def build(self, name: str, query: PageQuery, block: str | None) -> TranscriptPage:
        """Build a page, or what one block of it needs."""
        session = self._store.resolve(name)
        outline = self.outlines.find(session)
        if outline is None and (block == "outline" or (block is None and self._is_ready(session))):
            outline = self.outlines.load(self._store, session)
        is_judged = session.message_count <= _JUDGED_AT_ONCE or block == "outline"
        facts = load_facts(
            self._store, self._config, session, with_outcome=block != "part", is_judged=is_judged
        )
        last = self._store.excerpts.find_last(session.id)
        part = self._build_part(session, facts, outline, query, -1 if last is None else last)
        return TranscriptPage(
            session=session,
            address=build_session_url(session.id),
            facts=facts,
            outline=outline,
            part=part,
            last=-1 if last is None else last,
            is_inline=query.inline,
        )

    def _is_ready(self, session: Session) -> bool:
        if session.message_count <= _JUDGED_AT_ONCE:
            return True
        stale = self._store.find_stale_sessions(RULES_VERSION, session=session.id)
        return session.message_count <= _LISTED_AT_ONCE and not stale

    def make_renderer(
        self, session: Session, facts: HeadFacts, outline: Outline | None, *, inline: bool
    ) -> EntryRenderer:
        """Make the renderer of a session's entries."""
        notes = TurnNotes(facts, outline, load_prices(self._config))
        digest = sha256(session.id.encode("utf-8", "replace")).hexdigest()[:8]
        return EntryRenderer(
            session,
            facts.sub_agents,
            prefix=f"s{digest}-" if inline else "",
            number_prompt=outline.number_prompt if outline else lambda position: None,
            render_note=notes.render,
        )

    def _build_part(
        self,
        session: Session,
        facts: HeadFacts,
        outline: Outline | None,
        query: PageQuery,
        last: int,
    ) -> PagePart:
        excerpts = self._store.excerpts
        after, until = -1, last
        if query.before is not None:
            start = excerpts.find_start(session.id, query.before, PAGE_MESSAGES)
            after, until = (query.before if start is None else start) - 1, query.before - 1
        elif query.after is not None:
            after, until = query.after, min(last, last if query.until is None else query.until)
        elif query.at is not None:
            start = excerpts.find_start(session.id, query.at + 1, _MESSAGES_BEFORE + 1)
            after = -1 if start is None else start - 1
        found = load_range(self._store, session.id, after, PAGE_MESSAGES, until)
        renderer = self.make_renderer(session, facts, outline, inline=query.inline)
        html = Markup(replace_surrogates(renderer.render_range(found)))
        address, suffix = build_session_url(session.id), "&inline=1" if query.inline else ""
        has_later = found.until < until
        goes_back = query.after is None and after >= 0
        earlier = excerpts.find_start(session.id, after + 1, PAGE_MESSAGES) if goes_back else None
        return PagePart(
            html=html,
            earlier="" if earlier is None else f"{address}?before={after + 1}{suffix}",
            earlier_page="" if earlier is None else f"{address}?at={earlier}#m{earlier}",
            later=f"{address}?after={found.until}&until={until}{suffix}" if has_later else "",
            later_page=f"{address}?at={found.until + 1}#m{found.until + 1}" if has_later else "",
        )
