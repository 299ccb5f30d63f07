"""The notices after an automatic reset: one for the user, one for the model."""

from __future__ import annotations

from rekindle.types import ResetPolicy

from .reset_policy import ResetReason
from .sanitize import clean_text

BACK_COMMAND = "/back"  # returns to the previous conversation


def build_user_notice(reason: ResetReason, policy: ResetPolicy, title: str | None = None) -> str:
    """Return one short line: the conversation is new, why, and how to get the old one back."""
    previous = f"“{clean_text(title)}”" if clean_text(title) else "the last one"
    explanation = _explain_reset(reason, policy)
    return f"New conversation: {explanation}. Send {BACK_COMMAND} to return to {previous}."


def build_model_notice(reason: ResetReason, policy: ResetPolicy) -> str:
    """Return the sentences for the system prompt of the new session."""
    return (
        f"This is a new conversation ({_explain_reset(reason, policy)}); the previous one was closed. "
        "You cannot see it; do not act as if you remember it. "
        f"The user was told that {BACK_COMMAND} returns to it."
    )


def _explain_reset(reason: ResetReason, policy: ResetPolicy) -> str:
    if reason == "daily":
        return f"daily reset at {policy.hour:02}:00 ({policy.time_zone})"
    return f"no messages for {_format_duration(policy.idle_minutes)}"


def _format_duration(minutes: int) -> str:
    for unit, size in (("day", 1440), ("hour", 60)):
        if minutes % size == 0 and minutes > size:
            return f"{minutes // size} {unit}s"
    if minutes == 1440:
        return "24 hours"
    if minutes == 60:
        return "an hour"
    return "a minute" if minutes == 1 else f"{minutes} minutes"
