"""What an inbound message is: a command, a report or a request, from whom and in which chat."""

from __future__ import annotations

import re

from rekindle.store.conversations.inbox import InboundMessage
from rekindle.types import Message

_COMMAND_PATTERN = re.compile(r"/[A-Za-z][A-Za-z_-]*(@\S+)?(\s|$)")  # not /etc/hosts


def is_command(message: Message) -> bool:
    """Return whether a message is for the gateway and not for the model."""
    if message.role != "user" or (message.meta or {}).get("run"):
        return False
    return _COMMAND_PATTERN.match(message.text) is not None


def is_report(message: Message) -> bool:
    """Return whether a message is a report, which is forwarded and needs no answer."""
    return message.role == "assistant"


def is_same_chat(one: InboundMessage, other: InboundMessage) -> bool:
    """Return whether one answer reaches both; people in one conversation may write in several chats."""
    a, b = one.source, other.source
    return (a.platform, a.chat_id, a.thread_id) == (b.platform, b.chat_id, b.thread_id)
