"""Markdown export of a session: prompts, answers, calls with their outcomes, edits as diffs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rekindle.pages.text import replace_surrogates
from rekindle.routing.speaker import format_speaker
from rekindle.types import Message, Session, ToolCall

from .common import (
    CallResult,
    Exchange,
    describe_removed,
    describe_result,
    format_arguments,
    format_time,
    format_title,
    list_session_details,
    pair_distant_results,
    preview_call,
)
from .edits import FileEdit, find_edits
from .subagents import AgentRun

if TYPE_CHECKING:
    from markdown_it.token import Token

_BACKTICKS = re.compile(r"`{3,}")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # where HTML can begin
_MAX_NESTING = 60  # of quotes and lists; one takes some calls of the parser
_MARKS = {
    "ok": "✓",
    "failed": "✗",
    "negative": "–",
    "rejected": "⊘",
    "missing": "✗",
    "unknown": "✓",
}


def render_session(
    session: Session,
    messages: Iterable[Message],
    *,
    agents: Sequence[AgentRun] = (),
    count_removed: Callable[[], Mapping[str, int]] | None = None,
) -> Iterator[str]:
    """Yield the session as Markdown, piece by piece; what was redacted is counted at the end."""
    yield f"# {_format_line(format_title(session))}\n\n"
    for name, value in list_session_details(session):
        yield f"- **{name}:** {_format_line(value)}\n"
    for exchange in pair_distant_results(messages):
        yield from _render_exchange(exchange)
    for run in agents:
        yield f"\n# Sub-agent: {_format_line(format_title(run.session))}\n"
        for exchange in pair_distant_results(run.load_messages()):
            yield from _render_exchange(exchange)
    if count_removed is not None:
        removed = describe_removed(count_removed())
        yield f"\n---\n\n*Redacted: {removed or 'nothing was found'}.*\n"


def _render_exchange(exchange: Exchange) -> Iterator[str]:
    message = exchange.message
    name = "Tool result" if message.role == "tool" else _format_line(message.role).capitalize()
    if speaker := format_speaker(message):
        name = f"{name} {_format_line(speaker)}"
    time = format_time(message.timestamp)
    yield f"\n## {name}{f' · {time}' if time else ''}\n"
    if message.reasoning:
        yield from _render_details(
            "Thinking", _fence_code(replace_surrogates(message.reasoning), "text")
        )
    text = replace_surrogates(message.text)
    if message.role == "tool":
        yield from _render_result(message)
    elif text:
        yield f"\n{_close_markdown(text)}\n"
    if images := _count_images(message):
        yield f"\n*{images} image{'s' if images > 1 else ''}*\n"
    for call in message.tool_calls:
        yield from _render_call(call, exchange.results.get(call.id))


def _render_call(call: ToolCall, result: Message | None) -> Iterator[str]:
    found = describe_result(call, result)
    edits = find_edits(call)
    head = f"{_escape_html(replace_surrogates(call.name))}: {_escape_html(preview_call(call))}"
    yield f"\n<details><summary>{_MARKS[found.state]} {head}"
    yield f" <b>{_escape_html(found.label)}</b></summary>\n" if found.label else "</summary>\n"
    yield from _render_words(found)
    if edits:
        yield from map(_render_edit, edits)
    else:
        yield f"\n{_fence_code(format_arguments(call), 'json')}\n"
    if result:
        yield from _render_result(result)
    yield "\n</details>\n"


def _render_words(found: CallResult) -> Iterator[str]:
    if found.words:
        words = _close_markdown(replace_surrogates(found.words))
        quoted = "\n".join(f"> {line}" for line in words.splitlines())
        yield f"\n{quoted}\n"


def _render_edit(edit: FileEdit) -> str:
    lines = "\n".join(f"{line.sign}{line.text}" for line in edit.lines)
    name = _format_line(replace_surrogates(edit.path))
    return f"\n{name}\n\n{_fence_code(replace_surrogates(lines), 'diff')}\n"


def _render_result(result: Message) -> Iterator[str]:
    if text := replace_surrogates(result.text):
        yield f"\n{_fence_code(text, 'text')}\n"


def _render_details(head: str, body: str) -> Iterator[str]:
    yield f"\n<details><summary>{head}</summary>\n\n{body}\n\n</details>\n"


def _fence_code(text: str, language: str) -> str:
    # A fence must be longer than every run of backticks inside it.
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _close_markdown(text: str) -> str:
    """Return Markdown from a session that shows its HTML as text, and whose code ends with it.

    Programs that show Markdown may run the HTML in it, and an open fence would take in what follows.
    """
    if not _TAG.search(text) and "```" not in text and "~~~" not in text:
        return text
    from markdown_it import MarkdownIt

    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    try:
        tokens = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).parse("\n".join(lines))
    except RecursionError:
        tokens = []
    if not tokens or max(token.level for token in tokens) >= _MAX_NESTING - 2:
        return "\n".join(_TAG.sub("&lt;", line) for line in lines)  # nobody looked further inside
    last = tokens[-1]
    is_open = last.type == "fence" and not _is_closed(last, lines)
    inner = [one for token in tokens for one in (token, *(token.children or ()))]
    if any(one.type in ("html_block", "html_inline") for one in inner):
        code = [
            range(*one.map) for one in tokens if one.type in ("fence", "code_block") and one.map
        ]
        is_code = {number for numbers in code for number in numbers}
        lines = [
            line if number in is_code else _TAG.sub("&lt;", line)
            for number, line in enumerate(lines)
        ]
    return "\n".join([*lines, last.markup] if is_open else lines)


def _is_closed(fence: Token, lines: Sequence[str]) -> bool:
    first, end = fence.map or (0, 0)
    mark = lines[end - 1].strip()
    return end - 1 > first and mark.startswith(fence.markup) and not mark.strip(fence.markup[0])


def _format_line(text: str) -> str:
    return _escape_html(" ".join(text.split()))


def _escape_html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _count_images(message: Message) -> int:
    if message.content is None or isinstance(message.content, str):
        return 0
    return sum(1 for part in message.content if part.get("type") in ("image", "image_url"))
