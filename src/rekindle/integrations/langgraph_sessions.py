"""The messages of LangGraph threads as sessions that people can read and search."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from rekindle.errors import NotFound
from rekindle.store import Store
from rekindle.types import Message, Tokens, ToolCall

SOURCE = "langgraph"
_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_MAX_THREADS = 1_000


class ThreadSessions:
    """One session for each thread; a message is added when it first appears in a checkpoint."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, set[str]] = OrderedDict()
        self._lock = Lock()

    def find_new(self, thread: str, messages: Any) -> list[BaseMessage]:
        """Return the messages of a thread that its session does not have yet."""
        if not isinstance(messages, Sequence):
            return []
        with self._lock:
            known = self._load_known(thread)
        found = cast(Sequence[Any], messages)
        try:
            found = [one for one in found if one.id not in known]
        except (AttributeError, TypeError):  # values of other kinds
            found = [one for one in found if isinstance(one, BaseMessage) and one.id not in known]
        return [one for one in found if isinstance(one, BaseMessage) and one.type in _ROLES]

    def mark_stored(self, thread: str, messages: Sequence[BaseMessage]) -> None:
        """Remember messages that were appended; call it when they are durable."""
        with self._lock:
            known = self._load_known(thread)
            known.update(one.id for one in messages if one.id is not None)

    def _load_known(self, thread: str) -> set[str]:
        known = self._known.pop(thread, None)
        if known is None:
            try:
                stored = self._store.messages(thread, rewound=True)
            except NotFound:
                stored = []
            known = {one.platform_message_id for one in stored if one.platform_message_id}
        self._known[thread] = known
        while len(self._known) > _MAX_THREADS:
            self._known.popitem(last=False)
        return known

    def append(self, thread: str, messages: Sequence[BaseMessage]) -> None:
        """Append messages and what they cost; in the transaction of the checkpoint they came with."""
        converted = [convert_message(message) for message in messages]
        used = _sum_tokens(messages)
        try:
            self._store.append(thread, *converted, used=used)
        except NotFound:
            session = self._store.begin(id=thread, source=SOURCE, cwd=os.getcwd())
            self._store.append(session, *converted, used=used)


def _sum_tokens(messages: Sequence[BaseMessage]) -> dict[str, Tokens]:
    """Return the tokens that messages took, by model."""
    sums: dict[str, Tokens] = {}
    for message in messages:
        if isinstance(message, AIMessage) and message.usage_metadata:
            usage = message.usage_metadata
            cached = usage.get("input_token_details", {}).get("cache_read", 0)
            tokens = Tokens(
                usage["input_tokens"] - cached, usage["output_tokens"], cache_read=cached
            )
            model = cast(Any, message.response_metadata).get("model_name") or "unknown"
            sums[model] = sums[model].add(tokens) if model in sums else tokens
    return sums


def convert_message(message: BaseMessage) -> Message:
    """Return a message of LangChain as one of ours."""
    calls: list[ToolCall] = []
    if isinstance(message, AIMessage):
        calls = [
            ToolCall(call["id"] or "", call["name"], json.dumps(call["args"], ensure_ascii=False))
            for call in message.tool_calls
        ]
    is_result = isinstance(message, ToolMessage)
    content = message.content
    text = content if type(content) is str else str(message.text)
    return Message(
        _ROLES[message.type],
        text if is_result or text else None,
        calls,
        tool_call_id=message.tool_call_id if is_result else None,
        name=message.name,
        platform_message_id=message.id,
        meta={"is_error": True} if is_result and message.status == "error" else None,
    )
