"""Measure how well a remembered request fits a new one, by its words and without a model.

Words and the parts of identifiers are compared after stemming. Words that name one specific thing (a
path, a number, a quotation) say little about the kind of task: of a path only the extension counts,
and numbers are ignored. A near match, such as a typo, counts partially. The result is the share of the
new request's words, weighted by rarity, that the remembered one contains: from 0 (none) to 1 (all).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import split_words as words_in

MAX_QUERY_WORDS = 24  # of a request; of a long one, the rarest
_MAX_CHARS = 4_000  # of a text

_K, _B = 1.2, 0.4  # BM25: saturation of repetition, penalty of length
_AVERAGE_LENGTH = 24  # words
_UNSEEN_FACTOR = 0.4  # weight of a word never seen before: it is mostly a name
_MIN_FUZZY_LENGTH = 5  # letters
_MIN_FUZZY_SIMILARITY = 0.6  # shared letter pairs that make two words one with a typo

_TERM = re.compile(
    r"""
    (?P<url> \bhttps?://\S+)
    | (?P<path> (?:~|(?<![\w.@+-]))(?:[\w.@+-]*/)+[\w.@+-]*
      | (?<!\w)(?<!\w-)(?<!--)\b[\w-]+\.[A-Za-z]\w{0,5}\b)
    | (?P<flag> (?<!\S)--?[A-Za-z][\w-]*)
    | (?P<slot> <[a-z][a-z-]*(?::[\w.+-]+)?(?:\#\d+)?>)
    | (?P<word> [^\W_]+)
    """,
    re.VERBOSE,
)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_NON_ALPHANUMERIC = re.compile(r"[\W_]+")
_FILE_EXTENSION = re.compile(r"\.([A-Za-z]\w{0,5})$")
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_STOP_WORDS = words_in(
    """
    a about after again all also am an and any are as at be been before but by can could did do does
    doing done each else for from get give go had has have he her here him his how i if in into is it
    its just let like make may me mine more most much must my need needs new no not now of off on once
    one only or other our out over own please same she should show so some such sure take than thank
    thanks that the their them then there these they thing this those to too tell try up us use using
    very want wanted was way we well were what when where which who why will with would yes yet you
    your hi hello hey ok okay
    """
)


class WeightedWords(NamedTuple):
    """The words of a remembered request with their weights, and how many there are."""

    words: Mapping[str, float]
    length: int


def stem_word(word: str) -> str:
    """Strip the endings that do not change the topic: `failing`, `failed`, `fails`."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word[-1] == "s" and word[-2] not in "sui":
        word = word[:-1]
    for ending, least in (("ation", 4), ("ing", 3), ("ed", 3)):
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = _undouble_consonant(word[: -len(ending)])
            break
    return word[:-1] if len(word) > 3 and word[-1] == "e" else word


def _undouble_consonant(word: str) -> str:
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word


def extract_terms(text: str) -> list[str]:
    """Return the topic of a text in order: word stems, path extensions, long flags."""
    found: list[str] = []
    for piece in _TERM.finditer(text[:_MAX_CHARS]):
        kind, matched = piece.lastgroup, piece[0]
        if kind == "url":
            found.append("<url>")
        elif kind == "slot":
            found.extend(_slot_to_terms(matched))
        elif kind == "path":
            found.extend(_path_to_terms(matched))
        elif kind == "flag":
            found.append(matched.lower())
        else:
            found.extend(_word_to_terms(matched))
    return found


def to_index_token(term: str) -> str:
    """Return a term as the index stores it: letters and digits only."""
    return _NON_ALPHANUMERIC.sub("", term)


def _slot_to_terms(slot: str) -> list[str]:
    """Return the terms of a slot: the extension of a path, or that it was a URL."""
    kind, _, rest = slot[1:-1].partition("#")[0].partition(":")
    if kind == "path" and rest:
        return [f".{rest.lower()}"]
    return ["<url>"] if kind == "url" else []


def _path_to_terms(path: str) -> list[str]:
    extension = _FILE_EXTENSION.search(path)
    if extension is None:
        return [word for part in path.split("/")[-2:] for word in _word_to_terms(part)]
    return [f".{extension[1].lower()}"]


@lru_cache(maxsize=50_000)
def _word_to_terms(word: str) -> tuple[str, ...]:
    if _UNSPACED.search(word):
        return tuple(char for char in word if _UNSPACED.match(char))
    parts = _CAMEL.findall(word) if not word.islower() else [word]
    return tuple(
        stem_word(folded)
        for part in parts
        if (folded := _fold_word(part)) not in _STOP_WORDS
        and not folded.isdigit()
        and len(folded) > 1
    )


def _fold_word(word: str) -> str:
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))


def weigh_words(*texts: tuple[str, float]) -> WeightedWords:
    """Weigh the words of a remembered request, given its texts with their weights."""
    words: dict[str, float] = {}
    length = 0
    for text, weight in texts:
        found = extract_terms(text) if text else ()
        length += len(found)
        for word in found:
            words[word] = words.get(word, 0.0) + weight
    return WeightedWords(words, length)


class RequestMatcher:
    """A new request, prepared for comparison with many remembered ones.

    `pattern_counts` says how many of the `total` remembered requests contain a word; a word that is
    missing there has not been seen before.
    """

    def __init__(self, text: str, pattern_counts: Mapping[str, int], total: int) -> None:
        self._text = text
        weights = {
            word: _compute_weight(pattern_counts.get(word, 0), total)
            for word in dict.fromkeys(extract_terms(text))
        }
        rarest = sorted(weights, key=lambda word: -weights[word])[:MAX_QUERY_WORDS]
        self.words: dict[str, float] = {word: weights[word] for word in rarest}
        # A word never seen may have a typo. Short words resemble too many others.
        self._unseen_words = frozenset(
            w for w in rarest if not pattern_counts.get(w) and len(w) >= _MIN_FUZZY_LENGTH
        )
        self._unseen_initials = frozenset(word[0] for word in self._unseen_words)
        self._total_weight = sum(self.words.values())

    def compute_fit(self, other: WeightedWords) -> float:
        """Return how well a remembered request fits, from 0 to 1."""
        if not self._total_weight:
            return 0.0
        slack = _K * (1 - _B + _B * other.length / _AVERAGE_LENGTH)
        begins = self._unseen_initials
        similar = [w for w in other.words if w[0] in begins and len(w) >= _MIN_FUZZY_LENGTH]
        common = 0.0
        for word, weight in self.words.items():
            count = other.words.get(word)
            if count is None and similar and word in self._unseen_words:
                count = _score_near_match(word, similar)
            if count:
                common += weight * min(1.0, count * (_K + 1) / (count + slack))
        return common / self._total_weight

    def find_shared_words(self, other: WeightedWords) -> tuple[str, ...]:
        """Return the shared words as the request spells them, the rarest first."""
        both = [word for word in self.words if word in other.words]
        return tuple(
            self._original_words.get(word, word) for word in sorted(both, key=self._get_sort_key)
        )

    def _get_sort_key(self, word: str) -> float:
        return -self.words[word]

    @cached_property
    def _original_words(self) -> Mapping[str, str]:
        """Each stem with the word that it stands for, as the request spells it."""
        whole = dict.fromkeys(
            piece.casefold() for piece in _PLAIN_WORD.findall(self._text[:_MAX_CHARS])
        )
        return {
            stems[0]: piece for piece in reversed(whole) if len(stems := extract_terms(piece)) == 1
        }


def _compute_weight(count: int, total: int) -> float:
    if count <= 0:
        return _UNSEEN_FACTOR * math.log(1 + 2 * (max(total, 1) + 0.5))
    return math.log(1 + (max(total - count, 0) + 0.5) / (count + 0.5))


def _score_near_match(word: str, others: Iterable[str]) -> float:
    """Return the similarity of the nearest word, or 0 if none is near enough."""
    best, first = 0.0, word[0]
    for other in others:
        if other[0] == first and abs(len(other) - len(word)) < 3:
            best = max(best, _compute_dice(word, other))
    return best if best >= _MIN_FUZZY_SIMILARITY else 0.0


@lru_cache(maxsize=20_000)
def _get_bigrams(word: str) -> frozenset[str]:
    """Return the pairs of adjacent letters, including the borders of the word."""
    edged = f"^{word}$"
    return frozenset(edged[at : at + 2] for at in range(len(edged) - 1))


def _compute_dice(word: str, other: str) -> float:
    one, two = _get_bigrams(word), _get_bigrams(other)
    return 2 * len(one & two) / (len(one) + len(two))


def compute_jaccard(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the share of words that two remembered requests have in common."""
    if not one or not other:
        return 0.0
    common = len(one.keys() & other.keys())
    return common / (len(one) + len(other) - common)


def select_diverse(
    ranks: Sequence[float],
    words: Sequence[Mapping[str, float]],
    limit: int,
    relevance_weight: float = 0.7,
) -> list[int]:
    """Return the indexes of the best few that do not repeat each other, best first.

    `relevance_weight` balances a high rank (1) against difference from those already chosen (0).
    """
    chosen: list[int] = []
    left = list(range(len(ranks)))
    top = max(ranks, default=0.0) or 1.0
    closest = [0.0] * len(ranks)  # to those already chosen
    while left and len(chosen) < limit:
        best = max(
            left,
            key=lambda n: (
                _score_marginal_relevance(ranks[n] / top, closest[n], relevance_weight),
                -n,
            ),
        )
        left.remove(best)
        chosen.append(best)
        for number in left:
            closest[number] = max(closest[number], compute_jaccard(words[number], words[best]))
    return chosen


def _score_marginal_relevance(rank: float, closest: float, relevance_weight: float) -> float:
    return relevance_weight * rank - (1 - relevance_weight) * closest
