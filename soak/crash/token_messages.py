"""Messages that are generated from a token, so that audits can rebuild them.

A token is one searchable word that no other message has. One that ends in `p` came from a platform
and has a platform id.
"""

from __future__ import annotations

import random

from rekindle import Message, ToolCall

_WORDS = ["ember", "ash", "flint", "kindle", "hearth", "coal", "smoke", "spark", "tinder", "ñandú"]
_WORDS += ["火", "\x00", "\ud800"]  # not every engine can hold these as they are


def make_token(slot: int, life: int, thread: int, number: int, *, platform: bool = False) -> str:
    return f"w{slot}x{life}x{thread}x{number}{'p' if platform else 'm'}"


def make_message(token: str, session: str) -> Message:
    """Build the message of a token; it names its session."""
    rng = random.Random(token)
    words = rng.choices(_WORDS, k=min(int(rng.lognormvariate(3, 1)), 2000))
    calls = (ToolCall("call", "burn", '{"what": "wood"}'),) if rng.random() < 0.1 else ()
    return Message(
        role="assistant" if calls else "user",
        content=" ".join((token, session, *words)),
        tool_calls=calls,
        platform_message_id=f"platform-{token}" if token.endswith("p") else None,
    )


def parse_token(message: Message) -> tuple[str, str]:
    """Parse the token and the session out of a message."""
    said, home, *_ = message.text.split(" ", 2)
    return said, home
