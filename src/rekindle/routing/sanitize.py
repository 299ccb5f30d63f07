"""Sanitizes names and topics that other people typed, for display to a person or a model.

The result is one line of visible text. Nothing in it can close a quotation, open a tag or code, change
the writing direction or hide characters from the reader.
"""

from __future__ import annotations

import unicodedata

MAX_NAME_CHARS = 80
MAX_TOPIC_CHARS = 200

_MAX_INPUT_CHARS = 10_000  # the rest of a longer text is ignored
_INVISIBLE_CATEGORIES = frozenset(
    {"Cc", "Cf", "Cs", "Co", "Cn"}
)  # control, zero-width and bidi, unassigned
# Characters that render as nothing; each variation selector can hide a byte of text.
_FILLER_CHARS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
_BLANK_CODE_POINTS = frozenset(
    [*map(ord, _FILLER_CHARS), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
)
_REPLACEMENTS = str.maketrans(
    {
        **dict.fromkeys('"“”„‟«»＂`´', "'"),  # could close a quotation or open code
        **dict.fromkeys("<＜﹤", "‹"),  # could open a tag or a chat template marker
        **dict.fromkeys(">＞﹥", "›"),
        **dict.fromkeys("[［", "("),
        **dict.fromkeys("]］", ")"),
    }
)


def clean_text(text: str | None, limit: int = MAX_NAME_CHARS) -> str:
    """Return one line of at most `limit` visible characters, with an ellipsis if it was cut."""
    if not text:
        return ""
    visible = "".join(_strip_invisible(char) for char in text[:_MAX_INPUT_CHARS])
    line = " ".join(visible.translate(_REPLACEMENTS).split())
    if len(line) > limit or (line and len(text) > _MAX_INPUT_CHARS):
        line = line[: limit - 1].rstrip() + "…"
    return line


def strip_hidden_chars(text: str) -> str:
    """Return the text with its lines and tabs, but without invisible and control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(map(_strip_hidden_in_line, lines))


def _strip_hidden_in_line(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(char if char == "\t" else _strip_invisible(char) for char in line)


def quote_text(text: str | None, limit: int = MAX_NAME_CHARS) -> str:
    """Return the cleaned text in quotation marks that nothing inside can close."""
    return f'"{clean_text(text, limit)}"'


def _strip_invisible(char: str) -> str:
    if char.isspace():
        return " "
    return (
        ""
        if unicodedata.category(char) in _INVISIBLE_CATEGORIES or ord(char) in _BLANK_CODE_POINTS
        else char
    )
