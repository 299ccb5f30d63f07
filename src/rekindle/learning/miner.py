"""Judge and mine stored sessions, and store the results."""

from __future__ import annotations

import gc
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rekindle.analytics.profile import END_DIVISOR, MIN_GAIN_CALLS, TASK_KINDS, classify_task
from rekindle.errors import InvalidInput, NotFound
from rekindle.judging import call_pairing as judging
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.mining import candidates as mining
from rekindle.knowledge.mining.call_reader import CallReader, MinedCall, SessionCalls
from rekindle.store import Filter, Store
from rekindle.store.core.prefetch import Prefetch
from rekindle.store.learning.mining_results import (
    MiningCandidateSession,
    MiningResult,
    SessionCallRows,
    SessionStats,
    find_tool_call,
)
from rekindle.store.learning.outcomes import JudgedCalls, StaleSession
from rekindle.types import JudgedSession, Message, Pattern

from . import candidate_patterns

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

Progress = Callable[[int, int], None]

RULES_VERSION = str(JUDGE_VERSION)
PAGE_SIZE = 500  # messages per page, which bounds the memory used
CALLS_PER_COMMIT = 2_000  # calls written per transaction
_NO_FILTER = Filter()

MINING_VERSION = f"{RULES_VERSION}.{mining.RULES_VERSION}"
MESSAGES_PER_BATCH = 10_000  # messages in the sessions of one batch,
MIN_SESSION_WEIGHT = 20  # and the minimum that a session counts for
MAX_ERROR_RATE = 0.5  # sessions with a higher rate are no examples
FINISHED_REASONS = split_words(
    """
    completed complete completed_successfully success succeeded finished finish done submitted
    user_exit user_stop exit quit stop end_turn compression
    """
)
MAX_CALL_TYPE_CHARS = 200  # characters of the name of a call type


def judge_sessions(
    store: Store,
    where: Filter = _NO_FILTER,
    *,
    session: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Judge sessions that are new or were judged by other rules; return the number of calls."""
    waiting = store.find_stale_sessions(RULES_VERSION, where, session=session)
    total = sum(due.messages for due in waiting)
    done = count = 0
    batch: list[JudgedCalls] = []
    for due in waiting:
        try:
            batch.append(_judge_session(store, due))
        except NotFound:
            continue  # pruned meanwhile
        count += len(batch[-1].calls)
        done += due.messages
        if sum(len(each.calls) + 1 for each in batch) >= CALLS_PER_COMMIT:
            store.save_verdicts(RULES_VERSION, batch)
            batch = []
        if progress:
            progress(done, total)
    if batch:
        store.save_verdicts(RULES_VERSION, batch)
    return count


def iter_judged_sessions(
    store: Store, where: Filter = _NO_FILTER, *, progress: Progress | None = None
) -> Iterator[JudgedSession]:
    """Yield judged sessions with their calls, ordered by start."""
    judge_sessions(store, where, progress=progress)
    yield from store.iter_judged_sessions(where)


def load_judged_session(store: Store, session: str) -> JudgedSession:
    """Return one judged session with its calls."""
    judge_sessions(store, session=session)
    for found in store.iter_judged_sessions(session=session):
        return found
    raise NotFound(f"Session not found: {session!r}")


def _judge_session(store: Store, due: StaleSession) -> JudgedCalls:
    watcher = _MessageWatcher(_iter_unjudged_messages(store, due), due.since)
    calls = sorted(judging.judge_calls(due.session, watcher))
    since = judging.find_rejudge_position(calls, watcher.end)
    return JudgedCalls(due, calls, since, (*due.compressions, *watcher.compressions))


def _iter_unjudged_messages(store: Store, due: StaleSession) -> Iterator[Message]:
    after = due.since - 1
    while page := store.messages(due.session, after=after, limit=PAGE_SIZE):
        yield from page
        after = page[-1].position or 0


class _MessageWatcher:
    """Messages on their way to the judge, with compressions noted in passing."""

    def __init__(self, messages: Iterable[Message], end: int) -> None:
        self._messages = messages
        self.end = end
        self.compressions: list[int] = []

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            position = message.position or 0
            self.end = position + 1
            if message.meta and message.meta.get("compacted"):
                self.compressions.append(position)
            yield message


# ── mining


class MiningFilter(NamedTuple):
    """Which sessions to mine, and how many patterns to keep."""

    source: str | None = None
    owner: str | None = None
    since: float | None = None
    task: str | None = None  # code, file, research or mixed
    min_messages: int = 30
    max_sessions: int = 50
    max_patterns: int = 40  # patterns
    min_sessions: int = 2  # independent sessions that must share a pattern
    max_error_rate: float = MAX_ERROR_RATE

    def validate(self) -> MiningFilter:
        """Return the filter, or raise an error that names the invalid field."""
        if self.task is not None and self.task not in (*TASK_KINDS, "mixed"):
            known = ", ".join((*TASK_KINDS, "mixed"))
            raise InvalidInput(f"type: expected one of {known}, got {self.task!r:.40}")
        lowest = {"min_messages": 0, "max_sessions": 1, "max_patterns": 1, "min_sessions": 1}
        for name, minimum in lowest.items():
            if getattr(self, name) < minimum:
                raise InvalidInput(f"{name}: expected {minimum} or more, got {getattr(self, name)}")
        return self


class MiningReport(NamedTuple):
    """The sessions that were scanned, and why others were skipped."""

    scanned: int
    qualified: int
    skipped: Mapping[str, int]
    looked_through: int  # in this run; the others were mined before
    sources: Mapping[str, int]
    tasks: Mapping[str, int]
    avg_proficiency_gain: (
        float | None
    )  # error rate of the last fifth minus the first; negative is better
    removed: Mapping[str, int] = {}  # by redaction, in this run
    owner: str | None = None  # if limited to one owner's sessions


class MiningOutcome(NamedTuple):
    """Patterns, the sessions they come from (newest first), and the mining report."""

    patterns: tuple[Pattern, ...]
    sessions: tuple[str, ...]
    scan: MiningReport


def mine_sessions(
    store: Store,
    redactor: Redactor,
    mining_filter: MiningFilter | None = None,
    *,
    now: float,
    progress: Progress | None = None,
) -> MiningOutcome:
    """Mine new sessions among those that qualify, and aggregate the patterns they share."""
    mining_filter = (mining_filter or MiningFilter()).validate()
    with _disable_gc():
        chosen, scan = _select_sessions(store, redactor, mining_filter, progress)
        found = candidate_patterns.aggregate_patterns(
            store,
            [one.num for one in chosen],
            min_sessions=mining_filter.min_sessions,
            max_patterns=mining_filter.max_patterns,
            now=now,
        )
        patterns = [
            candidate_patterns.add_request_and_result(store, redactor, *one) for one in found
        ]
    removed: Counter[str] = Counter()
    for (kind, _), count in redactor.report.items():
        removed[kind] += count
    scan = scan._replace(removed=dict(removed.most_common()), owner=mining_filter.owner)
    return MiningOutcome(tuple(patterns), tuple([one.id for one in chosen]), scan)


@contextmanager
def _disable_gc() -> Generator[None]:
    """Disable GC: mining allocates many acyclic values; this halves the run time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class SessionExtract(NamedTuple):
    """What was mined from one session."""

    patterns: tuple[Pattern, ...]
    task: str
    arguments: tuple[str, ...]  # of its calls, redacted


def mine_single_session(
    store: Store, redactor: Redactor, session: str, *, now: float, max_patterns: int
) -> SessionExtract:
    """Mine the calls of one session that are worth showing, regardless of other sessions."""
    judge_sessions(store, session=session)
    pending = store.mining_results.list_candidate_sessions(
        MINING_VERSION, _NO_FILTER, session=session
    )
    if not pending:
        raise NotFound(f"Session not found: {session!r}")  # deleted meanwhile
    one = pending[0]
    miner = _SessionMiner(store, _create_reader(redactor), pending)
    stats = one.stats or miner.mine_batch([one])[one.num]
    miner.save_batch()
    found = candidate_patterns.aggregate_patterns(
        store, [one.num], min_sessions=1, max_patterns=max_patterns * 4, now=now
    )
    examples = [one for one in found if one[0].kind == "example"][:max_patterns]
    chosen = [candidate_patterns.add_request_and_result(store, redactor, *one) for one in examples]
    calls = candidate_patterns.decode_calls(store.mining_results.load_calls([one.num])[one.num])
    texts = tuple(" ".join(value for value in call.signature.values if value) for call in calls)
    return SessionExtract(tuple(chosen), stats.task, texts)


def iter_messages(store: Store, session: str) -> Iterator[Message]:
    """Yield the messages of a session, page by page."""
    after = -1
    while page := store.messages(session, after=after, limit=PAGE_SIZE):
        yield from page
        after = page[-1].position or 0


def _select_sessions(
    store: Store, redactor: Redactor, mining_filter: MiningFilter, progress: Progress | None
) -> tuple[list[MiningCandidateSession], MiningReport]:
    where = Filter(
        source=mining_filter.source, owner=mining_filter.owner, since=mining_filter.since
    )
    found = store.mining_results.list_candidate_sessions(MINING_VERSION, where)
    skipped: Counter[str] = Counter()
    long = [one for one in found if one.messages >= mining_filter.min_messages]
    ended = [one for one in long if not one.end_reason or _is_finished(one.end_reason)]
    if few := len(found) - len(long):
        skipped[f"under {mining_filter.min_messages} messages"] = few
    if otherwise := len(long) - len(ended):
        skipped["did not finish"] = otherwise
    eligible = _interleave_sources(ended)
    chosen: list[MiningCandidateSession] = []
    stats: list[SessionStats | MiningCandidateSession] = []  # of the chosen sessions
    mined_count = 0
    batches = _split_batches(eligible)
    new = [[one for one in batch if one.task is None] for batch in batches]
    miner = _SessionMiner(store, _create_reader(redactor), [one for batch in new for one in batch])
    for number, batch in enumerate(batches):
        if len(chosen) >= mining_filter.max_sessions:
            skipped["over the session limit"] += sum(len(rest) for rest in batches[number:])
            break
        fresh = miner.mine_batch(new[number])
        mined_count += len(fresh)
        room = mining_filter.max_sessions - len(chosen)
        fit, known = _filter_batch(batch, fresh, mining_filter, skipped)
        if len(fit) > room:
            skipped["over the session limit"] += len(fit) - room
        chosen += fit[:room]
        stats += known[:room]
        following = new[number + 1 : number + 2] if len(chosen) < mining_filter.max_sessions else []
        miner.save_batch(*following)
        if progress:
            is_limited = mining_filter.max_sessions < len(eligible)
            done = len(chosen) if is_limited else sum(len(each) for each in batches[: number + 1])
            progress(done, min(mining_filter.max_sessions, len(eligible)))
    gains = [one.gain for one in stats if one.gain is not None]
    return chosen, MiningReport(
        len(found),
        len(chosen),
        dict(skipped.most_common()),
        mined_count,
        dict(Counter([one.source for one in chosen]).most_common()),
        dict(Counter([one.task or "" for one in stats]).most_common()),
        round(sum(gains) / len(gains), 4) if gains else None,
    )


def _interleave_sources(found: Sequence[MiningCandidateSession]) -> list[MiningCandidateSession]:
    """Interleave the newest sessions of all sources, so that a busy one does not crowd out others."""
    sources = {one.source for one in found}
    if len(sources) == 1:
        return [*found]
    ranks = {source: itertools.count() for source in sources}
    ranked = [(next(ranks[one.source]), one) for one in found]
    return [one for _, one in sorted(ranked, key=itemgetter(0))]


def _split_batches(
    found: Sequence[MiningCandidateSession],
) -> list[Sequence[MiningCandidateSession]]:
    """Split sessions into batches, in order, each with as many new ones as fit in memory."""
    sizes = [0 if one.task is not None else max(one.messages, MIN_SESSION_WEIGHT) for one in found]
    ends = [*itertools.accumulate(sizes)]
    batches: list[Sequence[MiningCandidateSession]] = []
    start = taken = 0
    while start < len(found):
        end = bisect_right(ends, taken + MESSAGES_PER_BATCH, lo=start + 1)
        batches.append(found[start:end])
        start, taken = end, ends[end - 1]
    return batches


@lru_cache(maxsize=1_000)
def _is_finished(end_reason: str) -> bool:
    reason = end_reason.strip().lower().replace("-", "_").replace(" ", "_")
    return not reason or reason in FINISHED_REASONS


def _filter_batch(
    batch: Sequence[MiningCandidateSession],
    fresh: Mapping[int, SessionStats],
    mining_filter: MiningFilter,
    skipped: Counter[str],
) -> tuple[Sequence[MiningCandidateSession], Sequence[SessionStats | MiningCandidateSession]]:
    """Return the qualifying sessions and their stats; count the reasons why others do not qualify."""
    max_error_rate, task = mining_filter.max_error_rate, mining_filter.task
    fit: list[MiningCandidateSession] = []
    stats: list[SessionStats | MiningCandidateSession] = []
    for one in batch:
        known = fresh.get(one.num) if one.task is None else one
        if known is None:
            skipped["deleted meanwhile"] += 1
        elif not known.judged:
            skipped["no judged calls"] += 1
        elif known.failed > max_error_rate * known.judged:
            skipped[f"over {max_error_rate:.0%} of the calls failed"] += 1
        elif task is not None and task != known.task:
            skipped["other task type"] += 1
        else:
            fit.append(one)
            stats.append(known)
    return fit, stats


def _create_reader(redactor: Redactor) -> CallReader:
    return CallReader(lambda value: redactor.redact_value(value, "arguments"), find_tool_call)


class _SessionMiner:
    """Mines sessions in batches; while one batch is written, the next one is mined."""

    def __init__(
        self, store: Store, reader: CallReader, new: Sequence[MiningCandidateSession]
    ) -> None:
        self._store = store
        self._reader = reader
        nums = [one.num for one in new]
        self._lineages = store.mining_results.load_ancestors(nums)
        before = {num for lineage in self._lineages.values() for num in lineage}
        due = store.find_stale_sessions(
            RULES_VERSION, Filter(archived=None), nums=[*{*nums, *before}]
        )
        self._unjudged = {one.num: one for one in due}
        self._taint: dict[int, bool] = {}  # whether a session read untrusted text
        self._results: list[MiningResult] = []
        self._prefetch: Prefetch[list[MiningResult]] | None = None

    def mine_batch(self, new: Sequence[MiningCandidateSession]) -> dict[int, SessionStats]:
        """Mine sessions; return their stats."""
        if self._prefetch is None:
            self._judge_pending(new)
            self._results = self._mine(new)
        else:
            self._results = self._prefetch.get()
        return {one.num: one.stats for one in self._results}

    def save_batch(self, following: Sequence[MiningCandidateSession] = ()) -> None:
        """Store the results, and prefetch the next batch unless it still has to be judged."""
        is_ready = not self._find_unjudged(following)
        self._prefetch = Prefetch(lambda: self._mine(following)) if is_ready else None
        if self._results:
            self._store.mining_results.save(
                MINING_VERSION, self._results, during_commit=self._prefetch
            )

    def _find_unjudged(self, new: Sequence[MiningCandidateSession]) -> list[StaleSession]:
        """Return those of these sessions and their ancestors that are not judged yet."""
        if not self._unjudged:
            return []
        nums = {num for one in new for num in (one.num, *self._lineages.get(one.num, ()))}
        return [self._unjudged[num] for num in sorted(nums & self._unjudged.keys())]

    def _judge_pending(self, new: Sequence[MiningCandidateSession]) -> None:
        judged: list[JudgedCalls] = []
        for one in self._find_unjudged(new):
            del self._unjudged[one.num]
            with suppress(NotFound):  # pruned meanwhile
                judged.append(_judge_session(self._store, one))
        if judged:
            self._store.save_verdicts(RULES_VERSION, judged)

    def _mine(self, new: Sequence[MiningCandidateSession]) -> list[MiningResult]:
        if not new:
            return []
        sessions = list(self._store.mining_results.iter_session_calls([one.num for one in new]))
        mined_calls = self._reader.read_sessions(
            SessionCalls(rows.calls, rows.user_positions, rows.cwd, self._is_tainted(rows.num))
            for rows in sessions
        )
        return [
            _build_result(rows, calls) for rows, calls in zip(sessions, mined_calls, strict=True)
        ]

    def _is_tainted(self, num: int) -> bool:
        """Return whether this session continues one that read untrusted text."""
        lineage = self._lineages.get(num, ())
        if unknown := [num for num in lineage if num not in self._taint]:
            for rows in self._store.mining_results.iter_session_calls(unknown):
                session_calls = SessionCalls(rows.calls, rows.user_positions, rows.cwd)
                self._taint[rows.num] = self._reader.is_session_tainted(session_calls)
        return any(self._taint.get(num, False) for num in lineage)


def _build_result(rows: SessionCallRows, calls: Sequence[MinedCall]) -> MiningResult:
    found = mining.find_candidates(calls)
    used = sorted({number for _, _, positions, _, _ in found for number in positions})
    indexes = {number: f"{positions}" for positions, number in enumerate(used)}
    num = rows.num
    candidates = [
        (
            num,
            shape,
            num,
            kind,
            indexes[positions[0]]
            if len(positions) == 1
            else ",".join([indexes[one] for one in positions]),
            support,
            int(tainted),
        )
        for shape, kind, positions, support, tainted in found
    ]
    kept = msgspec.json.encode([calls[number] for number in used])
    counts: dict[str, list[int]] = {}
    for call in calls:
        if call.signature.tier and (call.ok or call.failed):
            count = counts.setdefault(call.signature.work, [0, 0])
            count[0] += 1
            count[1] += call.failed
    call_types = [
        (name, made, failed)
        for name, (made, failed) in counts.items()
        if len(name) <= MAX_CALL_TYPE_CHARS
    ]
    return MiningResult(
        num, rows.parent, rows.changes, _compute_stats(rows), kept, candidates, call_types
    )


def _compute_stats(rows: SessionCallRows) -> SessionStats:
    calls = [call for call, _ in rows.calls]
    known = [c.failed for c in calls if c.failed is not None and c.kind != "bookkeeping"]
    gain = None
    if len(known) >= MIN_GAIN_CALLS:
        size = len(known) // END_DIVISOR
        gain = (sum(known[-size:]) - sum(known[:size])) / size
    return SessionStats(classify_task(calls), len(known), sum(known), gain)
