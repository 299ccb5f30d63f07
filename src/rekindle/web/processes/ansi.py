"""Convert terminal output to HTML: colors become classes, everything else that a program may send is
left out.

A page cannot show 16 million colors on a light and on a dark ground so that they can be read. Each color
becomes the nearest of a few that can (`terminal.css`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup, escape

MAX_LINE_CHARS = 4000  # a longer line is broken
MAX_SEQUENCE_CHARS = 4096  # of an unfinished control sequence that is waited for

_TOKEN = re.compile(
    r"\x1b\[([0-?]*)[ -/]*([@-~])"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # strings, such as titles and links
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x09\x0b-\x1f\x7f-\x9f]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CUBE = (0, 95, 135, 175, 215, 255)  # levels of the 6 × 6 × 6 colors of a terminal
_GRAY, _DEFAULT = "gray", ""


class TextStyle(NamedTuple):
    """How a piece of text looks."""

    color: str = _DEFAULT
    background: str = _DEFAULT
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    reverse: bool = False

    def list_classes(self) -> str:
        """Return the classes of an element with this style, separated by spaces."""
        names = [f"a-{self.color}"] if self.color else []
        if self.background:
            names.append(f"a-on-{self.background}")
        for name in ("bold", "dim", "italic", "underline", "strike", "reverse"):
            if getattr(self, name):
                names.append(f"a-{name}")
        return " ".join(names)


PLAIN = TextStyle()


def render_text(text: str, style: TextStyle) -> str:
    """Return a piece of text as HTML."""
    if style == PLAIN:
        return str(escape(text))
    return str(Markup('<span class="{}">{}</span>').format(style.list_classes(), text))


class AnsiConverter:
    """Converts output piece by piece; keeps the style and the unfinished line from one to the next."""

    def __init__(self) -> None:
        self._style = PLAIN
        self._parts: list[tuple[str, TextStyle]] = []
        self._length = 0
        self._rest = ""  # an unfinished control sequence
        self._is_at_start = False  # after a carriage return: the next text replaces the line

    def convert(self, text: str) -> list[str]:
        """Return the lines that a piece of output finishes, as HTML."""
        text = self._rest + text
        self._rest = ""
        found = _UNFINISHED.search(text, max(0, len(text) - MAX_SEQUENCE_CHARS))
        if found is not None:
            text, self._rest = text[: found.start()], found.group()
        first, *others = text.replace("\r\n", "\n").split("\n")
        finished: list[str] = []
        finished.extend(self._add(first))
        for line in others:
            finished.append(self._finish_line())
            finished.extend(self._add(line))
        return finished

    def render_rest(self) -> str:
        """Return the line that is not finished yet, as HTML."""
        return "".join(render_text(text, style) for text, style in self._parts)

    def _finish_line(self) -> str:
        line = self.render_rest()
        self._clear_line()
        return line

    def _clear_line(self) -> None:
        self._parts, self._length, self._is_at_start = [], 0, False

    def _add(self, line: str) -> Iterator[str]:
        """Add a part of a line; yield what must be broken off."""
        start = 0
        for token in _TOKEN.finditer(line):
            yield from self._add_text(line[start : token.start()])
            start = token.end()
            parameters, kind = token.groups()
            if kind == "m":
                self._style = apply_parameters(self._style, parameters)
            elif kind is None:
                yield from self._control(token.group())
        yield from self._add_text(line[start:])

    def _control(self, character: str) -> Iterator[str]:
        if character == "\r":
            self._is_at_start = True
        elif character == "\t":
            yield from self._add_text("\t")
        elif character == "\b" and self._parts:
            text, style = self._parts.pop()
            self._length -= 1
            if len(text) > 1:
                self._parts.append((text[:-1], style))

    def _add_text(self, text: str) -> Iterator[str]:
        if not text:
            return
        if self._is_at_start:
            self._clear_line()
        while self._length + len(text) > MAX_LINE_CHARS:
            room = MAX_LINE_CHARS - self._length
            self._parts.append((text[:room], self._style))
            text = text[room:]
            yield self._finish_line()
        if text:
            self._length += len(text)
            if self._parts and self._parts[-1][1] == self._style:
                text = self._parts.pop()[0] + text
            self._parts.append((text, self._style))


def convert_text(text: str) -> list[str]:
    """Return all lines of an output as HTML."""
    converter = AnsiConverter()
    lines = converter.convert(text)
    rest = converter.render_rest()
    return [*lines, rest] if rest else lines


def apply_parameters(style: TextStyle, parameters: str) -> TextStyle:
    """Return a style after the parameters of a color sequence; unknown ones change nothing."""
    if parameters[:1] in ("<", "=", ">", "?"):  # not about colors
        return style
    codes = [int(code) if code.isdigit() else 0 for code in parameters[:200].split(";")]
    if ":" in parameters:
        codes = _split_colons(parameters[:200])
    position = 0
    while position < len(codes):
        code = codes[position]
        position += 1
        if code in (38, 48):
            color, position = _read_color(codes, position)
            field = "color" if code == 38 else "background"
            style = style._replace(**{field: color})
        else:
            style = _apply_code(style, code)
    return style


def _split_colons(parameters: str) -> list[int]:
    """Split `38:2::r:g:b` as `38;2;r;g;b`; kinds of underlines are underlines."""
    codes: list[int] = []
    for group in parameters.split(";"):
        numbers = [int(part) if part.isdigit() else 0 for part in group.split(":")]
        if numbers[0] in (38, 48):
            if len(numbers) >= 6 and numbers[1] == 2:  # with the id of a color space
                del numbers[2]
            codes.extend(numbers)
        elif len(numbers) > 1 and numbers[0] == 4:
            codes.append(4 if numbers[1] else 24)
        else:
            codes.append(numbers[0])
    return codes


_SWITCHES: dict[int, dict[str, bool]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underline": True},
    7: {"reverse": True},
    9: {"strike": True},
    21: {"underline": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"reverse": False},
    29: {"strike": False},
}


def _apply_code(style: TextStyle, code: int) -> TextStyle:
    if code == 0:
        return PLAIN
    if code in _SWITCHES:
        return style._replace(**_SWITCHES[code])
    if 30 <= code <= 37:
        return style._replace(color=_NAMES[code - 30])
    if 40 <= code <= 47:
        return style._replace(background=_NAMES[code - 40])
    if 90 <= code <= 97:
        return style._replace(color=_get_bright(code - 90))
    if 100 <= code <= 107:
        return style._replace(background=_get_bright(code - 100))
    if code == 39:
        return style._replace(color=_DEFAULT)
    return style._replace(background=_DEFAULT) if code == 49 else style


def _get_bright(number: int) -> str:
    return _GRAY if number == 0 else _NAMES[number]


def _read_color(codes: list[int], position: int) -> tuple[str, int]:
    """Read a color of 256 or of 16 million; return its name and the position after it."""
    kind = codes[position] if position < len(codes) else 0
    if kind == 5 and position + 1 < len(codes):
        return match_indexed_color(codes[position + 1]), position + 2
    if kind == 2 and position + 3 < len(codes):
        red, green, blue = codes[position + 1 : position + 4]
        return match_color(red, green, blue), position + 4
    return _DEFAULT, len(codes)


def match_indexed_color(index: int) -> str:
    """Return the name of one of a terminal's 256 colors."""
    if index < 8:
        return _NAMES[index]
    if index < 16:
        return _get_bright(index - 8)
    if index < 232:
        red, rest = divmod(index - 16, 36)
        green, blue = divmod(rest, 6)
        return match_color(_CUBE[red], _CUBE[green], _CUBE[blue])
    return match_color(*[8 + 10 * (min(index, 255) - 232)] * 3)


def match_color(red: int, green: int, blue: int) -> str:
    """Return the name of the color that comes nearest: a gray if it has hardly any hue."""
    high, low = max(red, green, blue), min(red, green, blue)
    if high - low < 0.18 * max(high, 1) or high - low < 25:
        return "black" if high < 60 else "white" if high > 190 else _GRAY
    middle = (high + low) / 2
    number = (red > middle) + 2 * (green > middle) + 4 * (blue > middle)
    return _NAMES[number]
