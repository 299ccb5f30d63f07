"""Complete a received message: quote, files and text become one message for the session."""

from __future__ import annotations

from typing import NamedTuple

from rekindle.platforms import PlatformMessage
from rekindle.routing.sanitize import quote_text
from rekindle.types import JSON, Message, Role, replace_fields

from .files import FileRules, ReceivedFiles, describe_refused, receive_files

MAX_QUOTE_CHARS = 500


class ReceiveRules(NamedTuple):
    """Which messages of groups are meant for the bot, and how files are handled."""

    answers_all: bool = False  # also messages of groups that do not mention the bot
    files: FileRules | None = None


async def complete_message(
    incoming: PlatformMessage, role: Role | None, rules: ReceiveRules
) -> Message:
    """Return the message as the model sees it, with the quoted message and its files."""
    files = ReceivedFiles()
    if incoming.attachments:
        if rules.files is None or role not in ("owner", "user"):
            files = describe_refused(incoming.attachments)
        else:
            id = f"{incoming.source.chat_id}/{incoming.message.platform_message_id}"
            files = await receive_files(incoming.attachments, id, rules.files)
    quote = quote_text(incoming.quote, MAX_QUOTE_CHARS) if incoming.quote.strip() else ""
    lines = [*([f"[In reply to {quote}]"] if quote else ()), *files.lines]
    if not lines:
        return incoming.message
    text = "\n".join([*lines, incoming.message.text]).rstrip()
    if not files.images:
        return replace_fields(incoming.message, content=text)
    parts: list[JSON] = [{"type": "text", "text": text}, *files.images]
    return replace_fields(incoming.message, content=parts)
