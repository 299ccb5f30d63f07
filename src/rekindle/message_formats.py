"""Convert the fields of a message to and from the APIs of OpenAI and Anthropic.

These functions know messages by their fields alone: `rekindle.message` builds on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from rekindle.errors import InvalidInput

Fields: TypeAlias = dict[str, Any]
CallFields: TypeAlias = tuple[str, str, str | Mapping[str, Any]]  # id, name, arguments

# Key of the metadata that a provider requires back with a call, by call id.
EXTRA_CONTENT = "extra_content"
_REASONING_FIELDS = ("reasoning_content", "reasoning")


class _CallLike(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str | Mapping[str, Any]: ...


class _MessageLike(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | Sequence[Mapping[str, Any]] | None: ...
    @property
    def tool_calls(self) -> Sequence[_CallLike]: ...
    @property
    def tool_call_id(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def meta(self) -> Mapping[str, Any] | None: ...


def parse_openai_fields(given: Mapping[str, Any]) -> tuple[Fields, list[CallFields]]:
    """Return the fields of a message without its calls, and the calls."""
    if not isinstance(given.get("role"), str):
        raise InvalidInput(f"message.role: expected text, got {given.get('role')!r:.80}")
    content: Any = given.get("content")
    if content is None and isinstance(given.get("refusal"), str):
        content = [{"type": "refusal", "refusal": given["refusal"]}]
    raw_calls = _get_raw_calls(given)
    fields: Fields = {"role": given["role"], "content": content}
    for name in ("tool_call_id", "name"):
        fields[name] = given.get(name)
    fields["reasoning"] = next((given[key] for key in _REASONING_FIELDS if given.get(key)), None)
    extra = {call.get("id"): call[EXTRA_CONTENT] for call in raw_calls if call.get(EXTRA_CONTENT)}
    fields["meta"] = {EXTRA_CONTENT: extra} if extra else None
    return fields, [_parse_call(index, call) for index, call in enumerate(raw_calls)]


def _get_raw_calls(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls: Any = given.get("tool_calls") or []
    if not isinstance(calls, (list, tuple)):
        raise InvalidInput(f"message.tool_calls: expected a list, got {type(calls).__name__}")
    if given.get("function_call"):  # the format before tool calls
        calls = [{"id": "", "function": given["function_call"]}, *cast(list[Any], calls)]
    for index, call in enumerate(cast(list[Any], calls)):
        if not isinstance(call, Mapping):
            kind = type(call).__name__
            raise InvalidInput(f"message.tool_calls[{index}]: expected a mapping, got {kind}")
    return cast("list[Mapping[str, Any]]", calls)


def _parse_call(index: int, call: Mapping[str, Any]) -> CallFields:
    where = f"message.tool_calls[{index}]"
    function = call.get("function") or call.get("custom")
    if not isinstance(function, Mapping):
        raise InvalidInput(f"{where}.function: expected a mapping, got {function!r:.80}")
    function = cast(Mapping[str, Any], function)
    for field, value in ((".id", call.get("id")), (".function.name", function.get("name"))):
        if not isinstance(value, str):
            raise InvalidInput(f"{where}{field}: expected text, got {value!r:.80}")
    arguments = function.get("arguments", function.get("input"))
    if not isinstance(arguments, (str, Mapping)):
        raise InvalidInput(f"{where}.function.arguments: expected text, got {arguments!r:.80}")
    return call["id"], function["name"], cast("str | Mapping[str, Any]", arguments)


def build_openai_fields(message: _MessageLike) -> Fields:
    """Return a message as OpenAI's API accepts it."""
    content = message.content
    fields: Fields = {"role": message.role, "content": content}
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id or ""
        return fields
    if message.name is not None:
        fields["name"] = message.name
    if message.tool_calls:
        fields["tool_calls"] = [_build_openai_call(call) for call in message.tool_calls]
    return fields


def _build_openai_call(call: _CallLike) -> Fields:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def build_anthropic_fields(message: _MessageLike) -> Fields:
    """Return a message as Anthropic's API accepts it."""
    if message.role in ("system", "developer"):
        raise InvalidInput(
            f"message.role: Anthropic takes a {message.role} message as the field `system` of a"
            " request; load_conversation puts it there"
        )
    blocks = list(_iter_blocks(message.content))
    if message.role in ("tool", "function"):
        result: Fields = {"type": "tool_result", "tool_use_id": message.tool_call_id or ""}
        result["content"] = blocks
        if (message.meta or {}).get("is_error") is True:
            result["is_error"] = True
        return {"role": "user", "content": [result]}
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _parse_input(call)}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": [*blocks, *calls]}


def _iter_blocks(content: str | Sequence[Mapping[str, Any]] | None) -> Iterator[Fields]:
    if content is None or isinstance(content, str):
        content = [{"type": "text", "text": content or ""}]
    for part in content:
        if part.get("type") == "image_url":
            yield {"type": "image", "source": _parse_image(part["image_url"])}
        elif part.get("type") in ("image", "document"):  # already in this format
            yield dict(part)
        else:
            text = part.get("text", part.get("refusal"))
            if not isinstance(text, str):
                text = f"[{part.get('type') or 'unknown'}: not supported here]"
            if text.strip():  # blank text is rejected
                yield {"type": "text", "text": text}


def _parse_image(image: Any) -> Fields:
    """Return the source of an image, from an address or a `data:` URL."""
    url = str(cast(Mapping[str, Any], image).get("url") if isinstance(image, Mapping) else image)
    head, comma, data = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        media_type = head[len("data:") : -len(";base64")].partition(";")[0]
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": url}


def _parse_input(call: _CallLike) -> Mapping[str, Any]:
    """Return the arguments as an object; wrap what the model wrote if it is none."""
    if not isinstance(call.arguments, str):
        return call.arguments
    try:
        parsed = json.loads(call.arguments)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return cast("dict[str, Any]", parsed)
    return {"unreadable": call.arguments} if call.arguments.strip() else {}
