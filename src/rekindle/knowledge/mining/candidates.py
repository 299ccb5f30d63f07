"""Find candidates for patterns in one session: openings, closings, sequences, examples, recoveries.

A candidate becomes a pattern only if other sessions have it too (see `merge`), so nothing is scored
here. Each candidate has a digest that is equal wherever the same calls were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, cast

from rekindle.types import PatternKind

from .call_reader import MinedCall
from .call_signature import digest_value
from .command_skeleton import INFORMATIVE, PLAIN, TRIVIAL
from .recoveries import find_recoveries

# Raise with every change that may change a candidate: results of older versions are mined again.
RULES_VERSION = 4

MAX_OPENING_CALLS = 5
MAX_CLOSING_CALLS = 3
MAX_SEQUENCE_CALLS = 6  # of a sequence
MAX_CALLS = 4_000  # of one session; only the last ones are mined


class MiningCandidate(NamedTuple):
    """A possible pattern; `call_indexes` are the indexes of its calls, a failed one first."""

    shape: int
    kind: PatternKind
    call_indexes: tuple[int, ...]
    support: int
    tainted: bool


def find_candidates(calls: Sequence[MinedCall]) -> list[MiningCandidate]:
    """Return the candidates of a session, each once, with how often it occurred."""
    first = max(0, len(calls) - MAX_CALLS)
    numbered = list(enumerate(calls))[first:]
    found: dict[int, MiningCandidate] = {}
    for kind, digests, indexes in _find_raw_candidates(numbered, calls, is_whole=first == 0):
        tainted = calls[indexes[-1]].tainted  # taint lasts to the end of the session
        shape = _hash_shape(kind, digests)
        known = found.get(shape)
        if known is None:
            found[shape] = _create_tuple(MiningCandidate, (shape, kind, indexes, 1, tainted))
        else:
            clean = indexes if known.tainted and not tainted else known.call_indexes
            both = known.tainted and tainted
            found[shape] = MiningCandidate(shape, kind, clean, known.support + 1, both)
    return [*found.values()]


_create_tuple = cast(Any, tuple).__new__  # faster than the constructor: millions are created
_NumberedCall = tuple[int, MinedCall]
_RawCandidate = tuple[PatternKind, tuple[int, ...], tuple[int, ...]]
_KIND_NUMBERS: Mapping[str, int] = {"init": 1, "final": 2, "example": 3, "sequence": 4, "retry": 5}
_EXACT_MARKER = 1  # marks the digest of a call including its slot values


@lru_cache(maxsize=50_000)
def _hash_shape(kind: str, digests: tuple[int, ...]) -> int:
    """Hash several numbers into one that is the same in every process; their order counts."""
    state = 0x9E3779B97F4A7C15
    for number in (_KIND_NUMBERS[kind], *digests):
        state = ((state ^ (number & _MASK_64)) * 0xBF58476D1CE4E5B9) & _MASK_64
        state ^= state >> 29
    return state - (1 << 64) if state >> 63 else state


_MASK_64 = (1 << 64) - 1


def _find_raw_candidates(
    numbered: list[_NumberedCall], calls: Sequence[MinedCall], *, is_whole: bool
) -> list[_RawCandidate]:
    good = [one for one in numbered if one[1].ok and not one[1].signature.destructive]
    found: list[_RawCandidate] = _find_openings(good) if is_whole else []
    steps = [one for one in good if one[1].signature.tier]
    found += _find_closings(steps, numbered[-1][1].turn if numbered else -1)
    index_before, digest_before, tier_before, turn_before = -1, 0, TRIVIAL, -2
    for number, call in steps:
        signature, turn = call.signature, call.turn
        call_digest, tier = signature.digest, signature.tier
        if tier == INFORMATIVE:
            found.append(("example", (call_digest,), (number,)))
            if signature.stable:
                found.append(("example", (_EXACT_MARKER, signature.exact), (number,)))
        if turn_before == turn:
            if digest_before == call_digest:
                continue  # repetitions of the same call are one step
            # Two steps in a row. Longer sequences are built when sessions are merged.
            if INFORMATIVE in (tier, tier_before):
                found.append(("sequence", (digest_before, call_digest), (index_before, number)))
        index_before, digest_before, tier_before, turn_before = number, call_digest, tier, turn
    for recovery in find_recoveries(numbered, calls):
        found.append(("retry", (digest_value(recovery.key),), recovery.call_indexes))
    return found


def _find_openings(good: list[_NumberedCall]) -> list[_RawCandidate]:
    first = [one for one in good[: MAX_OPENING_CALLS + 3] if one[0] < MAX_OPENING_CALLS + 3][
        :MAX_OPENING_CALLS
    ]
    found: list[_RawCandidate] = []
    for number, call in first:
        signature = call.signature
        if signature.stable and signature.tier < INFORMATIVE:  # the others are examples already
            found.append(("init", (_EXACT_MARKER, signature.exact), (number,)))
    digests = tuple([call.signature.digest for _, call in first[:3]])
    for size in (2, 3):
        if len(set(digests[:size])) == size:
            found.append(("init", digests[:size], tuple([number for number, _ in first[:size]])))
    return found


def _find_closings(steps: list[_NumberedCall], last_turn: int) -> list[_RawCandidate]:
    # Turns are in order: the steps of the last turn come last.
    last = [one for one in steps[-MAX_CLOSING_CALLS:] if one[1].turn == last_turn]
    found: list[_RawCandidate] = []
    digests: tuple[int, ...] = ()
    indexes: tuple[int, ...] = ()
    is_informative = False
    for number, call in reversed(last):
        signature = call.signature
        if signature.digest in digests:
            break
        digests, indexes = (signature.digest, *digests), (number, *indexes)
        is_informative = is_informative or signature.tier == INFORMATIVE
        if is_informative:
            found.append(("final", digests, indexes))
    return found


def _collapse_repeats(turn: Iterable[_NumberedCall]) -> list[_NumberedCall]:
    """Collapse consecutive repetitions of the same call into one step."""
    return [next(group) for _, group in groupby(turn, key=lambda one: one[1].signature.digest)]


def extend_sequence(calls: Sequence[MinedCall], indexes: Sequence[int]) -> list[list[int]]:
    """Return the sequences of a session that begin with a pair: the pair, then one step more each.

    A clean sequence ends where the session becomes tainted.
    """
    turn, tainted = calls[indexes[-1]].turn, calls[indexes[-1]].tainted
    rest = [
        (number, calls[number])
        for number in range(indexes[-1], len(calls))
        if calls[number].turn == turn and _is_step(calls[number])
    ]
    sequence, sequences = list(indexes), [list(indexes)]
    seen = {calls[number].signature.digest for number in indexes}
    for number, call in _collapse_repeats(rest)[1:]:
        if (
            call.signature.digest in seen
            or len(sequence) >= MAX_SEQUENCE_CALLS
            or call.tainted != tainted
        ):
            break
        seen.add(call.signature.digest)
        sequence.append(number)
        sequences.append(list(sequence))
    return sequences


def _is_step(call: MinedCall) -> bool:
    return call.ok and not call.signature.destructive and call.signature.tier >= PLAIN
