"""Profile one session: its calls and errors, what it worked on, and whether it improved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rekindle.judging import tool_kinds
from rekindle.types import JudgedCall, JudgedSession, Session

from .cluster_stats import Estimate, Rate
from .statistics import compute_fisher_p_value, compute_newcombe_interval, compute_wilson_interval

TASK_SHARE = 0.6  # a task is of a kind that exceeds this share
TASK_KINDS = ("code", "file", "research")
KINDS = (*TASK_KINDS, "terminal", "general")
FIRST_TURNS = 30
END_DIVISOR = 5  # the first and the last fifth are compared
MIN_GAIN_CALLS = 5  # calls
MAX_LOOP_PERIOD, MIN_LOOP_REPEATS = 3, 3  # up to three calls, repeated at least three times


class ToolUse(NamedTuple):
    """How often a tool was called, and how often it failed."""

    tool: str
    kind: str
    calls: int
    unknown: int
    refused: int
    rate: Rate


class ProficiencyGain(NamedTuple):
    """The last fifth of the calls against the first; a negative difference is an improvement."""

    first: Rate
    last: Rate
    difference: Estimate


class Profile(NamedTuple):
    """A session in numbers. Rates count judged calls, without bookkeeping."""

    session: Session
    messages: int
    calls: int
    bookkeeping: int
    unknown: int
    refused: int
    rate: Rate
    faults: Mapping[str, int]  # of the calls that failed: agent, environment, …
    errors: Mapping[str, int]  # kinds of errors
    tools: tuple[ToolUse, ...]
    kinds: Mapping[str, int]  # calls by kind of tool
    dominant: str | None
    task: str
    early_task: str  # of the first 30 turns
    gain: ProficiencyGain | None
    retries: int  # failed calls retried at once with the same tool
    recovered: int  # … with success
    loops: int
    loop_calls: int
    compressions: int


def build_profile(judged: JudgedSession) -> Profile:
    """Build the profile of one session. Its intervals take its calls as independent."""
    session, calls, compressions = judged
    counted = [call for call in calls if call.kind != "bookkeeping"]
    known = [call for call in counted if call.failed is not None]
    failed = [call for call in known if call.failed]
    refused = _count_refused(counted)
    kinds = _count_tool_kinds(counted)
    retries, recovered = _count_retries(counted)
    loops = list(_find_loops([call.digest for call in counted]))
    return Profile(
        session,
        session.message_count,
        len(calls),
        len(calls) - len(counted),
        len(counted) - len(known) - refused,
        refused,
        compute_call_rate(known),
        dict(Counter(map(classify_fault, failed)).most_common()),
        dict(Counter(call.error_kind or call.outcome for call in failed).most_common()),
        _summarize_tools(counted),
        kinds,
        max(kinds, key=lambda kind: kinds[kind], default=None),
        classify_task(calls),
        classify_task(select_first_turns(calls)),
        compute_gain(known),
        retries,
        recovered,
        len(loops),
        sum(loops),
        len(compressions),
    )


def compute_call_rate(known: Sequence[JudgedCall]) -> Rate:
    """Compute the error rate of one session's calls."""
    errors = sum(bool(call.failed) for call in known)
    if not known:
        return Rate(0, 0, 1)
    return Rate(
        errors, len(known), 1, errors / len(known), *compute_wilson_interval(errors, len(known))
    )


def classify_fault(call: JudgedCall) -> str:
    """Return who is at fault for a failure; nobody is for an expected one."""
    if call.outcome == "expected":
        return call.outcome
    return call.fault if call.fault in ("agent", "environment") else "other"


# ── kinds of work


def classify_task(calls: Iterable[JudgedCall]) -> str:
    """Return code, file or research if it makes up over 60% of the calls, else mixed."""
    kinds = [call.kind for call in calls]
    total = len(kinds) - kinds.count("bookkeeping")
    for kind in TASK_KINDS:
        if kinds.count(kind) > TASK_SHARE * total:
            return kind
    return "mixed"


def select_first_turns(
    calls: Sequence[JudgedCall], turns: int = FIRST_TURNS
) -> Sequence[JudgedCall]:
    """Return the calls of the first `turns` messages that make calls."""
    positions: set[int] = set()
    for count, call in enumerate(calls):
        positions.add(call.position)
        if len(positions) > turns:
            return calls[:count]
    return calls


def _count_tool_kinds(counted: Iterable[JudgedCall]) -> dict[str, int]:
    """Count calls by the kind of their tool; a terminal counts as one whatever it runs."""
    counts = Counter(tool_kinds.get_tool_work(call.tool) for call in counted)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def _summarize_tools(counted: Iterable[JudgedCall]) -> tuple[ToolUse, ...]:
    by_tool: dict[str, list[JudgedCall]] = {}
    for call in counted:
        by_tool.setdefault(call.tool, []).append(call)
    uses: list[ToolUse] = []
    for tool, calls in by_tool.items():
        known = [call for call in calls if call.failed is not None]
        refused = _count_refused(calls)
        unknown = len(calls) - len(known) - refused
        work, rate = tool_kinds.get_tool_work(tool), compute_call_rate(known)
        uses.append(ToolUse(tool, work, len(calls), unknown, refused, rate))
    return tuple(sorted(uses, key=lambda use: (-use.calls, use.tool)))


def _count_refused(calls: Iterable[JudgedCall]) -> int:
    return sum(call.outcome == "refused" for call in calls)


# ── improvement


def compute_gain(known: Sequence[JudgedCall]) -> ProficiencyGain | None:
    """Compare the last fifth of the calls with the first; return None if there are too few."""
    if len(known) < MIN_GAIN_CALLS:
        return None
    size = len(known) // END_DIVISOR
    first, last = compute_call_rate(known[:size]), compute_call_rate(known[-size:])
    sides = (last.errors, last.calls, first.errors, first.calls)
    low, high = compute_newcombe_interval(*sides)
    value = (last.errors - first.errors) / size
    return ProficiencyGain(first, last, Estimate(value, low, high, compute_fisher_p_value(*sides)))


def _count_retries(counted: Sequence[JudgedCall]) -> tuple[int, int]:
    """Count the failed calls retried by the next call, and how many of the retries worked."""
    retries = recovered = 0
    for before, call in pairwise(counted):
        if before.failed and call.tool == before.tool and call.position > before.position:
            retries += 1
            recovered += call.failed is False
    return retries, recovered


def _find_loops(digests: Sequence[int]) -> Iterable[int]:
    """Yield the lengths of runs in which the same few calls repeat."""
    start = 0
    while start < len(digests):
        length = max(
            (
                _measure_repetition(digests, start, period)
                for period in range(1, MAX_LOOP_PERIOD + 1)
            ),
            default=0,
        )
        if length:
            yield length
        start += length or 1


def _measure_repetition(digests: Sequence[int], start: int, period: int) -> int:
    """Return how many calls from `start` repeat its first `period`; 0 if too few."""
    end = start + period
    while end < len(digests) and digests[end] == digests[end - period]:
        end += 1
    length = (end - start) // period * period
    return length if length >= period * MIN_LOOP_REPEATS else 0
