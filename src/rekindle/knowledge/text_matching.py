"""How well a remembered request fits a new one: by its words, without a model.

What is compared are words and the parts of identifiers, brought to a common stem. Words that name
one thing only (a path, a number, a quotation) tell little about the kind of a task: of a path its
ending counts, a number not at all. A word that nearly matches, as with a typing error, counts in
part. The result is the share of what the new request says, weighed by how rare its words are, that
the remembered one says too: 0 has nothing in common, 1 says it all.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import words as words_in

MOST_WORDS = 24  # of a request: of a long one those that tell most
_LOOKED_AT = 4_000  # characters of a text

_K, _B = 1.2, 0.4  # BM25: how fast repetition counts less, how far a long text counts less
_USUAL_LENGTH = 24  # words
_UNKNOWN = 0.4  # what a word counts that nobody has said before: it is mostly a name
_LEAST_NEAR = 5  # letters of a word that may be mistyped
_NEAR = 0.6  # pairs of letters in common from which on two words count as one mistyped

_PIECE = re.compile(
    r"""
    (?P<url> \bhttps?://\S+)
    | (?P<path> (?:~|\.{1,2})?(?:[\w.@+-]*/)+[\w.@+-]* | \b[\w-]+\.[A-Za-z]\w{0,5}\b)
    | (?P<flag> (?<!\S)--?[A-Za-z][\w-]*)
    | (?P<slot> <[a-z][a-z-]*(?::[\w.+-]+)?(?:\#\d+)?>)
    | (?P<word> [^\W_]+)
    """,
    re.VERBOSE,
)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_WRITTEN = re.compile(r"[^\W_]+")
_SIGNS = re.compile(r"[\W_]+")
_ENDING = re.compile(r"\.([A-Za-z]\w{0,5})$")
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_COMMON = words_in(
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


class Said(NamedTuple):
    """The words of a remembered request, with how much each of them counts, and how many there are."""

    words: Mapping[str, float]
    length: int


def stem(word: str) -> str:
    """A word without the endings that say nothing about the matter: `failing`, `failed`, `fails`."""
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
            word = _undoubled(word[: -len(ending)])
            break
    return word[:-1] if len(word) > 3 and word[-1] == "e" else word


def _undoubled(word: str) -> str:
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word


def terms(text: str) -> list[str]:
    """What a text is about, in its order: stems of words, endings of paths, long flags."""
    found: list[str] = []
    for piece in _PIECE.finditer(text[:_LOOKED_AT]):
        kind, what = piece.lastgroup, piece[0]
        if kind == "url":
            found.append("<url>")
        elif kind == "slot":
            found.extend(_of_slot(what))
        elif kind == "path":
            found.extend(_of_path(what))
        elif kind == "flag":
            found.append(what.lower())
        else:
            found.extend(_of_word(what))
    return found


def token(term: str) -> str:
    """A term as an index knows it: letters and digits alone."""
    return _SIGNS.sub("", term)


def _of_slot(slot: str) -> list[str]:
    """A slot says that something of a kind stood there: the ending of a path, that it was a URL."""
    kind, _, rest = slot[1:-1].partition("#")[0].partition(":")
    if kind == "path" and rest:
        return [f".{rest.lower()}"]
    return ["<url>"] if kind == "url" else []


def _of_path(path: str) -> list[str]:
    ending = _ENDING.search(path)
    if ending is None:
        return [word for part in path.split("/")[-2:] for word in _of_word(part)]
    return [f".{ending[1].lower()}"]


@lru_cache(maxsize=50_000)
def _of_word(word: str) -> tuple[str, ...]:
    if _UNSPACED.search(word):
        return tuple(char for char in word if _UNSPACED.match(char))
    parts = _CAMEL.findall(word) if not word.islower() else [word]
    return tuple(
        stem(folded)
        for part in parts
        if (folded := _folded(part)) not in _COMMON and not folded.isdigit() and len(folded) > 1
    )


def _folded(word: str) -> str:
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))


def said(*texts: tuple[str, float]) -> Said:
    """The words of a remembered request, given its texts and how much each of them counts."""
    words: dict[str, float] = {}
    length = 0
    for text, weight in texts:
        found = terms(text) if text else ()
        length += len(found)
        for word in found:
            words[word] = words.get(word, 0.0) + weight
    return Said(words, length)


class Request:
    """A new request, ready to be compared with many remembered ones.

    `known` tells of words how many remembered requests have them, out of `total`; what it does not
    name has not been said before.
    """

    def __init__(self, text: str, known: Mapping[str, int], total: int) -> None:
        self._text = text
        weights = {word: _weight(known.get(word, 0), total) for word in dict.fromkeys(terms(text))}
        most = sorted(weights, key=lambda word: -weights[word])[:MOST_WORDS]
        self.words: dict[str, float] = {word: weights[word] for word in most}
        # What nobody has said may be mistyped. Short words are too much like others.
        self._odd = frozenset(w for w in most if not known.get(w) and len(w) >= _LEAST_NEAR)
        self._begins = frozenset(word[0] for word in self._odd)
        self._all = sum(self.words.values())

    def fit(self, other: Said) -> float:
        """How well a remembered request fits, from 0 to 1."""
        if not self._all:
            return 0.0
        slack = _K * (1 - _B + _B * other.length / _USUAL_LENGTH)
        begins = self._begins
        similar = [w for w in other.words if w[0] in begins and len(w) >= _LEAST_NEAR]
        common = 0.0
        for word, weight in self.words.items():
            count = other.words.get(word)
            if count is None and similar and word in self._odd:
                count = _near(word, similar)
            if count:
                common += weight * min(1.0, count * (_K + 1) / (count + slack))
        return common / self._all

    def shared(self, other: Said) -> tuple[str, ...]:
        """The words that both have, as the request says them, the most telling first."""
        both = [word for word in self.words if word in other.words]
        return tuple(self._written.get(word, word) for word in sorted(both, key=self._rarity))

    def _rarity(self, word: str) -> float:
        return -self.words[word]

    @cached_property
    def _written(self) -> Mapping[str, str]:
        """For each stem the word that has it, as it stands in the request."""
        whole = dict.fromkeys(
            piece.casefold() for piece in _WRITTEN.findall(self._text[:_LOOKED_AT])
        )
        return {stems[0]: piece for piece in reversed(whole) if len(stems := terms(piece)) == 1}


def _weight(known: int, total: int) -> float:
    if known <= 0:
        return _UNKNOWN * math.log(1 + 2 * (max(total, 1) + 0.5))
    return math.log(1 + (max(total - known, 0) + 0.5) / (known + 0.5))


def _near(word: str, others: Iterable[str]) -> float:
    """How much the best of the words nearly says the same; 0 if none does."""
    best, first = 0.0, word[0]
    for other in others:
        if other[0] == first and abs(len(other) - len(word)) < 3:
            best = max(best, _dice(word, other))
    return best if best >= _NEAR else 0.0


@lru_cache(maxsize=20_000)
def _grams(word: str) -> frozenset[str]:
    """Pairs of letters, with the borders of the word among them."""
    edged = f"^{word}$"
    return frozenset(edged[at : at + 2] for at in range(len(edged) - 1))


def _dice(word: str, other: str) -> float:
    one, two = _grams(word), _grams(other)
    return 2 * len(one & two) / (len(one) + len(two))


def alike(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """How much two remembered requests say the same: the share of their words in common."""
    if not one or not other:
        return 0.0
    common = len(one.keys() & other.keys())
    return common / (len(one) + len(other) - common)


def diverse(
    ranks: Sequence[float], words: Sequence[Mapping[str, float]], most: int, eagerness: float = 0.7
) -> list[int]:
    """The numbers of the best few that do not repeat each other, best first.

    `eagerness` weighs a high rank (1) against being unlike what is chosen already (0).
    """
    chosen: list[int] = []
    left = list(range(len(ranks)))
    top = max(ranks, default=0.0) or 1.0
    closest = [0.0] * len(ranks)  # to what is chosen
    while left and len(chosen) < most:
        best = max(left, key=lambda n: (_worth(ranks[n] / top, closest[n], eagerness), -n))
        left.remove(best)
        chosen.append(best)
        for number in left:
            closest[number] = max(closest[number], alike(words[number], words[best]))
    return chosen


def _worth(rank: float, closest: float, eagerness: float) -> float:
    return eagerness * rank - (1 - eagerness) * closest
