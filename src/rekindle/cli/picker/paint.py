"""Put frames on a terminal: the first one before the library that reads keys has been loaded.

To draw a frame here takes a tenth of the time that a library for any layout takes, and every key waits
for it.
"""

from __future__ import annotations

import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rekindle.config import allows_color

from .frame import (
    count_body_lines,
    render_body,
    render_field,
    render_footer,
    render_header,
    render_rule,
)

if TYPE_CHECKING:
    from .frame import Line
    from .state import PickerState

_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h\x1b[2J\x1b[H", "\x1b[?1049l"


# The codes of each style; those of colours are left out where the user wants none.
_COLORS = {
    "dim": "90", "project": "36", "agent": "35", "match": "30;43", "user": "32", "status": "32",
    "error": "31",
}  # fmt: skip
_ATTRIBUTES = {"title": "1", "selected": "7"}


@contextmanager
def open_screen() -> Generator[None]:
    """Take over the terminal: a screen of our own, and no echo. Give it back in any case."""
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    sys.stdout.write(_ENTER_SCREEN)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()
        termios.tcsetattr(file, termios.TCSADRAIN, before)


class FramePainter:
    """Paints frames; after the first one, only the lines that differ."""

    def __init__(self) -> None:
        self._codes = {**_ATTRIBUTES, **(_COLORS if allows_color() else {})}
        self._shown: dict[int, str] = {}

    def clear(self) -> None:
        """Forget the contents of the screen, for example when its size has changed."""
        self._shown = {}

    def render_changes(self, state: PickerState, width: int, height: int) -> str:
        """Return what to write to a terminal for a frame, with the cursor where one types."""
        text, column = render_field(state, width)
        lines = [
            render_header(state, width),
            text,
            render_rule(width),
            *render_body(state, width, count_body_lines(state, width, height)),
            *render_footer(state, width),
        ]
        painted = {number: self._paint_line(line) for number, line in enumerate(lines[:height], 1)}
        changes = [
            f"\x1b[{number};1H{line}\x1b[K"
            for number, line in painted.items()
            if self._shown.get(number) != line
        ]
        self._shown = painted
        return f"\x1b[?25l{''.join(changes)}\x1b[2;{column + 1}H\x1b[?25h"

    def _paint_line(self, line: Line) -> str:
        return "".join([self._paint_fragment(style, text) for style, text in line])

    def _paint_fragment(self, style: str, text: str) -> str:
        codes = self._codes.get(style)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text
