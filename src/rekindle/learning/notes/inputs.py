"""Collect what a session's model read beside results of its calls and what its user wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from rekindle.judging.outcomes.user_text import extract_user_text, list_announced_lines
from rekindle.knowledge.trust.inputs import ModelInput
from rekindle.types import JSON, JudgedCall, Message

MAX_PART_CHARS = 200_000  # of the text in one part of a message
_MAX_DEPTH = 20
# Parts whose text stands in no field, or is encrypted.
_UNREADABLE_PARTS = ("image", "document", "file", "audio", "video", "web_search", "web_fetch")
# What a harness wrote down in the `meta` of a message, and the text of it that the model read.
_UNREADABLE_META = ("attachments", "web_searches")


def collect_inputs(
    messages: Sequence[Message], calls: Sequence[JudgedCall], *, is_independent: bool
) -> list[ModelInput]:
    """Return what reached the model of a session; all that was read before it is out of reach.

    A session below another one, or forked from it, knows what that one read, and so does one that
    begins with the summary of another: they are not independent.
    """
    inputs = [] if is_independent else [ModelInput(0, is_readable=False)]
    judged = {(one.position, one.number) for one in calls}
    results = {one.result_position for one in calls}
    number = 0
    for message in messages:
        inputs += (
            ModelInput(number, text, is_readable)
            for text, is_readable in _iter_inputs(message, message.position in results, number)
        )
        number += sum(
            (message.position or 0, at) in judged for at in range(len(message.tool_calls))
        )
    return inputs


def _iter_inputs(message: Message, is_result: bool, calls: int) -> Iterator[tuple[str, bool]]:
    meta = message.meta or {}
    compacted = meta.get("compacted")
    if isinstance(compacted, Mapping):
        yield "\n".join(_iter_texts(cast(JSON, compacted))), calls > 0
    if injected := meta.get("injected"):
        yield "\n".join(_iter_texts(injected)), True
    if any(meta.get(name) for name in _UNREADABLE_META):
        yield "", False
    if message.role == "user":
        announced = (line for _, line in list_announced_lines(message.text))
        own = {*extract_user_text(message.text).splitlines(), *announced}
        rest = [line for line in message.text.splitlines() if line not in own]
        yield "\n".join(rest), not (calls == 0 and _is_summary(message.text))
    elif message.role == "tool" and not is_result:
        yield message.text, True
    for part in message.content if isinstance(message.content, list) else ():
        kind = part.get("type")
        if kind != "text":
            is_readable = not any(name in str(kind) for name in _UNREADABLE_PARTS)
            yield "\n".join(_iter_texts(part))[:MAX_PART_CHARS], is_readable


def _is_summary(text: str) -> bool:
    """Return whether a harness tells the model what another session read and did."""
    return text.lstrip().startswith(("This session is being continued", "Another language model"))


def _iter_texts(value: JSON, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a value, without the bytes of files."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        for one in cast("Mapping[str, JSON]", value).values():
            yield from _iter_texts(one, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, Sequence):
        for one in cast("Sequence[JSON]", value):
            yield from _iter_texts(one, depth + 1)
