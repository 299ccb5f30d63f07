"""Messages of Strands Agents as ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from strands.types.session import SessionMessage

from rekindle.types import Message, Tokens

from .frames import (
    Fields,
    Frame,
    FrameNames,
    dump_json,
    join_frames,
    load_arguments,
    make_call,
    split_frame,
)

NAMES = FrameNames("strands_message", "strands_part")


def split_message(message: SessionMessage) -> list[Message]:
    """Return the messages of one of Strands, one for each block of its content.

    If a guardrail replaced the content, people and search see only the replacement.
    """
    fields: Fields = message.to_dict()
    shown = "redact_message" if fields.get("redact_message") else "message"
    frame = cast(Fields, fields[shown])
    blocks = cast(list[Fields], frame.pop("content"))
    fields["shown"] = shown
    role = "user" if frame.get("role") == "user" else "assistant"
    return split_frame(NAMES, Frame(fields, blocks), role, _convert_block)


def join_messages(messages: Iterable[Message]) -> list[SessionMessage]:
    """Return the messages of Strands that ours were made of."""
    joined: list[SessionMessage] = []
    for frame in join_frames(NAMES, messages, _restore_block, _make_plain):
        fields = dict(frame.fields)
        shown = str(fields.pop("shown", "message"))
        fields[shown] = {**fields[shown], "content": frame.parts}
        fields.setdefault("message_id", len(joined))
        joined.append(SessionMessage.from_dict(fields))
    return joined


def read_tokens(message: SessionMessage) -> Tokens | None:
    """Return the tokens of an answer, None if it does not say."""
    metadata = cast(Fields, message.message).get("metadata")
    usage = cast(Any, metadata).get("usage") if isinstance(metadata, dict) else None
    if not isinstance(usage, dict):
        return None
    counts = cast(dict[str, int], usage)
    return Tokens(
        input=counts.get("inputTokens", 0),
        output=counts.get("outputTokens", 0),
        cache_read=counts.get("cacheReadInputTokens", 0),
        cache_write=counts.get("cacheWriteInputTokens", 0),
    )


def _convert_block(block: Fields, role: str) -> Message:
    rest = dict(block)
    if isinstance(text := block.get("text"), str):
        del rest["text"]
        return Message(role, text, meta={NAMES.part: rest})
    if isinstance(found := block.get("toolUse"), dict):
        call = dict(cast(Fields, found))
        rest["toolUse"] = call
        made = make_call(call.get("toolUseId"), call.get("name"), call.pop("input", {}))
        return Message("assistant", tool_calls=[made], meta={NAMES.part: rest})
    if isinstance(found := block.get("toolResult"), dict):
        return _convert_result(cast(Fields, found), rest)
    if isinstance(found := block.get("reasoningContent"), dict):
        content = dict(cast(Fields, found))
        if isinstance(inner := content.get("reasoningText"), dict) and "text" in inner:
            reasoning = dict(cast(Fields, inner))
            text = str(reasoning.pop("text"))
            rest["reasoningContent"] = {**content, "reasoningText": reasoning}
            return Message("assistant", reasoning=text, meta={NAMES.part: rest})
    return Message(role, meta={NAMES.part: rest})


def _convert_result(found: Fields, rest: Fields) -> Message:
    result = dict(found)
    rest["toolResult"] = result
    blocks = cast(list[Fields], result.get("content") or [])
    meta: Fields = {NAMES.part: rest}
    if result.get("status") == "error":
        meta["is_error"] = True
    if len(blocks) == 1 and set(blocks[0]) == {"text"}:
        text = cast(str, blocks[0]["text"])
        result["content"] = None  # it is the message's text
    else:
        shown = [one["text"] if "text" in one else dump_json(one) for one in blocks]
        text = "\n".join(shown)
    return Message("tool", text, tool_call_id=str(result.get("toolUseId") or ""), meta=meta)


def _restore_block(message: Message, rest: Fields) -> Fields:
    if message.tool_calls:
        arguments = load_arguments(message.tool_calls[0])
        return {**rest, "toolUse": {**rest["toolUse"], "input": arguments}}
    if "toolResult" in rest:
        result = cast(Fields, rest["toolResult"])
        if result.get("content") is not None:
            return rest
        return {**rest, "toolResult": {**result, "content": [{"text": message.text}]}}
    if message.reasoning is not None:
        content = cast(Fields, rest["reasoningContent"])
        text = {**content["reasoningText"], "text": message.reasoning}
        return {**rest, "reasoningContent": {**content, "reasoningText": text}}
    return rest if message.content is None else {**rest, "text": message.content}


def _make_plain(message: Message) -> Frame:
    """Return the frame of a message that another program stored in the session."""
    blocks: list[Fields] = []
    if message.role == "tool":
        result = {
            "toolUseId": message.tool_call_id or "",
            "status": "error" if (message.meta or {}).get("is_error") else "success",
            "content": [{"text": message.text}],
        }
        blocks.append({"toolResult": result})
    elif message.text:
        blocks.append({"text": message.text})
    blocks += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": load_arguments(call)}}
        for call in message.tool_calls
    ]
    role = "assistant" if message.role == "assistant" else "user"
    return Frame({"message": {"role": role}}, blocks)
