"""Load the platforms named in the settings."""

from __future__ import annotations

import importlib
from typing import cast

from rekindle.errors import InvalidSetting

from . import Platform


def connect_platforms(names: str) -> list[Platform]:
    """Connect the platforms in a space-separated list such as `my_package.my_chat:connect=argument`."""
    platforms = [_connect_platform(name) for name in names.split()]
    known: set[str] = set()
    for platform in platforms:
        if platform.name in known:
            raise InvalidSetting(f"gateway.platforms: duplicate platform {platform.name}")
        known.add(platform.name)
    return platforms


def _connect_platform(name: str) -> Platform:
    target, _, argument = name.partition("=")
    module, colon, function = target.partition(":")
    if not colon:
        raise InvalidSetting(
            f"gateway.platforms: {name!r:.80} is not a platform; use module:function[=argument]"
        )
    try:
        factory = getattr(importlib.import_module(module), function)
        return cast(Platform, factory(argument))
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSetting(f"gateway.platforms: {name!r:.80}: {error}") from error
