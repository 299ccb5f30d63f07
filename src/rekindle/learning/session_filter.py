"""Choose the sessions that a template is built from, and say why others are skipped."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from rekindle.analytics.profile import END_DIVISOR, MIN_GAIN_CALLS, TASK_KINDS, classify_task
from rekindle.errors import InvalidInput
from rekindle.judging.rules.text_patterns import split_words
from rekindle.store import Filter, Store
from rekindle.types import JudgedCall, Session

MAX_ERROR_RATE = 0.5  # sessions with a higher rate are no examples
PAGE_SIZE = 2_000  # sessions listed at a time
FINISHED_REASONS = split_words(
    """
    completed complete completed_successfully success succeeded finished finish done submitted
    user_exit user_stop exit quit stop end_turn compression
    """
)


class BuildFilter(NamedTuple):
    """Which sessions to build a template from, and how many notes to keep."""

    source: str | None = None
    owner: str | None = None
    since: float | None = None
    task: str | None = None  # code, file, research or mixed
    min_messages: int = 30
    max_sessions: int = 50
    max_notes: int = 40
    min_sessions: int = 2  # independent sessions that must share a note
    max_error_rate: float = MAX_ERROR_RATE
    project: str | None = None

    def validate(self) -> BuildFilter:
        """Return the filter, or raise an error that names the invalid field."""
        if self.task is not None and self.task not in (*TASK_KINDS, "mixed"):
            known = ", ".join((*TASK_KINDS, "mixed"))
            raise InvalidInput(f"type: expected one of {known}, got {self.task!r:.40}")
        lowest = {"min_messages": 0, "max_sessions": 1, "max_notes": 1, "min_sessions": 1}
        for name, minimum in lowest.items():
            if getattr(self, name) < minimum:
                raise InvalidInput(f"{name}: expected {minimum} or more, got {getattr(self, name)}")
        return self


class ScanReport(NamedTuple):
    """The sessions that were scanned, and why others were skipped."""

    scanned: int
    qualified: int
    skipped: Mapping[str, int]
    looked_through: int  # in this run; the others were observed before
    sources: Mapping[str, int]
    tasks: Mapping[str, int]
    avg_proficiency_gain: float | None  # error rate, last fifth minus first; negative is better
    removed: Mapping[str, int] = {}  # from the notes, by kind
    owner: str | None = None  # if limited to one owner's sessions


class ChosenSessions(NamedTuple):
    """The sessions to build from, newest first, and the report on all that were scanned."""

    sessions: tuple[Session, ...]
    report: ScanReport


def choose_sessions(store: Store, wanted: BuildFilter, observed: int) -> ChosenSessions:
    """Choose the newest sessions that qualify; `observed` is how many were observed in this run."""
    where = Filter(
        source=wanted.source, owner=wanted.owner, since=wanted.since, project=wanted.project
    )
    found = list_sessions(store, where)
    skipped: Counter[str] = Counter()
    long = [one for one in found if one.message_count >= wanted.min_messages]
    ended = [one for one in long if not one.end_reason or _is_finished(one.end_reason)]
    skipped[f"under {wanted.min_messages} messages"] = len(found) - len(long)
    skipped["did not finish"] = len(long) - len(ended)
    chosen: list[Session] = []
    tasks: Counter[str] = Counter()
    gains: list[float] = []
    for number, one in enumerate(_interleave_sources(ended)):
        if len(chosen) == wanted.max_sessions:
            skipped["over the session limit"] = len(ended) - number
            break
        calls = next((judged.calls for judged in store.iter_judged_sessions(session=one.id)), ())
        task = classify_task(calls)
        known = [call for call in calls if call.failed is not None and call.kind != "bookkeeping"]
        if reason := _explain_skip(known, task, wanted):
            skipped[reason] += 1
            continue
        chosen.append(one)
        tasks[task] += 1
        if len(known) >= MIN_GAIN_CALLS:
            gains.append(_compute_gain([bool(call.failed) for call in known]))
    sources = Counter(one.source for one in chosen)
    return ChosenSessions(
        tuple(chosen),
        ScanReport(
            scanned=len(found),
            qualified=len(chosen),
            skipped={reason: count for reason, count in skipped.most_common() if count},
            looked_through=observed,
            sources=dict(sources.most_common()),
            tasks=dict(tasks.most_common()),
            avg_proficiency_gain=round(sum(gains) / len(gains), 4) if gains else None,
            owner=wanted.owner,
        ),
    )


def list_sessions(store: Store, where: Filter) -> list[Session]:
    """Return all sessions that match, newest first."""
    found: list[Session] = []
    while page := store.recent(PAGE_SIZE, where=where, offset=len(found)):
        found += page
        if len(page) < PAGE_SIZE:
            break
    return found


def _explain_skip(known: Sequence[JudgedCall], task: str, wanted: BuildFilter) -> str:
    if not known:
        return "no judged calls"
    if sum(bool(call.failed) for call in known) > wanted.max_error_rate * len(known):
        return f"over {wanted.max_error_rate:.0%} of the calls failed"
    return "other task type" if wanted.task not in (None, task) else ""


def _compute_gain(failed: Sequence[bool]) -> float:
    size = len(failed) // END_DIVISOR
    return (sum(failed[-size:]) - sum(failed[:size])) / size


def _interleave_sources(found: Iterable[Session]) -> list[Session]:
    """Interleave the newest sessions of all sources, so that a busy one does not crowd out others."""
    ranks: dict[str, itertools.count[int]] = {}
    ranked = [(next(ranks.setdefault(one.source, itertools.count())), one) for one in found]
    return [one for _, one in sorted(ranked, key=itemgetter(0))]


def _is_finished(end_reason: str) -> bool:
    reason = end_reason.strip().lower().replace("-", "_").replace(" ", "_")
    return not reason or reason in FINISHED_REASONS
