"""Names and topics as strangers typed them, made fit to be shown to a person or a model.

What is left is one line of visible text. Nothing in it ends a quotation, opens a tag or code, turns
the writing direction or hides letters from the reader.
"""

from __future__ import annotations

import unicodedata

MAX_NAME_SHOWN = 80
MAX_TOPIC_SHOWN = 200

_LOOKED_AT = 10_000  # of a text of any size
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})  # control, zero-width and bidi, unassigned
# Letters, marks and symbols that show nothing; a variation selector can hide a byte of text each.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
_BLANK = frozenset([*map(ord, _FILLERS), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
_PLAIN = str.maketrans(
    {
        **dict.fromkeys('"“”„‟«»＂`´', "'"),  # would end a quotation, or open code
        **dict.fromkeys(
            "<＜﹤", "‹"
        ),  # would open a tag, or a marker such as those of chat templates
        **dict.fromkeys(">＞﹥", "›"),
        **dict.fromkeys("[［", "("),
        **dict.fromkeys("]］", ")"),
    }
)


def clean(text: str | None, limit: int = MAX_NAME_SHOWN) -> str:
    """One line of at most `limit` visible characters; the cut is marked. Empty if nothing is left."""
    if not text:
        return ""
    seen = "".join(_visible(char) for char in text[:_LOOKED_AT])
    line = " ".join(seen.translate(_PLAIN).split())
    if len(line) > limit or (line and len(text) > _LOOKED_AT):
        line = line[: limit - 1].rstrip() + "…"
    return line


def quoted(text: str | None, limit: int = MAX_NAME_SHOWN) -> str:
    """The same in quotation marks, which nothing inside can close."""
    return f'"{clean(text, limit)}"'


def _visible(char: str) -> str:
    if char.isspace():
        return " "
    return "" if unicodedata.category(char) in _UNSEEN or ord(char) in _BLANK else char
