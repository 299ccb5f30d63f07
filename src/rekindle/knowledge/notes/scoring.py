"""Estimate how likely a session is to use a command or a file, from earlier sessions and its request.

The weights are the same for all projects; how far they are off in one project is found by asking for its
latest sessions with what was known before each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from math import exp, log
from operator import mul
from typing import NamedTuple

import msgspec

from .records import PlaybookItem, PlaybookSession, hash_words

HALF_LIFE = 12.0  # sessions
MIN_EARLIER_SESSIONS = 5  # of one that estimates are tried on
TRIED_SESSIONS = 20  # the latest ones, to find how far estimates are off
MAX_TRIED_ITEMS = 1_000  # of each kind, the latest ones
MIN_TRIED_LOGIT = -2.5  # a probability of 8%: what is less likely is told nowhere
SHIFT_VARIANCE = 0.25  # between projects
MAX_SHIFT = 2.0
MAX_BRANCH_SESSIONS = 3
MAX_BRANCH_NAMESAKES = 3  # files with the words of a branch in their names
MEAN_BRANCH_SHARE = 0.4  # of those sessions that used an item which is as likely as without them
MIN_PROGRAM_CHARS = (
    6  # of a program without a hyphen that a request may name; shorter ones are words
)
MIN_STEM_CHARS = 4
_FLOOR = 0.02
# What an argument's use says in a session: in any, beside its age, its request and its branch.
ANY_SESSION, SIMILAR_REQUEST, SAME_BRANCH = 0.3, 0.5, 0.5


class Features(NamedTuple):
    """What speaks for an item, in the order of the weights."""

    recency: float  # log of its share of earlier sessions, newer ones counting more
    is_last: float  # the session before this one used it
    similarity: float  # log of its share of earlier sessions with a similar request
    is_named: float  # the request names it
    words: float  # rare words of its name that the request has
    intensity: float  # log of its uses in a session that used it
    has_path: float  # the request has its path, or that of something below it
    rivals: float  # log of the number of items that the request seems to name
    on_branch: float  # whether the last sessions on the same branch used it; 0 without any
    names_branch: float  # the branch has all words of its name, and of few other names

    @property
    def fitting_share(self) -> float:
        """Its share of earlier sessions with a similar request."""
        return exp(self.similarity) - _FLOOR


class Weights(NamedTuple):
    """The weight of each feature, fitted on sessions of public projects (see docs/decisions.md)."""

    intercept: float
    recency: float
    is_last: float
    similarity: float
    is_named: float
    words: float
    intensity: float
    has_path: float
    rivals: float
    on_branch: float
    names_branch: float


COMMAND_WEIGHTS = Weights(0.934, 1.321, -0.061, 0.244, 1.768, -0.284, 0.258, 0.0, 0.0, 0.0, 0.0)
FILE_WEIGHTS = Weights(0.174, 0.826, 0.644, 0.569, 2.567, 1.262, 0.105, 1.922, -0.507, 1.37, 1.1)


class NamedItem(NamedTuple):
    """An item with the hashed words of its name."""

    item: PlaybookItem
    words: AbstractSet[int]


def add_name_words(items: Sequence[PlaybookItem]) -> list[NamedItem]:
    """Return items with the words of their names."""
    return [NamedItem(one, _hash_name(one.name)) for one in items]


@lru_cache(maxsize=20_000)
def _hash_name(name: str) -> frozenset[int]:
    return frozenset(hash_words(name))


class Scorer:
    """Scores items for a request, which has these words, after these sessions of a project.

    The words of its branch count where they name an item; see `hash_branch`.
    """

    def __init__(
        self,
        sessions: Sequence[PlaybookSession],
        words: AbstractSet[int],
        request: str = "",
        branch: Sequence[int] = (),
    ) -> None:
        self._request = request
        self._request_words = words
        self._branch_words = {*branch[1:]}
        self._named_words = words | self._branch_words
        alike = (number for number, one in enumerate(sessions) if one.branch == branch)
        self._on_branch = {*([*alike][-MAX_BRANCH_SESSIONS:] if branch else ())}
        count = len(sessions)
        self._count = count
        self._decay = [0.5 ** ((count - 1 - number) / HALF_LIFE) for number in range(count)]
        self._decay_sum = sum(self._decay) or 1.0
        self._squares = [one**2 for one in self._compare_requests(sessions)]
        self._square_sum = sum(self._squares) + 0.3

    def _compare_requests(self, sessions: Sequence[PlaybookSession]) -> list[float]:
        """Return how similar the request is to that of each earlier session, by its rare words."""
        frequency = Counter(word for one in sessions for word in one.words)
        weight = {word: log(1 + self._count / times) for word, times in frequency.items()}
        ours = self._request_words
        our_sum = sum(weight.get(word, log(1 + self._count)) for word in ours)
        found: list[float] = []
        for one in sessions:
            common = sum(weight[word] for word in one.words if word in ours)
            norm = (our_sum * sum(map(weight.__getitem__, one.words))) ** 0.5 if common else 0.0
            found.append(common / norm if norm else 0.0)
        return found

    def describe_items(self, items: Sequence[NamedItem]) -> list[Features]:
        """Return the features of items of one kind, in their order."""
        frequency = Counter(word for one in items for word in one.words)
        rivals = log(1 + sum(bool(one.words) and one.words <= self._named_words for one in items))
        namesakes = self._find_namesakes(items)
        programs = Counter(_get_program_name(one.item) for one in items)
        return [
            self._describe_item(
                one,
                frequency,
                len(items),
                rivals,
                names_branch=one.item.name in namesakes,
                is_only=programs[_get_program_name(one.item)] == 1,
            )
            for one in items
        ]

    def rank_arguments(self, item: PlaybookItem) -> PlaybookItem:
        """Return a command with its arguments in order: first those of sessions like this one."""
        last = len(self._on_branch) or 1
        weights = [
            decay / self._decay_sum
            + SIMILAR_REQUEST * square / self._square_sum
            + SAME_BRANCH * (number in self._on_branch) / last
            + ANY_SESSION / self._count
            for number, (decay, square) in enumerate(zip(self._decay, self._squares, strict=True))
        ]
        ranked = sorted(
            item.arguments,
            key=lambda one: (-sum(map(weights.__getitem__, one.sessions)), one.text),
        )
        return msgspec.structs.replace(item, arguments=tuple(ranked))

    def _find_namesakes(self, items: Sequence[NamedItem]) -> set[str]:
        """Return the files whose names consist of words of the branch, unless they are many."""
        groups: dict[frozenset[int], set[str]] = {}
        for one in items if self._branch_words else ():
            last = one.item.name.rpartition("/")[2]
            if "." in last and not one.words.isdisjoint(self._branch_words):
                words = frozenset(hash_words(last.partition(".")[0].removesuffix("_test")))
                if words and words <= self._branch_words:
                    groups.setdefault(words, set()).add(one.item.name)
        return {
            name
            for names in groups.values()
            if len(names) <= MAX_BRANCH_NAMESAKES
            for name in names
        }

    def _describe_item(
        self,
        named: NamedItem,
        frequency: Counter[int],
        total: int,
        rivals: float,
        *,
        names_branch: bool,
        is_only: bool,
    ) -> Features:
        item = named.item
        sessions = item.sessions[: bisect_left(item.sessions, self._count)]
        recency = sum(map(self._decay.__getitem__, sessions)) / self._decay_sum
        similarity = sum(map(self._squares.__getitem__, sessions)) / self._square_sum
        common = named.words & self._named_words
        return Features(
            recency=log(recency + _FLOOR),
            is_last=float(sessions[-1:] == (self._count - 1,)),
            similarity=log(similarity + _FLOOR),
            is_named=float(self._is_named(item) or self._is_meant(item, is_only=is_only)),
            words=min(sum(log(1 + total / frequency[word]) for word in common) / 5, 3.0),
            intensity=min(log(item.uses / len(item.sessions)), 2.0),
            has_path=float("/" in item.name and item.name in self._request),
            rivals=rivals,
            on_branch=self._compare_branch(item),
            names_branch=float(names_branch),
        )

    def _compare_branch(self, item: PlaybookItem) -> float:
        last = self._on_branch
        used = sum(number in last for number in item.sessions) if last else 0
        return used / len(last) - MEAN_BRANCH_SHARE if last else 0.0

    def _is_named(self, item: PlaybookItem) -> bool:
        """Return whether the request names an item as a whole, and not another one below it."""
        last = item.name.rsplit("/", 1)[-1]
        if "." in last:
            return self._has_name(last)  # of a file, with or without its folder
        return bool(item.forms or "/" in item.name) and self._has_name(item.name)

    def _is_meant(self, item: PlaybookItem, *, is_only: bool) -> bool:
        """Return whether the request names the program of an only command, or the stem of a file.

        Such a stem is that of a file at the root in capitals, as in README.md.
        """
        if item.forms:
            program = _get_program_name(item)
            is_distinct = len(program) >= MIN_PROGRAM_CHARS or "-" in program
            return is_only and is_distinct and self._has_name(program)
        stem = item.name.partition(".")[0]
        return stem.isupper() and len(stem) >= MIN_STEM_CHARS and self._has_name(stem)

    def _has_name(self, name: str) -> bool:
        at = self._request.find(name)
        while at >= 0:
            rest = self._request[at + len(name) :][:2]
            goes_on = rest[:1] == "/" or (rest[:1] == "." and rest[1:].isalnum())
            if not (goes_on or _is_joined(self._request[max(at - 1, 0) : at] + rest[:1])):
                return True
            at = self._request.find(name, at + 1)
        return False


def _get_program_name(item: PlaybookItem) -> str:
    """Return the program of a command; empty for a file."""
    return item.name.partition(" ")[0] if item.forms else ""


def _is_joined(beside: str) -> bool:
    """Return whether one of the characters beside a name makes it a part of another name."""
    return any(char.isalnum() or char in "_-" for char in beside)


def compute_logit(features: Features, weights: Weights) -> float:
    """Return the logarithm of the odds that the session uses the item."""
    return sum(map(mul, features, weights[1:]), weights.intercept)


def compute_probability(logit: float) -> float:
    """Return the probability that has this logarithm of its odds."""
    return 1 / (1 + exp(-logit))


# ── how far off are the estimates in this project?


def estimate_shift(
    sessions: Sequence[PlaybookSession], items: Sequence[PlaybookItem], weights: Weights
) -> float:
    """Return what to add to a project's logits so that its latest sessions would have come true.

    Each of them is asked for with what was known before it.
    """
    latest = sorted(items, key=lambda one: -one.sessions[-1])[:MAX_TRIED_ITEMS]
    tried = list(_try_sessions(sessions, add_name_words(latest), weights))
    shift = 0.0
    for _ in range(8):  # Newton's method; a normal prior keeps the shift of few sessions small
        slope, curve = -shift / SHIFT_VARIANCE, 1 / SHIFT_VARIANCE
        for logit, was_used in tried:
            probability = compute_probability(logit + shift)
            slope += was_used - probability
            curve += probability * (1 - probability)
        shift = max(-MAX_SHIFT, min(MAX_SHIFT, shift + slope / curve))
    return shift


def _try_sessions(
    sessions: Sequence[PlaybookSession], items: Sequence[NamedItem], weights: Weights
) -> Iterator[tuple[float, bool]]:
    """Yield the estimates for the latest sessions that were not low, and whether they came true."""
    for number in range(max(MIN_EARLIER_SESSIONS, len(sessions) - TRIED_SESSIONS), len(sessions)):
        words, branch = {*sessions[number].words}, sessions[number].branch
        known = [one for one in items if one.item.sessions[0] < number]
        scorer = Scorer(sessions[:number], words, branch=branch)
        for one, features in zip(known, scorer.describe_items(known), strict=True):
            if one.words <= words:
                continue  # only words of a request are kept: perhaps it named the item as a whole
            logit = compute_logit(features, weights)
            if logit >= MIN_TRIED_LOGIT:
                used = one.item.sessions
                at = bisect_left(used, number)
                yield logit, used[at : at + 1] == (number,)
