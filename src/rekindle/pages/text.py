"""Names and foreign text in one line, for terminals, files and pages alike.

Nothing here is slow to load: the picker paints with it before anything else is imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rekindle.types import Session

_SHORT_ID_LENGTH, _SHORT_UUID_LENGTH = 24, 13
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTROL_CHAR_MAP = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    0x7F: 0x2421,
}


def escape_control_chars(text: str) -> str:
    """Replace control characters that could manipulate a terminal."""
    return text.replace("\r\n", "\n").translate(_CONTROL_CHAR_MAP)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: `1 session`, `2 sessions`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def shorten_ids(ids: Sequence[str]) -> list[str]:
    """Shorten `ids` to prefixes that are still unique and can be passed back to a command."""
    longest = max(map(len, ids), default=0)
    for more in range(0, longest, 5):
        short = [
            one[: (_SHORT_UUID_LENGTH if _UUID.fullmatch(one) else _SHORT_ID_LENGTH) + more]
            for one in ids
        ]
        if len(set(short)) == len(set(ids)):
            return short
    return list(ids)


def get_display_name(session: Session, names: Mapping[str, str] | None = None) -> str:
    """Return its name among these, see `Store.load_names`, or its title or first request."""
    name = (names or {}).get(session.id) or session.title or session.preview
    return to_one_line(name or "", 200) or "(untitled)"


def to_one_line(text: str, max_length: int) -> str:
    """Collapse `text` to one line of at most `max_length` characters."""
    line = " ".join(text[: max_length * 4].split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def make_file_name(text: str) -> str:
    """Return the text as a part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip(".")
