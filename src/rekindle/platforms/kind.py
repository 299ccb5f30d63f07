"""A kind of platform: its settings, and how to connect to it.

A platform's file ends with its kind:

    PLATFORM = PlatformKind("irc", "IRC", connect, fields=(PlatformField("server", "Server"),))

Rekindle finds its own kinds by name, and those of other packages by their entry points in the group
`rekindle.platforms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import Platform


@dataclass(frozen=True, slots=True)
class PlatformField:
    """One setting of a platform, asked for by `rekindle gateway setup`."""

    name: str
    question: str
    help: str = ""  # where to find it
    is_secret: bool = False  # neither shown nor logged
    default: str | None = None  # None: required
    env: str = ""  # the environment variable that it is taken from if the file does not have it


@dataclass(frozen=True, slots=True)
class PlatformKind:
    """A kind of platform. `connect` takes the settings and a folder for its state."""

    name: str
    title: str
    connect: Callable[[Mapping[str, str], Path], Platform]
    fields: tuple[PlatformField, ...] = ()
    guide: str = ""  # what to create on the platform's side, in a few lines
