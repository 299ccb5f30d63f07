"""What one session was like: its calls, its errors, what it worked on, and whether it got better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rekindle.judging import tool_kinds
from rekindle.types import Call, Judged, Session

from .cluster_stats import Estimate, Rate
from .statistics import fisher, newcombe, wilson

TASK_SHARE = 0.6  # over this much of one kind makes a task of that kind
TASK_KINDS = ("code", "file", "research")
KINDS = (*TASK_KINDS, "terminal", "general")
FIRST_TURNS = 30
END_SHARE = 5  # the first and the last fifth
FEWEST = 5  # calls, for a first and a last fifth
LOOP_LENGTH, LOOP_TIMES = 3, 3  # up to three calls, over and over, at least three times


class ToolUse(NamedTuple):
    """How often a tool was called, and how often that failed."""

    tool: str
    kind: str
    calls: int
    unknown: int
    rate: Rate


class Gain(NamedTuple):
    """The first fifth of the calls against the last; a negative difference is better."""

    first: Rate
    last: Rate
    difference: Estimate


class Profile(NamedTuple):
    """A session in numbers. Rates are over judged calls, without bookkeeping."""

    session: Session
    messages: int
    calls: int
    bookkeeping: int
    unknown: int
    rate: Rate
    faults: Mapping[str, int]  # of the calls that failed: agent, environment, refused, …
    errors: Mapping[str, int]  # kinds of errors
    tools: tuple[ToolUse, ...]
    kinds: Mapping[str, int]  # calls by kind of tool
    dominant: str | None
    task: str
    early_task: str  # of the first 30 turns
    gain: Gain | None
    retries: int  # a failed call was tried again, with the same tool, at once
    recovered: int  # … and the next try worked
    loops: int
    loop_calls: int
    compressions: int


def profile(judged: Judged) -> Profile:
    """The profile of one session. Its intervals take its calls as independent of each other."""
    session, calls, compressions = judged
    counted = [call for call in calls if call.work != "bookkeeping"]
    known = [call for call in counted if call.failed is not None]
    failed = [call for call in known if call.failed]
    kinds = _kinds_of_tools(counted)
    retries, recovered = _retries(counted)
    loops = list(_loops([call.digest for call in counted]))
    return Profile(
        session,
        session.message_count,
        len(calls),
        len(calls) - len(counted),
        len(counted) - len(known),
        rate_of_calls(known),
        dict(Counter(map(fault_of, failed)).most_common()),
        dict(Counter(call.error_kind or call.outcome for call in failed).most_common()),
        _tools(counted),
        kinds,
        max(kinds, key=lambda kind: kinds[kind], default=None),
        task_of(calls),
        task_of(first_turns(calls)),
        gain_of(known),
        retries,
        recovered,
        len(loops),
        sum(loops),
        len(compressions),
    )


def rate_of_calls(known: Sequence[Call]) -> Rate:
    """Errors per call of one session."""
    errors = sum(bool(call.failed) for call in known)
    if not known:
        return Rate(0, 0, 1)
    return Rate(errors, len(known), 1, errors / len(known), *wilson(errors, len(known)))


def fault_of(call: Call) -> str:
    """Whose a failure is: refusals and expected failures are nobody's mistake."""
    if call.outcome in ("refused", "expected"):
        return call.outcome
    return call.fault if call.fault in ("agent", "environment") else "other"


# ── what it worked on


def task_of(calls: Iterable[Call]) -> str:
    """code, file or research, whichever is over 60% of the calls; else mixed."""
    kinds = [call.work for call in calls]
    whole = len(kinds) - kinds.count("bookkeeping")
    for kind in TASK_KINDS:
        if kinds.count(kind) > TASK_SHARE * whole:
            return kind
    return "mixed"


def first_turns(calls: Sequence[Call], turns: int = FIRST_TURNS) -> Sequence[Call]:
    """The calls of the first answers that call anything."""
    positions: set[int] = set()
    for count, call in enumerate(calls):
        positions.add(call.position)
        if len(positions) > turns:
            return calls[:count]
    return calls


def _kinds_of_tools(counted: Iterable[Call]) -> dict[str, int]:
    """Calls by what the tool is for: a terminal is one whatever is run in it."""
    counts = Counter(tool_kinds.work(call.tool) for call in counted)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def _tools(counted: Iterable[Call]) -> tuple[ToolUse, ...]:
    by_tool: dict[str, list[Call]] = {}
    for call in counted:
        by_tool.setdefault(call.tool, []).append(call)
    uses: list[ToolUse] = []
    for tool, calls in by_tool.items():
        known = [call for call in calls if call.failed is not None]
        unknown = len(calls) - len(known)
        uses.append(ToolUse(tool, tool_kinds.work(tool), len(calls), unknown, rate_of_calls(known)))
    return tuple(sorted(uses, key=lambda use: (-use.calls, use.tool)))


# ── did it get better?


def gain_of(known: Sequence[Call]) -> Gain | None:
    """The last fifth of the calls against the first, or nothing when there are too few."""
    if len(known) < FEWEST:
        return None
    size = len(known) // END_SHARE
    first, last = rate_of_calls(known[:size]), rate_of_calls(known[-size:])
    sides = (last.errors, last.calls, first.errors, first.calls)
    low, high = newcombe(*sides)
    value = (last.errors - first.errors) / size
    return Gain(first, last, Estimate(value, low, high, fisher(*sides)))


def _retries(counted: Sequence[Call]) -> tuple[int, int]:
    """How often a failed call was tried again by the next call, and how often that one worked."""
    retries = recovered = 0
    for before, call in pairwise(counted):
        if before.failed and call.tool == before.tool and call.position > before.position:
            retries += 1
            recovered += call.failed is False
    return retries, recovered


def _loops(digests: Sequence[int]) -> Iterable[int]:
    """The lengths of stretches in which the same few calls are made over and over."""
    start = 0
    while start < len(digests):
        length = max(
            (_repeated(digests, start, period) for period in range(1, LOOP_LENGTH + 1)), default=0
        )
        if length:
            yield length
        start += length or 1


def _repeated(digests: Sequence[int], start: int, period: int) -> int:
    """How many calls from `start` on repeat its first `period`, if they do so often enough."""
    end = start + period
    while end < len(digests) and digests[end] == digests[end - period]:
        end += 1
    length = (end - start) // period * period
    return length if length >= period * LOOP_TIMES else 0
