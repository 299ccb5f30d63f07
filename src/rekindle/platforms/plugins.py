"""Which platforms to connect, as the settings name them."""

from __future__ import annotations

import importlib
from typing import cast

from rekindle.errors import InvalidSetting

from . import Platform


def connect(names: str) -> list[Platform]:
    """The platforms in a list such as `my_package.my_chat:connect=argument`, separated by spaces."""
    platforms = [_connected(name) for name in names.split()]
    known: set[str] = set()
    for platform in platforms:
        if platform.name in known:
            raise InvalidSetting(f"gateway.platforms: {platform.name} is there twice")
        known.add(platform.name)
    return platforms


def _connected(name: str) -> Platform:
    place, _, argument = name.partition("=")
    module, colon, function = place.partition(":")
    if not colon:
        raise InvalidSetting(
            f"gateway.platforms: {name!r:.80} is no platform; allowed: module:function[=argument]"
        )
    try:
        make = getattr(importlib.import_module(module), function)
        return cast(Platform, make(argument))
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSetting(f"gateway.platforms: {name!r:.80}: {error}") from error
