"""Render a page that lists the shared pages of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from rekindle.types import MAX_TIMESTAMP

from .calls import clean_text
from .common import format_cost, format_day
from .html import render_document_start

SUMMARY_NAME = "rekindle-session"
_HEAD_BYTES = 1 << 15  # of a page, where its summary stands
_MAX_TITLE_CHARS = 300
_TEXTS = ("title", "agent", "model", "project")
_COUNTS = ("prompts", "calls", "failed", "added", "removed")


class PageSummary(NamedTuple):
    """What the index says about a page; all of it is foreign text."""

    file: str
    title: str
    agent: str = ""
    model: str = ""
    project: str = ""
    started: float = 0.0
    prompts: int = 0
    calls: int = 0
    failed: int = 0
    added: int = 0
    removed: int = 0
    cost: Decimal = Decimal(0)
    redacted: bool = False


def read_summaries(folder: Path) -> list[PageSummary]:
    """Return the shared pages of a folder, the newest session first; skip all other files."""
    found: list[PageSummary] = []
    for path in sorted(folder.glob("*.html")):
        try:
            with path.open("rb") as page:
                head = page.read(_HEAD_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        if summary := parse_summary(path.name, head):
            found.append(summary)
    return sorted(found, key=lambda one: one.started, reverse=True)


def parse_summary(name: str, head: str) -> PageSummary | None:
    """Return the summary in the first lines of a page; None if Rekindle did not write it."""
    parser = _SummaryParser()
    parser.feed(head)
    try:
        fields = json.loads(parser.content) if parser.content else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    given = cast("dict[str, Any]", fields)
    fields = {
        **{
            key: str(given[key])[:_MAX_TITLE_CHARS]
            for key in _TEXTS
            if isinstance(given.get(key), str)
        },
        **{key: given[key] for key in _COUNTS if isinstance(given.get(key), int)},
    }
    started = given.get("started")
    is_time = isinstance(started, (int, float)) and 0 <= started < MAX_TIMESTAMP
    return PageSummary(name, name)._replace(
        **cast(Any, fields),
        started=float(cast(float, started)) if is_time else 0.0,
        cost=_parse_cost(given.get("cost")),
        redacted=given.get("redacted") is True,
    )


def _parse_cost(value: object) -> Decimal:
    try:
        cost = Decimal(value) if isinstance(value, str) else Decimal(0)
    except ArithmeticError:
        return Decimal(0)
    return cost if cost.is_finite() and 0 <= cost < 10**9 else Decimal(0)


class _SummaryParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.content = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        if tag == "meta" and fields.get("name") == SUMMARY_NAME and not self.content:
            self.content = fields.get("content") or ""


def render_index(title: str, pages: Sequence[PageSummary]) -> Iterator[str]:
    """Yield an index page of these pages."""
    name = escape(clean_text(title))
    yield render_document_start(name)
    total = sum((page.cost for page in pages), Decimal(0))
    about = f"{len(pages):,} session{'' if len(pages) == 1 else 's'}"
    about += f" · ${format_cost(total)}" if total else ""
    yield f'<header class="top">\n<p class="kicker">{about}</p>\n<h1>{name}</h1>\n'
    if any(not page.redacted for page in pages):
        count = sum(1 for page in pages if not page.redacted)
        yield f'<p class="notice warn"><b>{count:,} of these pages are not redacted.</b></p>'
    yield '</header>\n<div class="body alone">\n<main class="index">\n'
    for project, group in _group_pages(pages):
        yield f"<section><h2>{escape(clean_text(project)) or 'Other'}</h2>\n<ul>\n"
        yield from map(_render_page, group)
        yield "</ul></section>\n"
    yield "</main>\n</div>\n<footer>Made with Rekindle.</footer>\n</body>\n</html>\n"


def _group_pages(pages: Iterable[PageSummary]) -> Iterator[tuple[str, list[PageSummary]]]:
    groups: dict[str, list[PageSummary]] = {}
    for page in pages:
        groups.setdefault(page.project, []).append(page)
    yield from groups.items()


def _render_page(page: PageSummary) -> str:
    facts = [page.agent, page.model, format_day(page.started) if page.started else ""]
    facts += [f"{page.prompts:,} prompts" if page.prompts != 1 else "1 prompt"]
    facts += [f"{page.calls:,} calls"] if page.calls else []
    facts += [f"+{page.added:,} −{page.removed:,}"] if page.added or page.removed else []
    facts += [f"${format_cost(page.cost)}"] if page.cost else []
    facts += [] if page.redacted else ["not redacted"]
    about = " · ".join(escape(clean_text(fact)) for fact in facts if fact)
    link = escape(quote(page.file))
    return (
        f'<li><a href="./{link}">{escape(clean_text(page.title))}</a><small>{about}</small></li>\n'
    )
