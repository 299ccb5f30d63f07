"""Reads a source from JSON, writes it, and describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from rekindle.errors import InvalidInput
from rekindle.types import JSON, ChatType, Source, to_json_value

from .sanitize import clean_text

LOCAL = "local"
CHAT_TYPES: tuple[str, ...] = get_args(ChatType)


def to_json(source: Source) -> dict[str, JSON]:
    """Return the source as a JSON object, without empty fields."""
    return cast(dict[str, JSON], to_json_value(source))


def from_json(value: object) -> Source:
    """Parse a source from a JSON object; unknown platforms and fields are accepted."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"source: expected an object, got {type(value).__name__}")
    given = cast(Mapping[object, object], value)
    fields = {name: _parse_text(name, given.get(name)) for name in Source._fields}
    platform, chat_id = fields.pop("platform"), fields.pop("chat_id")
    chat_type = fields.pop("chat_type") or "dm"
    if not platform:
        raise InvalidInput("source.platform: missing; expected text")
    if not chat_id:
        raise InvalidInput("source.chat_id: missing; expected text")
    if chat_type not in CHAT_TYPES:
        allowed = ", ".join(CHAT_TYPES)
        raise InvalidInput(f"source.chat_type: {chat_type!r:.80} is not one of {allowed}")
    return Source(platform, chat_id, chat_type=cast(ChatType, chat_type), **fields)


def _parse_text(name: str, value: object) -> str | None:
    """Return a field as text; some platforms use numbers as ids."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidInput(f"source.{name}: expected text, got {type(value).__name__}")


def describe_source(source: Source) -> str:
    """Describe a source for display: "DM with Ada", "group: Ops, thread: 42", "CLI terminal"."""
    if source.platform == LOCAL:
        return "CLI terminal"
    thread = clean_text(source.thread_id)
    if source.chat_type == "dm":
        description = f"DM with {get_speaker(source) or get_chat(source)}"
    else:
        description = f"{source.chat_type}: {get_chat(source)}"
        if source.chat_type == "thread" and thread in ("", clean_text(source.chat_id)):
            return description
    return f"{description}, thread: {thread}" if thread else description


def get_speaker(source: Source) -> str:
    """Return the speaker's name, else their id; empty if the platform gives neither."""
    return clean_text(source.user_name) or clean_text(source.user_id)


def get_chat(source: Source) -> str:
    """Return the name of the chat, else its id."""
    return clean_text(source.chat_name) or clean_text(source.chat_id)
