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
from functools import cache

ESCAPE = "\U0010fffe"
# Patterns are compiled by their first use, not by the import: a first write has no need of them.
_UNHOLDABLE = f"[\x00\ud800-\udfff{ESCAPE}]"
_ESCAPED = f"{ESCAPE}([0-9a-f]{{4}})"

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+"
# Alphabets whose accents merely decorate a letter. (Kana and Indic marks change it.)
_DECORATED = "[\x80-\u052f\u1e00-\u1fff]"
# Parts of Hangul, which become one character when they meet.
_CONJOINING = "[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]"
# Marks that say in which style to draw the sign before them, and change nothing else.
_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_ASCII = bytes(range(128))
_FEW = 64  # different characters outside ASCII


def escape(text: str) -> str:
    """Return `text` in a form that every engine holds without loss."""
    if text.isascii() and "\0" not in text:  # nearly always: spared a call
        return text
    return text if is_holdable(text) else re.sub(_UNHOLDABLE, _as_hex, text)


def unescape(text: str) -> str:
    """Undo `escape`."""
    # An astral needle is not looked for in a string without astral characters: this test is free.
    return re.sub(_ESCAPED, _from_hex, text) if ESCAPE in text else text


def is_holdable(text: str) -> bool:
    """Can every engine hold `text` as it is?"""
    if text.isascii():
        return "\0" not in text
    if "\0" in text or ESCAPE in text:
        return False
    try:
        text.encode()  # ten times as fast as to look for lone surrogates
    except UnicodeEncodeError:
        return False
    return True


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
    return (word for word in re.findall(_WORD, fold(text)) if word[0].isalnum())


def fold(text: str) -> str:
    """Return `text` without case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Most text that is not ASCII has arrows and dashes in it, but no accents: looking is cheaper.
    return folded.translate(_WITHOUT_ACCENT) if re.search(_DECORATED, folded) else folded


def indexable(text: str) -> str:
    """Return what a full-text index has to be given to know exactly the words of `text`."""
    text = text.replace("\0", " ")
    if text.isascii():
        return text
    # An index splits ASCII as we do. What else there is are mostly a few arrows, dashes and letters,
    # and to replace these is many times faster than to look for all the words.
    data = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    strange = set(data.decode("utf-8", "surrogatepass"))
    if len(strange) > _FEW or not all(_SPACED[char] for char in strange):
        return " ".join(words(text))
    for char in strange:
        put = _SPACED[char]
        if put != char and not (put == " " and _is_space_there(char)):
            text = text.replace(char, put)
    return text


@cache
def _is_space_there(char: str) -> bool:
    """Whether SQLite's index, which knows signs as they were in Unicode 6.1, splits words there."""
    return unicodedata.ucd_3_2_0.category(char)[0] in "SPZ"


class _Spaced(dict[str, str]):
    """What to put for a character that is not ASCII, so that an index finds the words around it.

    Nothing for those that change together with their neighbours: marks, and Hangul in its parts.
    """

    def __missing__(self, char: str) -> str:
        plain = unicodedata.normalize("NFKC", char)
        is_joined = re.search(_CONJOINING, plain) or any(
            unicodedata.category(c).startswith("M") and c not in _SELECTORS for c in plain
        )
        self[char] = "" if is_joined else "".join(map(_apart, fold(char)))
        return self[char]


def _apart(char: str) -> str:
    """A folded character as a part of a word, a word of its own, or the space between words."""
    if not char.isalnum():
        return " "
    return f" {char} " if re.match(f"[{_UNSPACED}]", char) else char


class _Accents(dict[int, str]):
    """Letters with accents to letters without, worked out once for each that occurs."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if re.match(_DECORATED, char):
            char = "".join(c for c in unicodedata.normalize("NFD", char) if not _is_mark(c))
        self[code] = char
        return char


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) == "Mn"


_WITHOUT_ACCENT = _Accents()
_SPACED = _Spaced()
