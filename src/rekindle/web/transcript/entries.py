"""Render a range of a session's messages as entries of a page.

An entry is what one message adds to the page, with the results of its calls; its id is `m` and the
position of the message. Pages begin anywhere: the messages around a range are read too, so that calls
and results find each other across its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from rekindle.store import Store
from rekindle.store.excerpts import Excerpt
from rekindle.transcripts.export.calls import CallRenderer, ResultLimit, clean_text
from rekindle.transcripts.export.common import (
    Exchange,
    format_title,
    pair_distant_results,
)
from rekindle.transcripts.export.subagents import AgentLinks, AgentRun, PageLinks
from rekindle.transcripts.export.turns import Block, BlockRenderer, fold_quiet
from rekindle.types import Message, Session, ToolCall
from rekindle.web.addresses import build_session_url
from rekindle.web.rendering import format_moment

PAGE_MESSAGES = 120
CONTEXT_MESSAGES = 64  # before and after a range, in which results of its calls are looked for
PAGE_LIMIT = ResultLimit(head=24_000, tail=8_000)
LIVE_ID = "live"
_MAX_AGENTS = 200


class MessageRange(NamedTuple):
    """The messages after one position up to another one, and those around them."""

    after: int
    until: int
    excerpts: Sequence[Excerpt]


class PageChange(NamedTuple):
    """A change of an open page: the HTML of an element is replaced, or added to."""

    id: str
    how: str
    html: str


class EntryLinks(PageLinks):
    """The links of a session's page; `prefix` keeps the ids of sub-agents on the same page apart."""

    def __init__(
        self, session: Session, excerpts: Iterable[Excerpt], agents: Sequence[Session], prefix: str
    ) -> None:
        self.address = build_session_url(session.id)
        self.prefix = prefix
        self._omitted = {one.message.position: one.omitted for one in excerpts if one.omitted}
        self._agents = AgentLinks([AgentRun(one, tuple) for one in agents[:_MAX_AGENTS]])

    def count_omitted(self, message: Message) -> int:
        return self._omitted.get(message.position, 0)

    def find_text(self, message: Message) -> str:
        return f"{self.address}/messages/{message.position}/text"

    def find_image(self, message: Message, number: int, data: str) -> str:
        return f"{self.address}/messages/{message.position}/images/{number}"

    def render_agent(self, call: ToolCall, result: Message | None) -> str:
        found = self._agents.find_agent(call, result)
        return render_agent(found[1]) if found else ""

    def render_prompt_head(self, message: Message, number: int | None, speaker: str) -> str:
        title = f"Prompt {number}" if number else "Prompt"
        who = f" · {speaker}" if speaker else ""
        time = escape(format_moment(message.timestamp)) if message.timestamp else ""
        at = f"{self.prefix}m{message.position}"
        return f'<a href="#{at}">{title}{who}</a><span>{time}</span>'

    def mark_result(self, result: Message | None) -> str:
        return f' id="{self.prefix}m{result.position}"' if result else ""


def render_agent(session: Session) -> str:
    """Render a sub-agent: a fold that is filled when it is opened, and a link to its own page."""
    title = escape(clean_text(format_title(session)))
    address = escape(build_session_url(session.id))
    kind = escape(clean_text(session.sub_agent or "agent")) if session.sub_agent != "agent" else ""
    label = f'<span class="label">{kind}</span>' if kind else ""
    count = f'<span class="label">{session.message_count:,} messages</span>'
    return (
        f'<details class="agent" data-load="{address}?inline=1"><summary><b>{title}</b>{label}{count}'
        f'</summary><p class="started"><a href="{address}">Open as a page</a></p></details>\n'
    )


def load_range(store: Store, session_id: str, after: int, limit: int, until: int) -> MessageRange:
    """Load the next messages after a position, and those around them."""
    excerpts = store.excerpts.load(session_id, after=after, limit=limit, until=until)
    if not excerpts:
        return MessageRange(after, after, [])
    last = excerpts[-1].message.position or 0
    before = (
        store.excerpts.load(
            session_id, after=max(-1, after - CONTEXT_MESSAGES), limit=CONTEXT_MESSAGES, until=after
        )
        if after >= 0
        else []
    )
    following = store.excerpts.load(session_id, after=last, limit=CONTEXT_MESSAGES)
    return MessageRange(after, last, [*before, *excerpts, *following])


class EntryRenderer:
    """Renders the messages of a session as entries.

    `number_prompt` returns the number of the prompt at a position, if it is known; `render_note`
    the HTML that follows a message: where the session was forked, what a turn used.
    """

    def __init__(
        self,
        session: Session,
        agents: Sequence[Session] = (),
        *,
        prefix: str = "",
        number_prompt: Callable[[int], int | None] = lambda position: None,
        render_note: Callable[[int], str] = lambda position: "",
    ) -> None:
        self._session = session
        self._agents = agents
        self._prefix = prefix
        self._number_prompt = number_prompt
        self._render_note = render_note

    def render_range(self, found: MessageRange) -> str:
        """Return the entries of a range; calls that a reader may skip are folded together."""
        blocks = (
            block
            for exchange, excerpt in self._pair(found)
            if found.after < _get_position(exchange) <= found.until
            for block in self._render_entry(exchange, excerpt)
        )
        return "".join(block.html for block in fold_quiet(blocks))

    def render_changes(self, found: MessageRange) -> list[PageChange]:
        """Return what the messages of a range change on a page that shows all before them."""
        changes: list[PageChange] = []
        added: list[str] = []
        for exchange, excerpt in self._pair(found):
            position = _get_position(exchange)
            answered = [one.position or 0 for one in exchange.results.values()]
            if found.after < position <= found.until:
                entry = self._render_entry(exchange, excerpt, is_live=True)
                added += [block.html for block in entry]
            elif position <= found.after and any(
                found.after < at <= found.until for at in answered
            ):
                entry = self._render_entry(exchange, excerpt, is_live=True)
                inner = "".join(block.html for block in entry)
                changes.append(PageChange(f"{self._prefix}m{position}", "swap", inner))
        if added:
            changes.append(PageChange(LIVE_ID, "append", "".join(added)))
        return changes

    def _pair(self, found: MessageRange) -> Iterator[tuple[Exchange, Excerpt]]:
        self._links = EntryLinks(self._session, found.excerpts, self._agents, self._prefix)
        folder = (self._session.cwd or "").rstrip("/")
        self._blocks = BlockRenderer(CallRenderer(PAGE_LIMIT, folder, self._links), self._links)
        by_position = {one.message.position: one for one in found.excerpts}
        for exchange in pair_distant_results(one.message for one in found.excerpts):
            yield exchange, by_position[exchange.message.position]

    def _render_entry(
        self, exchange: Exchange, excerpt: Excerpt, *, is_live: bool = False
    ) -> Iterator[Block]:
        """Yield the entry of a message, split where its calls can be folded with others."""
        position = _get_position(exchange)
        blocks = [*self._blocks.render(exchange, self._number_prompt(position))]
        if excerpt.body_omitted:
            blocks.append(self._render_too_large(position, excerpt))
        if note := self._render_note(position):
            blocks.append(Block(note, "note"))
        is_waiting = len(exchange.results) < len(exchange.message.tool_calls)
        # An entry that will be replaced when its results arrive stays in one piece.
        is_whole = is_live or is_waiting
        is_first = True
        for is_quiet, group in groupby(blocks, lambda one: one.is_quiet and not is_whole):
            parts = [*group]
            html = self._wrap(position, "".join(one.html for one in parts), is_first)
            tools = tuple(tool for one in parts for tool in one.tools)
            yield Block(html, "entry", is_quiet=is_quiet, tools=tools)
            is_first = False
        if not blocks and is_live:
            yield Block(self._wrap(position, "", True), "entry")

    def _wrap(self, position: int, html: str, is_first: bool) -> str:
        id = f' id="{self._prefix}m{position}"' if is_first else ""
        raw = f"{self._links.address}/messages/{position}"
        link = f'<a class="raw" href="{escape(raw)}" title="Message {position} as it is stored">'
        return f'<div class="entry"{id}>{link}{position}</a>{html}</div>\n'

    def _render_too_large(self, position: int, excerpt: Excerpt) -> Block:
        size = (excerpt.body_omitted + excerpt.omitted) / 1e6
        address = escape(f"{self._links.address}/messages/{position}/json")
        text = f"{size:,.1f} million characters are too many for a page"
        return Block(
            f'<p class="omitted">{text} · <a href="{address}">whole message</a></p>\n', "note"
        )


def _get_position(exchange: Exchange) -> int:
    return exchange.message.position or 0
