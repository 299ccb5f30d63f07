"""Chat platforms: one file each, and the only code that knows a platform's details.

A platform receives messages and sends replies. It knows nothing about sessions. Received messages
are stored before they are acknowledged, so a platform should redeliver them until then if it can.
Every message to send carries a nonce, so that a platform can recognize duplicates.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from rekindle.errors import PlatformError
from rekindle.types import Message, Source

from .splitting import split_text

Progress: TypeAlias = Literal["working", "done", "failed"]
Change: TypeAlias = Literal["new", "edited", "deleted"]
AdmissionCheck: TypeAlias = Callable[[Source], Awaitable[bool]]
# What most networks have, as seen by the gateway:
#   files      files in both directions
#   groups     chats with several people
#   threads    threads within a chat
#   quotes     messages that reply to others
#   edits      people can edit their messages, and the network says so
#   deletions  people can delete their messages, and the network says so
#   replay     what was written while the bot was away is given later
#   ids        messages have ids, so one that is given twice is recognized
Feature: TypeAlias = Literal[
    "files", "groups", "threads", "quotes", "edits", "deletions", "replay", "ids"
]


class Attachment(NamedTuple):
    """A file that came with a message. Nothing is downloaded before `fetch` is called.

    `fetch` takes the maximum number of bytes, and raises PlatformError if there are more or if the
    file cannot be downloaded. The sender chooses the name.
    """

    name: str
    media_type: str
    size: int | None  # in bytes, if the platform says it
    fetch: Callable[[int], Awaitable[bytes]]


class PlatformMessage(NamedTuple):
    """A received message. Its `platform_message_id` is assigned by the platform, if it has ids.

    `change` says that the user edited or deleted the message with that id. `is_addressed` is false
    for a message in a group that neither mentions the bot nor replies to it. `quote` is the text of
    the message that this one replies to.
    """

    source: Source
    message: Message
    attachments: tuple[Attachment, ...] = ()
    change: Change = "new"
    is_addressed: bool = True
    quote: str = ""


class BotIdentity(NamedTuple):
    """Who the bot is on a platform."""

    id: str
    name: str


class Platform(Protocol):
    """A chat network, or the terminal.

    Platforms subclass this: what the protocol gives a body here, a platform may leave out.

    A platform that also has an attribute `is_connected` (a bool) tells monitoring whether its
    connection is open while it reconnects by itself.
    """

    name: str
    limit: int  # characters per message
    can_edit: bool  # replies can be shown while they are streamed
    is_idempotent: bool = True  # a repeated nonce sends nothing
    is_always_shared: bool = False  # anyone can write, so every direct chat is its own conversation
    lacks: frozenset[Feature] = frozenset()  # what the network does not have

    def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield received messages until the platform is closed; handle reconnects internally."""
        ...

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Confirm that a received message is stored and need not be redelivered."""
        ...

    async def send(self, target: Source, text: str, nonce: str) -> str:
        """Send a text and return the platform's message id; raise PlatformError if delivery fails.

        The text is Markdown; the platform converts it to what it shows. A gateway that stops sends
        for a while after it has stopped listening, until `close`.
        """
        ...

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a sent message."""
        ...

    async def close(self) -> None: ...

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        """Send a file and return the platform's message id; raise PlatformError if delivery fails."""
        raise PlatformError(f"{self.name} cannot send files", permanent=True)

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        """Show that a message is being answered, by a typing notice or a reaction; never required."""

    async def identify(self) -> BotIdentity:
        """Return who the bot is; raise PlatformError if the platform does not accept its token."""
        return BotIdentity("", self.name)

    def use_admission(self, admits: AdmissionCheck) -> None:
        """Take the check for whose invitations to accept; nobody's until it is called."""

    def split(self, text: str) -> Sequence[str]:
        """Split a text into parts that each fit into one message."""
        return split_text(text, self.limit)
