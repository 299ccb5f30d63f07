"""One message as it is stored: its text, its fields as JSON, its images."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from typing import Any, NamedTuple

from rekindle.errors import NotFound
from rekindle.store import Store
from rekindle.transcripts.export.common import find_image
from rekindle.types import Message

SHOWN_CHARS = 100_000
_CHUNK_CHARS = 1 << 18


class Image(NamedTuple):
    """The bytes of an image and their type."""

    data: bytes
    media_type: str


def load_message(store: Store, session_id: str, position: int) -> Message:
    """Return a message as a whole."""
    message = store.excerpts.load_message(session_id, position)
    if message is None:
        raise NotFound(f"Session {session_id!r:.80} has no message at position {position}.")
    return message


def iter_text(message: Message) -> Iterator[bytes]:
    """Yield the text of a message in pieces."""
    return _encode_pieces(message.text)


def iter_json(message: Message) -> Iterator[bytes]:
    """Yield all fields of a message as JSON, in pieces."""
    return _encode_pieces(format_json(message))


def _encode_pieces(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), _CHUNK_CHARS):
        yield text[start : start + _CHUNK_CHARS].encode("utf-8", "replace")


def format_json(message: Message) -> str:
    """Return the fields of a message that have a value, as JSON."""
    fields: dict[str, Any] = dict(zip(message._fields, message[:], strict=True))
    fields["tool_calls"] = [call._asdict() for call in message.tool_calls]
    known = {name: value for name, value in fields.items() if value not in (None, [], False)}
    for indent in (2, None):
        try:
            return json.dumps(known, indent=indent, ensure_ascii=False, default=str)
        except (RecursionError, ValueError):  # nested too deeply to be indented
            continue
    return "(nested too deeply to be shown)"


def load_image(store: Store, session_id: str, position: int, number: int) -> Image:
    """Return an image that is a part of a message."""
    content = load_message(store, session_id, position).content
    parts = () if content is None or isinstance(content, str) else content
    url = find_image(parts[number]) if number < len(parts) else None
    if url is None:
        raise NotFound(f"Message {position} has no image {number}.")
    head, _, data = url.partition(",")
    try:
        return Image(b64decode(data), head.removeprefix("data:").partition(";")[0])
    except Base64Error:
        raise NotFound("This image is damaged.") from None
