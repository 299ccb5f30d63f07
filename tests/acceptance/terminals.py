"""A terminal with somebody at it: a real pseudo-terminal, and an emulator that shows what they see."""

from __future__ import annotations

import os
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

import pyte

from tests import command
from tests.waiting import PATIENCE

ENTER, TAB, UP, ALT_ENTER = "\r", "\t", "\x1b[A", "\x1b\r"
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """Runs `rekindle` with some words in it.

    `text` is what stands on the screen, `seen` all that was ever written to it.
    """

    def __init__(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        columns: int = 80,
        rows: int = 40,
    ) -> None:
        self._ours, theirs = os.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
        env = {**env, "TERM": "xterm-256color"}
        self.child = command.start(words, env=env, cwd=cwd, terminal=theirs)
        os.close(theirs)
        self.seen = ""
        self._screen = _Screen(columns, rows, self._reply)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._text: str | None = None  # until something is written: a screen is slow to read
        self._is_written = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # how Linux says that the other side was closed
                return
            if not piece:
                return
            with self._lock:
                self.seen += piece.decode(errors="replace")
                self._stream.feed(piece)
                self._text = None
            self._is_written.set()

    def _reply(self, data: str) -> None:
        os.write(self._ours, data.encode())

    @property
    def text(self) -> str:
        """What stands on the screen."""
        with self._lock:
            if self._text is None:
                self._text = "\n".join(line.rstrip() for line in self._screen.display).rstrip()
            return self._text

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def is_echoing(self) -> bool:
        """Whether it shows what is typed."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def say(self, text: str) -> None:
        """Wait for the prompt, then type a line."""
        self.wait_for_prompt()
        self.type(text)
        self.wait_for(text.split("\n")[0][:20])
        self.type(ENTER)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._is_written.clear() or not condition():
            gone = self.child.poll() is not None and not self._reader.is_alive()
            if time.monotonic() > deadline or (gone and not condition()):
                raise AssertionError(
                    f"not seen within {PATIENCE:.0f} s; on the screen:\n{self.text}"
                )
            self._is_written.wait(0.05)

    def wait_for(self, text: str) -> None:
        self.wait(lambda: text in self.text)

    def wait_for_prompt(self) -> None:
        """The last line is the prompt, and nothing stands in it."""
        self.wait(lambda: self.lines[-1] == "›")

    def left(self) -> int:
        """Wait for the end of the command; its exit code."""
        code = self.child.wait(PATIENCE)
        self._reader.join(PATIENCE)
        os.close(self._ours)
        return code

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
            self.left()


class _Screen(pyte.Screen):
    """A screen that answers when it is asked where its cursor is."""

    def __init__(self, columns: int, rows: int, reply: Callable[[str], None]) -> None:
        self._reply = reply
        super().__init__(columns, rows)

    def write_process_input(self, data: str) -> None:
        self._reply(data)
