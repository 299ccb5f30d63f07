"""Estimate the tokens of requests, corrected by what the provider reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rekindle.knowledge.tokens import estimate_text_tokens
from rekindle.types import JSON, Message

_MESSAGE_TOKENS = 4
_CALL_TOKENS = 12  # including its id
_PART_TOKENS = 1_600  # of an image or another part that is no text
_MIN_RATIO, _MAX_RATIO = 0.3, 5.0
_MAX_SESSIONS = 1_000


def estimate_message(message: Message) -> int:
    """Estimate the tokens of one message as it is sent, before any correction."""
    total = _MESSAGE_TOKENS + estimate_text_tokens(message.text)
    if isinstance(message.content, list):
        total += _PART_TOKENS * sum("text" not in part for part in message.content)
    for call in message.tool_calls:
        arguments = call.arguments
        text = arguments if isinstance(arguments, str) else str(arguments)
        total += _CALL_TOKENS + estimate_text_tokens(call.name) + estimate_text_tokens(text)
    return total


def estimate_messages(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages as they are sent, before any correction."""
    return sum(map(estimate_message, messages))


def estimate_tools(tools: Sequence[Mapping[str, JSON]]) -> int:
    """Estimate the tokens of tool definitions, before any correction."""
    return math.ceil(len(msgspec.json.encode(tools)) / 3.5) if tools else 0


class ContextMeter:
    """What requests to a model have shown: its tokens per estimated token, and its context.

    Tokens per estimate differ by language and kind of text, so they are kept by session.
    """

    def __init__(self) -> None:
        self.reported_context = 0  # from an error of the provider; 0: it has not said
        self._ratios: dict[str, float] = {}

    def get_ratio(self, session: str) -> float:
        """Return the tokens per estimated token in a session; 1 before the first response."""
        return self._ratios.get(session, 1.0)

    def record_tokens(self, session: str, estimate: int, tokens: int) -> float:
        """Record the tokens that the provider counted in a request, and return the new ratio."""
        if estimate <= 0 or tokens <= 0:
            return self.get_ratio(session)
        ratio = min(_MAX_RATIO, max(_MIN_RATIO, tokens / estimate))
        self.set_ratio(session, ratio)
        return ratio

    def set_ratio(self, session: str, ratio: float) -> None:
        """Set the tokens per estimated token in a session."""
        if len(self._ratios) >= _MAX_SESSIONS:
            self._ratios.pop(next(iter(self._ratios)))
        self._ratios[session] = ratio
