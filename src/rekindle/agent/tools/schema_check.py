"""What a model wrote as arguments, read and checked against the schema of the tool.

Our own tools use a small part of JSON Schema, other servers may use all of it. The common keywords
are checked; what is not known here is left to the tool that asked for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import cast

from rekindle.errors import ToolError
from rekindle.types import JSON

Schema = Mapping[str, JSON]

_DEEPEST = 30
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def read(schema: Schema, arguments: str | Mapping[str, JSON]) -> dict[str, JSON]:
    """The arguments of a call, or a ToolError that says what to send instead."""
    value = _parsed(arguments, schema) if isinstance(arguments, str) else dict(arguments)
    if not isinstance(value, dict):
        shown = _shown(value)
        raise ToolError(f"arguments must be one JSON object, got {shown}; {_outline(schema)}")
    given = _without_nulls(schema, cast(dict[str, JSON], value))
    if wrong := _wrong(schema, given, "", schema, 0):
        raise ToolError(f"{wrong}; {_outline(schema)}")
    return {name: _whole(schema, name, field) for name, field in given.items()}


def _parsed(text: str, schema: Schema) -> JSON:
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant)
        # Some models quote the whole object once more.
        return json.loads(value, strict=False) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        near = error.doc[max(error.pos - 20, 0) : error.pos + 20]
        place = f"{error.msg} at character {error.pos + 1} of {len(error.doc)}, near {near!r}"
        raise ToolError(f"arguments are not valid JSON: {place}; {_outline(schema)}") from None
    except (ValueError, RecursionError) as error:
        raise ToolError(f"arguments are not valid JSON: {error}; {_outline(schema)}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _without_nulls(schema: Schema, given: dict[str, JSON]) -> dict[str, JSON]:
    """Models write null for an optional argument that they leave out."""
    properties, required = _properties(schema), schema.get("required", ())
    return {
        name: value
        for name, value in given.items()
        if value is not None
        or name in required
        or name not in properties
        or _wrong(properties[name], None, name, schema, 0) is None
    }


def _whole(schema: Schema, name: str, value: JSON) -> JSON:
    """5.0 is a whole number in JSON, but not in Python."""
    one = _properties(schema).get(name, {})
    is_whole = one.get("type") == "integer" and isinstance(value, float)
    return int(value) if is_whole else value


def _wrong(schema: JSON, value: JSON, at: str, root: Schema, depth: int) -> str | None:
    """What is wrong with `value`, or None. `at` names the field."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return f"{at or 'arguments'}: not allowed" if schema is False else None
    one = _followed(cast(Schema, schema), root)
    checks = (_wrong_kind, _wrong_choice, _wrong_text, _wrong_number)
    for check in checks:
        if found := check(one, value):
            return f"{at or 'arguments'}: {found}"
    if isinstance(value, list):
        return _wrong_list(one, cast(list[JSON], value), at, root, depth)
    inside = None
    if isinstance(value, dict):
        inside = _wrong_object(one, cast(dict[str, JSON], value), at, root, depth)
    return inside or _wrong_branch(one, value, at, root, depth)


def _followed(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: JSON = root
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = cast(Schema, found).get(name) if isinstance(found, Mapping) else None
    return cast(Schema, found) if isinstance(found, Mapping) else {}


def _wrong_kind(schema: Schema, value: JSON) -> str | None:
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if not names or any(_is_kind(name, value) for name in names):
        return None
    return f"expected {' or '.join(map(str, names))}, got {_shown(value)}"


def _is_kind(name: str, value: JSON) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, (object,)))


def _wrong_choice(schema: Schema, value: JSON) -> str | None:
    allowed: Sequence[JSON] = schema.get("enum", ())
    if "const" in schema:
        allowed = [schema["const"]]
    if not allowed or value in allowed:
        return None
    return f"{_shown(value)} is not allowed; allowed: {', '.join(map(_shown, allowed))}"


def _wrong_text(schema: Schema, value: JSON) -> str | None:
    if not isinstance(value, str):
        return None
    least, most, pattern = (schema.get(key) for key in ("minLength", "maxLength", "pattern"))
    if isinstance(least, int) and len(value) < least:
        return "must not be empty" if least == 1 else f"needs {least} characters or more"
    if isinstance(most, int) and len(value) > most:
        return f"{len(value):,} characters are too many; allowed: up to {most:,}"
    if isinstance(pattern, str):
        try:
            fits = re.search(pattern, value[:10_000]) is not None
        except re.error:  # another dialect of regular expressions
            return None
        return None if fits else f"{_shown(value)} does not match {pattern}"
    return None


def _wrong_number(schema: Schema, value: JSON) -> str | None:
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
    return f"{_shown(value)} is not allowed; allowed: {' '.join(filter(None, edges))}"


def _wrong_list(schema: Schema, value: list[JSON], at: str, root: Schema, depth: int) -> str | None:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(least, int) and len(value) < least:
        return f"{at}: needs {least} entries or more, got {len(value)}"
    if isinstance(most, int) and len(value) > most:
        return f"{at}: {len(value):,} entries are too many; allowed: up to {most:,}"
    for number, entry in enumerate(value):
        if found := _wrong(schema.get("items", True), entry, f"{at}[{number}]", root, depth + 1):
            return found
    return None


def _wrong_object(
    schema: Schema, value: dict[str, JSON], at: str, root: Schema, depth: int
) -> str | None:
    properties = _properties(schema)
    inside = f"{at}." if at else ""
    for name in schema.get("required", ()):
        if name not in value:
            return f"{inside}{name}: missing"
    others = schema.get("additionalProperties", True)
    for name, field in value.items():
        if name not in properties and others is False:
            near = get_close_matches(name, properties, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(properties)}"
            return f"{inside}{name}: there is no such argument; {hint}"
        if found := _wrong(properties.get(name, others), field, inside + name, root, depth + 1):
            return found
    return None


def _wrong_branch(schema: Schema, value: JSON, at: str, root: Schema, depth: int) -> str | None:
    for part in schema.get("allOf", ()):
        if found := _wrong(part, value, at, root, depth + 1):
            return found
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    complaints = [_wrong(part, value, at, root, depth + 1) for part in branches]
    if complaints and None not in complaints:
        return " or ".join(dict.fromkeys(map(str, complaints)))
    return None


def _properties(schema: Schema) -> Mapping[str, Schema]:
    found = schema.get("properties")
    return cast(Mapping[str, Schema], found) if isinstance(found, Mapping) else {}


def _outline(schema: Schema) -> str:
    """The arguments in a few words, so that the next call can be right."""
    required = schema.get("required", ())
    parts: list[str] = []
    for name, one in _properties(schema).items():
        kind = one.get("type", "any")
        kind = kind if isinstance(kind, str) else "|".join(map(str, cast(list[JSON], kind)))
        parts.append(f"{name} ({kind}{', required' if name in required else ''})")
    return f"arguments: {', '.join(parts)}" if parts else "it takes no arguments"


def _shown(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
