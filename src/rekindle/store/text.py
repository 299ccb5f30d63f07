"""Text as the engines can hold it, and as search sees it.

Two concerns that every engine shares, so that both behave alike:

* PostgreSQL's text has no NUL and no lone surrogates, SQLite's loses the latter. `escape` turns such
  a character into a noncharacter followed by four hex digits, `unescape` turns it back. Ordinary text
  passes through untouched, so it stays readable with any database tool.
* `words` is the one definition of a word: letters and digits, without case and accents; every Han,
  Kana, Hangul, Thai, Lao, Burmese or Khmer character is a word of its own, because those scripts do
  not put spaces between words. A phrase of such characters then finds any part of a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

ESCAPE = "\U0010fffe"
# Patterns are compiled by their first use, not by the import: a first write has no need of them.
_UNHOLDABLE = f"[\x00\ud800-\udfff{ESCAPE}]"
_ESCAPED = f"{ESCAPE}([0-9a-f]{{4}})"

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+"


def escape(text: str) -> str:
    """Return `text` in a form that every engine holds without loss."""
    return text if is_holdable(text) else re.sub(_UNHOLDABLE, _as_hex, text)


def unescape(text: str) -> str:
    """Undo `escape`."""
    # An astral needle is not looked for in a string without astral characters: this test is free.
    return re.sub(_ESCAPED, _from_hex, text) if ESCAPE in text else text


def is_holdable(text: str) -> bool:
    """Can every engine hold `text` as it is?"""
    if text.isascii():
        return "\0" not in text
    return re.search(_UNHOLDABLE, text) is None


def printable(text: str) -> str:
    """Return `text` with a replacement character for what no engine holds: for derived text."""
    return re.sub(_UNHOLDABLE, "\ufffd", text)


def _as_hex(match: re.Match[str]) -> str:
    return ESCAPE + ("ffff" if match[0] == ESCAPE else f"{ord(match[0]):04x}")


def _from_hex(match: re.Match[str]) -> str:
    return ESCAPE if match[1] == "ffff" else chr(int(match[1], 16))


def words(text: str) -> Iterator[str]:
    """Yield the words of `text` as the search index knows them."""
    # Marks and signs of those scripts are no words: SQLite's index passes over them too.
    return (match[0] for match in re.finditer(_WORD, fold(text)) if match[0][0].isalnum())


def fold(text: str) -> str:
    """Return `text` without case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold().translate(_WITHOUT_ACCENT)


def indexable(text: str) -> str:
    """Return what a full-text index has to be given to know exactly the words of `text`."""
    return text if text.isascii() else " ".join(words(text))


class _Accents(dict[int, str]):
    """Letters with accents to letters without, worked out once for each that occurs."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        # Kana and Indic marks change the letter: only alphabets that merely decorate theirs are folded.
        if 0x80 <= code < 0x530 or 0x1E00 <= code < 0x2000:
            char = "".join(c for c in unicodedata.normalize("NFD", char) if not _is_mark(c))
        self[code] = char
        return char


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) == "Mn"


_WITHOUT_ACCENT = _Accents()
