"""Create the process client of a home from its configuration."""

from __future__ import annotations

from rekindle.config import Config

from .client import ProcessClient
from .types import ProcessLimits

FOLDER = "processes"  # of the home


def build_limits(config: Config) -> ProcessLimits:
    """Build the process limits from the settings. A running supervisor keeps its own."""
    settings = config.processes
    return ProcessLimits(
        per_owner=settings.per_owner,
        finished=settings.keep_minutes * 60.0,
        wait=settings.wait_seconds,
    )


def create_client(config: Config) -> ProcessClient:
    """Create the client for this home's processes; nothing is started until it is needed."""
    return ProcessClient(config.home / FOLDER, limits=build_limits(config))
