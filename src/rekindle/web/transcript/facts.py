"""The head of a session's page: its facts, its usage, and related sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import NamedTuple

from rekindle.analytics.usage.pricing import PriceList
from rekindle.config import Config
from rekindle.learning.verdicts.session_outcomes import load_outcome
from rekindle.store import Store
from rekindle.transcripts.export.common import format_cost, format_duration
from rekindle.types import QUARTER_SECONDS, Session, SessionOutcome, UsageEntry
from rekindle.web.addresses import build_session_url
from rekindle.web.projects.summary import load_prices
from rekindle.web.rendering import format_number

from .outline import Outline
from .turn_usage import TurnUsage, compute_cost, sum_turns

MAX_RELATED = 30
_MAX_JUDGED_MESSAGES = 5_000  # a longer session is not read as a whole to judge its outcome


class Relative(NamedTuple):
    """A session that belongs to the one shown; `relation` says how."""

    relation: str
    name: str
    address: str
    detail: str = ""


class HeadFacts(NamedTuple):
    """What is known about a session besides its messages."""

    name: str
    project: str | None
    cost: Decimal
    tokens: int
    output: int
    duration: float
    outcome: SessionOutcome | None
    related: Sequence[Relative]
    forks: Mapping[int, Sequence[Relative]]  # by the position after which they begin
    sub_agents: Sequence[Session]
    entries: Sequence[UsageEntry]


def load_facts(
    store: Store,
    config: Config,
    session: Session,
    *,
    with_outcome: bool = False,
    is_judged: bool = False,
) -> HeadFacts:
    """Load what is known about a session; its outcome as it is stored, or judged if that is asked."""
    children = store.children(session)
    agents = [one for one in children if one.sub_agent is not None]
    others = [one for one in children if one.sub_agent is None][:MAX_RELATED]
    parents = store.find_sessions([session.parent]) if session.parent else {}
    named = [session, *others, *parents.values()]
    names = {
        one.id: one.title or names_found.get(one.id) or one.preview or one.id
        for names_found in (store.load_names(named),)
        for one in named
    }
    entries = store.excerpts.load_usage_entries(session.id)
    prices = load_prices(config)
    related = [*_list_origin(session, parents, names), *_list_children(session, others, names)]
    forks: dict[int, list[Relative]] = {}
    for one in others:
        if one.forked_at is not None:
            relative = Relative("Fork", names[one.id], build_session_url(one.id))
            forks.setdefault(one.forked_at, []).append(relative)
    project = session.project or session.repository or session.cwd
    return HeadFacts(
        name=names[session.id],
        project=project.rstrip("/").rpartition("/")[2] or None if project else None,
        cost=session.cost or _sum_cost(session, entries, prices),
        tokens=sum(session.tokens),
        output=session.tokens.output,
        duration=max(0.0, session.last_active - session.started),
        outcome=_find_outcome(store, session, is_judged) if with_outcome else None,
        related=related,
        forks=forks,
        sub_agents=agents,
        entries=entries,
    )


def _sum_cost(session: Session, entries: Sequence[UsageEntry], prices: PriceList) -> Decimal:
    if not entries and any(session.tokens):
        quarter = max(0, int(session.started)) // QUARTER_SECONDS
        entries = [UsageEntry(quarter, session.model or "", session.tokens)]
    return sum((compute_cost(one, prices) for one in entries), Decimal(0))


def _find_outcome(store: Store, session: Session, is_judged: bool) -> SessionOutcome | None:
    if is_judged and session.message_count <= _MAX_JUDGED_MESSAGES:
        return load_outcome(store, session.id)
    return store.session_outcomes.load([session.id]).get(session.id)


def _list_origin(
    session: Session, parents: Mapping[str, Session], names: Mapping[str, str]
) -> Iterator[Relative]:
    if session.parent is None:
        return
    parent = parents.get(session.parent)
    if parent is None:
        yield Relative("Parent", session.parent, "", "not in this store")
        return
    if session.sub_agent is not None:
        relation, detail = "Started by", ""
    elif session.forked_at is not None:
        relation, detail = "Fork of", f"at message {session.forked_at}"
    else:
        relation, detail = "Continues", "after a compression"
    at = f"?at={session.forked_at}#m{session.forked_at}" if session.forked_at is not None else ""
    yield Relative(relation, names[parent.id], f"{build_session_url(parent.id)}{at}", detail)


def _list_children(
    session: Session, children: Sequence[Session], names: Mapping[str, str]
) -> Iterator[Relative]:
    for one in children:
        address = build_session_url(one.id)
        if one.forked_at is not None:
            yield Relative("Fork", names[one.id], address, f"from message {one.forked_at}")
        else:
            yield Relative("Continued in", names[one.id], address, "after a compression")


class TurnNotes:
    """The notes after some messages: the effects and usage of a turn, and forks."""

    def __init__(self, facts: HeadFacts, outline: Outline | None, prices: PriceList) -> None:
        self._forks = facts.forks
        self._outline = outline
        prompts = outline.prompts if outline else ()
        self._usage = {one.last: one for one in sum_turns(prompts, facts.entries, prices)}

    def render(self, position: int) -> str:
        """Return the HTML after the message at a position."""
        number = self._outline.number_prompt(position) if self._outline else None
        turn = self._render_turn(number) if number else ""
        forks = "".join(
            f'<p class="event">Forked here: <a href="{escape(one.address)}">'
            f"{escape(one.name[:80])}</a></p>\n"
            for one in self._forks.get(position, ())
        )
        return turn + forks

    def _render_turn(self, number: int) -> str:
        assert self._outline is not None
        prompt = self._outline.prompts[number - 1]
        parts: list[str] = []
        if prompt.time and prompt.end and prompt.end - prompt.time >= 60:
            parts.append(format_duration(prompt.end - prompt.time))
        if prompt.calls:
            parts.append(f"{prompt.calls:,} call{'' if prompt.calls == 1 else 's'}")
        if prompt.failed:
            parts.append(f'<span class="bad">{prompt.failed:,} failed</span>')
        if prompt.edits:
            parts.append(f"{prompt.edits:,} edit{'' if prompt.edits == 1 else 's'}")
        if usage := self._usage.get(number):
            parts.append(_describe_usage(usage))
        return f'<p class="turn-facts">{" · ".join(parts)}</p>\n' if parts else ""


def _describe_usage(usage: TurnUsage) -> str:
    text = f"{format_number(usage.tokens)} tokens"
    if usage.cost:
        text += f" · ${format_cost(usage.cost)}"
    if usage.first == usage.last:
        return text
    return f"prompts {usage.first}–{usage.last} together: {text}"
