"""Estimate how likely a session is to use a command or a file, from earlier sessions and its request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

from .playbook import Playbook, PlaybookItem
from .records import hash_words

HALF_LIFE = 12.0  # sessions
_FLOOR = 0.02


class Features(NamedTuple):
    """What speaks for an item, in the order of the weights."""

    recency: float  # log of its share of earlier sessions, newer ones counting more
    is_last: float  # the session before this one used it
    similarity: float  # log of its share of earlier sessions with a similar request
    is_named: float  # the request names it
    words: float  # rare words of its name that the request has
    intensity: float  # log of its uses in a session that used it


class Weights(NamedTuple):
    """The weight of each feature, fitted on sessions of public projects (see docs/decisions.md)."""

    intercept: float
    recency: float
    is_last: float
    similarity: float
    is_named: float
    words: float
    intensity: float


class Scorer:
    """Scores the items of one playbook for one request."""

    def __init__(self, playbook: Playbook, request: str) -> None:
        self._request = request
        self._request_words = hash_words(request)
        count = len(playbook.sessions)
        self._count = count
        self._decay = [0.5 ** ((count - 1 - number) / HALF_LIFE) for number in range(count)]
        self._decay_sum = sum(self._decay) or 1.0
        self._squares = [one**2 for one in self._compare_requests(playbook)]
        self._square_sum = sum(self._squares) + 0.3

    def _compare_requests(self, playbook: Playbook) -> list[float]:
        """Return how similar the request is to that of each earlier session, by its rare words."""
        frequency = Counter(word for one in playbook.sessions for word in one.words)
        weight = {word: log(1 + self._count / times) for word, times in frequency.items()}
        ours = self._request_words
        our_sum = sum(weight.get(word, log(1 + self._count)) for word in ours)
        found: list[float] = []
        for one in playbook.sessions:
            common = sum(weight[word] for word in one.words if word in ours)
            norm = (our_sum * sum(weight[word] for word in one.words)) ** 0.5
            found.append(common / norm if norm else 0.0)
        return found

    def describe_items(self, items: Sequence[PlaybookItem]) -> list[Features]:
        """Return the features of items of one kind, in their order."""
        names = [hash_words(one.name) for one in items]
        frequency = Counter(word for words in names for word in words)
        return [
            self._describe_item(one, words, frequency, len(items))
            for one, words in zip(items, names, strict=True)
        ]

    def _describe_item(
        self, item: PlaybookItem, words: set[int], frequency: Counter[int], total: int
    ) -> Features:
        recency = sum(self._decay[number] for number in item.sessions) / self._decay_sum
        similarity = sum(self._squares[number] for number in item.sessions) / self._square_sum
        common = words & self._request_words
        return Features(
            recency=log(recency + _FLOOR),
            is_last=float(item.sessions[-1] == self._count - 1),
            similarity=log(similarity + _FLOOR),
            is_named=float(self._is_named(item.name)),
            words=min(sum(log(1 + total / frequency[word]) for word in common) / 5, 3.0),
            intensity=min(log(item.uses / len(item.sessions)), 2.0),
        )

    def _is_named(self, name: str) -> bool:
        last = name.rsplit("/", 1)[-1]
        return name in self._request or ("." in last and last in self._request)


def estimate_probability(features: Features, weights: Weights, shift: float = 0.0) -> float:
    """Return the probability that the session uses the item."""
    logit = weights.intercept + shift
    for feature, weight in zip(features, weights[1:], strict=True):
        logit += feature * weight
    return 1 / (1 + exp(-logit))
