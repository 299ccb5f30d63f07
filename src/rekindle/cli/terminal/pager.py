"""Show output that does not fit the terminal in the user's pager."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from shutil import get_terminal_size

from rekindle.config import find_pager, get_home_and_env

_LESS_OPTIONS = "FRX"  # leave if it fits, show colours, keep it on the screen; unless LESS is set
_is_disabled = False


def disable_pager() -> None:
    """Write everything to the terminal itself: `--no-pager`."""
    global _is_disabled
    _is_disabled = True


@contextmanager
def open_pager() -> Generator[Callable[[str], object]]:
    """Yield a function that writes text; from the line on that no longer fits, a pager shows it all.

    When the user leaves the pager, the block ends where it is.
    """
    if _is_disabled or not sys.stdout.isatty() or not (words := find_pager()):
        yield sys.stdout.write
        return
    output = PagerOutput(words)
    try:
        yield output.write_text
    except BrokenPipeError:
        if not output.is_started:
            raise
    finally:
        output.close()


class PagerOutput:
    """Holds text back until it is longer than the terminal, and then gives it to a pager."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._held: list[str] = []
        self._left = get_terminal_size().lines - 1  # the prompt needs one too
        self._process: subprocess.Popen[str] | None = None
        self._handlers: dict[int, object] = {}

    @property
    def is_started(self) -> bool:
        """Whether a pager shows the text."""
        return self._process is not None

    def write_text(self, text: str) -> None:
        """Write whole lines."""
        self._left -= text.count("\n")
        if self._process is None and self._left < 0:
            self._start()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(text)
        else:
            self._held.append(text)

    def _start(self) -> None:
        _, env = get_home_and_env()
        sys.stdout.flush()
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                env={"LESS": _LESS_OPTIONS, **env},
                encoding="utf-8",
                errors="backslashreplace",
            )
        except OSError:  # there is no such program: write it all to the terminal
            self._left = sys.maxsize
            return
        # Ctrl-C is for the pager, and leaving it early is no error of ours.
        for number in (signal.SIGINT, signal.SIGPIPE):
            self._handlers[number] = signal.signal(number, signal.SIG_IGN)
        held, self._held = self._held, []
        for text in held:
            self.write_text(text)

    def close(self) -> None:
        """Write the pending output, or wait until the user leaves the pager."""
        if self._process is None:
            sys.stdout.write("".join(self._held))
            return
        try:
            self._process.communicate()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
