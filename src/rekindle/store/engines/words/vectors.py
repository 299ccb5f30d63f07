"""tsvectors of our own words, and the tsqueries that match them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from rekindle.store.core.search_query import Query, Term
from rekindle.store.core.text_encoding import split_words

MAX_POSITIONS = 4_000  # words in a part: a tsvector counts positions up to 16,383 and keeps at most
MAX_POSITIONS_PER_WORD = 255  # positions of one word
MAX_PART_BYTES = 900_000  # a tsvector holds at most a megabyte
MAX_WORD_LENGTH = 500  # characters: a lexeme has at most 2,046 bytes
OVERLAP = 32  # words shared by adjacent parts, so that a phrase across the boundary is found


def build_vectors(text: str) -> Iterator[str]:
    """Yield the words of a text and their positions as tsvectors; an empty text has one empty vector."""
    all_words = [*split_words(text)]
    if len(text) > MAX_WORD_LENGTH or not text.isascii():
        all_words = [word[:MAX_WORD_LENGTH] for word in all_words]
    if len(all_words) <= MAX_POSITIONS_PER_WORD:
        yield _build_short_vector(all_words)
        return
    start = 0
    while start < max(len(all_words), 1):
        positions: defaultdict[str, list[int]] = defaultdict(list)
        bytes_left, stop = MAX_PART_BYTES, start
        while stop < len(all_words) and stop - start < MAX_POSITIONS and bytes_left > 0:
            word_positions = positions[all_words[stop]]
            if len(word_positions) == MAX_POSITIONS_PER_WORD:
                break
            word_positions.append(stop - start + 1)
            bytes_left -= 4 * len(all_words[stop]) + 8
            stop += 1
        yield " ".join(
            f"{_quote_lexeme(word)}:{','.join(map(str, word_positions))}"
            for word, word_positions in positions.items()
        )
        start = stop if stop in (start, len(all_words)) else max(stop - OVERLAP, start + 1)
        if not all_words:
            return


def number_parts(vectors: Iterable[str]) -> list[tuple[int, str]]:
    """Return the parts of a message with their numbers: 0 for the only one, otherwise from 1 on."""
    found = [*vectors]
    return [*enumerate(found, int(len(found) > 1))]


def _build_short_vector(words: Sequence[str]) -> str:
    """Build the tsvector of a text that fits into one part whatever its words are."""
    positions: dict[str, str] = {}
    for position, word in enumerate(words, 1):
        known = positions.get(word)
        positions[word] = f"{known},{position}" if known else f"{position}"
    return " ".join([f"{_quote_lexeme(word)}:{known}" for word, known in positions.items()])


@lru_cache(maxsize=16_384)
def _quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def build_tsquery(query: Query) -> str:
    """Build the tsquery of all groups of words."""
    return " & ".join("(" + " | ".join(map(build_phrase, group)) + ")" for group in query.groups)


def build_phrase(term: Term) -> str:
    """Build the tsquery of adjacent words."""
    lexemes = [_quote_lexeme(word[:MAX_WORD_LENGTH]) for word in term.words]
    lexemes[-1] += ":*" if term.prefix else ""
    return "(" + " <-> ".join(lexemes) + ")"
