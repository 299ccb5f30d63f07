"""Parse a call's arguments and validate them against the tool's JSON Schema.

Our own tools use a small part of JSON Schema, MCP servers may use all of it. The common keywords are
checked; unknown keywords are left to the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias, cast

from rekindle.errors import ToolError
from rekindle.types import JSON

Schema = Mapping[str, JSON]
ArgumentCheck: TypeAlias = Callable[[Mapping[str, JSON]], bool]

_MAX_DEPTH = 30
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def parse_arguments(schema: Schema, arguments: str | Mapping[str, JSON]) -> dict[str, JSON]:
    """Parse and validate a call's arguments; raise a ToolError that says what to send instead."""
    value = _decode_json(arguments, schema) if isinstance(arguments, str) else dict(arguments)
    if not isinstance(value, dict):
        got = _format_value(value)
        raise ToolError(f"arguments must be a JSON object, got {got}; {_summarize_schema(schema)}")
    given = _drop_nulls(schema, cast(dict[str, JSON], value))
    if problem := _find_problem(schema, given, "", schema, 0):
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
    properties, required = _get_properties(schema), schema.get("required", ())
    return {
        name: value
        for name, value in given.items()
        if value is not None
        or name in required
        or name not in properties
        or _find_problem(properties[name], None, name, schema, 0) is None
    }


def _coerce_integer(schema: Schema, name: str, value: JSON) -> JSON:
    """Convert 5.0 to 5 for an integer: JSON Schema counts it as one, Python does not."""
    subschema = _get_properties(schema).get(name, {})
    is_whole = subschema.get("type") == "integer" and isinstance(value, float)
    return int(value) if is_whole else value


def _find_problem(schema: JSON, value: JSON, field: str, root: Schema, depth: int) -> str | None:
    """Return the problem with `value`, None if it is valid. `field` names it."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return f"{field or 'arguments'}: not allowed" if schema is False else None
    resolved = _resolve_reference(cast(Schema, schema), root)
    checks = (_check_type, _check_enum, _check_string, _check_number)
    for check in checks:
        if problem := check(resolved, value):
            return f"{field or 'arguments'}: {problem}"
    if isinstance(value, list):
        return _check_array(resolved, cast(list[JSON], value), field, root, depth)
    problem_inside = None
    if isinstance(value, dict):
        problem_inside = _check_object(resolved, cast(dict[str, JSON], value), field, root, depth)
    return problem_inside or _check_combined(resolved, value, field, root, depth)


def _resolve_reference(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: JSON = root
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = cast(Schema, found).get(name) if isinstance(found, Mapping) else None
    return cast(Schema, found) if isinstance(found, Mapping) else {}


def _check_type(schema: Schema, value: JSON) -> str | None:
    types = schema.get("type")
    names = [types] if isinstance(types, str) else list(types or ())
    if not names or any(_is_type(name, value) for name in names):
        return None
    return f"expected {' or '.join(map(str, names))}, got {_format_value(value)}"


def _is_type(name: str, value: JSON) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, (object,)))


def _check_enum(schema: Schema, value: JSON) -> str | None:
    allowed: Sequence[JSON] = schema.get("enum", ())
    if "const" in schema:
        allowed = [schema["const"]]
    if not allowed or value in allowed:
        return None
    return (
        f"{_format_value(value)} is not allowed; allowed: {', '.join(map(_format_value, allowed))}"
    )


def _check_string(schema: Schema, value: JSON) -> str | None:
    if not isinstance(value, str):
        return None
    least, most, pattern = (schema.get(key) for key in ("minLength", "maxLength", "pattern"))
    if isinstance(least, int) and len(value) < least:
        return "must not be empty" if least == 1 else f"needs at least {least} characters"
    if isinstance(most, int) and len(value) > most:
        return f"too long: {len(value):,} characters; allowed: up to {most:,}"
    if isinstance(pattern, str):
        try:
            fits = re.search(pattern, value[:10_000]) is not None
        except re.error:  # another regex dialect
            return None
        return None if fits else f"{_format_value(value)} does not match {pattern}"
    return None


def _check_number(schema: Schema, value: JSON) -> str | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    too_small = (least is not None and value < least) or (above is not None and value <= above)
    too_large = (most is not None and value > most) or (below is not None and value >= below)
    if not (too_small or too_large):
        return None
    edges = [
        f"from {least}" if least is not None else f"above {above}" if above is not None else ""
    ]
    edges += [
        f"up to {most}" if most is not None else f"below {below}" if below is not None else ""
    ]
    return f"{_format_value(value)} is not allowed; allowed: {' '.join(filter(None, edges))}"


def _check_array(
    schema: Schema, value: list[JSON], field: str, root: Schema, depth: int
) -> str | None:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(least, int) and len(value) < least:
        return f"{field}: needs at least {least} entries, got {len(value)}"
    if isinstance(most, int) and len(value) > most:
        return f"{field}: too many entries: {len(value):,}; allowed: up to {most:,}"
    for number, entry in enumerate(value):
        if problem := _find_problem(
            schema.get("items", True), entry, f"{field}[{number}]", root, depth + 1
        ):
            return problem
    return None


def _check_object(
    schema: Schema, value: dict[str, JSON], parent: str, root: Schema, depth: int
) -> str | None:
    properties = _get_properties(schema)
    prefix = f"{parent}." if parent else ""
    for name in schema.get("required", ()):
        if name not in value:
            return f"{prefix}{name}: missing"
    others = schema.get("additionalProperties", True)
    for name, field in value.items():
        if name not in properties and others is False:
            near = get_close_matches(name, properties, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(properties)}"
            return f"{prefix}{name}: unknown argument; {hint}"
        if problem := _find_problem(
            properties.get(name, others), field, prefix + name, root, depth + 1
        ):
            return problem
    return None


def _check_combined(
    schema: Schema, value: JSON, field: str, root: Schema, depth: int
) -> str | None:
    for part in schema.get("allOf", ()):
        if problem := _find_problem(part, value, field, root, depth + 1):
            return problem
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    problems = [_find_problem(part, value, field, root, depth + 1) for part in branches]
    if problems and None not in problems:
        return " or ".join(dict.fromkeys(map(str, problems)))
    return None


def _get_properties(schema: Schema) -> Mapping[str, Schema]:
    found = schema.get("properties")
    return cast(Mapping[str, Schema], found) if isinstance(found, Mapping) else {}


def _summarize_schema(schema: Schema) -> str:
    """Summarize the arguments in one line, so that the next call can be right."""
    required = schema.get("required", ())
    parts: list[str] = []
    for name, subschema in _get_properties(schema).items():
        kind = subschema.get("type", "any")
        kind = kind if isinstance(kind, str) else "|".join(map(str, cast(list[JSON], kind)))
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
