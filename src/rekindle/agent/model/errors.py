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
    r"context.?length|context.?window|context.?(size|limit)|maximum.?context|(prompt|input) is too long"
    r"|too many (input )?tokens|input token count|maximum prompt length|request too large for"
    r"|input tokens exceed|reduce the length of the (messages|prompt)|tokens.{0,40}must be <="
    r"|exceeds? the (maximum|available|limit).{0,40}(token|context)",
    re.IGNORECASE,
)
# The numbers in such an error: the size of the context, and the tokens of the request.
_LIMIT = re.compile(
    r"(?:length (?:is|of)|limit(?: of)?|allowed|size|with|exceed|<=|>)[ (]{1,2}(\d[\d,]{1,11})",
    re.IGNORECASE,
)
_USED = re.compile(
    r"(?:resulted in|requested(?: about)?|too long:|count|request|contains|given:)"
    r"[ (]{1,2}(\d[\d,]{1,11})",
    re.IGNORECASE,
)
_USED_IN_MESSAGES = re.compile(r"\((\d[\d,]{1,11}) in the messages", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
_OVERLOADED_TEXT = re.compile(r"overloaded|rate.?limit|capacity|too many requests", re.IGNORECASE)
_OVERLOADED_STATUSES = (429, 503, 529)
_TOO_LONG_STATUSES = (400, 422, 429, 500)  # 429: longer than what is allowed per minute
_MAX_MESSAGE_CHARACTERS = 500
_MAX_SEARCHED_CHARACTERS = 4_000
_MIN_TOKENS = 100  # a smaller number in an error is not a size

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
    if status == 413 or (status in _TOO_LONG_STATUSES and _TOO_LONG.search(details)):
        return _build_too_long(target, error.message)
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
        return _build_too_long(target, message)
    if _NO_CREDIT.search(details):
        return ModelRequestRejected(f"{target}: out of credit; check the account. ({summary})")
    if _OVERLOADED_TEXT.search(details):
        return ModelOverloaded(f"{target}: overloaded; try again later. ({summary})")
    return None


def _build_too_long(target: str, message: str) -> ContextTooLong:
    text = f"{target}: the conversation is too long; compress it. ({_shorten_text(message)})"
    used = _find_number(_USED_IN_MESSAGES, message) or _find_number(_USED, message)
    return ContextTooLong(text, _find_number(_LIMIT, message), used)


def _find_number(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number that the pattern finds, unless it cannot be a number of tokens."""
    found = pattern.search(text[:_MAX_SEARCHED_CHARACTERS])
    number = int(found[1].replace(",", "")) if found else 0
    return number if number >= _MIN_TOKENS else None


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
