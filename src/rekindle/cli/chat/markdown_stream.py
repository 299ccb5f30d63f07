"""Text of a model as it flows onto a terminal: wrapped at words, with light Markdown shown as style.

Nothing that was written is ever written again, so nothing flickers. A word is held back until it is
whole, the beginning of a line until it is clear what kind of line it is. Headings, list items,
quotations, code and strong words are styled; everything else stands as the model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rekindle.cli.output import printable

PLAIN, STRONG, CODE, DIM = "", "1", "36", "2"
TAB = "    "

_UNDECIDED = re.compile(r"[ \t]*(#{1,6}|[-*+]|`{1,2}|~{1,2}|\d{1,3}[.)]?)?")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_HEADING = re.compile(r"#{1,6}[ \t]")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,3}[.)])[ \t]")
_QUOTATION = re.compile(r"[ \t]*>")
_MAYBE_FENCE = re.compile(r"[ \t]*(`*|~*)")


class Flow:
    """Takes text in pieces of any size and gives what to write now. `width` is asked at each word."""

    def __init__(
        self, width: Callable[[], int], *, styled: bool = True, style: str = PLAIN
    ) -> None:
        self._width = width
        self._styled = styled
        self._base = style
        self._out: list[str] = []
        self._shown = PLAIN  # the style that the terminal is in
        self._column = 0
        self._hanging = 0  # where the lines of a wrapped item go on
        self._start: str | None = ""  # of a line that is not understood yet
        self._rest: Callable[[str], None] | None = None  # what takes the rest of an odd line
        self._fence = ""
        self._word: list[tuple[str, str]] = []
        self._spaces = 0
        self._line = PLAIN  # the style of the whole line
        self._strong = self._code = False
        self._stars = ""
        self._before = " "

    def feed(self, text: str) -> str:
        """More text; what of it can be written now."""
        for char in printable(text.replace("\r", "")):
            self._take(char)
        return self._written()

    def finish(self) -> str:
        """The rest, with the terminal back in its own style. The next text begins a new line."""
        if self._start:
            self._begin_text(self._start)
        self._end_stars(" ")
        self._place()
        self._restyle(PLAIN)
        return self._written()

    def _written(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    # -- lines

    def _take(self, char: str) -> None:
        if self._start is not None:
            if char != "\n":
                self._start += char
                self._decide(self._start)
                return
            self._begin_text(self._start)
        if char == "\n":
            self._newline()
        elif self._rest is not None:
            self._rest(char)
        else:
            self._inline(char)

    def _decide(self, start: str) -> None:
        """Find out what kind of line begins like this, if that can be told already."""
        if not self._styled:
            self._begin_text(start)
        elif self._fence:
            self._decide_code(start)
        elif _FENCE.fullmatch(start):
            self._fence = start.strip()
            self._begin_rest(start, DIM)
        elif _HEADING.fullmatch(start):
            self._start, self._line = None, STRONG
        elif item := _ITEM.fullmatch(start):
            self._begin_item(item[1].replace("\t", TAB), item[2])
        elif _QUOTATION.fullmatch(start):
            self._start, self._line, self._hanging = None, DIM, 2
            self._raw("│", DIM)
        elif not _UNDECIDED.fullmatch(start):
            self._begin_text(start)

    def _decide_code(self, start: str) -> None:
        if start.strip() == self._fence:  # a longer one is no end, but hardly ever code either
            self._fence = ""
            self._begin_rest(start, DIM)
        elif not (_MAYBE_FENCE.fullmatch(start) and len(start.strip()) < len(self._fence)):
            self._begin_rest(start, CODE)

    def _begin_item(self, indent: str, mark: str) -> None:
        shown = mark if mark[0].isdigit() else "•"
        self._start, self._hanging = None, len(indent) + len(shown) + 1
        self._raw(f"{indent}{shown} ", PLAIN)

    def _begin_rest(self, start: str, style: str) -> None:
        """A line that is written as it comes; where it is too long, the terminal wraps it."""
        self._start, self._rest = None, lambda char: self._raw(char, style)
        self._raw(start, style)

    def _begin_text(self, start: str) -> None:
        self._start = None
        text = start.lstrip(" \t")
        indent = start[: len(start) - len(text)].replace("\t", TAB)
        self._raw(indent, PLAIN)
        for char in text:
            self._inline(char)

    def _newline(self) -> None:
        self._end_stars(" ")
        self._place()
        self._restyle(PLAIN)
        self._out.append("\n")
        self._column = self._spaces = self._hanging = 0
        self._start, self._rest, self._line = "", None, PLAIN
        self._strong = self._code = False
        self._before = " "

    # -- inside a line

    def _inline(self, char: str) -> None:
        if not self._styled:
            self._put(char)
        elif char == "*" and not self._code:
            self._star()
        elif char == "`":
            self._end_stars(char)
            self._code = not self._code
        else:
            self._end_stars(char)
            self._put(char)

    def _star(self) -> None:
        """Two stars begin strong words when one follows at once, and end them right behind one."""
        self._stars += "*"
        if self._stars == "**" and self._strong and not self._before.isspace():
            self._strong, self._stars = False, ""
        elif len(self._stars) > 2:
            self._literal()

    def _end_stars(self, following: str) -> None:
        if self._stars == "**" and not self._strong and not following.isspace():
            self._strong, self._stars = True, ""
        self._literal()

    def _literal(self) -> None:
        stars, self._stars = self._stars, ""
        for star in stars:
            self._put(star)

    def _put(self, char: str) -> None:
        self._before = char
        if char in " \t":
            self._place()
            self._spaces += len(TAB) if char == "\t" else 1
            return
        style = CODE if self._code else STRONG if self._strong else self._line
        if _cells(char) == 2:  # scripts without spaces can be wrapped anywhere
            self._place()
        self._word.append((char, style))
        if _cells(char) == 2:
            self._place()

    def _place(self) -> None:
        """Write the word, on the next line if it does not fit on this one."""
        if not self._word:
            return
        width, size = self._width(), sum(_cells(char) for char, _ in self._word)
        indent = self._hanging if self._hanging < width // 2 else 0
        if self._column > indent and self._column + self._spaces + size > width:
            self._restyle(PLAIN)
            self._out.append("\n" + " " * indent)
            self._column, self._spaces = indent, 0
        self._raw(" " * self._spaces, self._line)
        self._spaces = 0
        for char, style in self._word:
            self._raw(char, style)
        self._word.clear()

    def _raw(self, text: str, style: str) -> None:
        if not text:
            return
        self._restyle(style or self._base)
        self._out.append(text)
        self._column += sum(map(_cells, text))
        if (width := self._width()) and self._column > width + 1:
            self._column %= width + 1  # the terminal went on in its next line

    def _restyle(self, style: str) -> None:
        if style != self._shown:
            self._out.append(f"\x1b[0;{style}m" if style else "\x1b[0m")
            self._shown = style


def _cells(char: str) -> int:
    """How many cells a character takes."""
    if char.isascii():
        return 1
    from rich.cells import cell_len

    return cell_len(char)
