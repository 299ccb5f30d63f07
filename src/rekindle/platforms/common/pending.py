"""Messages that were handed out and are not acknowledged yet."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeAlias, TypeVar

from rekindle.platforms import PlatformMessage

from .state_file import StateFile

T = TypeVar("T")
_Key: TypeAlias = tuple[str, str | None, str, str]


class PendingMessages(Generic[T]):
    """The tokens, such as delivery ids, that messages are to be confirmed with."""

    def __init__(self) -> None:
        self._tokens: dict[_Key, list[T]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, incoming: PlatformMessage, token: T) -> bool:
        """Add a token; return whether the message was not waiting already."""
        tokens = self._tokens.setdefault(_build_key(incoming), [])
        tokens.append(token)
        self._empty.clear()
        return len(tokens) == 1

    def take(self, incoming: PlatformMessage) -> list[T]:
        """Remove a message and return its tokens."""
        tokens = self._tokens.pop(_build_key(incoming), [])
        if not self._tokens:
            self._empty.set()
        return tokens

    def clear(self) -> None:
        """Forget all messages."""
        self._tokens.clear()
        self._empty.set()

    async def wait_until_empty(self) -> None:
        """Wait until all messages are acknowledged."""
        await self._empty.wait()


class Positions:
    """How far each channel is acknowledged, on disk: where to go on reading after an outage.

    A position passes a message only when no earlier one is waiting for its acknowledgement.
    """

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._waiting: dict[str, set[tuple[int, ...]]] = {}
        self._done: dict[str, dict[tuple[int, ...], str]] = {}

    def list_channels(self) -> list[tuple[str, str]]:
        """Return all known channels with the id of the last acknowledged message."""
        return self._file.list_items()

    def is_known(self, channel: str) -> bool:
        """Return whether a message of the channel was ever acknowledged."""
        return self._file.find(channel) is not None

    def is_past(self, channel: str, id: str) -> bool:
        """Return whether a message lies before the position of its channel, or at it."""
        position = self._file.find(channel)
        return position is not None and _parse_order(id) <= _parse_order(position)

    def begin(self, channel: str, id: str) -> None:
        """Note that a message waits for its acknowledgement."""
        self._waiting.setdefault(channel, set()).add(_parse_order(id))

    def finish(self, channel: str, id: str) -> None:
        """Note that a message is acknowledged, and advance the position as far as possible."""
        waiting = self._waiting.setdefault(channel, set())
        waiting.discard(_parse_order(id))
        done = self._done.setdefault(channel, {})
        done[_parse_order(id)] = id
        passed = [order for order in done if not waiting or order < min(waiting)]
        if not passed:
            return
        last = done[max(passed)]
        for order in passed:
            del done[order]
        if not self.is_past(channel, last):
            self._file.put(channel, last)

    def forget_waiting(self) -> None:
        """Forget what waits: it is read again from the position."""
        self._waiting.clear()
        self._done.clear()


def is_later(id: str, other: str) -> bool:
    """Return whether a message was written after another of the same channel."""
    return _parse_order(id) > _parse_order(other)


def _parse_order(id: str) -> tuple[int, ...]:
    """Order ids that are numbers, or numbers with a dot as Slack's."""
    return tuple(int(part) if part.isdigit() else 0 for part in id.split("."))


def _build_key(incoming: PlatformMessage) -> _Key:
    message = incoming.message
    return incoming.source.chat_id, message.platform_message_id, incoming.change, message.text
