"""Translate errors from the model's endpoint into our own errors, with advice on what to do."""

from __future__ import annotations

import re
import sys
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from rekindle.errors import (
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRequestRejected,
    ModelUnreachable,
    StreamBroken,
)

if TYPE_CHECKING:
    import openai

_TOO_LONG = re.compile(
    r"context.?length|context.?window|maximum.?context|prompt is too long|too many (input )?tokens"
    r"|input token count|exceeds? the (maximum|available|limit).{0,40}(token|context)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
_OVERLOADED_TEXT = re.compile(r"overloaded|rate.?limit|capacity|too many requests", re.IGNORECASE)
_OVERLOADED_STATUSES = (429, 503, 529)
_MAX_MESSAGE_CHARACTERS = 500

_HINTS = {
    401: "check model.api_key",
    403: "check that the key in model.api_key may use this model",
    404: "check model.name and model.base_url",
}


def get_transport_errors() -> tuple[type[Exception], ...]:
    """Return the error types of the HTTP library, which older SDK releases leak from a stream."""
    found: list[type[Exception]] = []
    for name in ("httpx", "httpx2"):
        error: object = getattr(sys.modules.get(name), "HTTPError", None)
        if isinstance(error, type) and issubclass(error, Exception):
            found.append(error)
    return tuple(found)


def to_model_error(error: Exception, target: str, now: float) -> ModelError:
    """Return our error for one raised by the SDK; `target` names the model and its address."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _error_from_status(error, target, now)
    if isinstance(error, openai.APITimeoutError):
        return ModelUnreachable(f"{target}: timed out; try again, or raise the timeouts")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return ModelUnreachable(f"{target}: could not connect ({cause}); check model.base_url")
    if isinstance(error, openai.APIError):  # an error inside a stream
        details = f"{error.code or ''} {error.type or ''} {error.message}"
        return _error_from_text(details, target, error.message) or StreamBroken(
            f"{target}: the endpoint aborted the response: {_shorten_text(error.message)}"
        )
    return StreamBroken(f"{target}: could not parse the response: {_shorten_text(str(error))}")


def _error_from_status(error: openai.APIStatusError, target: str, now: float) -> ModelError:
    status = error.status_code
    details = f"{error.code or ''} {error.type or ''} {error.message}"
    summary = _shorten_text(error.message)
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(details)):
        return ContextTooLong(f"{target}: the conversation is too long; compress it. ({summary})")
    if status == 429 and _NO_CREDIT.search(details):
        return ModelRequestRejected(
            f"{target}: out of credit; check the account. ({summary})", status
        )
    if status in _OVERLOADED_STATUSES:
        wait = _parse_retry_after(error, now)
        when = "again later" if wait is None else f"again in {wait:.0f} s"
        return ModelOverloaded(
            f"{target}: overloaded or rate limited; try {when}. ({summary})", wait
        )
    if status >= 500 or status in (408, 409):
        return ModelUnreachable(f"{target}: failed with HTTP {status}; try again. ({summary})")
    hint = _HINTS.get(status, "the endpoint rejected the request")
    return ModelRequestRejected(
        f"{target}: refused with HTTP {status}; {hint}. ({summary})", status
    )


def _error_from_text(details: str, target: str, message: str) -> ModelError | None:
    summary = _shorten_text(message)
    if _TOO_LONG.search(details):
        return ContextTooLong(f"{target}: the conversation is too long; compress it. ({summary})")
    if _NO_CREDIT.search(details):
        return ModelRequestRejected(f"{target}: out of credit; check the account. ({summary})")
    if _OVERLOADED_TEXT.search(details):
        return ModelOverloaded(f"{target}: overloaded; try again later. ({summary})")
    return None


def _parse_retry_after(error: openai.APIStatusError, now: float) -> float | None:
    """Return the seconds the endpoint asks us to wait, from a header in seconds, ms or as a date."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) / unit)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _shorten_text(text: str) -> str:
    line = " ".join(text.split())
    return (
        line if len(line) <= _MAX_MESSAGE_CHARACTERS else line[: _MAX_MESSAGE_CHARACTERS - 1] + "…"
    )
