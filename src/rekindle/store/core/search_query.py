"""What a person typed into a search, as something both engines can run; and the snippet of a hit.

    words            all must occur                    parse timeout
    "a phrase"       in this order, side by side       "no such file"
    prefix*          words that begin so               time*
    OR               either side                       yaml OR toml
    identifiers      found as written                  read_file, src/app.py, --dry-run

There is no wrong query: what is not syntax is searched for as words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .text_encoding import fold, words

MARKS = ("«", "»")
SNIPPET = 160

_PIECE = r'"([^"]*)"?|(\S+)'


class Term(NamedTuple):
    """Words that stand side by side; `literal` is how they must be written, if that matters."""

    words: tuple[str, ...]
    prefix: bool = False
    literal: str | None = None


class Query(NamedTuple):
    """Every group must be met by one of its terms. Without a group there is nothing to find."""

    groups: tuple[tuple[Term, ...], ...]

    @property
    def has_literals(self) -> bool:
        return any(term.literal for group in self.groups for term in group)

    def accepts(self, text: str) -> bool:
        """Does `text`, known to have the words, also have the identifiers as they were written?"""
        if not self.has_literals:
            return True
        folded, row = fold(text), f" {' '.join(words(text))} "
        return all(
            any(
                term.literal in folded
                if term.literal
                else f" {' '.join(term.words)}{'' if term.prefix else ' '}" in row
                for term in group
            )
            for group in self.groups
        )


def parse(text: str) -> Query:
    """Read a query; never fails."""
    groups: list[list[Term]] = []
    either = False
    for quoted, bare in re.findall(_PIECE, text):
        if bare == "OR" and groups:
            either = True
            continue
        term = _term(quoted or bare, is_quoted=not bare)
        if term is None:
            continue
        if either:
            groups[-1].append(term)
        else:
            groups.append([term])
        either = False
    return Query(tuple(tuple(group) for group in groups))


def _term(text: str, is_quoted: bool) -> Term | None:
    prefix = not is_quoted and text.endswith("*") and len(text) > 1
    text = text[:-1] if prefix else text
    found = tuple(words(text))
    if not found:
        return None
    folded = fold(text)
    as_written = not is_quoted and len(found) > 1 and _is_identifier(folded)
    return Term(found, prefix, folded.strip("()[]{},;:!?'`") if as_written else None)


def _is_identifier(folded: str) -> bool:
    """Words held together by punctuation: not a run of characters that are words by themselves."""
    return any(not (char.isalnum() or ord(char) > 0x2E80) for char in folded)


def snippet(query: Query, text: str) -> str:
    """Return the part of `text` around its first matches, each between the marks."""
    return Snippets(query).of(text)


class Snippets:
    """Makes the snippets of one query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        terms = [term for group in query.groups for term in group]
        self._words = {term.words[0] for term in terms}
        self._is_simple = all(len(term.words) == 1 and not term.prefix for term in terms)
        self._patterns: dict[bool, re.Pattern[str]] = {}

    def of(self, text: str) -> str:
        # Single words in plain text, by far the most, need no regular expression.
        find, mark = self._by_pattern, self._mark_pattern
        if self._is_simple and text.isascii():
            find, mark = self._by_words, self._mark_words
        begin, stop = find(text)
        start = 0
        if begin > SNIPPET // 3:
            start = begin - SNIPPET // 3
            start = max(text.find(" ", start, begin) + 1, start)
        end = max(start + SNIPPET, stop)
        shown = mark(" ".join(text[start:end].split()))
        return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"

    def _pattern(self, text: str) -> re.Pattern[str]:
        is_plain = text.isascii()
        if is_plain not in self._patterns:
            self._patterns[is_plain] = _pattern(self._query, is_plain)
        return self._patterns[is_plain]

    def _by_pattern(self, text: str) -> tuple[int, int]:
        found = self._pattern(text).search(text)
        return found.span() if found else (0, 0)

    def _mark_pattern(self, text: str) -> str:
        return self._pattern(text).sub(_marked, text)

    def _by_words(self, text: str) -> tuple[int, int]:
        lower = text.lower()
        found = [(at, at + len(word)) for word in self._words if (at := _word_at(lower, word)) >= 0]
        return min(found, default=(0, 0))

    def _mark_words(self, text: str) -> str:
        lower = text.lower()
        found: list[tuple[int, int]] = []
        for word in self._words:
            at = _word_at(lower, word)
            while at >= 0:
                found.append((at, at + len(word)))
                at = _word_at(lower, word, at + len(word))
        pieces: list[str] = []
        last = 0
        for at, end in sorted(found):
            pieces += (text[last:at], MARKS[0], text[at:end], MARKS[1])
            last = end
        return "".join(pieces) + text[last:]


def _word_at(text: str, word: str, at: int = 0) -> int:
    """Where `word` stands by itself, from `at` on; -1 if nowhere."""
    at = text.find(word, at)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return at
        at = text.find(word, at + 1)
    return -1


def _marked(match: re.Match[str]) -> str:
    return f"{MARKS[0]}{match[0]}{MARKS[1]}" if match[0] else ""


def _pattern(query: Query, is_plain: bool) -> re.Pattern[str]:
    # Accents were folded away in the query, so where the text has any, a letter may carry them.
    spell = re.escape if is_plain else _loose
    alternatives = [
        r"[\W_]*".join(map(spell, term.words)) + (r"\w*" if term.prefix else "")
        for group in query.groups
        for term in group
    ]
    if not alternatives:
        return re.compile(r"(?!)")
    alternatives.sort(key=len, reverse=True)
    anywhere = "" if is_plain else f"|{_unspaced(query)}"
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(alternatives)})(?![^\W_]){anywhere}", re.I)


def _unspaced(query: Query) -> str:
    """Scripts without spaces have no word borders to respect."""
    runs = {
        "".join(term.words)
        for group in query.groups
        for term in group
        if all(len(word) == 1 and ord(word) > 0xE00 for word in term.words)
    }
    return "|".join(sorted(map(re.escape, runs), key=len, reverse=True)) or r"(?!)"


_ACCENTED = {
    "a": "aàáâãäåāăą", "c": "cçćĉċč", "d": "dďđ", "e": "eèéêëēĕėęě", "g": "gĝğġģ", "i": "iìíîïĩīĭįı",
    "l": "lĺļľł", "n": "nñńņň", "o": "oòóôõöōŏőø", "r": "rŕŗř", "s": "sśŝşš", "t": "tţťŧ",
    "u": "uùúûüũūŭůűų", "y": "yýÿŷ", "z": "zźżž",
}  # fmt: skip


def _loose(word: str) -> str:
    return "".join(
        f"[{_ACCENTED[char]}]" if char in _ACCENTED else re.escape(char) for char in word
    )
