"""Chat platforms: one file each, and the only place that knows a platform's ways.

A platform says what came in and sends what has to go out. It knows nothing of sessions. What it gives
is kept before it is acknowledged, so a platform that can should give it again until then; what it is
asked to send carries a nonce, so that one that can recognises what it has sent before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from rekindle.types import Message, Source


class Incoming(NamedTuple):
    """A message from somebody. Its `platform_message_id` is the platform's own, if it has one."""

    source: Source
    message: Message


class Platform(Protocol):
    """A chat network, or the terminal."""

    name: str
    limit: int  # characters in one message
    can_edit: bool  # an answer can be shown while it is being written

    def listen(self) -> AsyncGenerator[Incoming]:
        """What comes in, until the platform is closed; connections are its own affair."""
        ...

    async def acknowledge(self, incoming: Incoming) -> None:
        """What came in is kept: the platform need not give it again."""
        ...

    async def send(self, target: Source, text: str, nonce: str) -> str:
        """Send a text and return the platform's id for it; `PlatformError` if it did not arrive."""
        ...

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Show another text in place of one that was sent."""
        ...

    async def close(self) -> None: ...
