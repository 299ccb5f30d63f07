"""Ask the gateways that run in a home how they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from rekindle.store.conversations.gateway_errors import GatewayError

from .instance import list_running_instances

_HEALTH_SECONDS = 3.0


def query_gateways(home: Path) -> list[dict[str, Any]]:
    """Query the gateways that run in this home."""
    return [_query_health(note) for note in list_running_instances(home)]


def list_running_platforms(home: Path) -> list[str]:
    """Return the platforms of the gateways that run in this home."""
    return [str(name) for one in query_gateways(home) for name in one.get("platforms", ())]


def merge_errors(
    gateways: Sequence[dict[str, Any]], stored: Sequence[GatewayError]
) -> list[dict[str, Any]]:
    """Return the stored errors and those that gateways could not store yet, newest first."""
    waiting = [error for one in gateways for error in one.pop("errors", ())]
    found = [*waiting, *(one._asdict() for one in stored)]
    return sorted(found, key=lambda error: -error["time"])


def _query_health(instance: dict[str, object]) -> dict[str, Any]:
    """Query the health of a gateway; report it as unreachable if it does not answer."""
    try:
        with urlopen(
            f"http://127.0.0.1:{instance['port']}/health", timeout=_HEALTH_SECONDS
        ) as page:
            return {**instance, **json.load(page)}
    except (OSError, URLError, ValueError) as error:
        return {**instance, "status": "unreachable", "error": str(error)}
