"""ATIF export (Agent Trajectory Interchange Format of Harbor), version 1.8.

An answer and the results of its calls form one step. What the format has no field for goes into
`extra`: ids, result metadata, finish reasons, the raw text of arguments, unknown content parts. A result
whose call is not part of the session must not be named in `source_call_id`, so its step has the id in
`extra`; so do calls made by the user. The ATIF reader restores the messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rekindle.errors import InvalidInput
from rekindle.transcripts.readers.atif import parse_content, parse_tool_call
from rekindle.types import Content, Message, Session, ToolCall

from .common import Exchange, pair_results, parse_arguments

VERSION = "ATIF-v1.8"

_SOURCES = {"user": "user", "assistant": "agent"}
_IMAGE = re.compile(r"data:(image/(?:jpeg|png|gif|webp));base64,")


def render_session(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    """Yield the trajectory as JSON text, one step per line.

    Raise InvalidInput if the session has no messages.
    """
    steps = enumerate((_build_step(exchange, session) for exchange in pair_results(messages)), 1)
    first = next(steps, None)
    if first is None:
        raise InvalidInput(f"Session {session.id} has no messages; ATIF needs at least one step.")
    head = _dump_json(
        {"schema_version": VERSION, "session_id": session.id, "agent": _build_agent(session)}
    )
    yield f'{head[:-1]}, "steps": [\n'
    number, step = first
    yield _dump_json({"step_id": number, **step})
    for number, step in steps:
        yield ",\n" + _dump_json({"step_id": number, **step})
    end = {"final_metrics": _build_metrics(session, number), "extra": _build_session_extra(session)}
    tail = _dump_json(_omit_none(end))
    yield f"\n], {tail[1:]}\n"


def _build_agent(session: Session) -> dict[str, Any]:
    # The field is required, but the version of a foreign agent is not stored.
    agent = {"name": session.source or "unknown", "version": "unknown", "model_name": session.model}
    return _omit_none(agent)


def _build_session_extra(session: Session) -> dict[str, Any] | None:
    extra = {
        "title": session.title,
        "cwd": session.cwd,
        "git_branch": session.git_branch,
        "parent_session_id": session.parent,
        "started": _format_time(session.started),
        "end_reason": session.end_reason,
    }
    return _omit_none(extra) or None


def _build_metrics(session: Session, steps: int) -> dict[str, Any]:
    tokens = session.tokens
    metrics: dict[str, Any] = {"total_steps": steps}
    if any(tokens):
        metrics["total_prompt_tokens"] = tokens.input + tokens.cache_read + tokens.cache_write
        metrics["total_completion_tokens"] = tokens.output
        metrics["total_cached_tokens"] = tokens.cache_read
        extra = {"cache_write_tokens": tokens.cache_write, "reasoning_tokens": tokens.reasoning}
        metrics["extra"] = {name: count for name, count in extra.items() if count} or None
    if session.cost:
        metrics["total_cost_usd"] = float(session.cost)
    return _omit_none(metrics)


def _build_step(exchange: Exchange, session: Session) -> dict[str, Any]:
    message = exchange.message
    source = _SOURCES.get(message.role, "system")
    extra = _build_extra(message)
    step: dict[str, Any] = {
        "timestamp": _format_time(message.timestamp),
        "source": source,
        "message": "" if message.role == "tool" else _build_content(message.content) or "",
    }
    calls = [*_build_calls(message.tool_calls)]
    if message.role == "tool":
        results = [_omit_none({"content": _build_content(message.content)})]
    else:
        results = [_build_result(call, result, calls) for call, result in exchange.results.items()]
        unnamed_calls = [call for call, result in exchange.results.items() if result.name is None]
        extra["nameless"] = unnamed_calls or None
    if source == "agent":
        step["model_name"] = (message.meta or {}).get("model") or session.model
        step["reasoning_content"] = extra.pop("reasoning")
        step["tool_calls"] = calls or None
    else:
        # Only an agent's step may have calls; calls made by others go into `extra`.
        extra |= {"role": message.role if source == "system" else None, "tool_calls": calls or None}
        results = [_move_call_id_to_extra(result) for result in results]
    step["observation"] = {"results": results} if results else None
    step["extra"] = _omit_none(extra) or None
    return _omit_none(step)


def _build_extra(message: Message) -> dict[str, Any]:
    """Return the values that the format has no field for."""
    content = _build_content(message.content)
    is_lossless = parse_content(content) == message.content
    return {
        "message_id": message.platform_message_id,
        "finish_reason": message.finish_reason,
        "meta": message.meta,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning": message.reasoning,
        "content": None if is_lossless else message.content,
        "empty": True if message.content == "" and message.role != "tool" else None,
    }


def _build_calls(calls: Iterable[ToolCall]) -> Iterator[dict[str, Any]]:
    """Yield the message's calls with distinct ids; the original id is kept in `extra`."""
    seen: set[str] = set()
    for call in calls:
        id = call.id or "unknown"
        while id in seen:
            id += "'"
        seen.add(id)
        arguments = parse_arguments(call)
        step_call: dict[str, Any] = {
            "tool_call_id": id,
            "function_name": call.name or "unknown",
            "arguments": arguments if isinstance(arguments, Mapping) else {"input": arguments},
        }
        extra = {
            "id": call.id if call.id != id else None,
            "name": call.name if not call.name else None,
            "text": call.arguments if isinstance(call.arguments, str) else None,
        }
        yield _omit_none({**step_call, "extra": _omit_none(extra) or None})


def _build_result(id: str, result: Message, calls: list[dict[str, Any]]) -> dict[str, Any]:
    no_call: dict[str, Any] = {}
    call = next((call for call in calls if parse_tool_call(call).id == id), no_call)
    extra = _build_extra(result) | {
        "tool_call_id": None,
        "timestamp": _format_time(result.timestamp),
    }
    if result.name == parse_tool_call(call).name:
        extra["name"] = None
    return _omit_none(
        {
            "source_call_id": call.get("tool_call_id"),
            "content": _build_content(result.content),
            "extra": _omit_none(extra) or None,
        }
    )


def _move_call_id_to_extra(result: dict[str, Any]) -> dict[str, Any]:
    call_id = result.pop("source_call_id", None)
    return (
        result
        if call_id is None
        else {**result, "extra": {**result.get("extra", {}), "call": call_id}}
    )


def _build_content(content: Content) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content
    return [_build_part(part) for part in content]


def _build_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    image = part.get("image_url")
    url = cast("Mapping[str, Any]", image).get("url") if isinstance(image, Mapping) else image
    if isinstance(url, str) and (match := _IMAGE.match(url)):
        return {"type": "image", "source": {"media_type": match[1], "path": url}}
    return {"type": "text", "text": _dump_json(part)}


def _format_time(seconds: float | None) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _dump_json(value: Any) -> str:
    # ASCII escapes preserve lone surrogates.
    return json.dumps(value, default=str)


def _omit_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
