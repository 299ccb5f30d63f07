"""The background processes of a home, as its settings want them."""

from __future__ import annotations

from rekindle.config import Config

from .client import Client
from .types import Limits

FOLDER = "processes"  # of the home


def limits_of(config: Config) -> Limits:
    """What the settings allow and keep. A supervisor that runs already has its own."""
    one = config.processes
    return Limits(per_owner=one.per_owner, finished=one.keep_minutes * 60.0, wait=one.wait_seconds)


def processes_of(config: Config) -> Client:
    """Whoever keeps the processes of this home; nothing is started before it is needed."""
    return Client(config.home / FOLDER, limits=limits_of(config))
