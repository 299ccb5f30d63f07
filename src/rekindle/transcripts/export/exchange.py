"""A conversation as people read it: each answer together with the results of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rekindle.types import Message


class Exchange(NamedTuple):
    """A message, and the results that came for its calls, by call id."""

    message: Message
    results: dict[str, Message]


def exchanges(messages: Iterable[Message]) -> Iterator[Exchange]:
    """Pair answers and results as they stream by. A result without its call stands alone."""
    current: Exchange | None = None
    for message in messages:
        if message.role == "tool" and current is not None:
            call = message.tool_call_id or ""
            if call not in current.results and any(
                known.id == call for known in current.message.tool_calls
            ):
                current.results[call] = message
                continue
        if current is not None:
            yield current
        current = Exchange(message, {})
    if current is not None:
        yield current
