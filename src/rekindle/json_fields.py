"""Careful picks out of foreign JSON: a value of the wrong kind counts as absent."""

# pyright: reportUnknownVariableType=false
# A message is a dozen such picks: no `cast` in them, which is a call, and no loop for one name.
from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from rekindle.types import JSON, Content

Record: TypeAlias = dict[str, Any]

# Later than this, a number is not a time in seconds but one in milliseconds (the year 5138).
_MILLISECONDS = 1e11


def record(value: Any) -> Record:
    """The JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def records(value: Any) -> list[Record]:
    """The JSON objects of a list."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]


def text(fields: Record, name: str, *others: str) -> str | None:
    """The first of these fields that holds text."""
    value = fields.get(name)
    if value and isinstance(value, str):
        return value
    for other in others:
        value = fields.get(other)
        if value and isinstance(value, str):
            return value
    return None


def count(value: object) -> int:
    """A whole number of things, never negative, and one that a database column can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    # Not isfinite: it fails on an integer of a thousand digits. Infinity and NaN are not below either.
    return int(value) if 0 <= value < 2**53 else 0


def number(value: object) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def seconds(value: object) -> float | None:
    """UTC seconds from an ISO 8601 time (taken as UTC when it names no zone) or a number."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    time = number(value)
    if time is None or time <= 0:
        return None
    time = time / 1000 if time > _MILLISECONDS else time
    return time if time < _MILLISECONDS else None


def content(parts: list[dict[str, JSON]]) -> Content:
    """Parts as the content of a message: plain text where there is nothing but one text."""
    if not parts:
        return None
    only = parts[0]
    if len(parts) == 1 and only.get("type") == "text" and isinstance(only.get("text"), str):
        return only["text"]
    return parts


def text_part(value: str) -> dict[str, JSON]:
    """A text as one part of a content."""
    return {"type": "text", "text": value}


def present(facts: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """The facts that say something, or None when none does."""
    return {name: fact for name, fact in facts.items() if fact is not None} or None
