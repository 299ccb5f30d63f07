"""Settings that can be overridden per platform and chat type."""

from __future__ import annotations

from typing import Any, TypeVar

from rekindle.types import Overridable, replace_fields

V = TypeVar("V", bound=tuple[Any, ...])


def apply_overrides(layered: Overridable[V], platform: str, chat_type: str) -> V:
    """Return the value for a platform and chat type.

    Each field comes from the most specific override: platform and type, then platform, then type,
    then the default.
    """
    platform_name = platform.lower()
    scopes = ((None, chat_type), (platform_name, None), (platform_name, chat_type))
    value = layered.default
    for scope in scopes:
        if changes := layered.overrides.get(scope):
            value = replace_fields(value, **changes)
    return value
