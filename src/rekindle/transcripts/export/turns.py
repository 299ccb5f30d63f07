"""Render messages as blocks of HTML, the same on shared pages and in the browser.

A block is what a reader sees as one thing: a prompt, an answer, a call with its result, a folded note.
How blocks are put together, and what they link to, is up to the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

from rekindle.routing.speaker import format_speaker
from rekindle.types import Message

from .calls import CallRenderer, CallView, clean_text, render_images, render_result
from .common import Exchange
from .prompts import Prompt, read_prompt
from .prose import render_prose
from .subagents import PageLinks, render_omission

_MIN_FOLDED_CALLS, _MAX_FOLDED_CALLS = 4, 50


class Block(NamedTuple):
    """A piece of a page; `kind` is prompt, answer, thinking, image, call, run, note or event.

    `text` is the title of a prompt or the text of an answer. A quiet block may be folded together
    with its neighbors; `tools` are those of its calls. `id` is for the page.
    """

    html: str
    kind: str
    text: str = ""
    view: CallView | None = None
    is_quiet: bool = False
    tools: tuple[str, ...] = ()
    id: str = ""


class BlockRenderer:
    """Renders messages one by one, with their results."""

    def __init__(self, calls: CallRenderer, links: PageLinks) -> None:
        self._calls = calls
        self._limit = calls.limit
        self._links = links

    def render(self, exchange: Exchange, prompt_number: int | None) -> Iterator[Block]:
        """Yield the blocks of a message; a prompt that it holds has this number."""
        message = exchange.message
        if (message.meta or {}).get("compacted") is not None:
            yield Block('<p class="event">The conversation was compacted here</p>\n', "event")
        if message.role == "user":
            yield from self._render_user(message, prompt_number)
        elif message.role == "assistant":
            yield from self._render_answer(exchange)
        elif message.role in ("tool", "function"):
            html = "".join(render_result(message, self._limit, self._links))
            title = "<summary>Result of an earlier call</summary>"
            yield Block(f'<details class="note">{title}{html}</details>\n', "note")
        else:
            yield self._render_note(f"{message.role} message", message)

    def _render_user(self, message: Message, number: int | None) -> Iterator[Block]:
        prompt = read_prompt(message.text)
        if prompt.kind in ("prompt", "command"):
            yield from self._render_prompt(prompt, message, number)
        elif prompt.kind == "interruption":
            yield Block('<p class="event stop">Interrupted by the user</p>\n', "event")
        elif prompt.kind == "event":
            yield Block(f'<p class="event">{escape(clean_text(prompt.title))}</p>\n', "event")
        elif not prompt.context and any(render_images(message, self._links)):
            image = Prompt("prompt", "An image", "")
            yield from self._render_prompt(image, message, number)
        elif prompt.context:
            yield self._render_note(prompt.title, message, prompt.context)

    def _render_prompt(
        self, prompt: Prompt, message: Message, number: int | None
    ) -> Iterator[Block]:
        head = self._links.render_prompt_head(message, number, escape(format_speaker(message)))
        if prompt.kind == "command":
            text = f'<div class="md"><p><code>{escape(clean_text(prompt.text))}</code></p></div>'
        else:
            text = self._render_text(prompt.text, message, keeps_breaks=True)
        images = "".join(render_images(message, self._links))
        html = f'<div class="ask"><p class="head">{head}</p>{text}{images}</div>\n'
        yield Block(html, "prompt", prompt.title)
        if prompt.context:
            yield self._render_note("Added by the agent's program", message, prompt.context)

    def _render_answer(self, exchange: Exchange) -> Iterator[Block]:
        message = exchange.message
        if message.reasoning and message.reasoning.strip():
            text = self._render_text(message.reasoning, None)
            html = f'<details class="note"><summary>Thinking</summary>{text}</details>\n'
            yield Block(html, "thinking", is_quiet=True)
        if text := message.text.strip():
            id = self._links.mark_answer(message)
            html = self._render_text(text, message, f' class="md said"{id}')
            yield Block(f"{html}\n", "answer", text)
        if images := "".join(render_images(message, self._links)):
            yield Block(images, "image")
        for call in message.tool_calls:
            result = exchange.results.get(call.id)
            link = self._links.render_agent(call, result)
            view = self._calls.render(call, result, link)
            is_quiet = view.is_quiet and not link
            tools = (call.name,) if is_quiet else ()
            yield Block("".join(view.pieces), "call", "", view, is_quiet, tools)

    def _render_text(
        self,
        text: str,
        message: Message | None,
        attributes: str = ' class="md"',
        *,
        keeps_breaks: bool = False,
    ) -> str:
        """Render Markdown, as much of it as the page shows."""
        omitted = 0 if message is None else self._links.count_omitted(message)
        end = ""
        if self._limit and len(text) + omitted > self._limit.head + self._limit.tail:
            omitted += len(text) - self._limit.head
            text = text[: self._limit.head]
            end = render_omission(omitted, message, self._links)
        prose = render_prose(clean_text(text), keeps_breaks=keeps_breaks)
        return f"<div{attributes}>{prose}</div>{end}"

    def _render_note(self, title: str, message: Message, text: str | None = None) -> Block:
        """Render a folded text that no person wrote."""
        shown = message.text if text is None else text
        omitted = self._links.count_omitted(message)
        name = escape(clean_text(title).capitalize())
        size = f"{len(shown) + omitted:,} characters"
        held = Message("tool", shown, position=message.position)
        html = "".join(render_result(held, self._limit, self._links))
        summary = f'<summary>{name}<span class="label">{size}</span></summary>'
        return Block(f'<details class="note">{summary}{html}</details>\n', "note")


def fold_quiet(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks; calls that worked and changed nothing are in one fold if there are many."""
    quiet: list[Block] = []
    count = 0
    for block in blocks:
        if block.is_quiet:
            quiet.append(block)
            count += len(block.tools)
            if count < _MAX_FOLDED_CALLS:
                continue
        yield from _join_quiet(quiet)
        quiet, count = [], 0
        if not block.is_quiet:
            yield block
    yield from _join_quiet(quiet)


def _join_quiet(blocks: list[Block]) -> Iterator[Block]:
    tools = Counter(tool for block in blocks for tool in block.tools)
    total = tools.total()
    if total < _MIN_FOLDED_CALLS:
        yield from blocks
        return
    names = ", ".join(f"{count:,} {clean_text(name)[:40]}" for name, count in tools.most_common(4))
    inner = "".join(block.html for block in blocks)
    summary = f'<span class="mark">✓</span><b>{total:,} calls</b><i>{escape(names)}</i>'
    html = f'<details class="run"><summary>{summary}</summary>\n{inner}</details>\n'
    yield Block(html, "run", is_quiet=True, tools=tuple(tools.elements()))
