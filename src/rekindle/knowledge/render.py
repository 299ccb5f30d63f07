"""Render the messages that a warm session begins with, from a template and its selected patterns.

They go after the leading system messages and before the first user message. As `turns`, an example is
a user request, the calls with their results, and a closing answer, each marked as past; as `digest`,
the examples are lines of one system message; as `both`, lessons and long sequences go into the digest
and the rest are turns. If a provider requires a signature on every past call, no turn can be shown, so
everything goes into the digest.

Equal input gives equal bytes: call ids are derived from the calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from string import ascii_letters, digits
from typing import Literal, NamedTuple, TypeAlias

from rekindle.types import Message, Pattern, Template, ToolCall

from . import tokens
from .examples import (
    JSON_FIELDS_PREFIX,
    Example,
    Tools,
    build_example,
    to_single_line,
    truncate_text,
)

PreludeForm: TypeAlias = Literal["turns", "digest", "both"]
PRELUDE_FORMS: tuple[PreludeForm, ...] = ("turns", "digest", "both")

DEFAULT_TOKENS = 1_200
MAX_PATTERNS = 15
MAX_CONTEXT_CHARS = 1_500  # characters
PAST_MARK = "[from an earlier session]"
DONE_ANSWER = "Done"
_LINE_COUNT = re.compile(r"\d+ lines?(?:, the last: (.*))?", re.DOTALL)  # see `summarize_result`
DIGEST_HEADER = (
    "What worked in earlier sessions here. These are examples of the past, not requests: take the"
    " names of commands, arguments and formats from them, and the values from what is asked now."
)
CONTEXT_HEADER = "Known from earlier sessions:"
_MAX_REQUEST_CHARS = 160  # of a request in the digest
_LONG_SEQUENCE_CALLS = 3  # a sequence this long goes into the digest
_ID_ALPHABET = digits + ascii_letters
_ID_LENGTH = 9  # letters and digits: accepted by every provider


class RenderOptions(NamedTuple):
    """How to render; `calls` says whether the provider accepts past calls."""

    form: PreludeForm = "turns"
    tokens: int = DEFAULT_TOKENS
    patterns: int = MAX_PATTERNS
    examples: bool = True
    context: int = MAX_CONTEXT_CHARS  # characters of the template's seed
    calls: bool = True


class RenderedPrelude(NamedTuple):
    """The messages, their token count, and the ids of the shown patterns, best first."""

    messages: tuple[Message, ...] = ()
    tokens: int = 0
    patterns: tuple[str, ...] = ()


_DEFAULT_OPTIONS = RenderOptions()


def render_prelude(
    template: Template,
    patterns: Sequence[Pattern],
    tools: Tools,
    options: RenderOptions = _DEFAULT_OPTIONS,
) -> RenderedPrelude:
    """Render these patterns of the template, best first; return no messages if none fit."""
    context = (
        _render_context(template, min(options.context, MAX_CONTEXT_CHARS))
        if options.context > 0
        else ""
    )
    examples = _build_examples(patterns, tools, options) if options.examples else ()
    limit = min(options.patterns, MAX_PATTERNS)
    kept: list[tuple[str, Example]] = []
    messages = _build_messages(context, [], options)
    if tokens.estimate_message_tokens(messages) > options.tokens:
        context, messages = "", ()
    for one in examples:
        if len(kept) == limit:
            break
        longer = _build_messages(context, [*kept, one], options)
        if tokens.estimate_message_tokens(longer) <= options.tokens:
            kept.append(one)
            messages = longer
    names = tuple(id for id, _ in kept)
    return RenderedPrelude(tuple(messages), tokens.estimate_message_tokens(messages), names)


def _build_examples(
    patterns: Iterable[Pattern], tools: Tools, options: RenderOptions
) -> Iterator[tuple[str, Example]]:
    seen: set[object] = set()
    only_turns = options.form == "turns" and options.calls
    for pattern in patterns:
        one = build_example(pattern, tools)
        if one is None or (one.request, one.calls) in seen or (only_turns and not one.as_turns):
            continue
        seen.add((one.request, one.calls))
        yield pattern.id, one


def _build_messages(
    context: str, examples: Sequence[tuple[str, Example]], options: RenderOptions
) -> tuple[Message, ...]:
    """Build the messages with the best example last: models follow the nearest one most."""
    ordered = [one for _, one in reversed(examples)]
    digest_examples = [one for one in ordered if not _is_shown_as_turn(one, options)]
    turns = [one for one in ordered if _is_shown_as_turn(one, options)]
    found: list[Message] = []
    if digest := _render_digest(context, digest_examples):
        found.append(Message("system", digest))
    used: set[str] = set()
    for number, one in enumerate(turns):
        found.extend(_render_turn(one, number, used))
    return tuple(found)


def _is_shown_as_turn(one: Example, options: RenderOptions) -> bool:
    if options.form == "digest" or not options.calls or not one.as_turns:
        return False
    belongs_in_digest = one.wrong is not None or len(one.calls) >= _LONG_SEQUENCE_CALLS
    return options.form == "turns" or not belongs_in_digest


def _render_turn(one: Example, number: int, used: set[str]) -> Iterator[Message]:
    yield Message("user", f"{PAST_MARK} {one.request}")
    for index, call in enumerate(one.calls):
        id = _make_call_id(f"{number}:{index}:{call.tool}:{call.arguments}", used)
        yield Message("assistant", None, (ToolCall(id, call.tool, call.arguments),))
        yield Message("tool", call.result, tool_call_id=id, name=call.tool)
    answer = _render_answer(one.calls[-1].result) or DONE_ANSWER
    yield Message("assistant", f"{answer}. {one.lesson}" if one.lesson else answer)


def _make_call_id(seed: str, used: set[str]) -> str:
    """Derive an id of nine letters and digits, equal for the same call in the same place."""
    id = ""
    while not id or id in used:
        number = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest())
        characters: list[str] = []
        for _ in range(_ID_LENGTH):
            number, index = divmod(number, len(_ID_ALPHABET))
            characters.append(_ID_ALPHABET[index])
        id, seed = "".join(characters), f"{seed}+"
    used.add(id)
    return id


def _render_digest(context: str, examples: Sequence[Example]) -> str:
    parts = [context] if context else []
    if examples:
        lines = [
            _render_line(one, before)
            for one, before in zip(examples, [None, *examples], strict=False)
        ]
        parts.append("\n".join([DIGEST_HEADER, *lines]))
    return "\n\n".join(parts)


def _render_line(one: Example, previous: Example | None) -> str:
    """Render one example as a line: the request, the calls, the result."""
    same = previous is not None and previous.request == one.request
    asked = "For the same" if same else f"Asked “{truncate_text(one.request, _MAX_REQUEST_CHARS)}”"
    calls = [f"{call.tool} {truncate_text(call.arguments, 400)}" for call in one.calls]
    text = f"- {asked}: {'; then '.join(calls)}"
    if len(one.calls) == 1 and (outcome := _shorten_result(one.calls[-1].result)):
        text += f" → {outcome}"
    if one.wrong is not None:
        text += f". Not {one.wrong.tool} {truncate_text(one.wrong.arguments, 200)}"
    return f"{text}. {one.lesson}" if one.lesson else text


def _shorten_result(result: str) -> str:
    """Shorten a result to one short line; return nothing for a placeholder."""
    return "" if result.startswith("(") else truncate_text(to_single_line(result), 120)


def _render_answer(result: str) -> str:
    """Render a result as an answer; return "" if only its length is known.

    A model answers as its examples do: it would copy one that merely says it is done.
    """
    if result.startswith(JSON_FIELDS_PREFIX):
        return _shorten_result(f"It gives {result.removeprefix(JSON_FIELDS_PREFIX)}")
    counted = _LINE_COUNT.fullmatch(result)
    return _shorten_result(counted[1] or "" if counted else result)


def _render_context(template: Template, limit: int) -> str:
    """Render the template's seed: user instructions, then files, then the system prompt."""
    seed = template.seed
    lines = [
        f"- The user asked for: {to_single_line(text)}"
        for text in seed.instructions
        if to_single_line(text)
    ]
    if markers := [to_single_line(marker) for marker in seed.markers if to_single_line(marker)]:
        lines.append(f"- Files and pages in use: {', '.join(markers)}")
    if to_single_line(seed.system):
        lines.append(f"- The agent was told: {to_single_line(seed.system)}")
    text = ""
    for one in lines:
        longer = f"{text}\n{one}" if text else f"{CONTEXT_HEADER}\n{one}"
        if len(longer) > limit:
            return truncate_text(longer, limit) if limit > len(CONTEXT_HEADER) + 80 else text
        text = longer
    return text
