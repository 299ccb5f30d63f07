"""Errors in two versions: short and friendly for a chat, in full for the operator.

What a user reads never contains the name of an exception, a path, an address or anything that a
provider sent. What the operator reads never contains the key of the model.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from rekindle.errors import (
    CompressionFailed,
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRequestRejected,
    ModelUnreachable,
    StreamBroken,
)

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

INTERNAL_ERROR = (
    "Something went wrong on my side, and my operator can see what. Please send your message again."
)
_RETRY = "Your message is saved; send /retry to try again."
_MAX_CAUSE_CHARS = 1000


def describe_for_user(error: ModelError) -> str:
    """Return the reply to a user about a failed model."""
    if isinstance(error, ContextTooLong):
        return (
            "I could not answer: this conversation has become too long for the model. Send /compress"
            " to shorten it, or /new to start another."
        )
    if isinstance(error, CompressionFailed):
        return f"I could not answer: {describe_compression_failure(error)}"
    if isinstance(error, ModelOverloaded):
        return (
            f"I could not answer: the model is too busy. Your message is saved; send /retry"
            f" {_format_wait(error.retry_after)}."
        )
    if isinstance(error, ModelUnreachable):
        return f"I could not answer: the model cannot be reached right now. {_RETRY}"
    if isinstance(error, StreamBroken):
        return f"I could not answer: the model's answer broke off. {_RETRY}"
    if isinstance(error, ModelRequestRejected):
        return (
            "I could not answer: the model refused the request, and my operator can see why."
            " Your message is saved; send /retry when this is fixed."
        )
    return f"I could not answer. {_RETRY}"


def describe_compression_failure(error: CompressionFailed) -> str:
    """Return the reply to a user when a conversation cannot be compressed."""
    if error.can_retry:  # it quotes what the provider sent
        return f"this conversation is too long, and it could not be summarized. {_RETRY}"
    if isinstance(error.__cause__, CompressionFailed):  # so does this, after a rejected request
        return "this conversation is too long for the model; /undo removes the last message."
    return str(error)


def describe_for_operator(error: Exception, secret: str = "") -> str:
    """Return the kind and the cause of an error in one line, without secrets."""
    text = " ".join(str(error).split())
    if secret:
        text = text.replace(secret, "<secret>")
    if isinstance(error, ModelError):  # it quotes what the provider sent
        text = _get_redactor().redact_text(text)
    if len(text) > _MAX_CAUSE_CHARS:
        text = text[: _MAX_CAUSE_CHARS - 1] + "…"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


@lru_cache(maxsize=1)
def _get_redactor() -> Redactor:
    from rekindle.redaction.redactor import Redactor  # slow to load, and rarely needed

    return Redactor()


def _format_wait(seconds: float | None) -> str:
    if seconds is None:
        return "in a few minutes"
    if seconds <= 60:
        return "in a minute"
    if seconds <= 5400:
        return f"in about {math.ceil(seconds / 60)} minutes"
    return f"in about {math.ceil(seconds / 3600)} hours"
