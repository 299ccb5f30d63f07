"""A source: read from JSON, written to it, and said in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from rekindle.errors import InvalidInput
from rekindle.types import JSON, ChatType, Source, plain

from .sanitize import clean

LOCAL = "local"
CHAT_TYPES: tuple[str, ...] = get_args(ChatType)


def to_json(source: Source) -> dict[str, JSON]:
    """The source as a JSON object, without the fields that say nothing."""
    return cast(dict[str, JSON], plain(source))


def from_json(value: object) -> Source:
    """The source that a JSON object holds. Platforms and fields that we do not know are no error."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"source: expected an object, got {type(value).__name__}")
    given = cast(Mapping[object, object], value)
    fields = {name: _text(name, given.get(name)) for name in Source._fields}
    platform, chat_id = fields.pop("platform"), fields.pop("chat_id")
    chat_type = fields.pop("chat_type") or "dm"
    if not platform:
        raise InvalidInput("source.platform: expected text, got nothing")
    if not chat_id:
        raise InvalidInput("source.chat_id: expected text, got nothing")
    if chat_type not in CHAT_TYPES:
        allowed = ", ".join(CHAT_TYPES)
        raise InvalidInput(f"source.chat_type: {chat_type!r:.80} is none of {allowed}")
    return Source(platform, chat_id, chat_type=cast(ChatType, chat_type), **fields)


def _text(name: str, value: object) -> str | None:
    """A field as text; ids are numbers on some platforms."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidInput(f"source.{name}: expected text, got {type(value).__name__}")


def describe(source: Source) -> str:
    """Where it is, for a person: "DM with Ada", "group: Ops, thread: 42", "CLI terminal"."""
    if source.platform == LOCAL:
        return "CLI terminal"
    thread = clean(source.thread_id)
    if source.chat_type == "dm":
        words = f"DM with {speaker(source) or chat(source)}"
    else:
        words = f"{source.chat_type}: {chat(source)}"
        if source.chat_type == "thread" and thread in ("", clean(source.chat_id)):
            return words
    return f"{words}, thread: {thread}" if thread else words


def speaker(source: Source) -> str:
    """The name of who is speaking, else their id; empty where the platform tells neither."""
    return clean(source.user_name) or clean(source.user_id)


def chat(source: Source) -> str:
    """The name of the chat, else its id."""
    return clean(source.chat_name) or clean(source.chat_id)
