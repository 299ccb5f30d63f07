"""Who spoke a message of a group: stored with the message, shown to people and to the model.

Id and name are chosen by strangers. They are cleaned when they are stored and again when they are
read, because a stored message may come from another program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from rekindle.types import Message, Source, replace_fields

from .sanitize import clean_text
from .source import LOCAL

SPEAKER = "speaker"  # the key in a message's `meta`


class Speaker(NamedTuple):
    """Who wrote a message, by the platform's id and a name of their own choice; either may be empty."""

    id: str = ""
    name: str = ""


def add_speaker(message: Message, source: Source) -> Message:
    """Return a user's message with who wrote it, unless it is a direct message."""
    meta = {key: value for key, value in (message.meta or {}).items() if key != SPEAKER}
    if message.role == "user" and source.platform != LOCAL and source.chat_type != "dm":
        speaker = Speaker(clean_text(source.user_id), clean_text(source.user_name))
        if any(speaker):
            meta[SPEAKER] = {"id": speaker.id, "name": speaker.name}
    return replace_fields(message, meta=meta or None)


def find_speaker(message: Message) -> Speaker | None:
    """Return who wrote a message, or None if that is not stored."""
    stored = message.meta.get(SPEAKER) if message.meta else None
    if not isinstance(stored, Mapping) or message.role != "user":
        return None
    fields = cast(Mapping[str, object], stored)
    id, name = (
        clean_text(value) if isinstance(value := fields.get(key), str) else ""
        for key in ("id", "name")
    )
    return Speaker(id, name) if id or name else None


def format_speaker(message: Message) -> str:
    """Return the name of who wrote a message, or else their id; empty if neither is stored."""
    speaker = find_speaker(message)
    return (speaker.name or speaker.id) if speaker else ""


def format_speaker_mark(message: Message) -> str:
    """Return what a model is shown before a message of a group: `["Ada", id 7]:`, or nothing.

    Nothing within a name or id can close the quotation or the bracket.
    """
    speaker = find_speaker(message)
    if speaker is None:
        return ""
    parts = [f'"{speaker.name}"'] if speaker.name else []
    parts += [f"id {speaker.id}"] if speaker.id else []
    return f"[{', '.join(parts)}]:"
