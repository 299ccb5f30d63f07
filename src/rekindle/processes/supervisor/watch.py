"""Watches: what a process does is reported at an interval, when a pattern appears, at its end.

How far a pattern was looked for is kept in the ring itself, so that nothing is reported twice or
missed after a restart. Reports come no faster than one in `gap` seconds for each watch; those in
between are counted, and the last of them comes when the time is over.
"""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from rekindle.errors import InvalidInput
from rekindle.processes.state.output_text import text, whole
from rekindle.processes.state.ring_buffer import Ring
from rekindle.processes.types import EventKind, Watch

_LOOK = 0.05  # seconds over which output is gathered before a pattern is looked for
_CARRY = 4096  # bytes before it that are looked at again: a match may have begun there
_REPORT = 2000  # characters of output in a report
_LINE = 500  # characters of a line in a report
_LONGEST = 0.25  # seconds that one look for a pattern may take


class Emit(Protocol):
    """Takes a report: its kind, its text, and how many came too fast before it."""

    def __call__(self, watch: Watch, kind: EventKind, said: str, suppressed: int) -> None: ...


def checked(watch: Watch, gap: float) -> Watch:
    """The watch as it can be kept; InvalidInput if it cannot."""
    if watch.kind == "pattern":
        _compiled(watch.pattern)
    elif watch.kind == "interval":
        if not watch.seconds > 0:
            raise InvalidInput("watch: an interval needs a number of seconds over 0")
        return watch._replace(seconds=min(max(watch.seconds, gap, 1.0), 86_400.0 * 365))
    return watch


def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern:
        raise InvalidInput("watch: the pattern is empty")
    try:
        return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"watch: {pattern!r:.80} is no regular expression: {error}") from None


class Watcher:
    """One watch of one process, at work."""

    def __init__(self, watch: Watch, ring: Ring, gap: float, emit: Emit) -> None:
        self.watch = watch
        self._ring = ring
        self._gap = gap
        self._emit = emit
        self._pattern = _compiled(watch.pattern) if watch.kind == "pattern" else None
        self._timer: asyncio.TimerHandle | None = None  # the next look, or the next interval
        self._hold: asyncio.TimerHandle | None = None  # when the next report may come
        self._suppressed = 0
        self._held = ""  # the last report that came too fast
        self._reader = f"watch {watch.number}"
        if watch.kind == "interval":
            self._timer = _later(watch.seconds, self._due)
        else:
            self.heard()

    def heard(self) -> None:
        """The process wrote something."""
        if self._pattern is not None and self._timer is None:
            self._timer = _later(_LOOK, self._look)

    def ended(self) -> None:
        """The process has ended, and all it wrote is in the ring."""
        if self._pattern is not None:
            self._look(ended=True)
            self._release()
        elif self.watch.kind == "end":
            self._emit(self.watch, "end", self._since(), 0)
        self.stop()

    def stop(self) -> None:
        for timer in (self._timer, self._hold):
            if timer:
                timer.cancel()
        self._timer = self._hold = self._pattern = None

    def _due(self) -> None:
        self._emit(self.watch, "interval", self._since(), 0)
        self._timer = _later(self.watch.seconds, self._due)

    def _since(self) -> str:
        """The last of what was written since the report before."""
        span = whole(self._ring.read(self._ring.position(self._reader)), ended=True)
        self._ring.seen(self._reader, span.end)
        return text(span.data[-4 * _REPORT :], plain=True)[-_REPORT:]

    def _look(self, ended: bool = False) -> None:
        self._timer = None
        if self._pattern is None:
            return
        try:
            lines = self._matches(self._pattern, ended)
        except TimeoutError:
            said = f"the pattern {self.watch.pattern!r:.80} takes too long; it is not watched for"
            self.stop()
            self._emit(self.watch, "stopped", said, self._suppressed)
            return
        if lines:
            self._suppressed += len(lines) - 1
            self._report(lines[-1])

    def _matches(self, pattern: re.Pattern[str], ended: bool) -> list[str]:
        position = self._ring.position(self._reader)
        new = whole(self._ring.read(position), ended=ended, plain=True)
        if not new.data:
            return []
        before = self._ring.read(max(0, new.start - _CARRY), new.start - max(0, new.start - _CARRY))
        known = text(before.data, plain=True) if not new.dropped else ""
        said = known + text(new.data, plain=True)
        self._ring.seen(self._reader, new.end)
        return _bounded(lambda: _found(pattern, said, len(known)))

    def _report(self, said: str) -> None:
        if self._hold is not None:
            self._suppressed += bool(self._held)
            self._held = said
            return
        suppressed, self._suppressed = self._suppressed, 0
        self._emit(self.watch, "pattern", said, suppressed)
        if self.watch.once:
            self.stop()
        else:
            self._hold = _later(self._gap, self._release)

    def _release(self) -> None:
        """The time between two reports is over: send what was held back."""
        if self._hold:
            self._hold.cancel()
            self._hold = None
        held, self._held = self._held, ""
        if held:
            self._report(held)


def _later(seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, act)


def _found(pattern: re.Pattern[str], said: str, known: int) -> list[str]:
    """The lines with a match that was not there before; `known` characters were seen before."""
    lines: list[str] = []
    last = -1
    for match in pattern.finditer(said):
        if match.end() <= known or match.start() == match.end():
            continue
        if match.start() < known:  # it goes on from before: was it a match already?
            earlier = pattern.search(said[:known], match.start())
            if earlier and earlier.start() == match.start():
                continue
        start = said.rfind("\n", 0, match.start()) + 1
        if start == last:
            continue
        last = start
        end = said.find("\n", match.end())
        lines.append(said[start : end if end >= 0 else None][:_LINE])
    return lines


def _bounded(act: Callable[[], list[str]]) -> list[str]:
    """Do it, or TimeoutError: a pattern can be written so that a look takes years."""
    if threading.current_thread() is not threading.main_thread():
        return act()

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    rest, every = signal.setitimer(signal.ITIMER_REAL, _LONGEST)
    begun = time.monotonic()
    try:
        return act()
    finally:
        # Whoever else had set the clock of the process gets it back.
        if rest:
            rest = max(0.001, rest - (time.monotonic() - begun))
        signal.setitimer(signal.ITIMER_REAL, rest, every)
        signal.signal(signal.SIGALRM, before)
