"""Tolerant accessors for untrusted JSON: a value of the wrong type counts as missing."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# These run a dozen times per message: no `cast` (a function call), and no loop for a single name.
from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from json import JSONDecodeError
from typing import Any, TypeAlias

from rekindle.types import JSON, Content

JsonObject: TypeAlias = dict[str, Any]

# Larger numbers are milliseconds, not seconds (in seconds this is the year 5138).
_MAX_SECONDS = 1e11


def describe_json_error(error: Exception) -> str:
    """Say in plain words why bytes are not JSON, and where."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8"
    if not isinstance(error, JSONDecodeError):
        return str(error)
    problem = error.msg.replace("Extra data", "unexpected text").replace("Expecting", "expected")
    problem = problem[:1].lower() + problem[1:].removesuffix(" starting at")
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    return f"{problem} at {line}column {error.colno}"


def as_object(value: Any) -> JsonObject:
    """Return the JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[JsonObject]:
    """Return the JSON objects in a list."""
    if not isinstance(value, list):
        return []
    if len(value) == 1:  # the usual case
        return value[:] if isinstance(value[0], dict) else []
    return [item for item in value if isinstance(item, dict)]


def get_text(fields: JsonObject, name: str, *others: str) -> str | None:
    """Return the first of these fields that holds a non-empty string."""
    value = fields.get(name)
    if value and isinstance(value, str):
        return value
    for other in others:
        value = fields.get(other)
        if value and isinstance(value, str):
            return value
    return None


def as_count(value: object) -> int:
    """Return a non-negative integer that fits a database column, or 0."""
    if type(value) is int:  # the usual case
        return value if 0 <= value < 2**53 else 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    # Not isfinite: it fails on huge integers. Infinity and NaN fail this comparison too.
    return int(value) if 0 <= value < 2**53 else 0


def as_number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def parse_timestamp(value: object) -> float | None:
    """Return UTC seconds from a number or an ISO 8601 time (UTC if it has no zone)."""
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
            return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    time = as_number(value)
    if time is None or time <= 0:
        return None
    time = time / 1000 if time > _MAX_SECONDS else time
    return time if time < _MAX_SECONDS else None


def to_content(parts: list[dict[str, JSON]]) -> Content:
    """Return the parts as message content: plain text if there is only one text part."""
    if not parts:
        return None
    only = parts[0]
    if len(parts) == 1 and only.get("type") == "text" and isinstance(only.get("text"), str):
        return only["text"]
    return parts


def make_text_part(value: str) -> dict[str, JSON]:
    """Return the text as a content part."""
    return {"type": "text", "text": value}


def drop_none(fields: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """Return the fields that are not None, or None if there are none."""
    if None not in fields.values():
        return dict(fields) or None
    return {name: fact for name, fact in fields.items() if fact is not None} or None
