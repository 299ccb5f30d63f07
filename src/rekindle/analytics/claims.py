"""Two claims about long sessions, each read in the ways that the data allows, and what they are worth.

A claim is *supported* by a reading when the interval of the difference lies on the claimed side of
zero; it is *not supported* when the interval leaves out a difference as large as claimed; when it
holds both, nothing and that much, there is *not enough data*. A claim stands only if every reading
supports it.

Three things make a rate fall without anybody getting better, and each reading shuts out some:

- survivors: sessions that go well go on, so long ones are those that were good from the start;
- the end: people stop after an error, so the last calls fail more often, and one bad last call
  weighs more in a short session. The corrected readings leave out the last message that calls;
- the mix: later calls use other tools, with other rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .cluster_stats import Estimate, Measured, Rate, minus, ratio, spread
from .groups import (
    Group,
    Pair,
    View,
    counts_of,
    fifths,
    same_mix,
    same_session,
    same_session_and_tool,
    sides,
)
from .sample import Track

SUPPORTED, NOT_SUPPORTED, NOT_ENOUGH = "supported", "not supported", "not enough data"
PRESENT, ABSENT = "present", "absent"

MIDDLE, LONG = 30, 100  # messages
MIDDLE_RATE, LONG_RATE = 0.090, 0.057  # as claimed
CHANGE = 1 - LONG_RATE / MIDDLE_RATE  # 37% fewer
HEAD = 10  # calls, in which no session is long yet
FEWEST_SESSIONS, FEWEST_ERRORS = 10, 10  # on each side, and on both together


class Reading(NamedTuple):
    """One way to look at a claim (or at a trap), what it shows, and what that means."""

    name: str
    about: str
    sides: tuple[str, str]
    before: Rate
    after: Rate
    difference: Estimate | None
    claimed: float | None  # the difference that the claim speaks of, at the rate of these sessions
    verdict: str


class Claim(NamedTuple):
    """A claim, the readings it must pass, and the traps that could explain it away."""

    name: str
    text: str
    verdict: str
    readings: tuple[Reading, ...]
    traps: tuple[Reading, ...]


def claims(view: View) -> tuple[Claim, ...]:
    """What the sessions say about each claim, in a view that tells tools apart."""
    return (
        _long_sessions(view),
        _task(view, "code", -1, "improve", "Code-heavy sessions improve as they go on."),
        _task(view, "file", 1, "degrade", "File-heavy sessions degrade as they go on."),
    )


# ── sessions of 100 and more messages have fewer errors


def _long_sessions(view: View) -> Claim:
    lengths = ("30–99 messages", "100+ messages")
    middle, long = Group(), Group()
    pairs: list[Pair] = []
    for track, family, whole, ends in view.sessions:
        if track.messages >= MIDDLE:
            group = long if track.messages >= LONG else middle
            group.add(family, whole)
            pairs += [ends] if ends else []
    raw = _difference(long, middle)
    mixed, coverage = same_mix(long, middle)
    readings = (
        _reading(
            "as claimed", "all calls of the ones against all calls of the others", lengths,
            middle, long, raw, -1,
        ),
        _reading(
            "same tool mix", "the same, if both used the tools in the same proportions", lengths,
            middle, long, mixed, -1, coverage,
        ),
        *_inside(pairs, -1),
    )  # fmt: skip
    return _claim(
        "long-sessions",
        "Sessions of 100 and more messages have fewer errors per call than those of 30–99 messages"
        f" ({LONG_RATE:.1%} against {MIDDLE_RATE:.1%}).",
        *_by_what_happened_later(view, readings, lengths),
    )


def _by_what_happened_later(
    view: View, readings: tuple[Reading, ...], lengths: tuple[str, str]
) -> tuple[tuple[Reading, ...], tuple[Reading, ...]]:
    """Was the difference there before any session was long? The last reading, and the traps.

    For what is left each session counts the same, at its head and as a whole: with calls as weights
    the longest sessions, which are the best, would weigh more in the whole than at its head.
    """
    heads, wholes = (Group(), Group()), (Group(), Group())
    excess: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    ends: list[Pair] = []
    for track, family, _, _ in view.sessions:
        if track.messages >= MIDDLE and track.is_whole and track.early > HEAD:
            is_long = track.messages >= LONG
            before = counts_of(track, view.numbers, 0, track.early)
            heads[is_long].add(family, counts_of(track, view.numbers, 0, HEAD))
            wholes[is_long].add(family, before)
            part = excess[is_long].setdefault(family, [0.0, 0.0])
            part[0] += sum(track.failed[: track.early]) / track.early
            part[0] -= sum(track.failed[:HEAD]) / HEAD
            part[1] += 1
            ends.append(_last(view, track, family))
    middle, long = ratio(excess[0]), ratio(excess[1])
    left = minus(long, middle) if long and middle else None
    beyond = _reading(
        "beyond the head start",
        f"what is left when the difference of the first {HEAD} calls is taken away",
        lengths, wholes[0], wholes[1], left, -1,
    )  # fmt: skip
    survivors = _reading(
        "survivors",
        f"the first {HEAD} calls of sessions that became long, against those that did not",
        lengths, heads[0], heads[1], _difference(heads[1], heads[0]), -1,
    )  # fmt: skip
    return (*readings, beyond), (_trap(survivors), _end(ends))


def _last(view: View, track: Track, family: str) -> Pair:
    """The calls of the last message that calls, and those before it."""
    last = counts_of(track, view.numbers, track.early)
    return Pair(family, last, counts_of(track, view.numbers, 0, track.early))


def _end(pairs: Sequence[Pair]) -> Reading:
    last, others = sides(pairs)
    about = "the calls of the last message against the other calls of the same session"
    labels = ("calls before", "last calls")
    return _trap(_reading("the end", about, labels, others, last, same_session(pairs), 1))


# ── code-heavy sessions improve, file-heavy ones degrade


def _task(view: View, task: str, way: int, verb: str, text: str) -> Claim:
    pairs: list[Pair] = []
    with_end: list[Pair] = []
    last: list[Pair] = []
    for track, family, _, ends in view.sessions:
        if track.task == task and track.is_whole:
            pairs += [ends] if ends else []
            whole = fifths(track, family, view.numbers, len(track.failed))
            with_end += [whole] if whole else []
            last += [_last(view, track, family)] if ends else []
    later, earlier = sides(with_end)
    inside = _inside(pairs, way)
    late, early = sides(pairs)
    mixed, coverage = same_mix(late, early)
    fixed = _reading(
        "same tool mix", "the same, with the tools in the same proportions early and late",
        _FIFTHS, early, late, mixed, way, coverage,
    )  # fmt: skip
    plain = _reading(
        "as claimed", "the last fifth of the calls against the first, of all such sessions",
        _FIFTHS, earlier, later, _difference(later, earlier), way,
    )  # fmt: skip
    before = _difference(late, early)
    drift = _reading(
        "the mix", "what the change of tools alone does to the rate",
        _FIFTHS, early, late, minus(before, mixed) if before and mixed else None, way, coverage,
    )  # fmt: skip
    return _claim(f"{task}-{verb}", text, (plain, fixed, inside[1]), (_trap(drift), _end(last)))


_FIFTHS = ("first 20%", "last 20%")


def _inside(pairs: list[Pair], way: int) -> tuple[Reading, Reading]:
    later, earlier = sides(pairs)
    same = _reading(
        "same session", "the last fifth of the calls against the first, each session with itself",
        _FIFTHS, earlier, later, same_session(pairs), way,
    )  # fmt: skip
    measured, coverage = same_session_and_tool(pairs)
    tool = _reading(
        "same session and tool", "the same, each tool of a session with itself",
        _FIFTHS, earlier, later, measured, way, coverage,
    )  # fmt: skip
    return same, tool


# ── verdicts


def _difference(a: Group, b: Group) -> Measured | None:
    first, second = a.measured, b.measured
    return minus(first, second) if first and second else None


def _reading(
    name: str,
    about: str,
    labels: tuple[str, str],
    before: Group,
    after: Group,
    measured: Measured | None,
    way: int,
    coverage: float | None = None,
) -> Reading:
    earlier, later = before.rate, after.rate
    estimate = spread(measured, coverage)
    verdict = verdict_on(estimate, earlier, later, way)
    claimed = None if earlier.rate is None else way * CHANGE * earlier.rate
    return Reading(name, about, labels, earlier, later, estimate, claimed, verdict)


def verdict_on(estimate: Estimate | None, before: Rate, after: Rate, way: int) -> str:
    """Does the difference go the claimed way (`way` is -1 for fewer errors, 1 for more)?"""
    if estimate is None or before.rate is None:
        return NOT_ENOUGH
    if min(before.sessions, after.sessions) < FEWEST_SESSIONS:
        return NOT_ENOUGH
    if before.errors + after.errors < FEWEST_ERRORS:
        return NOT_ENOUGH
    nearest, farthest = sorted((estimate.low * way, estimate.high * way))
    if nearest > 0:
        return SUPPORTED
    return NOT_SUPPORTED if farthest < CHANGE * before.rate else NOT_ENOUGH


def _trap(reading: Reading) -> Reading:
    words = {SUPPORTED: PRESENT, NOT_SUPPORTED: ABSENT}
    return reading._replace(claimed=None, verdict=words.get(reading.verdict, NOT_ENOUGH))


def _claim(
    name: str, text: str, readings: tuple[Reading, ...], traps: tuple[Reading, ...]
) -> Claim:
    return Claim(name, text, together(reading.verdict for reading in readings), readings, traps)


def together(verdicts: Iterable[str]) -> str:
    """A claim stands if every reading supports it, and falls with one that does not."""
    heard = set(verdicts)
    if NOT_SUPPORTED in heard:
        return NOT_SUPPORTED
    return SUPPORTED if heard == {SUPPORTED} else NOT_ENOUGH
