"""A session as Markdown, for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.types import Message, Session, ToolCall

from .common import facts_of, preview, printable, time_of, title_of, trouble, written_arguments
from .exchange import Exchange, exchanges

_TICKS = re.compile(r"`{3,}")


def render(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    """The page, piece by piece."""
    yield f"# {_line(title_of(session))}\n\n"
    for name, fact in facts_of(session):
        yield f"- **{name}:** {_line(fact)}\n"
    for exchange in exchanges(messages):
        yield from _exchange(exchange)


def _exchange(exchange: Exchange) -> Iterator[str]:
    message = exchange.message
    name = "Tool result" if message.role == "tool" else _line(message.role).capitalize()
    time = time_of(message.timestamp)
    yield f"\n## {name}{f' · {time}' if time else ''}\n"
    if message.reasoning:
        yield from _folded("Thinking", _fence(printable(message.reasoning), "text"))
    text = printable(message.text)
    if message.role == "tool":
        yield from _result(message)
    elif text:
        yield f"\n{text}\n"
    if images := _images(message):
        yield f"\n*{images} image{'s' if images > 1 else ''}*\n"
    for call in message.tool_calls:
        yield from _call(call, exchange.results.get(call.id))


def _call(call: ToolCall, result: Message | None) -> Iterator[str]:
    wrong = trouble(result) if result else "no result"
    head = f"{_html(printable(call.name))}: {_html(preview(call))}"
    yield f"\n<details><summary>{'✗' if wrong else '✓'} {head}"
    yield f" <b>{_html(wrong)}</b></summary>\n" if wrong else "</summary>\n"
    yield f"\n{_fence(written_arguments(call), 'json')}\n"
    if result:
        yield from _result(result)
    yield "\n</details>\n"


def _result(result: Message) -> Iterator[str]:
    if wrong := trouble(result):
        yield f"\n**{wrong}**\n"
    if text := printable(result.text):
        yield f"\n{_fence(text, 'text')}\n"


def _folded(head: str, body: str) -> Iterator[str]:
    yield f"\n<details><summary>{head}</summary>\n\n{body}\n\n</details>\n"


def _fence(text: str, language: str) -> str:
    # A fence must be longer than every run of ticks that it encloses.
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _images(message: Message) -> int:
    if message.content is None or isinstance(message.content, str):
        return 0
    return sum(1 for part in message.content if part.get("type") in ("image", "image_url"))
