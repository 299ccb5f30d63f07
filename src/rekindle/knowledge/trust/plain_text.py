"""Undo what hides a name in a text from a comparison, and not from a model."""

from __future__ import annotations

import re
import unicodedata

_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x1b[()][A-Z0-9]")
_TAG = re.compile(r"</?[a-z][a-z0-9]{0,10}/?>")
_EMPHASIS = re.compile(r"(?<=[a-z0-9*_~`-])(?:\*{1,3}|~~|`)(?=[a-z0-9*_~`-])")
_ENTITY = re.compile(r"&#(?:x([0-9a-f]{1,6})|([0-9]{1,7}));")
_PERCENT = re.compile(r"%([2-7][0-9a-f])")
# Letters of other alphabets that look like Latin ones.
_ALIKE = str.maketrans(
    {
        "а": "a", "е": "e", "о": "o", "р": "p", "с": "c", "у": "y", "х": "x", "і": "i", "ѕ": "s",
        "ј": "j", "ԁ": "d", "ո": "n", "ɡ": "g", "һ": "h", "ӏ": "l", "ԛ": "q", "ѡ": "w", "ν": "v",
        "ο": "o", "α": "a", "ι": "i", "κ": "k", "ρ": "p", "τ": "t", "υ": "u", "χ": "x", "ı": "i",
    }
)  # fmt: skip


def normalize_text(text: str) -> str:
    """Return a text in lower case without marks, tags, signs that nobody sees, and odd letters."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).lower().translate(_ALIKE)
        hidden = {
            ord(char): None for char in set(text) if unicodedata.category(char) in ("Cf", "Mn")
        }
        text = text.translate(hidden)
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "<" in text:
        text = _TAG.sub("", text)
    if "&#" in text:
        text = _ENTITY.sub(_decode_entity, text)
    if "%" in text:
        text = _PERCENT.sub(lambda found: chr(int(found[1], 16)), text).lower()
    return _EMPHASIS.sub("", text)


def _decode_entity(found: re.Match[str]) -> str:
    number = int(found[1], 16) if found[1] else int(found[2])
    return chr(number).lower() if 32 < number < 0x110000 and not 0xD7FF < number < 0xE000 else " "
