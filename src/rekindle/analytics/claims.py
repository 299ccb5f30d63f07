"""Test two claims about long sessions, each with several readings of the data.

A reading *supports* a claim if the interval of the difference lies on the claimed side of zero. It does
*not support* it if the interval excludes a difference as large as claimed. If the interval contains
both zero and the claimed difference, there is *not enough data*. A claim holds only if every reading
supports it.

Three traps lower a rate although nobody gets better, and each reading rules out some of them:

- survivors: sessions that go well continue, so long ones were better from the start;
- the end: people stop after an error, so the last calls fail more often, and one bad last call weighs
  more in a short session. The corrected readings leave out the last message that makes calls;
- the mix: later calls use other tools, with other error rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .cluster_stats import (
    ClusteredEstimate,
    Estimate,
    Rate,
    estimate_ratio,
    subtract_estimates,
    to_estimate,
)
from .groups import (
    CallGroup,
    EarlyLatePair,
    Grouping,
    compare_at_same_mix,
    compare_within_session,
    compare_within_tool,
    count_calls,
    split_fifths,
    sum_pairs,
)
from .sample import SessionTrack

SUPPORTED, NOT_SUPPORTED, NOT_ENOUGH = "supported", "not supported", "not enough data"
PRESENT, ABSENT = "present", "absent"

MIDDLE_MESSAGES, LONG_MESSAGES = 30, 100  # messages
CLAIMED_MIDDLE_RATE, CLAIMED_LONG_RATE = 0.090, 0.057  # as claimed
CLAIMED_REDUCTION = 1 - CLAIMED_LONG_RATE / CLAIMED_MIDDLE_RATE  # 37% fewer
HEAD_CALLS = 10  # calls, within which no session is long yet
MIN_COMPARED_SESSIONS, MIN_COMPARED_ERRORS = (
    10,
    10,
)  # sessions on each side, errors on both together


class ClaimReading(NamedTuple):
    """One reading of a claim (or of a trap): the comparison, the result, and the verdict."""

    name: str
    about: str
    sides: tuple[str, str]
    before: Rate
    after: Rate
    difference: Estimate | None
    claimed: float | None  # the claimed difference, relative to the rate of these sessions
    verdict: str


class Claim(NamedTuple):
    """A claim, the readings it must pass, and the traps that could explain it away."""

    name: str
    text: str
    verdict: str
    readings: tuple[ClaimReading, ...]
    traps: tuple[ClaimReading, ...]


def evaluate_claims(grouping: Grouping) -> tuple[Claim, ...]:
    """Evaluate each claim, given sessions grouped by tool."""
    return (
        _evaluate_long_sessions(grouping),
        _evaluate_task(grouping, "code", -1, "improve", "Code-heavy sessions improve over time."),
        _evaluate_task(grouping, "file", 1, "degrade", "File-heavy sessions degrade over time."),
    )


# ── sessions with 100 or more messages have fewer errors


def _evaluate_long_sessions(grouping: Grouping) -> Claim:
    lengths = ("30–99 messages", "100+ messages")
    middle, long = CallGroup(), CallGroup()
    pairs: list[EarlyLatePair] = []
    for track, family, whole, ends in grouping.sessions:
        if track.messages >= MIDDLE_MESSAGES:
            group = long if track.messages >= LONG_MESSAGES else middle
            group.add(family, whole)
            pairs += [ends] if ends else []
    raw = _subtract_groups(long, middle)
    mixed, coverage = compare_at_same_mix(long, middle)
    readings = (
        _build_reading(
            "as claimed", "all calls of long sessions against all calls of middle ones", lengths,
            middle, long, raw, -1,
        ),
        _build_reading(
            "same tool mix", "the same, at the same proportions of tools", lengths,
            middle, long, mixed, -1, coverage,
        ),
        *_compare_inside_sessions(pairs, -1),
    )  # fmt: skip
    return _build_claim(
        "long-sessions",
        "Sessions with 100 or more messages have fewer errors per call than those with 30–99"
        f" ({CLAIMED_LONG_RATE:.1%} against {CLAIMED_MIDDLE_RATE:.1%}).",
        *_control_for_head_start(grouping, readings, lengths),
    )


def _control_for_head_start(
    grouping: Grouping, readings: tuple[ClaimReading, ...], lengths: tuple[str, str]
) -> tuple[tuple[ClaimReading, ...], tuple[ClaimReading, ...]]:
    """Add the reading that removes the head start of long sessions, and build the traps.

    Each session counts the same here, at its head and as a whole: if calls were the weights, the
    longest sessions, which are the best, would weigh more in the whole than at the head.
    """
    heads, wholes = (CallGroup(), CallGroup()), (CallGroup(), CallGroup())
    excess: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    ends: list[EarlyLatePair] = []
    for track, family, _, _ in grouping.sessions:
        if track.messages >= MIDDLE_MESSAGES and track.is_whole and track.early > HEAD_CALLS:
            is_long = track.messages >= LONG_MESSAGES
            before = count_calls(track, grouping.numbers, 0, track.early)
            heads[is_long].add(family, count_calls(track, grouping.numbers, 0, HEAD_CALLS))
            wholes[is_long].add(family, before)
            part = excess[is_long].setdefault(family, [0.0, 0.0])
            part[0] += sum(track.failed[: track.early]) / track.early
            part[0] -= sum(track.failed[:HEAD_CALLS]) / HEAD_CALLS
            part[1] += 1
            ends.append(_split_off_last_calls(grouping, track, family))
    middle, long = estimate_ratio(excess[0]), estimate_ratio(excess[1])
    remaining = subtract_estimates(long, middle) if long and middle else None
    beyond = _build_reading(
        "beyond the head start",
        f"the difference that remains after subtracting that of the first {HEAD_CALLS} calls",
        lengths, wholes[0], wholes[1], remaining, -1,
    )  # fmt: skip
    survivors = _build_reading(
        "survivors",
        f"the first {HEAD_CALLS} calls of sessions that became long, against those that did not",
        lengths, heads[0], heads[1], _subtract_groups(heads[1], heads[0]), -1,
    )  # fmt: skip
    return (*readings, beyond), (_to_trap(survivors), _build_end_trap(ends))


def _split_off_last_calls(grouping: Grouping, track: SessionTrack, family: str) -> EarlyLatePair:
    """Split the calls of the last message that makes calls from those before it."""
    last = count_calls(track, grouping.numbers, track.early)
    return EarlyLatePair(family, last, count_calls(track, grouping.numbers, 0, track.early))


def _build_end_trap(pairs: Sequence[EarlyLatePair]) -> ClaimReading:
    last, others = sum_pairs(pairs)
    about = "the calls of the last message against the other calls of the same session"
    labels = ("calls before", "last calls")
    return _to_trap(
        _build_reading("the end", about, labels, others, last, compare_within_session(pairs), 1)
    )


# ── code-heavy sessions improve, file-heavy ones degrade


def _evaluate_task(grouping: Grouping, task: str, direction: int, verb: str, text: str) -> Claim:
    pairs: list[EarlyLatePair] = []
    with_end: list[EarlyLatePair] = []
    last: list[EarlyLatePair] = []
    for track, family, _, ends in grouping.sessions:
        if track.task == task and track.is_whole:
            pairs += [ends] if ends else []
            whole = split_fifths(track, family, grouping.numbers, len(track.failed))
            with_end += [whole] if whole else []
            last += [_split_off_last_calls(grouping, track, family)] if ends else []
    later, earlier = sum_pairs(with_end)
    inside = _compare_inside_sessions(pairs, direction)
    late, early = sum_pairs(pairs)
    mixed, coverage = compare_at_same_mix(late, early)
    fixed = _build_reading(
        "same tool mix", "the same, at the same proportions of tools early and late",
        _FIFTH_LABELS, early, late, mixed, direction, coverage,
    )  # fmt: skip
    plain = _build_reading(
        "as claimed", "the last fifth of the calls against the first, over all such sessions",
        _FIFTH_LABELS, earlier, later, _subtract_groups(later, earlier), direction,
    )  # fmt: skip
    before = _subtract_groups(late, early)
    drift = _build_reading(
        "the mix", "the change of the rate caused by the change of tools alone",
        _FIFTH_LABELS, early, late,
        subtract_estimates(before, mixed) if before and mixed else None, direction, coverage,
    )  # fmt: skip
    return _build_claim(
        f"{task}-{verb}", text, (plain, fixed, inside[1]), (_to_trap(drift), _build_end_trap(last))
    )


_FIFTH_LABELS = ("first 20%", "last 20%")


def _compare_inside_sessions(
    pairs: list[EarlyLatePair], direction: int
) -> tuple[ClaimReading, ClaimReading]:
    later, earlier = sum_pairs(pairs)
    same = _build_reading(
        "same session", "the last fifth of the calls against the first, within each session",
        _FIFTH_LABELS, earlier, later, compare_within_session(pairs), direction,
    )  # fmt: skip
    measured, coverage = compare_within_tool(pairs)
    tool = _build_reading(
        "same session and tool", "the same, within each tool of a session",
        _FIFTH_LABELS, earlier, later, measured, direction, coverage,
    )  # fmt: skip
    return same, tool


# ── verdicts


def _subtract_groups(a: CallGroup, b: CallGroup) -> ClusteredEstimate | None:
    first, second = a.estimate, b.estimate
    return subtract_estimates(first, second) if first and second else None


def _build_reading(
    name: str,
    about: str,
    labels: tuple[str, str],
    before: CallGroup,
    after: CallGroup,
    measured: ClusteredEstimate | None,
    direction: int,
    coverage: float | None = None,
) -> ClaimReading:
    earlier, later = before.rate, after.rate
    estimate = to_estimate(measured, coverage)
    verdict = judge_difference(estimate, earlier, later, direction)
    claimed = None if earlier.rate is None else direction * CLAIMED_REDUCTION * earlier.rate
    return ClaimReading(name, about, labels, earlier, later, estimate, claimed, verdict)


def judge_difference(estimate: Estimate | None, before: Rate, after: Rate, direction: int) -> str:
    """Judge whether the difference has the claimed `direction`: -1 for fewer errors, 1 for more."""
    if estimate is None or before.rate is None:
        return NOT_ENOUGH
    if min(before.sessions, after.sessions) < MIN_COMPARED_SESSIONS:
        return NOT_ENOUGH
    if before.errors + after.errors < MIN_COMPARED_ERRORS:
        return NOT_ENOUGH
    nearest, farthest = sorted((estimate.low * direction, estimate.high * direction))
    if nearest > 0:
        return SUPPORTED
    return NOT_SUPPORTED if farthest < CLAIMED_REDUCTION * before.rate else NOT_ENOUGH


def _to_trap(reading: ClaimReading) -> ClaimReading:
    words = {SUPPORTED: PRESENT, NOT_SUPPORTED: ABSENT}
    return reading._replace(claimed=None, verdict=words.get(reading.verdict, NOT_ENOUGH))


def _build_claim(
    name: str, text: str, readings: tuple[ClaimReading, ...], traps: tuple[ClaimReading, ...]
) -> Claim:
    return Claim(
        name, text, combine_verdicts(reading.verdict for reading in readings), readings, traps
    )


def combine_verdicts(verdicts: Iterable[str]) -> str:
    """Combine verdicts: supported if all support the claim, not supported if one does not."""
    distinct = set(verdicts)
    if NOT_SUPPORTED in distinct:
        return NOT_SUPPORTED
    return SUPPORTED if distinct == {SUPPORTED} else NOT_ENOUGH
