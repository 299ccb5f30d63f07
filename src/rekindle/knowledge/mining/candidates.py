"""Candidates for patterns in one session: how it opened and closed, what was done together, what was
worth showing by itself, and what mended an error.

Whether a candidate is a pattern is known only when other sessions had it too (see `merge`). So here
nothing is weighed; each candidate has a digest that is the same wherever the same was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, cast

from rekindle.types import PatternKind

from .call_reader import Deed
from .call_signature import digest
from .command_skeleton import PLAIN, TELLING, TRIVIAL
from .recoveries import recoveries

# Raised with every change that may change a candidate: what is kept under an older one is made anew.
RULES_VERSION = 3

OPENING = 5  # calls
CLOSING = 3
LONGEST = 6  # calls of a sequence
MOST_DEEDS = 4_000  # of one session are looked at: the last ones


class Candidate(NamedTuple):
    """Something that may be a pattern; `place` are the numbers of its calls, a failed one first."""

    shape: int
    kind: PatternKind
    place: tuple[int, ...]
    support: int
    tainted: bool


def candidates(deeds: Sequence[Deed]) -> list[Candidate]:
    """What a session has to offer, each thing once, with how often it was done."""
    first = max(0, len(deeds) - MOST_DEEDS)
    numbered = list(enumerate(deeds))[first:]
    found: dict[int, Candidate] = {}
    for kind, signs, place in _all(numbered, deeds, is_whole=first == 0):
        tainted = deeds[place[-1]].tainted  # taint stays to the end
        shape = _shape(kind, signs)
        known = found.get(shape)
        if known is None:
            found[shape] = _new(Candidate, (shape, kind, place, 1, tainted))
        else:
            clean = place if known.tainted and not tainted else known.place
            both = known.tainted and tainted
            found[shape] = Candidate(shape, kind, clean, known.support + 1, both)
    return [*found.values()]


_new = cast(Any, tuple).__new__  # so many are made that the constructor would count
_Numbered = tuple[int, Deed]
_Found = tuple[PatternKind, tuple[int, ...], tuple[int, ...]]
_KINDS: Mapping[str, int] = {"init": 1, "final": 2, "example": 3, "sequence": 4, "retry": 5}
_EXACT = 1  # beside a digest: of the call with all that stands in its slots


@lru_cache(maxsize=50_000)
def _shape(kind: str, signs: tuple[int, ...]) -> int:
    """One number out of several, the same in every process; their order counts."""
    state = 0x9E3779B97F4A7C15
    for number in (_KINDS[kind], *signs):
        state = ((state ^ (number & _ALL)) * 0xBF58476D1CE4E5B9) & _ALL
        state ^= state >> 29
    return state - (1 << 64) if state >> 63 else state


_ALL = (1 << 64) - 1


def _all(numbered: list[_Numbered], deeds: Sequence[Deed], *, is_whole: bool) -> list[_Found]:
    good = [one for one in numbered if one[1].ok and not one[1].form.barred]
    found: list[_Found] = _openings(good) if is_whole else []
    steps = [one for one in good if one[1].form.tier]
    found += _closings(steps, numbered[-1][1].turn if numbered else -1)
    number_before, sign_before, tier_before, turn_before = -1, 0, TRIVIAL, -2
    for number, deed in steps:
        form, turn = deed.form, deed.turn
        sign, tier = form.digest, form.tier
        if tier == TELLING:
            found.append(("example", (sign,), (number,)))
            if form.steady:
                found.append(("example", (_EXACT, form.exact), (number,)))
        if turn_before == turn:
            if sign_before == sign:
                continue  # the same call again and again is one step
            # Two steps in a row. What follows them is seen when sessions are put together.
            if TELLING in (tier, tier_before):
                found.append(("sequence", (sign_before, sign), (number_before, number)))
        number_before, sign_before, tier_before, turn_before = number, sign, tier, turn
    for recovery in recoveries(numbered, deeds):
        found.append(("retry", (digest(recovery.sign),), recovery.place))
    return found


def _openings(good: list[_Numbered]) -> list[_Found]:
    first = [one for one in good[: OPENING + 3] if one[0] < OPENING + 3][:OPENING]
    found: list[_Found] = []
    for number, deed in first:
        form = deed.form
        if form.steady and form.tier < TELLING:  # the others are examples anyway
            found.append(("init", (_EXACT, form.exact), (number,)))
    signs = tuple([deed.form.digest for _, deed in first[:3]])
    for size in (2, 3):
        if len(set(signs[:size])) == size:
            found.append(("init", signs[:size], tuple([number for number, _ in first[:size]])))
    return found


def _closings(steps: list[_Numbered], last_turn: int) -> list[_Found]:
    # Turns follow each other: those of the last one are the last steps.
    last = [one for one in steps[-CLOSING:] if one[1].turn == last_turn]
    found: list[_Found] = []
    signs: tuple[int, ...] = ()
    place: tuple[int, ...] = ()
    is_telling = False
    for number, deed in reversed(last):
        form = deed.form
        if form.digest in signs:
            break
        signs, place = (form.digest, *signs), (number, *place)
        is_telling = is_telling or form.tier == TELLING
        if is_telling:
            found.append(("final", signs, place))
    return found


def _collapsed(turn: Iterable[_Numbered]) -> list[_Numbered]:
    """The same call again and again is one step."""
    return [next(group) for _, group in groupby(turn, key=lambda one: one[1].form.digest)]


def longer(deeds: Sequence[Deed], place: Sequence[int]) -> list[list[int]]:
    """The ways of a session that begin with a pair: the pair, and with each step more.

    A clean one ends where strangers may have had a say.
    """
    turn, tainted = deeds[place[-1]].turn, deeds[place[-1]].tainted
    rest = [
        (number, deeds[number])
        for number in range(place[-1], len(deeds))
        if deeds[number].turn == turn and _is_step(deeds[number])
    ]
    way, ways = list(place), [list(place)]
    seen = {deeds[number].form.digest for number in place}
    for number, deed in _collapsed(rest)[1:]:
        if deed.form.digest in seen or len(way) >= LONGEST or deed.tainted != tainted:
            break
        seen.add(deed.form.digest)
        way.append(number)
        ways.append(list(way))
    return ways


def _is_step(deed: Deed) -> bool:
    return deed.ok and not deed.form.barred and deed.form.tier >= PLAIN
