"""Messages as attributes of spans, in the conventions of GenAI and of OpenInference.

A message of `gen_ai.input.messages` has the convention's role and parts. The field `rekindle` holds
what it has no place for, so that the reader of spans restores the message: its position, id, time and
`meta`, and every field that reads back differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from rekindle.pages.text import replace_surrogates
from rekindle.transcripts.export.common import parse_arguments
from rekindle.transcripts.readers.otel.span_messages import parse_messages
from rekindle.types import Content, Message, Tokens, ToolCall

AttributeValue: TypeAlias = str | int | float | bool | Sequence[str] | None

_ROLES = {"developer": "system", "function": "tool"}
_RESTORED_FIELDS = ("role", "content", "tool_call_id", "name", "reasoning", "finish_reason")
_DATA_URL = re.compile(r"data:([\w.+-]{1,100}/[\w.+-]{1,100});base64,")
# Providers in the convention, by what the names of their models begin with.
_PROVIDERS = (
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex", "openai"),
    ("gemini", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("devstral", "mistral_ai"),
    ("deepseek", "deepseek"),
    ("grok", "x_ai"),
    ("command", "cohere"),
)


def find_provider(model: str | None) -> str:
    """Return the provider of a model as the convention names it."""
    name = (model or "").lower().rsplit("/", 1)[-1]
    return next((provider for start, provider in _PROVIDERS if name.startswith(start)), "unknown")


def build_message(message: Message, *, is_output: bool = False) -> dict[str, Any]:
    """Return a message in the schema of `gen_ai.input.messages` and `gen_ai.output.messages`."""
    raw: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "parts": [*_build_parts(message)],
    }
    if message.name and message.role != "tool":
        raw["name"] = message.name
    finish = message.finish_reason
    if is_output:  # the schema requires a reason
        finish = finish or ("tool_call" if message.tool_calls else "stop")
    if finish:
        raw["finish_reason"] = finish
    return {**raw, "rekindle": build_extra(message, raw)}


def build_extra(message: Message, raw: dict[str, Any]) -> dict[str, Any]:
    """Return what the convention has no place for, and what would read back differently."""
    parsed = next(parse_messages(raw), None)
    extra: dict[str, Any] = {
        "position": message.position,
        "time": message.timestamp,
        "id": message.platform_message_id,
        "meta": message.meta,
    }
    extra = {name: value for name, value in extra.items() if value is not None}
    for name in _RESTORED_FIELDS:
        value = getattr(message, name)
        if parsed is None or getattr(parsed, name) != value:
            extra[name] = value
    if parsed is None or parsed.tool_calls != message.tool_calls:
        extra["tool_calls"] = [list(call) for call in message.tool_calls]
    return extra


def _build_parts(message: Message) -> Iterator[dict[str, Any]]:
    if message.reasoning:
        yield {"type": "reasoning", "content": message.reasoning}
    if message.role == "tool":
        part = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": message.content,
            "name": message.name,
        }
        yield {name: value for name, value in part.items() if value is not None or name != "name"}
    elif isinstance(message.content, str):
        yield {"type": "text", "content": message.content}
    else:
        yield from map(_build_part, message.content or ())
    for call in message.tool_calls:
        yield {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }


def _build_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "content": part["text"]}
    if url := find_image_url(part):
        if match := _DATA_URL.match(url):
            data = url[match.end() :]
            return {"type": "blob", "modality": "image", "mime_type": match[1], "content": data}
        return {"type": "uri", "modality": "image", "uri": url}
    return dict(part) if isinstance(part.get("type"), str) else {"type": "json", "value": part}


def find_image_url(part: Mapping[str, Any]) -> str | None:
    """Return the address of an image part; None if it is none."""
    image = part.get("image_url")
    url = cast("Mapping[str, Any]", image).get("url") if isinstance(image, Mapping) else image
    return url if isinstance(url, str) and url else None


# -- OpenInference --------------------------------------------------------------------------------


def flatten_messages(
    prefix: str, messages: Iterable[Message]
) -> Iterator[tuple[str, AttributeValue]]:
    """Yield messages as the attributes of OpenInference, one for each field."""
    for index, message in enumerate(messages):
        for name, value in _flatten_message(message):
            yield f"{prefix}.{index}.message.{name}", value


def _flatten_message(message: Message) -> Iterator[tuple[str, AttributeValue]]:
    yield "role", _ROLES.get(message.role, message.role)
    if isinstance(message.content, str):
        yield "content", message.content
    else:
        yield from _flatten_parts(message.content)
    if message.tool_call_id:
        yield "tool_call_id", message.tool_call_id
    if message.name:
        yield "name", message.name
    for index, call in enumerate(message.tool_calls):
        prefix = f"tool_calls.{index}.tool_call"
        yield f"{prefix}.id", call.id
        yield f"{prefix}.function.name", call.name
        yield f"{prefix}.function.arguments", format_call_arguments(call)


def _flatten_parts(content: Content) -> Iterator[tuple[str, AttributeValue]]:
    for index, part in enumerate(content or ()):
        prefix = f"contents.{index}.message_content"
        if isinstance(part, str):
            continue
        if url := find_image_url(part):
            yield f"{prefix}.type", "image"
            yield f"{prefix}.image.image.url", url
        else:
            yield f"{prefix}.type", "text"
            text = part.get("text")
            yield f"{prefix}.text", text if isinstance(text, str) else dump_json(part)


def format_call_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text, or as the text the model wrote."""
    return call.arguments if isinstance(call.arguments, str) else dump_json(parse_arguments(call))


def format_content(content: Content) -> str:
    """Return content as text: unchanged if it is text, else as JSON."""
    return content if isinstance(content, str) else "" if content is None else dump_json(content)


# -- usage ----------------------------------------------------------------------------------------


def build_usage(tokens: Tokens, cost: float) -> Iterator[tuple[str, AttributeValue]]:
    """Yield the attributes of a model call's usage; the input includes cached tokens here."""
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    if prompt or tokens.output:
        yield "gen_ai.usage.input_tokens", prompt
        yield "gen_ai.usage.output_tokens", tokens.output
        yield "llm.token_count.prompt", prompt
        yield "llm.token_count.completion", tokens.output
        yield "llm.token_count.total", prompt + tokens.output
    if tokens.cache_read:
        yield "gen_ai.usage.cache_read.input_tokens", tokens.cache_read
        yield "llm.token_count.prompt_details.cache_read", tokens.cache_read
    if tokens.cache_write:
        yield "gen_ai.usage.cache_creation.input_tokens", tokens.cache_write
        yield "llm.token_count.prompt_details.cache_write", tokens.cache_write
    if tokens.reasoning:
        yield "gen_ai.usage.reasoning.output_tokens", tokens.reasoning
        yield "llm.token_count.completion_details.reasoning", tokens.reasoning
    if cost > 0:
        yield "llm.cost.total", cost
        yield "langfuse.observation.cost_details", dump_json({"total": cost})


# -- values ---------------------------------------------------------------------------------------


def dump_json(value: Any) -> str:
    """Return a value as JSON in ASCII, which keeps lone surrogates as escapes."""
    try:
        return json.dumps(value, allow_nan=False, default=str)
    except (ValueError, RecursionError):
        return json.dumps(_replace_nan(value, 0), default=str)


def _replace_nan(value: Any, depth: int) -> Any:
    """Return a value without the numbers that JSON lacks, and not too deep for its readers."""
    if depth > 100:
        return "…"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: _replace_nan(item, depth + 1) for key, item in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nan(item, depth + 1) for item in cast("Sequence[Any]", value)]
    return value


def encode_attributes(fields: Iterable[tuple[str, AttributeValue]]) -> list[dict[str, Any]]:
    """Return attributes in the JSON of OTLP; those without a value are left out."""
    return [
        {"key": replace_surrogates(key), "value": _encode_value(value)}
        for key, value in fields
        if value is not None
    ]


def _encode_value(value: AttributeValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str) or value is None:
        return {"stringValue": replace_surrogates(value or "")}
    return {"arrayValue": {"values": [_encode_value(one) for one in value]}}
