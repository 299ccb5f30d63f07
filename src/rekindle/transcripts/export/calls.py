"""Render tool calls as HTML: edits as diffs, commands with their output, everything else as JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from itertools import islice, zip_longest
from typing import NamedTuple, Protocol

from rekindle.judging.rules.evidence import Evidence
from rekindle.pages.text import replace_surrogates
from rekindle.types import Message, ToolCall

from .common import (
    CallResult,
    describe_result,
    find_image,
    format_arguments,
    preview_call,
)
from .edits import DiffLine, FileEdit, find_edits
from .prose import render_code, render_prose
from .subagents import NO_LINKS, PageLinks, render_omission

_MARKS = {
    "ok": "✓",
    "failed": "✗",
    "negative": "–",
    "rejected": "⊘",
    "missing": "…",
    "unknown": "·",
}
_MAX_DIFF_LINES, _MAX_OPEN_DIFF_LINES = 2_000, 30
_MAX_LINE_CHARS = 5_000
_MAX_MARKED_CHARS = 400  # of a line whose changed part is marked
_COLOR_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[A-Za-z]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\))")
# Characters that reorder or hide text could make a reader see another command than was run.
_HIDDEN_CHARS = {
    code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B)
}
_NO_RESULT = Message("tool")


class CallView(NamedTuple):
    """A call as HTML, and its data for the counts of the page."""

    pieces: Sequence[str]
    result: CallResult
    edits: Sequence[FileEdit]

    @property
    def is_quiet(self) -> bool:
        """Whether a reader may skip the call: it worked and changed nothing."""
        return self.result.state in ("ok", "unknown", "negative") and not self.edits


class ResultLimit(NamedTuple):
    """How much of a long result is shown: its first and its last characters."""

    head: int
    tail: int


class CallRenderer(NamedTuple):
    """Renders the calls of a session; `folder` is left out of the names of files."""

    limit: ResultLimit | None = None
    folder: str = ""
    links: PageLinks = NO_LINKS

    def render(self, call: ToolCall, result: Message | None, link: str = "") -> CallView:
        """Render a call and its result; `link` is the HTML of what it started."""
        found = describe_result(call, result)
        edits = find_edits(call)
        return CallView([*self._render(call, result, found, edits, link)], found, edits)

    def shorten_path(self, path: str) -> str:
        """Return the path as seen from the session's folder."""
        return path.replace(f"{self.folder}/", "") if len(self.folder) > 1 else path

    def _render(
        self,
        call: ToolCall,
        result: Message | None,
        found: CallResult,
        edits: Sequence[FileEdit],
        link: str,
    ) -> Iterator[str]:
        size = sum(len(edit.lines) for edit in edits)
        is_open = found.state == "rejected" or (
            bool(edits) and size <= _MAX_OPEN_DIFF_LINES and found.state in ("ok", "unknown")
        )
        kind = f"{found.state} edit" if edits else found.state
        id = self.links.mark_result(result)
        yield f'<details class="call {kind}"{id}{" open" if is_open else ""}>'
        yield f'<summary><span class="mark">{_MARKS[found.state]}</span>'
        yield f"<b>{escape(clean_text(call.name))}</b>"
        yield f"<i>{escape(clean_text(self._describe_target(call, edits)))}</i>"
        if edits:
            yield render_size(edits)
        if found.label:
            yield f'<span class="label">{escape(found.label)}</span>'
        yield "</summary>\n"
        if found.words:
            words = render_prose(clean_text(found.words), keeps_breaks=True)
            yield f'<blockquote class="words">{words}</blockquote>\n'
        for edit in edits:
            yield from _render_edit(edit, self.shorten_path(edit.path) if len(edits) > 1 else "")
        if not edits:
            yield from _render_arguments(call, self.limit)
        if result and not _is_redundant(result, found, edits):
            yield from render_result(result, self.limit, self.links)
        yield f"</details>\n{link}"

    def _describe_target(self, call: ToolCall, edits: Sequence[FileEdit]) -> str:
        names = ", ".join(edit.path for edit in edits[:3])
        return self.shorten_path(names or preview_call(call))


def _is_redundant(result: Message, found: CallResult, edits: Sequence[FileEdit]) -> bool:
    """Return whether the result repeats the diff, or the words of the user, or says nothing."""
    if found.state == "rejected":
        return bool(found.words) or result.text.startswith("The user doesn't want to")
    return bool(edits) and found.state == "ok"


def clean_text(text: str) -> str:
    """Return text that a page can show: no colors of terminals, nothing that hides other text."""
    if "\x1b" in text:
        text = _COLOR_ESCAPE.sub("", text)
    text = replace_surrogates(text)
    return text if text.isascii() else text.translate(_HIDDEN_CHARS)


def render_result(
    result: Message, limit: ResultLimit | None, links: PageLinks = NO_LINKS
) -> Iterator[str]:
    """Render the text and the images of a result."""
    text = clean_text(result.text)
    omitted = links.count_omitted(result)
    if limit and len(text) + omitted > limit.head + limit.tail:
        yield f'<pre class="out" tabindex="0">{escape(text[: limit.head])}</pre>\n'
        yield render_omission(len(text) + omitted - limit.head - limit.tail, result, links)
        text = text[len(text) - limit.tail :]
    if text.strip():
        yield f'<pre class="out" tabindex="0">{escape(text)}</pre>\n'
    yield from render_images(result, links)


def render_images(message: Message, links: PageLinks = NO_LINKS) -> Iterator[str]:
    """Render the images that are part of a message; others are only named."""
    if message.content is None or isinstance(message.content, str):
        return
    for number, part in enumerate(message.content):
        if image := find_image(part):
            address = links.find_image(message, number, image)
            yield f'<img class="picture" alt="" loading="lazy" src="{escape(address)}">\n'
        elif part.get("type") in ("image", "image_url"):
            yield '<p class="omitted">Image not included in this page</p>\n'


class ChangeSize(Protocol):
    """A number of lines that were added and removed."""

    @property
    def added(self) -> int: ...
    @property
    def removed(self) -> int: ...


def render_size(edits: Collection[ChangeSize]) -> str:
    """Render the number of lines that edits add and remove."""
    added, removed = sum(one.added for one in edits), sum(one.removed for one in edits)
    parts = [f'<span class="plus">+{added:,}</span>'] if added else []
    parts += [f'<span class="minus">−{removed:,}</span>'] if removed else []
    return f'<span class="size">{" ".join(parts)}</span>'


def _render_arguments(call: ToolCall, limit: ResultLimit | None) -> Iterator[str]:
    evidence = Evidence(call, _NO_RESULT)
    if evidence.shape in ("shell", "code") and evidence.command:
        language = "bash" if evidence.shape == "shell" else "python"
        text, end = _cut_text(evidence.command, limit)
        code = render_code(clean_text(text), language)
        yield f'<pre class="cmd"><code>{code}</code></pre>\n{end}'
        return
    prompt = _find_prompt(evidence)
    if prompt:
        text, end = _cut_text(prompt, limit)
        yield f'<div class="md">{render_prose(clean_text(text), keeps_breaks=True)}</div>\n{end}'
        return
    text, end = _cut_text(format_arguments(call), limit)
    if text.strip() not in ("", "{}", "null"):
        code = render_code(clean_text(text), "json")
        yield f'<pre class="args"><code>{code}</code></pre>\n{end}'


def _cut_text(text: str, limit: ResultLimit | None) -> tuple[str, str]:
    """Return the part of a text that is shown, and the HTML that says how much follows."""
    if limit is None or len(text) <= limit.head + limit.tail:
        return text, ""
    return text[: limit.head], render_omission(len(text) - limit.head, None, NO_LINKS)


def _find_prompt(evidence: Evidence) -> str:
    """Return the task of a sub-agent."""
    if evidence.shape != "agent":
        return ""
    arguments: Mapping[str, object] = evidence.arguments
    texts = (arguments.get(key) for key in ("prompt", "message", "task", "instructions"))
    return next((text for text in texts if isinstance(text, str)), "")


# ── diffs


def _render_edit(edit: FileEdit, title: str) -> Iterator[str]:
    state = f" <em>{edit.state}</em>" if edit.state in ("new", "deleted") else ""
    if title or state:
        yield f'<p class="path">{escape(clean_text(title))}{state}</p>\n'
    if not edit.lines:
        return
    yield '<div class="diff" tabindex="0">'
    for line, changed in islice(_mark_changes(edit.lines), _MAX_DIFF_LINES):
        yield _render_line(line, changed)
    if len(edit.lines) > _MAX_DIFF_LINES:
        yield f'<span class="gap">{len(edit.lines) - _MAX_DIFF_LINES:,} more lines</span>'
    yield "</div>\n"


_LINE_CLASSES = {"+": "add", "-": "del", "@": "gap"}


def _render_line(line: DiffLine, changed: tuple[int, int] | None) -> str:
    text = clean_text(line.text)
    if len(text) > _MAX_LINE_CHARS:
        text = f"{text[:_MAX_LINE_CHARS]}…"
    if changed and text == line.text:
        start, end = changed
        body = f"{escape(text[:start])}<em>{escape(text[start:end])}</em>{escape(text[end:])}"
    else:
        body = escape(text)
    name = _LINE_CLASSES.get(line.sign)
    return f'<span class="{name}">{body or " "}</span>' if name else f"<span>{body or ' '}</span>"


def _mark_changes(
    lines: Sequence[DiffLine],
) -> Iterator[tuple[DiffLine, tuple[int, int] | None]]:
    """Yield the lines; one that was replaced by another has the range that differs."""
    at = 0
    while at < len(lines):
        if lines[at].sign != "-":
            yield lines[at], None
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].sign == "-":
            end += 1
        stop = end
        while stop < len(lines) and lines[stop].sign == "+":
            stop += 1
        removed, added = lines[at:end], lines[end:stop]
        ranges = [_compare_lines(*pair) for pair in zip_longest(removed, added)]
        yield from zip(removed, (one[0] for one in ranges), strict=False)
        yield from zip(added, (one[1] for one in ranges), strict=False)
        at = stop


def _compare_lines(
    old: DiffLine | None, new: DiffLine | None
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return the ranges that differ; none if the lines have little in common."""
    if old is None or new is None or max(len(old.text), len(new.text)) > _MAX_MARKED_CHARS:
        return None, None
    first, second = old.text, new.text
    shortest = min(len(first), len(second))
    head = next((i for i in range(shortest) if first[i] != second[i]), shortest)
    most = shortest - head
    tail = next((i for i in range(most) if first[-1 - i] != second[-1 - i]), most)
    shared = len(first[:head].strip()) + len(first[len(first) - tail :].strip())
    if shared * 3 < max(len(first.strip()), len(second.strip())):
        return None, None
    return (head, len(first) - tail), (head, len(second) - tail)
