"""Find the kinds of platforms, and connect those that the settings name."""

from __future__ import annotations

import importlib
from importlib import metadata
from pathlib import Path
from typing import cast

from rekindle.errors import InvalidSetting

from . import Platform
from .kind import PlatformKind
from .settings_file import get_state_folder, load_settings

GROUP = "rekindle.platforms"
# The extra that installs the library of a kind has the name of the kind.
BUILT_IN = ("matrix", "telegram", "discord", "slack", "whatsapp")


def connect_platforms(names: str, home: Path) -> list[Platform]:
    """Connect the platforms in a space-separated list of names.

    A name is that of a kind, such as `matrix`, or `module:function=argument`.
    """
    platforms = [_connect_platform(name, home) for name in names.split()]
    known: set[str] = set()
    for platform in platforms:
        if platform.name in known:
            raise InvalidSetting(f"gateway.platforms: duplicate platform {platform.name}")
        known.add(platform.name)
    return platforms


def find_kind(name: str) -> PlatformKind:
    """Return the kind of a name; only its own module is loaded."""
    if name in BUILT_IN:
        try:
            module = importlib.import_module(f"rekindle.platforms.{name}")
        except ImportError as error:
            raise InvalidSetting(
                f"{name}: {error}; install it with `pip install 'rekindle[{name}]'`"
            ) from error
        return cast(PlatformKind, module.PLATFORM)
    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            return cast(PlatformKind, entry.load())
        except (ImportError, AttributeError) as error:
            raise InvalidSetting(f"{name}: the plugin cannot be loaded: {error}") from error
    known = ", ".join(list_kind_names())
    raise InvalidSetting(f"{name!r:.80} is not a platform; known ones are {known}")


def list_kind_names() -> list[str]:
    """Return the names of all kinds that can be set up, without loading them."""
    plugins = {entry.name for entry in metadata.entry_points(group=GROUP)}
    return [*BUILT_IN, *sorted(plugins.difference(BUILT_IN))]


def _connect_platform(name: str, home: Path) -> Platform:
    target, _, argument = name.partition("=")
    module, colon, function = target.partition(":")
    try:
        if not colon:
            kind = find_kind(name)
            return kind.connect(load_settings(kind, home), get_state_folder(kind.name, home))
        factory = getattr(importlib.import_module(module), function)
        return cast(Platform, factory(argument))
    except (ImportError, AttributeError, ValueError, InvalidSetting) as error:
        raise InvalidSetting(f"gateway.platforms: {name!r:.80}: {error}") from error
