"""Messages of Agno's runs as ours; they are a record, the runs themselves are kept whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from rekindle.json_fields import as_objects
from rekindle.types import ROLES, Message, Tokens, ToolCall

Fields = Mapping[str, Any]


def convert_run(run: Fields) -> list[Message]:
    """Return the messages that a run added to its session, in order."""
    found = as_objects(run.get("messages"))
    return [
        _convert_message(one) for one in found if not one.get("from_history") and one.get("role")
    ]


def read_tokens(run: Fields) -> Tokens | None:
    """Return the tokens of a run, None if it does not say."""
    metrics = run.get("metrics")
    if not isinstance(metrics, Mapping):
        return None
    counts = cast(Mapping[str, Any], metrics)
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    given, output, cached, written = (int(counts.get(name) or 0) for name in names)
    tokens = Tokens(
        input=max(0, given - cached - written),
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=int(counts.get("reasoning_tokens") or 0),
    )
    return tokens if tokens.total else None


def _convert_message(message: Fields) -> Message:
    role = str(message["role"])
    content = message.get("content")
    text = content if isinstance(content, str) or content is None else _dump_json(content)
    error = message.get("tool_call_error")
    name = message.get("tool_name") or message.get("name")
    call_id = message.get("tool_call_id")
    return Message(
        role if role in ROLES else "assistant",
        text,
        [_convert_call(call) for call in as_objects(message.get("tool_calls"))],
        tool_call_id=str(call_id) if call_id is not None else None,
        name=name if isinstance(name, str) else None,
        reasoning=_get_text(message.get("reasoning_content")),
        platform_message_id=_get_text(message.get("id")),
        meta={"is_error": True} if error else None,
    )


def _convert_call(call: Fields) -> ToolCall:
    found = call.get("function")
    function: Fields = cast(Fields, found) if isinstance(found, Mapping) else cast(Fields, {})
    arguments = function.get("arguments")
    return ToolCall(
        str(call.get("id") or ""),
        str(function.get("name") or ""),
        arguments if isinstance(arguments, str) else _dump_json(arguments or {}),
    )


def _get_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
