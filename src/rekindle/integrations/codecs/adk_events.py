"""Events of Google's Agent Development Kit as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from google.adk.events.event import Event

from rekindle.types import Message, Tokens

from .frames import (
    Fields,
    Frame,
    FrameNames,
    dump_json,
    join_frames,
    load_arguments,
    load_result,
    make_call,
    split_frame,
)

NAMES = FrameNames("adk_event", "adk_part")


def split_event(event: Event) -> list[Message]:
    """Return the messages of an event, one for each part of its content."""
    fields: Fields = event.model_dump(mode="json", exclude_none=True)
    content = cast(Fields | None, fields.get("content"))
    parts: list[Fields] = []
    if content and isinstance(content.get("parts"), list):
        parts, content["parts"] = cast(list[Fields], content["parts"]), []
    role = "user" if event.author == "user" else "assistant"
    return split_frame(NAMES, Frame(fields, parts), role, _convert_part)


def join_events(messages: Iterable[Message]) -> list[Event]:
    """Return the events that messages were made of."""
    return [
        _build_event(frame) for frame in join_frames(NAMES, messages, _restore_part, _make_plain)
    ]


def read_tokens(event: Event) -> Tokens | None:
    """Return the tokens of an answer, None if it does not say."""
    usage: Any = event.usage_metadata
    if usage is None:
        return None
    cached, reasoning = usage.cached_content_token_count or 0, usage.thoughts_token_count or 0
    return Tokens(
        input=max(0, (usage.prompt_token_count or 0) - cached),
        output=(usage.candidates_token_count or 0) + reasoning,
        cache_read=cached,
        reasoning=reasoning,
    )


def _convert_part(part: Fields, role: str) -> Message:
    rest = dict(part)
    if isinstance(text := part.get("text"), str):
        del rest["text"]
        if part.get("thought"):
            return Message("assistant", reasoning=text, meta={NAMES.part: rest})
        return Message(role, text, meta={NAMES.part: rest})
    if isinstance(found := part.get("function_call"), dict):
        call = dict(cast(Fields, found))
        rest["function_call"] = call
        made = make_call(call.get("id"), call.get("name"), call.pop("args", {}))
        return Message("assistant", tool_calls=[made], meta={NAMES.part: rest})
    if isinstance(found := part.get("function_response"), dict):
        result = dict(cast(Fields, found))
        rest["function_response"] = result
        response = result.pop("response", None)
        meta: Fields = {NAMES.part: rest}
        if isinstance(response, Mapping) and "error" in response:
            meta["is_error"] = True
        return Message(
            "tool",
            dump_json(response),
            tool_call_id=str(result.get("id") or ""),
            name=result.get("name"),
            meta=meta,
        )
    return Message(role, meta={NAMES.part: rest})


def _restore_part(message: Message, rest: Fields) -> Fields:
    if message.tool_calls:
        arguments = load_arguments(message.tool_calls[0])
        return {**rest, "function_call": {**rest["function_call"], "args": arguments}}
    if "function_response" in rest:
        response = load_result(message)
        if response is None:
            return rest
        return {**rest, "function_response": {**rest["function_response"], "response": response}}
    if message.reasoning is not None:
        return {**rest, "text": message.reasoning}
    return rest if message.content is None else {**rest, "text": message.content}


def _make_plain(message: Message) -> Frame:
    """Return the frame of a message that another program stored in the session."""
    author = "user" if message.role == "user" else "model"
    parts: list[Fields] = []
    if message.role == "tool":
        response = {"result": message.text}
        fields = {"id": message.tool_call_id, "name": message.name or "tool", "response": response}
        parts.append({"function_response": fields})
    elif message.text:
        parts.append({"text": message.text})
    parts += [
        {"function_call": {"id": call.id, "name": call.name, "args": load_arguments(call)}}
        for call in message.tool_calls
    ]
    role = "user" if message.role in ("user", "tool") else "model"
    frame: Fields = {"author": author, "content": {"role": role, "parts": []}}
    if message.timestamp is not None:
        frame["timestamp"] = message.timestamp
    return Frame(frame, parts)


def _build_event(frame: Frame) -> Event:
    content: Any = frame.fields.get("content")
    if isinstance(content, dict) and "parts" in content:
        frame.fields["content"] = {**cast(Fields, content), "parts": frame.parts}
    return Event.model_validate(frame.fields)
