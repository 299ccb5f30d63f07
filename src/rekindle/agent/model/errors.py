"""What went wrong at the model's endpoint, as an error of ours that says what to do."""

from __future__ import annotations

import re
import sys
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from rekindle.errors import (
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRefused,
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
_NO_MONEY = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|rate.?limit|capacity|too many requests", re.IGNORECASE)
_OVERLOADED = (429, 503, 529)
_MAX_SHOWN = 500

_HINTS = {
    401: "check model.api_key",
    403: "check that the key in model.api_key may use this model",
    404: "check model.name and model.base_url",
}


def transport_errors() -> tuple[type[Exception], ...]:
    """Errors of the HTTP library below the SDK, which older releases let through from a stream."""
    found: list[type[Exception]] = []
    for name in ("httpx", "httpx2"):
        error: object = getattr(sys.modules.get(name), "HTTPError", None)
        if isinstance(error, type) and issubclass(error, Exception):
            found.append(error)
    return tuple(found)


def failure_of(error: Exception, place: str, now: float) -> ModelError:
    """The error of ours for one that the SDK raised; `place` says which model and address."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _of_status(error, place, now)
    if isinstance(error, openai.APITimeoutError):
        return ModelUnreachable(f"{place}: no answer in time; try again, or raise the time-outs")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return ModelUnreachable(f"{place}: cannot be reached ({cause}); check model.base_url")
    if isinstance(error, openai.APIError):  # an error inside a stream
        told = f"{error.code or ''} {error.type or ''} {error.message}"
        return _of_words(told, place, error.message) or StreamBroken(
            f"{place}: the endpoint broke off with: {_short(error.message)}"
        )
    return StreamBroken(f"{place}: the answer cannot be read: {_short(str(error))}")


def _of_status(error: openai.APIStatusError, place: str, now: float) -> ModelError:
    status = error.status_code
    told = f"{error.code or ''} {error.type or ''} {error.message}"
    said = _short(error.message)
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(told)):
        return ContextTooLong(f"{place}: the conversation is too long; compress it. ({said})")
    if status == 429 and _NO_MONEY.search(told):
        return ModelRefused(f"{place}: nothing left to spend; check the account. ({said})", status)
    if status in _OVERLOADED:
        wait = _retry_after(error, now)
        when = "in a while" if wait is None else f"in {wait:.0f} s"
        return ModelOverloaded(f"{place}: overloaded or over a limit, try {when}. ({said})", wait)
    if status >= 500 or status in (408, 409):
        return ModelUnreachable(f"{place}: failed with HTTP {status}; try again. ({said})")
    hint = _HINTS.get(status, "what was sent does not suit it")
    return ModelRefused(f"{place}: refused with HTTP {status}; {hint}. ({said})", status)


def _of_words(told: str, place: str, message: str) -> ModelError | None:
    said = _short(message)
    if _TOO_LONG.search(told):
        return ContextTooLong(f"{place}: the conversation is too long; compress it. ({said})")
    if _NO_MONEY.search(told):
        return ModelRefused(f"{place}: nothing left to spend; check the account. ({said})")
    if _BUSY.search(told):
        return ModelOverloaded(f"{place}: overloaded, try in a while. ({said})")
    return None


def _retry_after(error: openai.APIStatusError, now: float) -> float | None:
    """Seconds that the endpoint asks us to wait, from headers in seconds, milliseconds or a date."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        given = headers.get(name)
        if given is None:
            continue
        try:
            return max(0.0, float(given) / unit)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(given).timestamp() - now)
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"
