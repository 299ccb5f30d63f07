"""The last errors of a gateway, for `rekindle gateway status`.

A log handler collects what is logged as an error, or with an exception. The gateway stores it now
and then, so that errors can be read while the store is unavailable, and after a restart.
"""

from __future__ import annotations

import logging
from collections import deque

from rekindle.gateway.log_format import CURRENT_KEY
from rekindle.store.conversations.gateway_errors import GatewayError

from .error_texts import describe_for_operator
from .metrics import Metrics

_MAX_COLLECTED = 200


class ErrorCollector(logging.Handler):
    """Collects errors as they are logged."""

    def __init__(self, metrics: Metrics, secret: str = "") -> None:
        super().__init__(logging.WARNING)
        self._metrics = metrics
        self._secret = secret
        self._collected: deque[GatewayError] = deque(maxlen=_MAX_COLLECTED)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record; merge it with the last one if that says the same."""
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno < logging.ERROR and error is None:
            return
        kind = getattr(record, "kind", None) or (type(error).__name__ if error else "Error")
        cause = record.getMessage()
        if isinstance(error, Exception):
            cause = f"{cause}: {describe_for_operator(error, self._secret)}"
        self._metrics.count_error(str(kind))
        entry = GatewayError(record.created, CURRENT_KEY.get() or "", str(kind), cause[:2000], 1)
        last = self._collected[-1] if self._collected else None
        if last is not None and last[1:4] == entry[1:4]:
            self._collected[-1] = entry._replace(times=last.times + 1)
        else:
            self._collected.append(entry)

    def list_collected(self) -> list[GatewayError]:
        """Return the errors that are not stored yet."""
        return [*self._collected]

    def discard(self, entries: list[GatewayError]) -> None:
        """Forget errors that were stored."""
        for entry in entries:
            if entry in self._collected:
                self._collected.remove(entry)
