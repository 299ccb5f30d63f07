"""Parse a search typed by a user for both engines, and make the snippets of its hits.

    words            all must occur                    parse timeout
    "a phrase"       adjacent, in this order           "no such file"
    prefix*          words with this prefix            time*
    OR               either side                       yaml OR toml
    -                must not occur                    timeout -retry -"as expected"
    identifiers      found as written                  read_file, src/app.py, --dry-run

No query is invalid: whatever is not syntax is searched for as words. A query that only says what
must not occur finds nothing. Quote a word that begins with a single dash to find it: "-rf".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .text_encoding import fold_text, split_words

MATCH_MARKS = ("«", "»")
SNIPPET_LENGTH = 160

_TOKEN = r'(-?)"([^"]*)"?|(\S+)'


class Term(NamedTuple):
    """Adjacent words; `literal` is how they must be written, if that matters."""

    words: tuple[str, ...]
    prefix: bool = False
    literal: str | None = None


class Query(NamedTuple):
    """Groups of alternative terms, each of which must match, and terms that must not.

    Without groups nothing is found.
    """

    groups: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...] = ()

    @property
    def has_literals(self) -> bool:
        """Whether any term must match as written."""
        terms = (term for group in (*self.groups, self.excluded) for term in group)
        return any(term.literal for term in terms)

    @property
    def excluded_words(self) -> tuple[Term, ...]:
        """The terms that must not occur in any form; the others must not occur as written."""
        return tuple(term for term in self.excluded if not term.literal)

    def matches_literals(self, text: str) -> bool:
        """Return whether `text`, known to have the words, also has the identifiers as written."""
        if not self.has_literals:
            return True
        folded, joined_words = fold_text(text), f" {' '.join(split_words(text))} "
        if any(term.literal and term.literal in folded for term in self.excluded):
            return False
        return all(
            any(
                term.literal in folded
                if term.literal
                else f" {' '.join(term.words)}{'' if term.prefix else ' '}" in joined_words
                for term in group
            )
            for group in self.groups
        )


def parse_query(text: str) -> Query:
    """Parse a query; never fails."""
    groups: list[list[Term]] = []
    excluded: list[Term] = []
    is_alternative = False
    for dash, quoted, bare in re.findall(_TOKEN, text):
        if bare == "OR" and groups:
            is_alternative = True
            continue
        is_excluded = bool(dash) or (bare.startswith("-") and not bare.startswith("--"))
        word = bare[1:] if is_excluded else bare
        term = _parse_term(quoted or word, is_quoted=not bare)
        if term is None:
            continue
        if is_excluded:
            excluded.append(term)
        elif is_alternative:
            groups[-1].append(term)
        else:
            groups.append([term])
        is_alternative = False
    return Query(tuple(tuple(group) for group in groups), tuple(excluded))


def _parse_term(text: str, is_quoted: bool) -> Term | None:
    prefix = not is_quoted and text.endswith("*") and len(text) > 1
    text = text[:-1] if prefix else text
    found = tuple(split_words(text))
    if not found:
        return None
    folded = fold_text(text)
    is_literal = not is_quoted and len(found) > 1 and _is_identifier(folded)
    return Term(found, prefix, folded.strip("()[]{},;:!?'`") if is_literal else None)


def _is_identifier(folded: str) -> bool:
    """Return whether punctuation joins the words, rather than each character being a word."""
    return any(not (char.isalnum() or ord(char) > 0x2E80) for char in folded)


def make_snippet(query: Query, text: str) -> str:
    """Return the part of `text` around its first matches, each between marks."""
    return SnippetMaker(query).make(text)


class SnippetMaker:
    """Makes the snippets for one query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        terms = [term for group in query.groups for term in group]
        self._words = {term.words[0] for term in terms}
        self._is_simple = all(len(term.words) == 1 and not term.prefix for term in terms)
        self._patterns: dict[bool, re.Pattern[str]] = {}

    def make(self, text: str) -> str:
        # Single words in ASCII text, the usual case, need no regular expression.
        """Return the part of `text` around its first matches, each between marks."""
        find, mark = self._find_by_pattern, self._mark_by_pattern
        if self._is_simple and text.isascii():
            find, mark = self._find_by_words, self._mark_by_words
        begin, stop = find(text)
        start = 0
        if begin > SNIPPET_LENGTH // 3:
            start = begin - SNIPPET_LENGTH // 3
            start = max(text.find(" ", start, begin) + 1, start)
        end = max(start + SNIPPET_LENGTH, stop)
        excerpt = mark(" ".join(text[start:end].split()))
        return f"{'…' if start else ''}{excerpt}{'…' if end < len(text) else ''}"

    def _get_pattern(self, text: str) -> re.Pattern[str]:
        is_plain = text.isascii()
        if is_plain not in self._patterns:
            self._patterns[is_plain] = _build_pattern(self._query, is_plain)
        return self._patterns[is_plain]

    def _find_by_pattern(self, text: str) -> tuple[int, int]:
        found = self._get_pattern(text).search(text)
        return found.span() if found else (0, 0)

    def _mark_by_pattern(self, text: str) -> str:
        return self._get_pattern(text).sub(_mark_match, text)

    def _find_by_words(self, text: str) -> tuple[int, int]:
        lower = text.lower()
        found = [
            (at, at + len(word)) for word in self._words if (at := _find_word(lower, word)) >= 0
        ]
        return min(found, default=(0, 0))

    def _mark_by_words(self, text: str) -> str:
        lower = text.lower()
        found: list[tuple[int, int]] = []
        for word in self._words:
            at = _find_word(lower, word)
            while at >= 0:
                found.append((at, at + len(word)))
                at = _find_word(lower, word, at + len(word))
        pieces: list[str] = []
        last = 0
        for at, end in sorted(found):
            pieces += (text[last:at], MATCH_MARKS[0], text[at:end], MATCH_MARKS[1])
            last = end
        return "".join(pieces) + text[last:]


def _find_word(text: str, word: str, at: int = 0) -> int:
    """Return the first position of `word` as a whole word, starting at `at`, or -1."""
    at = text.find(word, at)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return at
        at = text.find(word, at + 1)
    return -1


def _mark_match(match: re.Match[str]) -> str:
    return f"{MATCH_MARKS[0]}{match[0]}{MATCH_MARKS[1]}" if match[0] else ""


def _build_pattern(query: Query, is_plain: bool) -> re.Pattern[str]:
    # The query was folded, so a letter of a non-ASCII text may carry an accent.
    spell_word = re.escape if is_plain else _spell_with_accents
    alternatives = [
        r"[\W_]*".join(map(spell_word, term.words)) + (r"\w*" if term.prefix else "")
        for group in query.groups
        for term in group
    ]
    if not alternatives:
        return re.compile(r"(?!)")
    alternatives.sort(key=len, reverse=True)
    unspaced = "" if is_plain else f"|{_build_unspaced_pattern(query)}"
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(alternatives)})(?![^\W_]){unspaced}", re.I)


def _build_unspaced_pattern(query: Query) -> str:
    """Build a pattern for scripts without spaces, which have no word boundaries."""
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


def _spell_with_accents(word: str) -> str:
    return "".join(
        f"[{_ACCENTED[char]}]" if char in _ACCENTED else re.escape(char) for char in word
    )
