"""Keep of a sentence only words that are known to be harmless.

A name, a password or an address can be any word, so unknown words are left out (`…`), and a sentence
with too many of them is dropped. Known are common English words, common words of software work, and the
names that the caller vouches for, such as files of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from .common_words import is_common_word
from .wishes.doubtful_sentences import find_doubtful_words, is_about_credentials, is_spelled

GAP = "…"
MIN_WORDS = 3
MIN_KNOWN_SHARE = 0.75
_TOKEN = re.compile(r"\S+")
_EDGES = "`'\"“”‘’()[]{}<>.,;:!?*_"
_SMALL_NUMBER = re.compile(r"\d{1,2}%?")


def keep_sentence(text: str, names: Collection[str] = ()) -> str | None:
    """Return the sentence with gaps for unknown words, or None if too little of it is left.

    None is returned for a sentence about somebody's credentials, too, and if something is spelled.
    """
    if is_about_credentials(text) or is_spelled(text, names):
        return None
    kept: list[str] = []
    known = total = 0
    for token, is_doubtful in zip(text.split(), find_doubtful_words(text, names), strict=True):
        word = token.strip(_EDGES)
        if not word:
            continue
        total += 1
        if not is_doubtful and _is_known(word, names):
            known += 1
            kept.append(token if token.isascii() else word)
        elif kept[-1:] != [GAP]:
            kept.append(GAP)
    if known < MIN_WORDS or known < MIN_KNOWN_SHARE * total:
        return None
    return " ".join(kept)


def is_plain(text: str) -> bool:
    """Return whether a text consists of known words alone."""
    words = [token.strip(_EDGES) for token in _TOKEN.findall(text)]
    return any(words) and text.isascii() and all(_is_known(word, ()) for word in words if word)


def _is_known(word: str, names: Collection[str]) -> bool:
    lower = word.lower()
    return (
        is_common_word(lower)
        or word in names
        or _SMALL_NUMBER.fullmatch(word) is not None
        or ("-" in lower and all(map(is_common_word, lower.split("-"))))
    )
