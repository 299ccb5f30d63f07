"""The screen of a terminal in a page: the server keeps it, the browser shows its rows.

The output of a program is hostile: sequences that the emulator would collect without end, or mistakes
for others, are left out before it sees them.
"""

from __future__ import annotations

import copy
import re
from codecs import getincrementaldecoder
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, cast
from unicodedata import combining

import pyte
from markupsafe import Markup

from .ansi import MAX_SEQUENCE_CHARS, PLAIN, TextStyle, match_color, render_text

MIN_ROWS, MAX_ROWS = 2, 200
MIN_COLUMNS, MAX_COLUMNS = 10, 400
_MAX_MARKS = 4  # accents and the like on one character
_MAX_SAVEPOINTS = 8
# Strings (titles, links, pictures), choice of encodings, and CSI with marks that the emulator ignores.
_LEFT_OUT = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b%.|\x1b\[[0-?]*[<=>][0-?]*[ -/]*[@-~]"
    r"|\x1b\[[0-?]*[ -/]+[@-~]|[\x80-\x9f]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[%()#])?\Z")
_LONG_CSI = re.compile(r"\x1b\[[0-?]{200,}")
_ALTERNATE_MODES = frozenset((47 << 5, 1047 << 5, 1049 << 5))
_APPLICATION_KEYS, _BRACKETED_PASTE = 1 << 5, 2004 << 5
_COLUMN_MODE = 3  # would make the screen wider than the page shows


class TerminalModes(NamedTuple):
    """What a program has asked its keyboard to send."""

    application_keys: bool = False
    bracketed_paste: bool = False


class _SavedScreen(NamedTuple):
    rows: dict[int, dict[int, Any]]
    cursor: Any


class _Emulator(pyte.Screen):
    """The emulator, with a second screen for full-screen programs, and bounded memory."""

    def __init__(self, columns: int, lines: int) -> None:
        self._saved: _SavedScreen | None = None
        super().__init__(columns, lines)

    def save_cursor(self) -> None:
        super().save_cursor()
        del self.savepoints[:-_MAX_SAVEPOINTS]

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        modes = _leave_out_column_mode(modes, kwargs)
        super().set_mode(*modes, **kwargs)
        if kwargs.get("private") and _ALTERNATE_MODES.intersection(mode << 5 for mode in modes):
            rows = {number: dict(row) for number, row in self.buffer.items()}
            self._saved = self._saved or _SavedScreen(rows, copy.copy(self.cursor))
            self.erase_in_display(2)
            self.cursor_position()

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        modes = _leave_out_column_mode(modes, kwargs)
        super().reset_mode(*modes, **kwargs)
        is_leaving = _ALTERNATE_MODES.intersection(mode << 5 for mode in modes)
        if kwargs.get("private") and is_leaving and self._saved is not None:
            saved, self._saved = self._saved, None
            self.erase_in_display(2)
            for number, row in saved.rows.items():
                if number < self.lines:
                    self.buffer[number].update(row)
            self.cursor = saved.cursor
            self.ensure_hbounds()
            self.ensure_vbounds()
            self.dirty.update(range(self.lines))


def _leave_out_column_mode(modes: tuple[int, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    if not kwargs.get("private"):
        return modes
    return tuple(mode for mode in modes if mode != _COLUMN_MODE)


class TerminalScreen:
    """What a terminal shows, fed with the output of a program."""

    def __init__(self, rows: int = 24, columns: int = 80) -> None:
        self._screen = _Emulator(columns, rows)
        self._stream = self._create_stream()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # an unfinished sequence
        self._marks = 0  # that follow each other, so far
        self._cursor_row = 0

    def _create_stream(self) -> pyte.Stream:
        stream = pyte.Stream(self._screen)
        stream.use_utf8 = False  # or the emulator would not draw the lines of boxes
        return stream

    @property
    def rows(self) -> int:
        return self._screen.lines

    @property
    def columns(self) -> int:
        return self._screen.columns

    @property
    def modes(self) -> TerminalModes:
        modes = self._screen.mode
        return TerminalModes(_APPLICATION_KEYS in modes, _BRACKETED_PASTE in modes)

    def feed(self, data: bytes) -> None:
        """Show more output; what cannot be understood is left out."""
        text = self._clean(self._decoder.decode(data))
        try:
            self._stream.feed(text)
        except Exception:  # noqa: BLE001 -- the emulator fails on some sequences; the rest goes on
            self._stream = self._create_stream()

    def forget_sequence(self) -> None:
        """Forget an unfinished sequence: output after it was skipped."""
        self._rest = ""
        self._decoder.reset()
        self._stream = self._create_stream()

    def resize(self, rows: int, columns: int) -> None:
        """Change the size; rows at the top go if fewer are left than are in use."""
        rows = min(max(rows, MIN_ROWS), MAX_ROWS)
        columns = min(max(columns, MIN_COLUMNS), MAX_COLUMNS)
        if rows < self.rows:
            self._drop_rows(rows)
        self._screen.resize(rows, columns)
        self._screen.ensure_hbounds()
        self._screen.ensure_vbounds()
        self._screen.dirty.update(range(rows))

    def _drop_rows(self, rows: int) -> None:
        """Make the screen lower; unlike the emulator, take empty rows at the bottom first."""
        screen = self._screen
        above = max(0, screen.cursor.y - rows + 1)
        kept = {y - above: row for y, row in screen.buffer.items() if above <= y < above + rows}
        screen.buffer.clear()
        screen.buffer.update(kept)
        screen.cursor.y -= above
        screen.lines = rows
        screen.set_margins()

    def render_changes(self) -> dict[int, str]:
        """Return the rows that have changed since the last call, by number, as HTML."""
        cursor = self._screen.cursor
        changed = {*self._screen.dirty, self._cursor_row, cursor.y}
        self._screen.dirty.clear()
        self._cursor_row = cursor.y
        return {number: self.render_row(number) for number in sorted(changed) if number < self.rows}

    def render_row(self, number: int) -> str:
        """Return a row as HTML, with the cursor if it is there."""
        row, cursor = self._screen.buffer[number], self._screen.cursor
        at = cursor.x if cursor.y == number and not cursor.hidden else None
        end = max([*(x for x in row if x < self.columns), -1 if at is None else at], default=-1) + 1
        cells = [(row[x], x == at) for x in range(end)]
        parts: list[str] = []
        for (style, is_cursor), group in groupby(cells, _get_cell_style):
            text = "".join(cell.data for cell, _ in group)
            html = render_text(text, style)
            if is_cursor:
                html = str(Markup('<span class="cursor">{}</span>').format(Markup(html or " ")))
            parts.append(html)
        return "".join(parts)

    def _clean(self, text: str) -> str:
        text = self._rest + text
        self._rest = ""
        found = _UNFINISHED.search(text, max(0, len(text) - MAX_SEQUENCE_CHARS))
        if found is not None:
            text, self._rest = text[: found.start()], found.group()
        if "\x1b" in text or not text.isascii():
            text = _LONG_CSI.sub("", _LEFT_OUT.sub("", text))
        return text if text.isascii() else self._limit_marks(text)

    def _limit_marks(self, text: str) -> str:
        kept: list[str] = []
        for character in text:
            self._marks = self._marks + 1 if combining(character) else 0
            if self._marks <= _MAX_MARKS:
                kept.append(character)
        return "".join(kept)


def _get_cell_style(cell: tuple[Any, bool]) -> tuple[TextStyle, bool]:
    character, is_cursor = cell
    return _get_style(*cast("tuple[Any, ...]", character[1:8])), is_cursor


@lru_cache(4096)
def _get_style(
    color: str,
    background: str,
    bold: bool,
    italic: bool,
    underline: bool,
    strike: bool,
    reverse: bool,
) -> TextStyle:
    return PLAIN._replace(
        color=_match_emulated_color(color),
        background=_match_emulated_color(background),
        bold=bold,
        italic=italic,
        underline=underline,
        strike=strike,
        reverse=reverse,
    )


_KNOWN = ("black", "red", "green", "blue", "magenta", "cyan", "white")


def _match_emulated_color(name: str) -> str:
    """Return our name of a color of the emulator."""
    if name == "default":
        return ""
    if name == "brightblack":
        return "gray"
    if name.endswith("brown"):
        return "yellow"
    if found := [known for known in _KNOWN if name.endswith(known)]:
        return found[0]
    try:
        return match_color(*bytes.fromhex(name[:6]))
    except (ValueError, TypeError):
        return ""
