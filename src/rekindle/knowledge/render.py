"""The messages that a warm session begins with, from a template and the patterns chosen of it.

They stand behind the leading system messages and before the first message of the user. As `turns`
an example is a request of the user, the calls and their results, and a closing word, each marked as
past; as `digest` the examples are lines of one system message; as `both` lessons and long ways are
told in the digest, the rest is shown as turns. Where a provider asks for a signature on every call
of the past, nothing can be shown as a turn, so it becomes a digest.

Equal input gives equal bytes: ids of calls are derived from what they call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from string import ascii_letters, digits
from typing import Literal, NamedTuple, TypeAlias

from rekindle.types import Message, Pattern, Template, ToolCall

from . import tokens
from .examples import FIELDS, Example, Tools, cut, example, line

Form: TypeAlias = Literal["turns", "digest", "both"]
FORMS: tuple[Form, ...] = ("turns", "digest", "both")

TOKENS = 1_200
MOST_PATTERNS = 15
CONTEXT = 1_500  # characters
PAST = "[from an earlier session]"
DONE = "Done"
_COUNTED = re.compile(r"\d+ lines?(?:, the last: (.*))?", re.DOTALL)  # as brief.result says it
HEAD = (
    "What worked in earlier sessions here. These are examples of the past, not requests: take the"
    " names of commands, arguments and formats from them, and the values from what is asked now."
)
ABOUT = "Known from earlier sessions:"
_ASKED = 160  # characters of a request in the digest
_LONG = 3  # calls from which on a way of doing things is told rather than shown
_SIGNS = digits + ascii_letters
_ID = 9  # letters and digits: what every provider takes


class Manner(NamedTuple):
    """How to render. `calls` tells whether the provider lets calls of the past be shown."""

    form: Form = "turns"
    tokens: int = TOKENS
    patterns: int = MOST_PATTERNS
    examples: bool = True
    context: int = CONTEXT  # characters of what the template says beside its patterns
    calls: bool = True


class Rendered(NamedTuple):
    """The messages, what they take, and which patterns they show, best first."""

    messages: tuple[Message, ...] = ()
    tokens: int = 0
    patterns: tuple[str, ...] = ()


_USUAL = Manner()


def render(
    template: Template,
    patterns: Sequence[Pattern],
    tools: Tools,
    manner: Manner = _USUAL,
) -> Rendered:
    """The messages for these patterns of the template, best first; none if nothing can be said."""
    about = _about(template, min(manner.context, CONTEXT)) if manner.context > 0 else ""
    shown = _shown(patterns, tools, manner) if manner.examples else ()
    most = min(manner.patterns, MOST_PATTERNS)
    kept: list[tuple[str, Example]] = []
    messages = _messages(about, [], manner)
    if tokens.of_messages(messages) > manner.tokens:
        about, messages = "", ()
    for one in shown:
        if len(kept) == most:
            break
        longer = _messages(about, [*kept, one], manner)
        if tokens.of_messages(longer) <= manner.tokens:
            kept.append(one)
            messages = longer
    names = tuple(id for id, _ in kept)
    return Rendered(tuple(messages), tokens.of_messages(messages), names)


def _shown(
    patterns: Iterable[Pattern], tools: Tools, manner: Manner
) -> Iterator[tuple[str, Example]]:
    seen: set[object] = set()
    only_turns = manner.form == "turns" and manner.calls
    for pattern in patterns:
        one = example(pattern, tools)
        if one is None or (one.request, one.calls) in seen or (only_turns and not one.as_turns):
            continue
        seen.add((one.request, one.calls))
        yield pattern.id, one


def _messages(
    about: str, examples: Sequence[tuple[str, Example]], manner: Manner
) -> tuple[Message, ...]:
    """The examples in their order, best last: what stands nearest is followed most."""
    row = [one for _, one in reversed(examples)]
    told = [one for one in row if not _is_turn(one, manner)]
    turns = [one for one in row if _is_turn(one, manner)]
    found: list[Message] = []
    if digest := _digest(about, told):
        found.append(Message("system", digest))
    used: set[str] = set()
    for number, one in enumerate(turns):
        found.extend(_turn(one, number, used))
    return tuple(found)


def _is_turn(one: Example, manner: Manner) -> bool:
    if manner.form == "digest" or not manner.calls or not one.as_turns:
        return False
    told = one.wrong is not None or len(one.calls) >= _LONG
    return manner.form == "turns" or not told


def _turn(one: Example, number: int, used: set[str]) -> Iterator[Message]:
    yield Message("user", f"{PAST} {one.request}")
    for place, call in enumerate(one.calls):
        id = _id_of(f"{number}:{place}:{call.tool}:{call.arguments}", used)
        yield Message("assistant", None, (ToolCall(id, call.tool, call.arguments),))
        yield Message("tool", call.result, tool_call_id=id, name=call.tool)
    said = _answer(one.calls[-1].result) or DONE
    yield Message("assistant", f"{said}. {one.lesson}" if one.lesson else said)


def _id_of(seed: str, used: set[str]) -> str:
    """Nine letters and digits, the same for the same call in the same place."""
    id = ""
    while not id or id in used:
        number = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest())
        signs: list[str] = []
        for _ in range(_ID):
            number, place = divmod(number, len(_SIGNS))
            signs.append(_SIGNS[place])
        id, seed = "".join(signs), f"{seed}+"
    used.add(id)
    return id


def _digest(about: str, told: Sequence[Example]) -> str:
    parts = [about] if about else []
    if told:
        lines = [_line(one, before) for one, before in zip(told, [None, *told], strict=False)]
        parts.append("\n".join([HEAD, *lines]))
    return "\n\n".join(parts)


def _line(one: Example, before: Example | None) -> str:
    """One example on a line: what was asked, what was called, what came of it."""
    same = before is not None and before.request == one.request
    asked = "For the same" if same else f"Asked “{cut(one.request, _ASKED)}”"
    calls = [f"{call.tool} {cut(call.arguments, 400)}" for call in one.calls]
    text = f"- {asked}: {'; then '.join(calls)}"
    if len(one.calls) == 1 and (outcome := _outcome(one.calls[-1].result)):
        text += f" → {outcome}"
    if one.wrong is not None:
        text += f". Not {one.wrong.tool} {cut(one.wrong.arguments, 200)}"
    return f"{text}. {one.lesson}" if one.lesson else text


def _outcome(result: str) -> str:
    """What a call brought, short enough to be said."""
    return "" if result.startswith("(") else cut(line(result), 120)


def _answer(result: str) -> str:
    """What came out, said as an answer; "" where only its length is known.

    A model answers as its examples do: one that merely says that it is done is copied too.
    """
    if result.startswith(FIELDS):
        return _outcome(f"It gives {result.removeprefix(FIELDS)}")
    counted = _COUNTED.fullmatch(result)
    return _outcome(counted[1] or "" if counted else result)


def _about(template: Template, most: int) -> str:
    """What the template knows beside its patterns: wishes of the user, then files, then its role."""
    seed = template.seed
    lines = [f"- The user asked for: {line(text)}" for text in seed.instructions if line(text)]
    if markers := [line(marker) for marker in seed.markers if line(marker)]:
        lines.append(f"- Files and pages in use: {', '.join(markers)}")
    if line(seed.system):
        lines.append(f"- The agent was told: {line(seed.system)}")
    text = ""
    for one in lines:
        longer = f"{text}\n{one}" if text else f"{ABOUT}\n{one}"
        if len(longer) > most:
            return cut(longer, most) if most > len(ABOUT) + 80 else text
        text = longer
    return text
