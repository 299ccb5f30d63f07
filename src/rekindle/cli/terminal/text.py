"""Text for a terminal: foreign text made harmless, and numbers, times and names in a few characters.

Nothing here is slow to load: the picker paints with it before anything else is imported.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rekindle.pages.text import escape_control_chars as escape_control_chars
from rekindle.pages.text import format_count as format_count
from rekindle.pages.text import get_display_name as get_display_name
from rekindle.pages.text import shorten_ids as shorten_ids
from rekindle.pages.text import to_one_line as to_one_line

if TYPE_CHECKING:
    from decimal import Decimal

    from rekindle.types import Session


def escape_unencodable_output() -> None:
    """Escape characters that the terminal cannot encode instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def format_age(session: Session, now: float) -> str:
    """Format how long ago the session was last active."""
    return format_elapsed(now - session.last_active)


def format_elapsed(seconds: float) -> str:
    """Format how long ago something was."""
    for unit, size in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def format_time(seconds: float) -> str:
    """Format a timestamp as local time, to the minute."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def format_cost(cost: Decimal) -> str:
    """Format an amount of dollars: to the cent, or more exactly if it is less."""
    return f"{cost:,.2f}" if cost >= 1 or not cost else f"{cost:.4f}"


def to_safe_line(text: str, max_length: int) -> str:
    """Collapse foreign text to one line without control characters.

    Unlike `escape_control_chars`, this also replaces characters that are invisible or that turn the
    direction of writing: among other texts on a line they would hide or reorder those.
    """
    line = escape_control_chars(to_one_line(text, max_length))
    if line.isprintable():
        return line
    return "".join([char if char.isprintable() else "\ufffd" for char in line])


def measure_width(text: str) -> int:
    """Return how many cells of a terminal a line takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # only for text that needs it: it delays the first paint

    return cell_len(text)


def fit_to_width(text: str, cells: int) -> str:
    """Truncate a line to `cells` terminal cells, marking the cut with an ellipsis."""
    if measure_width(text) <= cells:
        return text
    if cells < 2:
        return ""
    if text.isascii():
        return f"{text[: cells - 1].rstrip()}…"
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, cells - 1).rstrip()}…"


def wrap_to_width(text: str, cells: int) -> list[str]:
    """Break foreign text at spaces into safe lines of at most `cells` terminal cells."""
    lines: list[str] = []
    line = ""
    for word in to_safe_line(text, len(text)).split(" "):
        if line and measure_width(line) + 1 + measure_width(word) <= cells:
            line = f"{line} {word}"
            continue
        lines += [line] if line else []
        while measure_width(word) > cells:
            head = fit_to_width(word, cells + 1)[:-1] or word[:1]
            lines.append(head)
            word = word[len(head) :]
        line = word
    return [*lines, line] if line else lines
