"""Message histories for Pydantic AI: load one, run the agent with it, store what is new.

    history = RekindleHistory("name")
    result = await agent.run("…", message_history=await history.load())
    await history.add(result.new_messages())

A part of a request or an answer is one message of the session. What a message cannot hold stays in its
`meta`, and so does the frame of the request or answer, with its first part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse

from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.types import Message, Tokens, ToolCall

from .session_access import SessionAccess

SOURCE = "pydantic-ai"
PART, FRAME = "pydantic_part", "pydantic_frame"  # in `meta`
_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool"}
Fields = dict[str, Any]


class RekindleHistory:
    """The message history of a conversation, kept in a Rekindle store.

    Without `store` it is the store of the settings, where the `rekindle` command finds it.
    """

    def __init__(
        self,
        session_id: str,
        store: AsyncStore | Store | None = None,
        *,
        owner: str | None = None,
        title: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.access = SessionAccess(session_id, store, source=SOURCE, owner=owner, title=title)

    async def load(self) -> list[ModelMessage]:
        """Return the history; it is empty if the session has not begun."""
        frames = join_parts(await self.access.load())
        return ModelMessagesTypeAdapter.validate_python(frames)

    async def add(self, messages: Sequence[ModelMessage]) -> None:
        """Store new messages and their cost; they are durable when this returns."""
        frames = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        used = [
            (message.model_name or "unknown", tokens)
            for message in messages
            if isinstance(message, ModelResponse) and (tokens := _read_tokens(message)).total
        ]
        parts = [one for frame in frames for one in split_frame(frame)]
        await self.access.append(parts, used)

    async def clear(self) -> None:
        """Remove all messages from the history; `Store.redo` brings them back."""
        await self.access.clear()


def _read_tokens(response: ModelResponse) -> Tokens:
    usage = response.usage
    return Tokens(
        input=max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens),
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )


def split_frame(frame: Fields) -> list[Message]:
    """Return the messages of a request or an answer, one for each part."""
    parts = cast(list[Fields], frame.pop("parts"))
    default = "assistant" if frame.get("kind") == "response" else "user"
    messages = [_convert_part(part, default) for part in parts] or [Message(default)]
    first = messages[0]
    return [first._replace(meta={**(first.meta or {}), FRAME: frame}), *messages[1:]]


def join_parts(messages: Iterable[Message]) -> list[Fields]:
    """Return the requests and answers that messages were made of.

    Messages of other programs become plain requests and answers. If the first part of a frame was
    removed, the others continue the frame before, or begin a plain one.
    """
    frames: list[Fields] = []
    for message in messages:
        meta = message.meta or {}
        kind = "response" if message.role == "assistant" else "request"
        if isinstance(meta.get(FRAME), dict):
            frames.append({**cast(Fields, meta[FRAME]), "parts": []})
        elif not frames or frames[-1]["kind"] != kind:
            frames.append({"kind": kind, "parts": []})
        frames[-1]["parts"] += _restore_parts(message)
    return frames


def _convert_part(part: Fields, default: str) -> Message:
    """Return the message of a part; fields that it holds are left out of its `meta`."""
    rest, kind = dict(part), part.get("part_kind")
    if kind == "tool-call" and isinstance(part.get("tool_call_id"), str):
        arguments = part.get("args")
        if isinstance(arguments, (str, dict)):
            del rest["args"], rest["tool_call_id"], rest["tool_name"]
            call = ToolCall(part["tool_call_id"], part["tool_name"], _to_text(arguments))
            rest["args_are_text"] = isinstance(arguments, str)
            return Message("assistant", tool_calls=[call], meta={PART: rest})
    content = part.get("content")
    if not isinstance(content, str):
        text = content if isinstance(content, str) else _to_text(content) if content else None
        if kind == "tool-return":
            return Message("tool", text, tool_call_id=part["tool_call_id"], meta={PART: rest})
        return Message(default, None, meta={PART: rest})
    del rest["content"]
    if kind == "thinking":
        return Message("assistant", reasoning=content, meta={PART: rest})
    role = _ROLES.get(str(kind), default)
    call_id = part["tool_call_id"] if role == "tool" else None
    return Message(role, content, tool_call_id=call_id, meta={PART: rest})


def _restore_parts(message: Message) -> list[Fields]:
    kept = (message.meta or {}).get(PART)
    if not isinstance(kept, dict):
        return list(_make_plain_parts(message))
    part = dict(cast(Fields, kept))
    if message.tool_calls:
        call = message.tool_calls[0]
        text = cast(str, call.arguments)
        part["args"] = text if part.pop("args_are_text") else json.loads(text)
        return [{**part, "tool_call_id": call.id, "tool_name": call.name}]
    if "content" not in part and part.get("part_kind") == "thinking":
        return [{**part, "content": message.reasoning or ""}]
    return [part if "content" in part else {**part, "content": message.content}]


def _make_plain_parts(message: Message) -> Iterable[Fields]:
    """Yield the parts for a message that another program stored in the session."""
    if message.role == "tool":
        yield {
            "part_kind": "tool-return",
            "tool_name": message.name or "tool",
            "tool_call_id": message.tool_call_id,
            "content": message.text,
        }
        return
    if message.role in ("system", "developer", "user"):
        kind = "user-prompt" if message.role == "user" else "system-prompt"
        yield {"part_kind": kind, "content": message.text}
        return
    if message.reasoning:
        yield {"part_kind": "thinking", "content": message.reasoning}
    if message.text:
        yield {"part_kind": "text", "content": message.text}
    for call in message.tool_calls:
        arguments = call.arguments if isinstance(call.arguments, str) else _to_text(call.arguments)
        yield {
            "part_kind": "tool-call",
            "tool_name": call.name,
            "tool_call_id": call.id,
            "args": arguments,
        }


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
