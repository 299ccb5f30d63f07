"""Watches: report on a process at an interval, when a pattern matches, or at its exit.

The search position of a pattern is stored in the ring buffer, so that nothing is reported twice or
missed after a restart. Each watch reports at most once in `gap` seconds; reports in between are
counted, and the last of them is sent when the time is over.
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
from rekindle.processes.state.output_text import decode_output, trim_partial
from rekindle.processes.state.ring_buffer import RingBuffer
from rekindle.processes.types import EventKind, Watch

_SEARCH_DELAY = 0.05  # seconds to collect output before searching it
_OVERLAP = 4096  # bytes searched again: a match may begin there
_MAX_REPORT = 2000  # characters of output per report
_MAX_LINE = 500  # characters of a line in a report
_SEARCH_TIMEOUT = 0.25  # seconds for one search


class ReportCallback(Protocol):
    """Receives a report: its kind, its text, and the number of reports suppressed before it."""

    def __call__(self, watch: Watch, kind: EventKind, text: str, suppressed: int) -> None: ...


def validate_watch(watch: Watch, gap: float) -> Watch:
    """Return the watch with its interval clamped; raise InvalidInput if it is invalid."""
    if watch.kind == "pattern":
        _compile_pattern(watch.pattern)
    elif watch.kind == "interval":
        if not watch.seconds > 0:
            raise InvalidInput("watch: an interval needs a positive number of seconds")
        return watch._replace(seconds=min(max(watch.seconds, gap, 1.0), 86_400.0 * 365))
    return watch


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    if not pattern:
        raise InvalidInput("watch: the pattern is empty")
    try:
        return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"watch: {pattern!r:.80} is not a regular expression: {error}") from None


class Watcher:
    """An active watch of one process."""

    def __init__(self, watch: Watch, ring: RingBuffer, gap: float, emit: ReportCallback) -> None:
        self.watch = watch
        self._ring = ring
        self._gap = gap
        self._emit = emit
        self._pattern = _compile_pattern(watch.pattern) if watch.kind == "pattern" else None
        self._timer: asyncio.TimerHandle | None = None  # the next search or interval
        self._hold_timer: asyncio.TimerHandle | None = None  # runs until the next report is allowed
        self._suppressed = 0
        self._held_report = ""  # the last suppressed report
        self._reader = f"watch {watch.number}"
        if watch.kind == "interval":
            self._timer = _call_later(watch.seconds, self._report_interval)
        else:
            self.on_output()

    def on_output(self) -> None:
        """Schedule a search after the process has written output."""
        if self._pattern is not None and self._timer is None:
            self._timer = _call_later(_SEARCH_DELAY, self._search)

    def on_exit(self) -> None:
        """Send the last reports, once the process has exited and all its output was copied."""
        if self._pattern is not None:
            self._search(ended=True)
            self._send_held_report()
        elif self.watch.kind == "end":
            self._emit(self.watch, "end", self._read_new_output(), 0)
        self.stop()

    def stop(self) -> None:
        for timer in (self._timer, self._hold_timer):
            if timer:
                timer.cancel()
        self._timer = self._hold_timer = self._pattern = None

    def _report_interval(self) -> None:
        self._emit(self.watch, "interval", self._read_new_output(), 0)
        self._timer = _call_later(self.watch.seconds, self._report_interval)

    def _read_new_output(self) -> str:
        """Return the tail of the output since the previous report."""
        piece = trim_partial(self._ring.read(self._ring.get_position(self._reader)), ended=True)
        self._ring.set_position(self._reader, piece.end)
        return decode_output(piece.data[-4 * _MAX_REPORT :], plain=True)[-_MAX_REPORT:]

    def _search(self, ended: bool = False) -> None:
        self._timer = None
        if self._pattern is None:
            return
        try:
            lines = self._find_matches(self._pattern, ended)
        except TimeoutError:
            message = f"the pattern {self.watch.pattern!r:.80} takes too long; stopped watching"
            self.stop()
            self._emit(self.watch, "stopped", message, self._suppressed)
            return
        if lines:
            self._suppressed += len(lines) - 1
            self._report(lines[-1])

    def _find_matches(self, pattern: re.Pattern[str], ended: bool) -> list[str]:
        position = self._ring.get_position(self._reader)
        new = trim_partial(self._ring.read(position), ended=ended, plain=True)
        if not new.data:
            return []
        before = self._ring.read(
            max(0, new.start - _OVERLAP), new.start - max(0, new.start - _OVERLAP)
        )
        known = decode_output(before.data, plain=True) if not new.dropped else ""
        output = known + decode_output(new.data, plain=True)
        self._ring.set_position(self._reader, new.end)
        return _run_with_timeout(lambda: _find_new_lines(pattern, output, len(known)))

    def _report(self, line: str) -> None:
        if self._hold_timer is not None:
            self._suppressed += bool(self._held_report)
            self._held_report = line
            return
        suppressed, self._suppressed = self._suppressed, 0
        self._emit(self.watch, "pattern", line, suppressed)
        if self.watch.once:
            self.stop()
        else:
            self._hold_timer = _call_later(self._gap, self._send_held_report)

    def _send_held_report(self) -> None:
        """Send the held report once the time between two reports is over."""
        if self._hold_timer:
            self._hold_timer.cancel()
            self._hold_timer = None
        held, self._held_report = self._held_report, ""
        if held:
            self._report(held)


def _call_later(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, callback)


def _find_new_lines(pattern: re.Pattern[str], output: str, known: int) -> list[str]:
    """Return the lines with a new match, given that `known` characters were searched before."""
    lines: list[str] = []
    last = -1
    for match in pattern.finditer(output):
        if match.end() <= known or match.start() == match.end():
            continue
        if match.start() < known:  # starts in known output: was it already a match?
            earlier = pattern.search(output[:known], match.start())
            if earlier and earlier.start() == match.start():
                continue
        start = output.rfind("\n", 0, match.start()) + 1
        if start == last:
            continue
        last = start
        end = output.find("\n", match.end())
        lines.append(output[start : end if end >= 0 else None][:_MAX_LINE])
    return lines


def _run_with_timeout(search: Callable[[], list[str]]) -> list[str]:
    """Run a search; raise TimeoutError if it takes too long, as a pattern may backtrack endlessly."""
    if threading.current_thread() is not threading.main_thread():
        return search()

    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, on_alarm)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, _SEARCH_TIMEOUT)
    started = time.monotonic()
    try:
        return search()
    finally:
        # Restore the previous alarm.
        if remaining:
            remaining = max(0.001, remaining - (time.monotonic() - started))
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)
        signal.signal(signal.SIGALRM, previous)
