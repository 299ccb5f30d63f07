"""The client of the supervisor, and the feeds of the processes that somebody looks at."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Literal

from starlette.requests import Request

from rekindle.config import Config
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.from_config import create_client
from rekindle.processes.operations import Processes
from rekindle.processes.types import RING_SIZE, Process
from rekindle.web.context import get_context

from .feed import OutputFeed
from .listing import LastLines
from .output_views import LogView, ScreenView
from .terminal import MAX_COLUMNS, MAX_ROWS, MIN_COLUMNS, MIN_ROWS

ViewKind = Literal["log", "terminal"]
LOG_PAUSE, TERMINAL_PAUSE = 0.1, 0.03  # seconds between changes of a page
TERMINAL_BYTES = 64 * 1024  # of earlier output, or of output that waits to be shown
MAX_KEYBOARDS = 1000


class ProcessFeeds:
    """What pages need of the processes of this home."""

    def __init__(self, config: Config) -> None:
        self.processes: Processes = create_client(config)
        self.last_lines = LastLines()
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[tuple[ViewKind, str], OutputFeed] = {}
        self._keyboards: OrderedDict[str, int] = OrderedDict()
        self._sizes: dict[str, TerminalSize] = {}

    @property
    def is_usable(self) -> bool:
        """Whether this belongs to the event loop that is running."""
        return asyncio.get_running_loop() is self._loop

    def open_feed(self, kind: ViewKind, process: Process) -> OutputFeed:
        """Return the feed of a process; it follows the output while somebody looks."""
        found = self._feeds.get((kind, process.id))
        if found is None:
            is_log = kind == "log"
            view = LogView() if is_log else ScreenView()
            if isinstance(view, ScreenView) and (size := self._sizes.get(process.id)):
                view.screen.resize(size.rows, size.columns)
            found = OutputFeed(
                self.processes,
                process,
                view,
                since=max(0, process.bytes - (RING_SIZE if is_log else TERMINAL_BYTES)),
                pause=LOG_PAUSE if is_log else TERMINAL_PAUSE,
                max_pending=RING_SIZE if is_log else TERMINAL_BYTES,
            )
            found.on_stop = lambda: self._feeds.pop((kind, process.id), None)
            self._feeds[kind, process.id] = found
        return found

    async def resize(self, process: Process, rows: int, columns: int) -> None:
        """Resize the terminal of a process, and the screens that show it."""
        size = TerminalSize(
            min(max(rows, MIN_ROWS), MAX_ROWS), min(max(columns, MIN_COLUMNS), MAX_COLUMNS)
        )
        await self.processes.resize(process.id, size)
        self._sizes[process.id] = size
        while len(self._sizes) > MAX_KEYBOARDS:
            del self._sizes[next(iter(self._sizes))]
        feed = self._feeds.get(("terminal", process.id))
        if feed is not None and isinstance(feed.view, ScreenView):
            feed.view.screen.resize(size.rows, size.columns)
            feed.publish()

    def accept_keys(self, keyboard: str, number: int) -> bool:
        """Return whether keys of a page are new; a page that got no answer sends them again."""
        if number <= self._keyboards.get(keyboard, 0):
            return False
        self._keyboards[keyboard] = number
        self._keyboards.move_to_end(keyboard)
        if len(self._keyboards) > MAX_KEYBOARDS:
            self._keyboards.popitem(last=False)
        return True


def get_feeds(request: Request) -> ProcessFeeds:
    """Return the feeds of the server that answers a request."""
    state = request.app.state
    found: ProcessFeeds | None = getattr(state, "process_feeds", None)
    if found is None or not found.is_usable:
        found = state.process_feeds = ProcessFeeds(get_context(request).config)
    return found
