"""Stream a model's Markdown onto a terminal: wrapped at words, with light styling.

Output is never rewritten, so nothing flickers. A word is held back until it is complete, the start of a
line until its kind is clear. Headings, list items, quotations, code and strong text are styled;
everything else is shown as the model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rekindle.cli.output import escape_control_chars

PLAIN, STRONG, CODE, DIM = "", "1", "36", "2"
TAB = "    "

_AMBIGUOUS_START = re.compile(r"[ \t]*(#{1,6}|[-*+]|`{1,2}|~{1,2}|\d{1,3}[.)]?)?")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_HEADING = re.compile(r"#{1,6}[ \t]")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,3}[.)])[ \t]")
_QUOTE = re.compile(r"[ \t]*>")
_POSSIBLE_FENCE = re.compile(r"[ \t]*(`*|~*)")


class MarkdownStream:
    """Converts text in pieces of any size to terminal output. `width` is called for each word."""

    def __init__(
        self, width: Callable[[], int], *, styled: bool = True, style: str = PLAIN
    ) -> None:
        self._width = width
        self._styled = styled
        self._base_style = style
        self._out: list[str] = []
        self._current_style = PLAIN  # the terminal's current style
        self._column = 0
        self._hanging_indent = 0  # indentation of wrapped lines
        self._line_start: str | None = ""  # start of a line whose kind is not known yet
        self._write_verbatim: Callable[[str], None] | None = (
            None  # writes the rest of a verbatim line
        )
        self._fence = ""
        self._word: list[tuple[str, str]] = []
        self._spaces = 0
        self._line_style = PLAIN  # the style of the whole line
        self._is_strong = self._is_code = False
        self._stars = ""
        self._previous_char = " "

    def feed(self, text: str) -> str:
        """Add text and return the output that can be written now."""
        for char in escape_control_chars(text.replace("\r", "")):
            self._process_char(char)
        return self._drain_output()

    def finish(self) -> str:
        """Return the remaining output and reset the style. The next text starts a new line."""
        if self._line_start:
            self._begin_text(self._line_start)
        self._resolve_stars(" ")
        self._flush_word()
        self._set_style(PLAIN)
        return self._drain_output()

    def _drain_output(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    # -- lines

    def _process_char(self, char: str) -> None:
        if self._line_start is not None:
            if char != "\n":
                self._line_start += char
                self._classify_line(self._line_start)
                return
            self._begin_text(self._line_start)
        if char == "\n":
            self._end_line()
        elif self._write_verbatim is not None:
            self._write_verbatim(char)
        else:
            self._process_inline(char)

    def _classify_line(self, start: str) -> None:
        """Determine the kind of the line from its start, if that is enough."""
        if not self._styled:
            self._begin_text(start)
        elif self._fence:
            self._classify_code_line(start)
        elif _FENCE.fullmatch(start):
            self._fence = start.strip()
            self._begin_verbatim(start, DIM)
        elif _HEADING.fullmatch(start):
            self._line_start, self._line_style = None, STRONG
        elif item := _ITEM.fullmatch(start):
            self._begin_item(item[1].replace("\t", TAB), item[2])
        elif _QUOTE.fullmatch(start):
            self._line_start, self._line_style, self._hanging_indent = None, DIM, 2
            self._write_styled("│", DIM)
        elif not _AMBIGUOUS_START.fullmatch(start):
            self._begin_text(start)

    def _classify_code_line(self, start: str) -> None:
        if (
            start.strip() == self._fence
        ):  # a longer fence does not close it, but is hardly ever code
            self._fence = ""
            self._begin_verbatim(start, DIM)
        elif not (_POSSIBLE_FENCE.fullmatch(start) and len(start.strip()) < len(self._fence)):
            self._begin_verbatim(start, CODE)

    def _begin_item(self, indent: str, mark: str) -> None:
        shown = mark if mark[0].isdigit() else "•"
        self._line_start, self._hanging_indent = None, len(indent) + len(shown) + 1
        self._write_styled(f"{indent}{shown} ", PLAIN)

    def _begin_verbatim(self, start: str, style: str) -> None:
        """Begin a line that is written verbatim; the terminal wraps it if it is too long."""
        self._line_start, self._write_verbatim = None, lambda char: self._write_styled(char, style)
        self._write_styled(start, style)

    def _begin_text(self, start: str) -> None:
        self._line_start = None
        text = start.lstrip(" \t")
        indent = start[: len(start) - len(text)].replace("\t", TAB)
        self._write_styled(indent, PLAIN)
        for char in text:
            self._process_inline(char)

    def _end_line(self) -> None:
        self._resolve_stars(" ")
        self._flush_word()
        self._set_style(PLAIN)
        self._out.append("\n")
        self._column = self._spaces = self._hanging_indent = 0
        self._line_start, self._write_verbatim, self._line_style = "", None, PLAIN
        self._is_strong = self._is_code = False
        self._previous_char = " "

    # -- inside a line

    def _process_inline(self, char: str) -> None:
        if not self._styled:
            self._append_char(char)
        elif char == "*" and not self._is_code:
            self._process_star()
        elif char == "`":
            self._resolve_stars(char)
            self._is_code = not self._is_code
        else:
            self._resolve_stars(char)
            self._append_char(char)

    def _process_star(self) -> None:
        """Handle a star: `**` opens strong text before a word and closes it right after one."""
        self._stars += "*"
        if self._stars == "**" and self._is_strong and not self._previous_char.isspace():
            self._is_strong, self._stars = False, ""
        elif len(self._stars) > 2:
            self._flush_stars()

    def _resolve_stars(self, following: str) -> None:
        if self._stars == "**" and not self._is_strong and not following.isspace():
            self._is_strong, self._stars = True, ""
        self._flush_stars()

    def _flush_stars(self) -> None:
        stars, self._stars = self._stars, ""
        for star in stars:
            self._append_char(star)

    def _append_char(self, char: str) -> None:
        self._previous_char = char
        if char in " \t":
            self._flush_word()
            self._spaces += len(TAB) if char == "\t" else 1
            return
        style = CODE if self._is_code else STRONG if self._is_strong else self._line_style
        if _count_cells(char) == 2:  # wide scripts have no spaces and wrap anywhere
            self._flush_word()
        self._word.append((char, style))
        if _count_cells(char) == 2:
            self._flush_word()

    def _flush_word(self) -> None:
        """Write the pending word, on the next line if it does not fit on this one."""
        if not self._word:
            return
        width, size = self._width(), sum(_count_cells(char) for char, _ in self._word)
        indent = self._hanging_indent if self._hanging_indent < width // 2 else 0
        if self._column > indent and self._column + self._spaces + size > width:
            self._set_style(PLAIN)
            self._out.append("\n" + " " * indent)
            self._column, self._spaces = indent, 0
        self._write_styled(" " * self._spaces, self._line_style)
        self._spaces = 0
        for char, style in self._word:
            self._write_styled(char, style)
        self._word.clear()

    def _write_styled(self, text: str, style: str) -> None:
        if not text:
            return
        self._set_style(style or self._base_style)
        self._out.append(text)
        self._column += sum(map(_count_cells, text))
        if (width := self._width()) and self._column > width + 1:
            self._column %= width + 1  # the terminal wrapped the line

    def _set_style(self, style: str) -> None:
        if style != self._current_style:
            self._out.append(f"\x1b[0;{style}m" if style else "\x1b[0m")
            self._current_style = style


def _count_cells(char: str) -> int:
    """Return how many terminal cells a character takes."""
    if char.isascii():
        return 1
    from rich.cells import cell_len

    return cell_len(char)
