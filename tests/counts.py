"""How often a test tries something that chance decides."""

from __future__ import annotations

import os


def choose_count(usual: int, many: int) -> int:
    """Return how many tries to make: many in a run that looks for faults with fresh examples.

    The usual tries are the same in every run, so more of them find nothing new.
    """
    return many if os.environ.get("REKINDLE_FUZZ") else usual
