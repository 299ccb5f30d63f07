"""Parse a call's arguments and validate them against the tool's JSON Schema.

The schemas of MCP servers are untrusted: a reference is never fetched from the network, and what a
malformed schema fails to describe is left to the tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from rekindle.errors import ToolError
from rekindle.types import JSON

if TYPE_CHECKING:
    from jsonschema import ValidationError

Schema = Mapping[str, JSON]
ArgumentCheck: TypeAlias = Callable[[Mapping[str, JSON]], bool]

_RANGE_WORDS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "up to",
    "exclusiveMaximum": "below",
}


def parse_arguments(schema: Schema, arguments: str | Mapping[str, JSON]) -> dict[str, JSON]:
    """Parse and validate a call's arguments; raise a ToolError that says what to send instead."""
    value = _decode_json(arguments, schema) if isinstance(arguments, str) else dict(arguments)
    if not isinstance(value, dict):
        got = _format_value(value)
        raise ToolError(f"arguments must be a JSON object, got {got}; {_summarize_schema(schema)}")
    given = _drop_nulls(schema, cast(dict[str, JSON], value))
    if problem := _find_problem(schema, given, schema):
        raise ToolError(f"{problem}; {_summarize_schema(schema)}")
    return {name: _coerce_integer(schema, name, field) for name, field in given.items()}


def _decode_json(text: str, schema: Schema) -> JSON:
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False, parse_constant=_reject_constant)
        # Some models encode the object twice.
        return json.loads(value, strict=False) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        near = error.doc[max(error.pos - 20, 0) : error.pos + 20]
        position = f"{error.msg} at character {error.pos + 1} of {len(error.doc)}, near {near!r}"
        raise ToolError(
            f"arguments are not valid JSON: {position}; {_summarize_schema(schema)}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ToolError(
            f"arguments are not valid JSON: {error}; {_summarize_schema(schema)}"
        ) from None


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not valid in JSON")


def _drop_nulls(schema: Schema, given: dict[str, JSON]) -> dict[str, JSON]:
    """Drop nulls that models send for omitted optional arguments."""
    properties, required = _get_properties(schema), _get_required(schema)
    return {
        name: value
        for name, value in given.items()
        if value is not None
        or name in required
        or name not in properties
        or _find_problem(properties[name], None, schema) is None
    }


def _coerce_integer(schema: Schema, name: str, value: JSON) -> JSON:
    """Convert 5.0 to 5 for an integer: JSON Schema counts it as one, Python does not."""
    is_whole = isinstance(value, float) and value.is_integer()
    return (
        int(value)
        if is_whole and _get_type(_get_properties(schema).get(name)) == "integer"
        else value
    )


def _find_problem(schema: JSON, value: JSON, root: Schema) -> str | None:
    """Return the first problem with `value`; None if it is valid or the schema is malformed."""
    # These take 40 to 90 ms to import, so the first checked call loads them.
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    try:
        dialect: Any = validator_for(root, default=Draft202012Validator)
        validator = dialect(root, registry=EMPTY_REGISTRY).evolve(schema=schema)
        error: ValidationError | None = next(validator.iter_errors(value), None)
    except Exception:  # noqa: BLE001  # a schema can be malformed in any way; the tool decides then
        return None
    return _describe_error(error) if error else None


def _describe_error(error: ValidationError) -> str:
    """Describe an error by the argument and what is allowed."""
    schema: Schema = error.schema if isinstance(error.schema, Mapping) else {}
    value, limit = cast("Any", error.instance), cast("Any", error.validator_value)
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)[1:]
    prefix = f"{path}." if path else ""
    if error.validator == "required":
        return f"{prefix}{next(name for name in limit if name not in value)}: missing"
    if error.validator == "additionalProperties" and "patternProperties" not in schema:
        properties = _get_properties(schema)
        name: str = next(name for name in value if name not in properties)
        near = get_close_matches(name, properties, n=1)
        hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(properties)}"
        return f"{prefix}{name}: unknown argument; {hint}"
    if error.context:
        return " or ".join(dict.fromkeys(map(_describe_error, error.context)))
    problem = _describe_limit(error.validator, value, limit, schema) or error.message[:300]
    return f"{path or 'arguments'}: {problem}"


def _describe_limit(keyword: object, value: Any, limit: Any, schema: Schema) -> str | None:
    """Describe what a single value should be, None for a rare keyword."""
    shown = _format_value(value)
    match keyword:
        case "type":
            names = [limit] if isinstance(limit, str) else limit
            return f"expected {' or '.join(names)}, got {shown}"
        case "enum" | "const":
            allowed = limit if keyword == "enum" else [limit]
            return f"{shown} is not allowed; allowed: {', '.join(map(_format_value, allowed))}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            edges = (f"{word} {schema[key]}" for key, word in _RANGE_WORDS.items() if key in schema)
            return f"{shown} is not allowed; allowed: {' '.join(edges)}"
        case "minLength":
            return "must not be empty" if limit == 1 else f"needs at least {limit} characters"
        case "maxLength":
            return f"too long: {len(value):,} characters; allowed: up to {limit:,}"
        case "pattern":
            return f"{shown} does not match {limit}"
        case "minItems":
            return f"needs at least {limit} entries, got {len(value)}"
        case "maxItems":
            return f"too many entries: {len(value):,}; allowed: up to {limit:,}"
        case _:
            return None


def _get_properties(schema: Schema) -> Mapping[str, JSON]:
    found = schema.get("properties")
    return cast("Mapping[str, JSON]", found) if isinstance(found, Mapping) else {}


def _get_required(schema: Schema) -> Collection[str]:
    found = schema.get("required")
    return cast("Collection[str]", found) if isinstance(found, (list, tuple)) else ()


def _get_type(schema: JSON) -> JSON:
    return cast("Schema", schema).get("type", "any") if isinstance(schema, Mapping) else "any"


def _summarize_schema(schema: Schema) -> str:
    """Summarize the arguments in one line, so that the next call can be right."""
    required = _get_required(schema)
    parts: list[str] = []
    for name, subschema in _get_properties(schema).items():
        kind = _get_type(subschema)
        kind = "|".join(map(str, cast("list[JSON]", kind))) if isinstance(kind, list) else kind
        parts.append(f"{name} ({kind}{', required' if name in required else ''})")
    return f"arguments: {', '.join(parts)}" if parts else "it takes no arguments"


def _format_value(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"


def build_tool_checks(definitions: Iterable[Mapping[str, JSON]]) -> dict[str, ArgumentCheck]:
    """Build an argument check for each available tool from its definition."""
    found: dict[str, ArgumentCheck] = {}
    for one in definitions:
        function = cast("Mapping[str, JSON]", one.get("function", one))
        found[str(function.get("name"))] = _make_argument_check(
            cast("Mapping[str, JSON]", function["parameters"])
        )
    return found


def _make_argument_check(schema: Mapping[str, JSON]) -> ArgumentCheck:
    def accepts_arguments(arguments: Mapping[str, JSON]) -> bool:
        try:
            parse_arguments(schema, arguments)
        except ToolError:
            return False
        return True

    return accepts_arguments
