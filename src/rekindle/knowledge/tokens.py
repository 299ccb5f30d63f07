"""Estimate token counts without a tokenizer, erring on the high side.

Tokenizers differ. For English prose, code and JSON, three and a half bytes per token is more than any
of them needs; other scripts take about one token for each three-byte character.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rekindle.types import Message

_BYTES_PER_TOKEN = 3.5
_MESSAGE_OVERHEAD = 4
_CALL_OVERHEAD = 12  # including its id


def estimate_text_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return math.ceil(size / _BYTES_PER_TOKEN)


def estimate_message_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages as they are sent."""
    total = 0
    for message in messages:
        total += _MESSAGE_OVERHEAD + estimate_text_tokens(message.text)
        for call in message.tool_calls:
            total += (
                _CALL_OVERHEAD
                + estimate_text_tokens(call.name)
                + estimate_text_tokens(str(call.arguments))
            )
    return total
