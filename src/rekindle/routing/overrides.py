"""Settings that may differ by platform and by type of chat."""

from __future__ import annotations

from typing import Any, TypeVar

from rekindle.types import Layered, replace

V = TypeVar("V", bound=tuple[Any, ...])


def at(layers: Layered[V], platform: str, chat_type: str) -> V:
    """The value for a place.

    Each field comes from the nearest layer that sets it: platform and type, then platform, then
    type, then the default.
    """
    name = platform.lower()
    nearest_last = ((None, chat_type), (name, None), (name, chat_type))
    value = layers.default
    for place in nearest_last:
        if changes := layers.changes.get(place):
            value = replace(value, **changes)
    return value
