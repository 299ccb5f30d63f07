"""Pairing of messages with the results of their tool calls, for rendering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rekindle.types import Message


class Exchange(NamedTuple):
    """A message and the results of its tool calls, by call id."""

    message: Message
    results: dict[str, Message]


def pair_results(messages: Iterable[Message]) -> Iterator[Exchange]:
    """Yield each message with the results of its calls.

    A result without a matching call is yielded on its own.
    """
    current: Exchange | None = None
    for message in messages:
        if message.role == "tool" and current is not None:
            call_id = message.tool_call_id or ""
            if call_id not in current.results and any(
                known.id == call_id for known in current.message.tool_calls
            ):
                current.results[call_id] = message
                continue
        if current is not None:
            yield current
        current = Exchange(message, {})
    if current is not None:
        yield current
