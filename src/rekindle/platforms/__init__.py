"""Chat platforms: one file each, and the only code that knows a platform's details.

A platform receives messages and sends replies. It knows nothing about sessions. Received messages
are stored before they are acknowledged, so a platform should redeliver them until then if it can.
Every message to send carries a nonce, so that a platform can recognize duplicates.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from rekindle.types import Message, Source


class PlatformMessage(NamedTuple):
    """A received message. Its `platform_message_id` is assigned by the platform, if it has ids."""

    source: Source
    message: Message


class Platform(Protocol):
    """A chat network, or the terminal.

    A platform that also has an attribute `is_connected` (a bool) tells monitoring whether its
    connection is open while it reconnects by itself.
    """

    name: str
    limit: int  # characters per message
    can_edit: bool  # replies can be shown while they are streamed

    def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield received messages until the platform is closed; handle reconnects internally."""
        ...

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Confirm that a received message is stored and need not be redelivered."""
        ...

    async def send(self, target: Source, text: str, nonce: str) -> str:
        """Send a text and return the platform's message id; raise PlatformError if delivery fails."""
        ...

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a sent message."""
        ...

    async def close(self) -> None: ...
