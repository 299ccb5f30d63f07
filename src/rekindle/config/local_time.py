"""The time zone of this machine."""

from __future__ import annotations

import time


def get_offset(seconds: float) -> int:
    """Return the distance of local time from UTC at a time, in seconds."""
    try:
        return time.localtime(seconds).tm_gmtoff
    except (OverflowError, ValueError, OSError):
        return 0
