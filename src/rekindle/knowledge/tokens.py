"""How many tokens something takes, without asking a tokeniser: a little more rather than too few.

Models cut text differently. For English prose, code and JSON three and a half bytes to a token is
more than any of them needs; other scripts take about a token for each character of three bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rekindle.types import Message

_BYTES = 3.5
_AROUND = 4  # what the shape of a message takes
_AROUND_CALL = 12  # and that of a call, its id among it


def of_text(text: str) -> int:
    """Tokens of a text, estimated."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return math.ceil(size / _BYTES)


def of_messages(messages: Iterable[Message]) -> int:
    """Tokens of messages as they are sent, estimated."""
    total = 0
    for message in messages:
        total += _AROUND + of_text(message.text)
        for call in message.tool_calls:
            total += _AROUND_CALL + of_text(call.name) + of_text(str(call.arguments))
    return total
