"""HTML export of a session as one self-contained page.

Nothing on the page runs: it has no scripts, and its content security policy allows none. All text is
escaped; Markdown is rendered without tags of its own; folding uses `details`. The turns are written
to a temporary file while the messages stream by, so that the header can say what they add up to.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from tempfile import TemporaryFile
from typing import NamedTuple

from rekindle.pages.transcript_style import SHARED_STYLE
from rekindle.types import Message, Session, ToolCall

from .calls import (
    CallRenderer,
    CallView,
    ResultLimit,
    clean_text,
    render_size,
)
from .common import (
    describe_removed,
    format_cost,
    format_day,
    format_duration,
    format_time,
    format_title,
    list_session_details,
    pair_distant_results,
)
from .subagents import AgentLinks, AgentRun, PageLinks
from .turns import Block, BlockRenderer, fold_quiet

SHARE_LIMIT = ResultLimit(head=30_000, tail=10_000)
_STYLE_ELEMENT = f"\n{SHARED_STYLE}\n"
_STYLE_HASH = b64encode(sha256(_STYLE_ELEMENT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_ENDING_CHARS, _MIN_ENDING_CHARS = 320, 60
_LISTED_FILES = 5
_NO_MARKUP = {ord(mark): None for mark in "*`#|"}
_CHUNK_CHARS = 1 << 16


class LineCounts(NamedTuple):
    """Lines that were added to a file and removed from it."""

    added: int = 0
    removed: int = 0


class PageCounts(NamedTuple):
    """What the turns of a page add up to."""

    calls: int = 0
    failed: int = 0
    rejected: int = 0
    added: int = 0
    removed: int = 0

    def subtract(self, other: PageCounts) -> PageCounts:
        """Return the difference of both counts."""
        return PageCounts(*(one - two for one, two in zip(self, other, strict=True)))


class PromptEntry(NamedTuple):
    """An entry of the table of prompts."""

    number: int
    title: str
    counts: PageCounts


def render_session(
    session: Session,
    messages: Iterable[Message],
    *,
    agents: Sequence[AgentRun] = (),
    count_removed: Callable[[], Mapping[str, int]] | None = None,
    limit: ResultLimit | None = None,
) -> Iterator[str]:
    """Yield the page piece by piece.

    `agents` are the sub-agents of the session. `count_removed` is asked at the end what was redacted,
    by kind; None says that nothing was. `limit` shortens long results.
    """
    with TemporaryFile("w+", encoding="utf-8", errors="replace", newline="") as body:
        links = AgentLinks(agents)
        turns = _TurnRenderer(limit, (session.cwd or "").rstrip("/"), links)
        body.writelines(turns.render(messages))
        body.writelines(_render_agents(links, limit))
        removed = None if count_removed is None else count_removed()
        yield from _render_head(session, turns, removed, len(links.runs))
        body.seek(0)
        while chunk := body.read(_CHUNK_CHARS):
            yield chunk
        yield "</main>\n</div>\n<footer>Made with Rekindle. This page is one file: it loads nothing and"
        yield " runs no scripts.</footer>\n</body>\n</html>\n"


def render_document_start(title: str, more: str = "") -> str:
    """Return the beginning of a page up to its body, with a policy that forbids all scripts."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        f"{more}<title>{title}</title>\n<style>{_STYLE_ELEMENT}</style>\n</head>\n<body>\n"
    )


# ── header


def _render_head(
    session: Session, turns: _TurnRenderer, removed: Mapping[str, int] | None, agents: int
) -> Iterator[str]:
    name = clean_text(format_title(session))
    about = escape(json.dumps(_build_summary(session, name, turns, removed), default=str))
    yield render_document_start(escape(name), f'<meta name="rekindle-session" content="{about}">\n')
    yield '<header class="top">\n<p class="kicker">'
    yield " · ".join(escape(clean_text(part)) for part in _list_origin(session))
    yield f'</p>\n<h1>{escape(name)}</h1>\n<ul class="facts">'
    yield "".join(_render_fact(*fact) for fact in _list_facts(session, turns))
    yield "</ul>\n"
    yield from _render_removed(removed)
    yield from _render_outcome(turns)
    yield '<details class="more"><summary>Details</summary><dl>'
    for label, value in list_session_details(session):
        yield f"<dt>{escape(label)}</dt><dd>{escape(clean_text(value))}</dd>"
    yield "</dl></details>\n</header>\n"
    is_listed = len(turns.prompts) > 1
    yield f'<div class="body{"" if is_listed else " alone"}">\n'
    if is_listed:
        yield f'<nav class="prompts"><h2>{len(turns.prompts):,} prompts</h2><ol>\n'
        yield from map(_render_entry, turns.prompts)
        yield "</ol>"
        if agents:
            yield f'<p><a href="#agents">{_count_noun(agents, "sub-agent")}</a></p>'
        yield "</nav>\n"
    yield "<main>\n"


def _build_summary(
    session: Session, name: str, turns: _TurnRenderer, removed: Mapping[str, int] | None
) -> dict[str, object]:
    """Build what an index page reads from this page."""
    return {
        "title": name,
        "agent": session.source,
        "model": session.model,
        "project": _find_project(session),
        "started": session.started or turns.first_time,
        "prompts": len(turns.prompts),
        "calls": turns.counts.calls,
        "failed": turns.counts.failed,
        "added": turns.counts.added,
        "removed": turns.counts.removed,
        "cost": str(session.cost) if session.cost else None,
        "redacted": removed is not None,
    }


def _list_origin(session: Session) -> Iterator[str]:
    if project := _find_project(session):
        yield project
    if session.git_branch:
        yield f"branch {session.git_branch}"
    yield session.source
    if session.model:
        yield session.model
    if session.started:
        yield format_day(session.started)


def _find_project(session: Session) -> str | None:
    project = session.project or session.repository or session.cwd
    return project.rstrip("/").rpartition("/")[2] or None if project else None


def _list_facts(session: Session, turns: _TurnRenderer) -> Iterator[tuple[str, str]]:
    counts = turns.counts
    yield f"{len(turns.prompts):,}", "prompt" if len(turns.prompts) == 1 else "prompts"
    if counts.calls:
        troubles = [f'<span class="bad">{counts.failed:,} failed</span>'] if counts.failed else []
        troubles += [f"{counts.rejected:,}&nbsp;rejected"] if counts.rejected else []
        yield f"{counts.calls:,}", " · ".join(("calls", *troubles))
    if turns.files:
        yield render_size(turns.files.values()), _count_noun(len(turns.files), "file") + " changed"
    tokens = session.tokens
    if any(tokens):
        read = tokens.input + tokens.cache_read + tokens.cache_write
        written = _shorten_number(tokens.output)
        yield _shorten_number(read + tokens.output), f"tokens · {written} output"
    if session.cost:
        yield f"${format_cost(session.cost)}", "cost"
    if turns.first_time and turns.last_time - turns.first_time >= 60:
        yield format_duration(turns.last_time - turns.first_time), "duration"


def _count_noun(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _render_fact(number: str, label: str) -> str:
    return f"<li><b>{number}</b><span>{label}</span></li>"


def _shorten_number(count: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 100 * size else f"{count // size:,}{unit}"
    return str(count)


def _render_removed(removed: Mapping[str, int] | None) -> Iterator[str]:
    if removed is None:
        yield '<p class="notice warn"><b>Not redacted.</b> This page may contain secrets and personal'
        yield " data.</p>\n"
    elif removed:
        total = sum(removed.values())
        yield f'<p class="notice"><b>{total:,} passage{"" if total == 1 else "s"} redacted:</b> '
        yield f"{escape(describe_removed(removed))}</p>\n"
    else:
        yield '<p class="notice"><b>Redacted:</b> no secrets or personal data were found.</p>\n'


def _render_outcome(turns: _TurnRenderer) -> Iterator[str]:
    """Yield the last answer with text, next to the changed files."""
    has_answer = turns.last_answer is not None and bool(turns.prompts)
    if not has_answer and not turns.files:
        return
    yield '<div class="outcome">\n'
    if has_answer and turns.last_answer:
        anchor, text = turns.last_answer
        words = " ".join(text[: 8 * _ENDING_CHARS].translate(_NO_MARKUP).split())
        words = words if len(words) <= _ENDING_CHARS else words[: _ENDING_CHARS - 1] + "…"
        yield f'<div><h2>Last answer</h2><p><a href="#{anchor}">{escape(clean_text(words))}</a></p>'
        yield "</div>\n"
    if turns.files:
        yield "<div><h2>Files changed</h2><ul>"
        files = sorted(turns.files.items(), key=lambda item: -item[1].added - item[1].removed)
        for name, change in files[:_LISTED_FILES]:
            yield f"<li><code>{escape(clean_text(name))}</code>{render_size([change])}</li>"
        if len(files) > _LISTED_FILES:
            yield f"<li>and {len(files) - _LISTED_FILES:,} more</li>"
        yield "</ul></div>\n"
    yield "</div>\n"


def _render_entry(entry: PromptEntry) -> str:
    counts = entry.counts
    parts = [f"{counts.calls:,} call{'' if counts.calls == 1 else 's'}"] if counts.calls else []
    parts += [f'<b class="bad">{counts.failed:,} failed</b>'] if counts.failed else []
    parts += [f"{counts.rejected:,} rejected"] if counts.rejected else []
    if counts.added or counts.removed:
        parts.append(f"+{counts.added:,} −{counts.removed:,}")
    more = f"<small>{' · '.join(parts)}</small>" if parts else ""
    title = escape(clean_text(entry.title))
    return (
        f'<li><a href="#p{entry.number}"><span class="no">{entry.number}</span>'
        f"<span>{title}</span>{more}</a></li>\n"
    )


# ── turns


class _SharedLinks(PageLinks):
    """The links within a page; ids of sub-agents on the same page have a prefix."""

    def __init__(self, agents: AgentLinks, prefix: str) -> None:
        self._agents = agents
        self.prefix = prefix
        self.number = 0  # of the current message

    def render_agent(self, call: ToolCall, result: Message | None) -> str:
        return self._agents.render_link(call, result)

    def render_prompt_head(self, message: Message, number: int | None, speaker: str) -> str:
        title = f"Prompt {number}{' · ' if speaker else ''}{speaker}"
        time = escape(format_time(message.timestamp))
        return f'<a href="#{self.prefix}p{number}">{title}</a><span>{time}</span>'

    def mark_answer(self, message: Message) -> str:
        return f' id="{self.prefix}m{self.number}"'


class _TurnRenderer:
    """Renders messages as turns, and remembers what the header says about them."""

    def __init__(
        self, limit: ResultLimit | None, folder: str, agents: AgentLinks, prefix: str = ""
    ) -> None:
        self._links = _SharedLinks(agents, prefix)
        self._calls = CallRenderer(limit, folder, self._links)
        self._blocks = BlockRenderer(self._calls, self._links)
        self._is_open = False
        self._counts_before = PageCounts()
        self.prompts: list[PromptEntry] = []
        self.counts = PageCounts()
        self.files: dict[str, LineCounts] = {}
        self.first_time = self.last_time = 0.0
        self.last_answer: tuple[str, str] | None = None  # its anchor and its text

    def render(self, messages: Iterable[Message]) -> Iterator[str]:
        """Yield the turns."""
        for block in fold_quiet(self._iter_blocks(messages)):
            if block.kind == "prompt":
                yield "</section>\n" if self._is_open else ""
                yield f'<section class="turn" id="{block.id}">\n'
            elif not self._is_open:
                yield '<section class="turn">\n'
            self._is_open = True
            yield block.html
        self._finish_prompt()
        if self._is_open:
            yield "</section>\n"

    def _iter_blocks(self, messages: Iterable[Message]) -> Iterator[Block]:
        for exchange in pair_distant_results(messages):
            self._links.number += 1
            if time := exchange.message.timestamp:
                self.first_time = self.first_time or time
                self.last_time = max(self.last_time, time)
            for block in self._blocks.render(exchange, len(self.prompts) + 1):
                yield self._record_block(block)

    def _record_block(self, block: Block) -> Block:
        """Count a block; return it, a prompt with its id."""
        if block.kind == "prompt":
            self._finish_prompt()
            number = len(self.prompts) + 1
            self.prompts.append(PromptEntry(number, block.text, PageCounts()))
            return block._replace(id=f"{self._links.prefix}p{number}")
        if block.kind == "answer":
            if len(block.text) >= _MIN_ENDING_CHARS or self.last_answer is None:
                self.last_answer = (f"{self._links.prefix}m{self._links.number}", block.text)
        elif block.view is not None:
            self._count_call(block.view)
        return block

    def _finish_prompt(self) -> None:
        if self.prompts:
            counts = self.counts.subtract(self._counts_before)
            self.prompts[-1] = self.prompts[-1]._replace(counts=counts)
        self._counts_before = self.counts

    def _count_call(self, view: CallView) -> None:
        counts, state = self.counts, view.result.state
        done = view.edits if state in ("ok", "unknown") else ()
        self.counts = counts._replace(
            calls=counts.calls + 1,
            failed=counts.failed + (state == "failed"),
            rejected=counts.rejected + (state == "rejected"),
            added=counts.added + sum(edit.added for edit in done),
            removed=counts.removed + sum(edit.removed for edit in done),
        )
        for edit in done:
            name = self._calls.shorten_path(edit.path)
            before = self.files.get(name, LineCounts())
            self.files[name] = LineCounts(before.added + edit.added, before.removed + edit.removed)


# ── sub-agents


def _render_agents(links: AgentLinks, limit: ResultLimit | None) -> Iterator[str]:
    if not links.runs:
        return
    yield f'<section class="agents" id="agents"><h2>Sub-agents ({len(links.runs):,})</h2>\n'
    for number, run in enumerate(links.runs, 1):
        title = escape(clean_text(format_title(run.session)))
        yield f'<details class="agent" id="a{number}"><summary><b>{title}</b>'
        yield f'<span class="label">{run.session.message_count:,} messages</span></summary>\n'
        folder = (run.session.cwd or "").rstrip("/")
        turns = _TurnRenderer(limit, folder, links, f"a{number}-")
        yield from turns.render(run.load_messages())
        yield "</details>\n"
    yield "</section>\n"
