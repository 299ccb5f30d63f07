"""Messages of frameworks that consist of parts: each part is one message of the session.

What a message cannot hold stays in its `meta`, and so does the frame, the message of the framework
without its parts, with the first part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

from rekindle.types import Message, ToolCall

Fields = dict[str, Any]


class FrameNames(NamedTuple):
    """The names of the frame and of the rest of a part in `meta`."""

    frame: str
    part: str


class Frame(NamedTuple):
    """A message of a framework and its parts."""

    fields: Fields
    parts: list[Fields]


def split_frame(
    names: FrameNames, frame: Frame, role: str, convert: Callable[[Fields, str], Message]
) -> list[Message]:
    """Return the messages of a frame, one for each part; `convert` leaves the rest in `meta`."""
    messages = [convert(part, role) for part in frame.parts] or [Message(role)]
    first = messages[0]
    kept = {**(first.meta or {}), names.frame: frame.fields}
    return [first._replace(meta=kept), *messages[1:]]


def join_frames(
    names: FrameNames,
    messages: Iterable[Message],
    restore: Callable[[Message, Fields], Fields],
    make_plain: Callable[[Message], Frame],
) -> list[Frame]:
    """Return the frames that messages were made of; those of other programs become plain ones.

    If the first part of a frame was removed, the others are left out with it.
    """
    frames: list[Frame] = []
    is_open = False
    for message in messages:
        meta = message.meta or {}
        fields, rest = meta.get(names.frame), meta.get(names.part)
        if isinstance(fields, dict):
            frames.append(Frame(dict(cast(Fields, fields)), []))
            is_open = True
        elif not isinstance(rest, dict):
            frames.append(make_plain(message))
            is_open = False
        if isinstance(rest, dict) and is_open:
            frames[-1].parts.append(restore(message, dict(cast(Fields, rest))))
    return frames


def make_call(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Return a call whose arguments are JSON text."""
    return ToolCall(str(id or ""), str(name or ""), dump_json(arguments))


def dump_json(value: Any) -> str:
    """Return a value as JSON text that people can read."""
    return json.dumps(value, ensure_ascii=False)


def load_arguments(call: ToolCall) -> Any:
    """Return the arguments of a call; those that are no JSON become a field `arguments`."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments)
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return {"arguments": call.arguments}


def load_result(message: Message) -> Any:
    """Return the value of a result that was stored as JSON text, or its text."""
    try:
        return json.loads(message.text)
    except ValueError:
        return message.text


def take_last_frames(names: FrameNames, messages: Sequence[Message]) -> list[Message]:
    """Return messages without those at the beginning that continue a frame."""
    starts = (index for index, message in enumerate(messages) if _is_first_part(names, message))
    return list(messages[next(starts, len(messages)) :])


def count_frames(names: FrameNames, messages: Iterable[Message]) -> int:
    """Return the number of frames that messages were made of."""
    return sum(_is_first_part(names, message) for message in messages)


def _is_first_part(names: FrameNames, message: Message) -> bool:
    meta = message.meta or {}
    return names.frame in meta or names.part not in meta
