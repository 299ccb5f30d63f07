"""How many tokens a conversation may take, so that a request fits the model's context."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from rekindle.agent.model.context_meter import estimate_messages
from rekindle.types import Message

_UNKNOWN_CONTEXT = 100_000  # assumed for summaries while the size is unknown
_MAX_SUMMARY = 1_500


class ContextSpace(NamedTuple):
    """The tokens of a model's context, and those left for the stored messages.

    `context` is 0 if it is unknown. `ratio` corrects estimates. `overhead` is what is sent besides the
    stored messages: prompts and tools. `tokens` is the rest, without the room for the answer.
    """

    context: int = 0
    tokens: int = 0
    overhead: int = 0
    ratio: float = 1.0

    def estimate(self, messages: Iterable[Message]) -> int:
        """Estimate the tokens of stored messages."""
        return self.adapt(estimate_messages(messages))

    def adapt(self, tokens: int) -> int:
        """Correct an estimate by what the provider has reported."""
        return math.ceil(tokens * self.ratio)

    @property
    def summary_tokens(self) -> int:
        """The maximum tokens of a summary."""
        room = self.tokens if self.tokens > 0 else _UNKNOWN_CONTEXT
        return min(_MAX_SUMMARY, max(32, room // 6))

    @property
    def request_tokens(self) -> int:
        """The maximum tokens of a request for a summary, without its answer."""
        context = self.context or _UNKNOWN_CONTEXT
        return max(64, int(context * 0.9) - 2 * self.summary_tokens)


class ContextLimits(NamedTuple):
    """The size of a context in tokens, 0 if unknown, and the part reserved for the answer."""

    context: int = 0
    answer: int = 8_192
    compress_at: float = 0.85  # fraction of the context

    def build_space(self, overhead: int, ratio: float, reported: int = 0) -> ContextSpace | None:
        """Build the space of a request, or return None if no size is known.

        `reported` is the size that the provider has named, if it has; the smaller one counts.
        """
        sizes = [size for size in (self.context, reported) if size]
        if not sizes:
            return None
        context = min(sizes)
        room = min(self.answer, context // 4)
        used = math.ceil(overhead * ratio)
        tokens = min(int(context * self.compress_at), context - room) - used
        return ContextSpace(context, tokens, used, ratio)
