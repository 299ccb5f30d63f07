"""Log formatters that add the conversation key and the session to each line."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar

CURRENT_KEY: ContextVar[str | None] = ContextVar("key", default=None)
CURRENT_SESSION: ContextVar[str | None] = ContextVar("session", default=None)


class _ContextFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.key, record.session = CURRENT_KEY.get(), CURRENT_SESSION.get()
        return True


class JsonLogFormatter(logging.Formatter):
    """One JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "key": getattr(record, "key", None),
            "session": getattr(record, "session", None),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in entry.items() if value is not None})


class TextLogFormatter(logging.Formatter):
    """One line of text for people, with the key and session after the message.

    Messages quote untrusted text: unprintable characters are escaped, so that it can neither move
    the cursor nor start a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{when} {record.levelname.lower():7} {_escape_unprintable(record.getMessage())}"
        for name in ("key", "session"):
            if value := getattr(record, name, None):
                line += f"  {name}={_escape_unprintable(str(value))}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *(f"  {_escape_unprintable(one)}" for one in trace)])
        return line


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def configure_logging(level: int = logging.INFO, *, text_lines: bool | None = None) -> None:
    """Log to stderr as JSON lines, or as text if `text_lines` is set or stderr is a terminal."""
    use_text = sys.stderr.isatty() if text_lines is None else text_lines
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLogFormatter() if use_text else JsonLogFormatter())
    handler.addFilter(_ContextFilter())
    logger = logging.getLogger("rekindle")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
