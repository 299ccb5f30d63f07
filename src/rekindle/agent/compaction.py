"""Compression: the middle of a long conversation becomes a summary, and a child session goes on.

The first messages (what was asked) and the last ones (what is going on) are kept as they are, and so
is every call that has no result yet. The summary is made first; only then, in one transaction, the
old session ends and the child begins. If the summary fails or anyone stops it, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.agent.model.client import Model
from rekindle.errors import InvalidInput, ModelError
from rekindle.types import Message, Session, Tokens

from .store_executor import Desk
from .turn import Shrunk

SUMMARY = (
    "Summarise the conversation below for yourself, so that you can go on with it without having seen"
    " it. Keep: what the user wants and how they want it, decisions and their reasons, what was done,"
    " files, commands, names and values that are still needed, what failed and why, what is left to"
    " do. Leave out greetings and what is settled. Write plain text, no more than {words} words."
)
MARK = "[Summary of the conversation so far]"
_SHOWN = 4_000  # characters of one message that the summary is made from


class Kept(NamedTuple):
    """How much of a conversation stays as it is."""

    first: int = 2
    last: int = 12
    least: int = 4  # messages in the middle that are worth a summary
    words: int = 800


_USUAL = Kept()


def split(
    messages: Sequence[Message], kept: Kept = _USUAL
) -> tuple[Sequence[Message], Sequence[Message], Sequence[Message]]:
    """Beginning, middle and end. No call is parted from its result, none that waits is in the middle."""
    start = _behind_results(messages, min(kept.first, len(messages)))
    stop = max(start, len(messages) - kept.last)
    answered = {m.tool_call_id for m in messages if m.role == "tool"}
    waiting = (
        place
        for place, message in enumerate(messages)
        if place >= start and any(call.id not in answered for call in message.tool_calls)
    )
    stop = min(stop, next(waiting, stop))
    while start < stop < len(messages) and messages[stop].role == "tool":
        stop -= 1
    return messages[:start], messages[start:stop], messages[stop:]


def _behind_results(messages: Sequence[Message], place: int) -> int:
    """The first place from `place` on that does not stand between a call and its result."""
    while 0 < place < len(messages) and messages[place].role == "tool":
        place += 1
    return place


async def compress(
    desk: Desk,
    model: Model,
    session: Session,
    messages: Sequence[Message],
    kept: Kept = _USUAL,
) -> Shrunk | None:
    """Go on in a child with the middle summarised; None where there is nothing to gain."""
    first, middle, last = split(messages, kept)
    if len(middle) < kept.least:
        return None
    summary, tokens = await summarise(model, middle, kept)
    if not summary:
        return None
    told = Message("user", f"{MARK}\n{summary}", meta={"summary_of": session.id})
    carried = [_anew(message) for message in (*first, told, *last)]
    try:
        child = await desk.ask(desk.store.compress, session, *carried)
    except InvalidInput:
        # Somebody else was faster: the conversation goes on where they led it.
        child = await desk.ask(desk.store.tip, session)
    return Shrunk(child, await desk.ask(desk.store.messages, child), tokens)


async def summarise(
    model: Model, messages: Sequence[Message], kept: Kept = _USUAL
) -> tuple[str | None, Tokens]:
    """The model's own words for what was said, None if it has none; and what that took."""
    request = Message("system", SUMMARY.format(words=kept.words))
    told = Message("user", "\n\n".join(map(_shown, messages)))
    try:
        answer = await model.answer([request, told])
    except ModelError:
        return None, Tokens()
    return answer.message.text.strip() or None, answer.tokens


def _shown(message: Message) -> str:
    calls = "".join(f"\n→ {call.name} {call.arguments}" for call in message.tool_calls)
    said = f"{message.text}{calls}"
    if len(said) > _SHOWN:
        half = _SHOWN // 2
        said = f"{said[:half]}\n[… {len(said) - _SHOWN} characters …]\n{said[-half:]}"
    return f"## {message.role}{f' ({message.name})' if message.name else ''}\n{said}"


def _anew(message: Message) -> Message:
    """A message as it begins the child: the parent keeps the original."""
    return message._replace(timestamp=None, position=None, rewound=False)
