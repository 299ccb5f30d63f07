"""ATIF, the Agent Trajectory Interchange Format of Harbor: written as v1.8.

An answer and the results of its calls are one step. What the format has no field for goes into
`extra`: ids, protocol facts, finish reasons, the text of arguments, parts of a content that it does
not know. A result whose call is not part of the session may not name it in `source_call_id`, so its
step says it in `extra`; so do calls that the user made. `atif_reading` gives the messages back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rekindle.errors import InvalidInput
from rekindle.transcripts.readers.atif import call_of, content_of
from rekindle.types import Content, Message, Session, ToolCall

from .common import arguments_of
from .exchange import Exchange, exchanges

VERSION = "ATIF-v1.8"

_SOURCES = {"user": "user", "assistant": "agent"}
_IMAGE = re.compile(r"data:(image/(?:jpeg|png|gif|webp));base64,")


def render(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    """The trajectory as JSON text, one step per line; InvalidInput when there are no messages."""
    steps = enumerate((_step(exchange, session) for exchange in exchanges(messages)), 1)
    first = next(steps, None)
    if first is None:
        raise InvalidInput(f"session {session.id} has no messages: ATIF needs at least one step")
    head = _dump({"schema_version": VERSION, "session_id": session.id, "agent": _agent(session)})
    yield f'{head[:-1]}, "steps": [\n'
    number, step = first
    yield _dump({"step_id": number, **step})
    for number, step in steps:
        yield ",\n" + _dump({"step_id": number, **step})
    end = {"final_metrics": _metrics(session, number), "extra": _about(session)}
    tail = _dump(_without_none(end))
    yield f"\n], {tail[1:]}\n"


def _agent(session: Session) -> dict[str, Any]:
    # The version of a foreign agent is not kept; the field may not be left out.
    agent = {"name": session.source or "unknown", "version": "unknown", "model_name": session.model}
    return _without_none(agent)


def _about(session: Session) -> dict[str, Any] | None:
    about = {
        "title": session.title,
        "cwd": session.cwd,
        "git_branch": session.git_branch,
        "parent_session_id": session.parent,
        "started": _iso(session.started),
        "end_reason": session.end_reason,
    }
    return _without_none(about) or None


def _metrics(session: Session, steps: int) -> dict[str, Any]:
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
    return _without_none(metrics)


def _step(exchange: Exchange, session: Session) -> dict[str, Any]:
    message = exchange.message
    source = _SOURCES.get(message.role, "system")
    extra = _beside(message)
    step: dict[str, Any] = {
        "timestamp": _iso(message.timestamp),
        "source": source,
        "message": "" if message.role == "tool" else _content(message.content) or "",
    }
    calls = [*_calls(message.tool_calls)]
    if message.role == "tool":
        results = [_without_none({"content": _content(message.content)})]
    else:
        results = [_result(call, result, calls) for call, result in exchange.results.items()]
        nameless = [call for call, result in exchange.results.items() if result.name is None]
        extra["nameless"] = nameless or None
    if source == "agent":
        step["model_name"] = (message.meta or {}).get("model") or session.model
        step["reasoning_content"] = extra.pop("reasoning")
        step["tool_calls"] = calls or None
    else:
        # Only an agent's step may have calls; what others called stands beside.
        extra |= {"role": message.role if source == "system" else None, "tool_calls": calls or None}
        results = [_unnamed(result) for result in results]
    step["observation"] = {"results": results} if results else None
    step["extra"] = _without_none(extra) or None
    return _without_none(step)


def _beside(message: Message) -> dict[str, Any]:
    """What a message says that the format has no field for."""
    content = _content(message.content)
    told = content_of(content) == message.content
    return {
        "message_id": message.platform_message_id,
        "finish_reason": message.finish_reason,
        "meta": message.meta,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning": message.reasoning,
        "content": None if told else message.content,
        "empty": True if message.content == "" and message.role != "tool" else None,
    }


def _calls(calls: Iterable[ToolCall]) -> Iterator[dict[str, Any]]:
    """The calls of a message; ids are distinct here, and the real one stands beside."""
    seen: set[str] = set()
    for call in calls:
        id = call.id or "unknown"
        while id in seen:
            id += "'"
        seen.add(id)
        arguments = arguments_of(call)
        said: dict[str, Any] = {
            "tool_call_id": id,
            "function_name": call.name or "unknown",
            "arguments": arguments if isinstance(arguments, Mapping) else {"input": arguments},
        }
        extra = {
            "id": call.id if call.id != id else None,
            "name": call.name if not call.name else None,
            "text": call.arguments if isinstance(call.arguments, str) else None,
        }
        yield _without_none({**said, "extra": _without_none(extra) or None})


def _result(id: str, result: Message, calls: list[dict[str, Any]]) -> dict[str, Any]:
    nothing: dict[str, Any] = {}
    call = next((call for call in calls if call_of(call).id == id), nothing)
    extra = _beside(result) | {"tool_call_id": None, "timestamp": _iso(result.timestamp)}
    if result.name == call_of(call).name:
        extra["name"] = None
    return _without_none(
        {
            "source_call_id": call.get("tool_call_id"),
            "content": _content(result.content),
            "extra": _without_none(extra) or None,
        }
    )


def _unnamed(result: dict[str, Any]) -> dict[str, Any]:
    call = result.pop("source_call_id", None)
    return (
        result if call is None else {**result, "extra": {**result.get("extra", {}), "call": call}}
    )


def _content(content: Content) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    image = part.get("image_url")
    url = cast("Mapping[str, Any]", image).get("url") if isinstance(image, Mapping) else image
    if isinstance(url, str) and (match := _IMAGE.match(url)):
        return {"type": "image", "source": {"media_type": match[1], "path": url}}
    return {"type": "text", "text": _dump(part)}


def _iso(seconds: float | None) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _dump(value: Any) -> str:
    # Escapes keep halves of surrogate pairs apart from the encoding of the file.
    return json.dumps(value, default=str)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
