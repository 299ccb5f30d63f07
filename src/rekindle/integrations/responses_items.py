"""Items of OpenAI's Responses API as messages, and back without loss.

A message holds what people and Rekindle read: role, text, calls, results, reasoning. The rest of an
item stays in `meta`, without the parts that the message holds already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rekindle.json_fields import as_objects
from rekindle.types import ROLES, Message, ToolCall

REST, WHOLE = "responses_rest", "responses_item"  # in `meta`: what the message lacks, or everything
_TEXT_TYPES = ("input_text", "output_text", "text")
Item = dict[str, Any]


def item_to_message(item: Mapping[str, Any]) -> Message:
    """Return the message that shows an item."""
    rest = dict(item)
    match rest.get("type", "message"):
        case "message" if rest.get("role") in ROLES and isinstance(
            rest.get("content"), (str, list)
        ):
            return _convert_message(rest)
        case "function_call" if _are_texts(rest, "call_id", "name", "arguments"):
            call = ToolCall(rest.pop("call_id"), rest.pop("name"), rest.pop("arguments"))
            return Message("assistant", tool_calls=[call], meta={REST: rest})
        case "function_call_output" if _are_texts(rest, "call_id", "output"):
            output, call_id = rest.pop("output"), rest.pop("call_id")
            return Message("tool", output, tool_call_id=call_id, meta={REST: rest})
        case "reasoning":
            text = _join_texts(rest.get("summary")) or _join_texts(rest.get("content"))
            return Message("assistant", reasoning=text or None, meta={WHOLE: rest})
        case _:
            return Message("assistant", meta={WHOLE: rest})


def message_to_items(message: Message) -> list[Item]:
    """Return the items that a message stands for: the one it was made of, or plain ones.

    Another program may have stored the message; it can have several calls.
    """
    role, text, calls, call_id, _, _, _, _, meta = message[:9]
    rest: Item = {}
    if meta:  # an exact type is checked faster, and is what the store returns
        whole, kept = meta.get(WHOLE), meta.get(REST)
        if type(whole) is dict or (whole is not None and isinstance(whole, Mapping)):
            return [dict(cast(Item, whole))]
        if type(kept) is dict or isinstance(kept, Mapping):
            rest = cast(Item, kept)
    if call_id is not None:
        output = text if type(text) is str else message.text
        return [{"type": "function_call_output", "call_id": call_id, **rest, "output": output}]
    made: list[Item] = [
        {"type": "function_call", **rest, "call_id": id, "name": name, "arguments": arguments}
        for id, name, arguments in calls
    ]
    if made and text is None:
        return made
    content: Any = "" if text is None else text
    if isinstance(rest.get("content"), list):  # one part, whose text is the message's
        content = [{**rest["content"][0], "text": content}]
    return [{**rest, "role": role, "content": content}, *made]


def _convert_message(rest: Item) -> Message:
    role, content = rest.pop("role"), rest.pop("content")
    if isinstance(content, list) and len(cast(list[Any], content)) == 1:
        part = cast(list[Any], content)[0]
        if isinstance(part, Mapping) and _is_text_part(cast(Mapping[str, Any], part)):
            others = dict(cast(Mapping[str, Any], part))
            text = others.pop("text")
            return Message(role, text, meta={REST: {**rest, "content": [others]}})
    return Message(role, cast(Any, content), meta={REST: rest} if rest else None)


def _are_texts(fields: Item, *names: str) -> bool:
    return all(isinstance(fields.get(name), str) for name in names)


def _is_text_part(part: Mapping[str, Any]) -> bool:
    return part.get("type") in _TEXT_TYPES and isinstance(part.get("text"), str)


def _join_texts(parts: Any) -> str:
    found = as_objects(parts)
    texts = [text for part in found if isinstance(text := part.get("text"), str)]
    return "\n\n".join(texts)
