"""What pages show of a process's output: its log, or the screen of its terminal."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from codecs import getincrementaldecoder
from collections import deque
from typing import Any

from markupsafe import Markup

from .ansi import AnsiConverter
from .terminal import TerminalScreen

MAX_LOG_LINES = 1000  # that a page gets at first; it may collect more
LINES_ID, REST_ID = "log-lines", "log-rest"


def encode_event(value: Any, name: str = "message") -> str:
    """Encode a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"


class OutputView(ABC):
    """The output of one process as a page shows it; the same for everybody who looks."""

    @abstractmethod
    def add_output(self, data: bytes) -> None:
        """Add output; at most a few kilobytes, as it takes a while."""

    @abstractmethod
    def skip_output(self, size: int) -> None:
        """Note that so many bytes before the next output are not shown."""

    @abstractmethod
    def encode_changes(self) -> str:
        """Return the events that update a page since the last call."""

    @abstractmethod
    def encode_all(self) -> str:
        """Return the events for a page that shows nothing yet."""


class LogView(OutputView):
    """The last lines of a log, in colors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self._added: deque[str] = deque(maxlen=MAX_LOG_LINES)  # since the last change of pages
        self._has_gap = False
        self._start_over()

    def _start_over(self) -> None:
        self._converter = AnsiConverter()
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def add_output(self, data: bytes) -> None:
        lines = self._converter.convert(self._decoder.decode(data))
        self._has_gap |= len(self._added) + len(lines) > MAX_LOG_LINES
        self._added.extend(render_line(line) for line in lines)

    def skip_output(self, size: int) -> None:
        self._start_over()
        self._has_gap = True

    def encode_changes(self) -> str:
        gap = [_GAP] if self._has_gap else []
        lines, rest = "".join([*gap, *self._added]), self._converter.render_rest()
        self._has_gap = False
        self._lines.extend(self._added)
        self._added.clear()
        added = encode_event({"id": LINES_ID, "how": "append", "html": lines}) if lines else ""
        return added + encode_event({"id": REST_ID, "how": "replace", "html": rest})

    def encode_all(self) -> str:
        lines, rest = "".join(self._lines), self._converter.render_rest()
        return encode_event({"id": LINES_ID, "how": "replace", "html": lines}) + encode_event(
            {"id": REST_ID, "how": "replace", "html": rest}
        )


def render_line(html: str) -> str:
    """Return a line of a log as an element; its text is HTML already."""
    return f"<div>{html}</div>"


_GAP = '<div class="gap">It writes too much for a page: some output is left out here</div>'


def render_start(size: int) -> str:
    """Return the line that says how much of the start is no longer kept."""
    amount = f"{size:,} bytes" if size < 10_000 else f"{size / 1000:,.0f} kB"
    return str(Markup('<div class="gap">The first {} are no longer kept</div>').format(amount))


class ScreenView(OutputView):
    """The screen of a terminal."""

    def __init__(self) -> None:
        self.screen = TerminalScreen()

    def add_output(self, data: bytes) -> None:
        self.screen.feed(data)

    def skip_output(self, size: int) -> None:
        self.screen.forget_sequence()

    def encode_changes(self) -> str:
        return self._encode(self.screen.render_changes())

    def encode_all(self) -> str:
        return self._encode({n: self.screen.render_row(n) for n in range(self.screen.rows)})

    def _encode(self, rows: dict[int, str]) -> str:
        screen = self.screen
        size = {"rows": screen.rows, "columns": screen.columns}
        return encode_event({"changed": rows, **size, **screen.modes._asdict()}, "screen")
