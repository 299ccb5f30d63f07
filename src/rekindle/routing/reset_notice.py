"""What is said after an automatic reset: once to the user, and to the model."""

from __future__ import annotations

from rekindle.types import Policy

from .reset_policy import Why
from .sanitize import clean

BACK = "/back"  # the one word that returns to the conversation before


def for_user(why: Why, policy: Policy, title: str | None = None) -> str:
    """One short line: that the conversation is new, why, and how to get the old one back."""
    last = f"“{clean(title)}”" if clean(title) else "the last one"
    return f"New conversation: {_because(why, policy)}. Send {BACK} to return to {last}."


def for_model(why: Why, policy: Policy) -> str:
    """The sentence for the system prompt of the new session."""
    return (
        f"This conversation starts anew: {_because(why, policy)}, so the one before it was closed. "
        "You see nothing of it; do not act as if you remember it. "
        f"The user was told that {BACK} returns to it."
    )


def _because(why: Why, policy: Policy) -> str:
    if why == "daily":
        return f"each day starts a new one at {policy.hour:02}:00 ({policy.zone})"
    return f"nothing was said for {_duration(policy.idle_minutes)}"


def _duration(minutes: int) -> str:
    for unit, size in (("day", 1440), ("hour", 60)):
        if minutes % size == 0 and minutes > size:
            return f"{minutes // size} {unit}s"
    if minutes == 1440:
        return "24 hours"
    if minutes == 60:
        return "an hour"
    return "a minute" if minutes == 1 else f"{minutes} minutes"
