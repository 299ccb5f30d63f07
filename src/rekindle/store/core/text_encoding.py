"""Text as the engines can store it, and as search sees it.

Two concerns that every engine shares, so that both behave alike:

* PostgreSQL's text allows no NUL and no lone surrogates, SQLite's loses the latter. `escape_text`
  turns such a character into a noncharacter followed by four hex digits, `unescape_text` reverses it.
  Ordinary text is unchanged, so it stays readable with any database tool.
* `split_words` is the one definition of a word: letters and digits, without case and accents; every
  Han, Kana, Hangul, Thai, Lao, Burmese or Khmer character is a word of its own, because those scripts
  do not separate words by spaces. A phrase of such characters then finds any part of a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

ESCAPE = "\U0010fffe"
# Patterns are compiled on first use, not on import: a first write does not need them.
_UNSTORABLE = f"[\x00\ud800-\udfff{ESCAPE}]"
_ESCAPED = f"{ESCAPE}([0-9a-f]{{4}})"

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+"
# Alphabets in which an accent does not make a different letter (unlike Kana and Indic marks).
_ACCENTED_ALPHABETS = "[\x80-\u052f\u1e00-\u1fff]"
# Hangul parts, which combine into one character.
_CONJOINING = "[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]"
# Variation selectors: they only set the style of the preceding character.
_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_ASCII = bytes(range(128))
_MAX_REPLACED = 64  # distinct non-ASCII characters


def escape_text(text: str) -> str:
    """Return `text` in a form that every engine stores without loss."""
    if text.isascii() and "\0" not in text:  # the usual case: saves a call
        return text
    return text if is_storable(text) else re.sub(_UNSTORABLE, _escape_char, text)


def unescape_text(text: str) -> str:
    """Undo `escape_text`."""
    # Python does not search an astral character in a string without any: this test is free.
    return re.sub(_ESCAPED, _unescape_char, text) if ESCAPE in text else text


def is_storable(text: str) -> bool:
    """Return whether every engine can store `text` unchanged."""
    if text.isascii():
        return "\0" not in text
    if "\0" in text or ESCAPE in text:
        return False
    try:
        text.encode()  # ten times as fast as searching for lone surrogates
    except UnicodeEncodeError:
        return False
    return True


def replace_unstorable(text: str) -> str:
    """Return derived text with a replacement character for everything that cannot be stored."""
    return text if is_storable(text) else re.sub(_UNSTORABLE, "\ufffd", text)


def _escape_char(match: re.Match[str]) -> str:
    return ESCAPE + ("ffff" if match[0] == ESCAPE else f"{ord(match[0]):04x}")


def _unescape_char(match: re.Match[str]) -> str:
    return ESCAPE if match[1] == "ffff" else chr(int(match[1], 16))


def split_words(text: str) -> Iterator[str]:
    """Yield the words of `text` as the search index knows them."""
    words = re.findall(_WORD, fold_text(text))
    if text.isascii():
        return iter(words)
    # Marks and symbols of those scripts are not words: SQLite's index skips them too.
    return (word for word in words if word[0].isalnum())


def fold_text(text: str) -> str:
    """Return `text` without case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Most non-ASCII text has arrows and dashes but no accents: checking first is cheaper.
    return folded.translate(_ACCENT_MAP) if re.search(_ACCENTED_ALPHABETS, folded) else folded


def prepare_for_index(text: str) -> str:
    """Return the text to give to a full-text index so that it finds exactly the words of `text`."""
    text = text.replace("\0", " ")
    if text.isascii():
        return text
    # The index splits ASCII as we do. The rest is usually a few arrows, dashes and letters, and
    # replacing these is many times faster than searching for all the words.
    data = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    non_ascii = set(data.decode("utf-8", "surrogatepass"))
    if len(non_ascii) > _MAX_REPLACED or not all(_SPACED_CHARS[char] for char in non_ascii):
        return " ".join(split_words(text))
    for char in non_ascii:
        replacement = _SPACED_CHARS[char]
        if replacement != char and not (replacement == " " and _is_separator(char)):
            text = text.replace(char, replacement)
    return text


@cache
def _is_separator(char: str) -> bool:
    """Return whether SQLite's index, which knows Unicode 6.1, splits words at a character."""
    return unicodedata.ucd_3_2_0.category(char)[0] in "SPZ"


class _SpacedChars(dict[str, str]):
    """Replacements for non-ASCII characters, so that an index finds the words around them.

    Empty for characters that change together with their neighbours: marks, and Hangul in its parts.
    """

    def __missing__(self, char: str) -> str:
        plain = unicodedata.normalize("NFKC", char)
        is_joined = re.search(_CONJOINING, plain) or any(
            unicodedata.category(c).startswith("M") and c not in _SELECTORS for c in plain
        )
        self[char] = "" if is_joined else "".join(map(_separate_char, fold_text(char)))
        return self[char]


def _separate_char(char: str) -> str:
    """Return a folded character as part of a word, as a word of its own, or as a space."""
    if not char.isalnum():
        return " "
    return f" {char} " if re.match(f"[{_UNSPACED}]", char) else char


class _AccentMap(dict[int, str]):
    """Maps accented letters to plain ones, computed once for each letter that occurs."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if re.match(_ACCENTED_ALPHABETS, char):
            char = "".join(c for c in unicodedata.normalize("NFD", char) if not _is_mark(c))
        self[code] = char
        return char


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) == "Mn"


_ACCENT_MAP = _AccentMap()
_SPACED_CHARS = _SpacedChars()
