"""Log lines that say which conversation and which session they speak of."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar

KEY: ContextVar[str | None] = ContextVar("key", default=None)
SESSION: ContextVar[str | None] = ContextVar("session", default=None)


class _Bind(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.key, record.session = KEY.get(), SESSION.get()
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line, for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "key": getattr(record, "key", None),
            "session": getattr(record, "session", None),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in told.items() if value is not None})


class Lines(logging.Formatter):
    """A line for people, with the same facts behind the message.

    Messages quote what strangers typed: nothing in them moves the cursor or begins a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{when} {record.levelname.lower():7} {_visible(record.getMessage())}"
        for name in ("key", "session"):
            if value := getattr(record, name, None):
                line += f"  {name}={_visible(str(value))}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *(f"  {_visible(one)}" for one in trace)])
        return line


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def start(level: int = logging.INFO, *, lines: bool | None = None) -> None:
    """Log to stderr: JSON lines, or `lines` for people, which a terminal gets by itself."""
    for_people = sys.stderr.isatty() if lines is None else lines
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines() if for_people else JsonLines())
    handler.addFilter(_Bind())
    logger = logging.getLogger("rekindle")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
