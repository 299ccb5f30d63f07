"""Ports for servers that a test starts, or starts again, by their number."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _DEFAULT_END = 15_000, 32_000
_random = random.SystemRandom()  # other tests look for ports at the same time


def find_port() -> int:
    """Return a port that is free, and that the system gives to nobody who does not ask for it.

    One of those that it gives to any connection may be taken before the server starts, or while it is
    down.
    """
    try:
        end = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        end = _DEFAULT_END
    for _ in range(200):
        port = _random.randrange(_LOWEST, max(end, _LOWEST + 1000))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
