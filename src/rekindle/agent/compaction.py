"""Compress a long conversation: summarize its middle and continue in a child session.

The first messages (the task), the last messages (the current work) and every call without a result
are kept verbatim. The summary is made first; then one transaction ends the old session and starts
the child. If the summary fails or is cancelled, nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.agent.model.client import Model
from rekindle.errors import InvalidInput, ModelError
from rekindle.routing.speaker import format_speaker_mark
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Message, Session, Tokens, replace_fields

from .turn import Compacted

SUMMARY_PROMPT = (
    "Summarize the conversation below for yourself, so that you can continue it without having seen"
    " it. Keep: the user's goals and preferences, decisions and their reasons, completed work,"
    " files, commands, names and values that are still needed, failures and their causes, and"
    " remaining tasks. Omit greetings and settled matters. Write plain text, at most {words} words."
)
SUMMARY_MARK = "[Summary of the conversation so far]"
_MAX_MESSAGE_CHARACTERS = 4_000  # of one message in the summary request


class CompressionPolicy(NamedTuple):
    """The parts of a conversation to keep verbatim when compressing it."""

    keep_first: int = 2
    keep_last: int = 12
    min_middle: int = 4  # fewer messages are not worth a summary
    summary_words: int = 800


_DEFAULT_POLICY = CompressionPolicy()


def split_messages(
    messages: Sequence[Message], policy: CompressionPolicy = _DEFAULT_POLICY
) -> tuple[Sequence[Message], Sequence[Message], Sequence[Message]]:
    """Split the messages into beginning, middle and end.

    Never separate a call from its result, and never put an unanswered call in the middle.
    """
    start = _skip_results(messages, min(policy.keep_first, len(messages)))
    stop = max(start, len(messages) - policy.keep_last)
    answered = {m.tool_call_id for m in messages if m.role == "tool"}
    unanswered = (
        index
        for index, message in enumerate(messages)
        if index >= start and any(call.id not in answered for call in message.tool_calls)
    )
    stop = min(stop, next(unanswered, stop))
    while start < stop < len(messages) and messages[stop].role == "tool":
        stop -= 1
    return messages[:start], messages[start:stop], messages[stop:]


def _skip_results(messages: Sequence[Message], index: int) -> int:
    """Return the first index from `index` on that does not separate a call from its result."""
    while 0 < index < len(messages) and messages[index].role == "tool":
        index += 1
    return index


async def compress_session(
    executor: StoreExecutor,
    model: Model,
    session: Session,
    messages: Sequence[Message],
    policy: CompressionPolicy = _DEFAULT_POLICY,
) -> Compacted | None:
    """Compress the middle of the session and continue in a child; return None if not worthwhile."""
    first, middle, last = split_messages(messages, policy)
    if len(middle) < policy.min_middle:
        return None
    summary, tokens = await summarize_messages(model, middle, policy)
    if not summary:
        return None
    summary_message = Message("user", f"{SUMMARY_MARK}\n{summary}", meta={"summary_of": session.id})
    child_messages = [_copy_for_child(message) for message in (*first, summary_message, *last)]
    try:
        child = await executor.run(executor.store.compress, session, *child_messages)
    except InvalidInput:
        # Another writer compressed the session first: continue in its child.
        child = await executor.run(executor.store.find_tip, session)
    return Compacted(child, await executor.run(executor.store.messages, child), tokens)


async def summarize_messages(
    model: Model, messages: Sequence[Message], policy: CompressionPolicy = _DEFAULT_POLICY
) -> tuple[str | None, Tokens]:
    """Ask the model for a summary; return it (None if there is none) and the tokens used."""
    request = Message("system", SUMMARY_PROMPT.format(words=policy.summary_words))
    transcript = Message("user", "\n\n".join(map(_format_message, messages)))
    try:
        response = await model.complete([request, transcript])
    except ModelError:
        return None, Tokens()
    return response.message.text.strip() or None, response.tokens


def _format_message(message: Message) -> str:
    calls = "".join(f"\n→ {call.name} {call.arguments}" for call in message.tool_calls)
    text = f"{format_speaker_mark(message)} {message.text}{calls}".lstrip()
    if len(text) > _MAX_MESSAGE_CHARACTERS:
        half = _MAX_MESSAGE_CHARACTERS // 2
        omitted = len(text) - _MAX_MESSAGE_CHARACTERS
        text = f"{text[:half]}\n[… {omitted} characters omitted …]\n{text[-half:]}"
    return f"## {message.role}{f' ({message.name})' if message.name else ''}\n{text}"


def _copy_for_child(message: Message) -> Message:
    """Return a copy of the message without the fields that belong to the parent session."""
    return replace_fields(message, timestamp=None, position=None, rewound=False)
