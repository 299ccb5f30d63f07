"""What can be learned from stored sessions: reads the store, asks `warm/`, keeps the answers."""

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

from rekindle.analytics.profile import END_SHARE, FEWEST, TASK_KINDS, task_of
from rekindle.errors import InvalidInput, NotFound
from rekindle.judging import call_pairing as judging
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.judging.rules.text_patterns import words
from rekindle.knowledge.mining import candidates as mining
from rekindle.knowledge.mining.call_reader import Deed, Done, Reader
from rekindle.store import Filter, Store
from rekindle.store.core.prefetch import Ahead
from rekindle.store.learning.mining_results import Deal, Facts, Findings, Pending, call_of
from rekindle.store.learning.outcomes import Due, Verdicts
from rekindle.types import Judged, Message, Pattern

from . import candidate_patterns

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

Progress = Callable[[int, int], None]

RULES = str(JUDGE_VERSION)
PAGE = 500  # messages read at a time: a session of any length costs the same memory
TOGETHER = 2_000  # calls kept in one transaction
_EVERYTHING = Filter()

MINING_RULES = f"{RULES}.{mining.RULES_VERSION}"
AT_ONCE = 10_000  # messages in sessions that are looked through and kept in one transaction,
LEAST = 20  # and for how many a session counts at least
MOST_ERRORS = 0.5  # of the calls: a session that fails more often is no example
FINISHED = words(
    """
    completed complete completed_successfully success succeeded finished finish done submitted
    user_exit user_stop exit quit stop end_turn compression
    """
)
LONGEST_WORK = 200  # characters of the name of a sort of calls


def judge(
    store: Store,
    where: Filter = _EVERYTHING,
    *,
    session: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Judge what is new or was judged by other rules; how many calls that were."""
    waiting = store.due(RULES, where, session=session)
    total = sum(due.messages for due in waiting)
    done = count = 0
    batch: list[Verdicts] = []
    for due in waiting:
        try:
            batch.append(_verdicts(store, due))
        except NotFound:
            continue  # pruned meanwhile
        count += len(batch[-1].calls)
        done += due.messages
        if sum(len(each.calls) + 1 for each in batch) >= TOGETHER:
            store.keep_verdicts(RULES, batch)
            batch = []
        if progress:
            progress(done, total)
    if batch:
        store.keep_verdicts(RULES, batch)
    return count


def judged(
    store: Store, where: Filter = _EVERYTHING, *, progress: Progress | None = None
) -> Iterator[Judged]:
    """Sessions with their calls, judged as they are now, in the order of their start."""
    judge(store, where, progress=progress)
    yield from store.judged(where)


def judged_session(store: Store, session: str) -> Judged:
    """One session with its calls."""
    judge(store, session=session)
    for found in store.judged(session=session):
        return found
    raise NotFound(f"no session {session!r}")


def _verdicts(store: Store, due: Due) -> Verdicts:
    watched = _Watched(_messages(store, due), due.since)
    calls = sorted(judging.judged(due.session, watched))
    since = judging.resume_at(calls, watched.end)
    return Verdicts(due, calls, since, (*due.compressions, *watched.compressions))


def _messages(store: Store, due: Due) -> Iterator[Message]:
    after = due.since - 1
    while page := store.messages(due.session, after=after, limit=PAGE):
        yield from page
        after = page[-1].position or 0


class _Watched:
    """Messages on their way to the judge, and what else is to be seen in them."""

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


class Wanted(NamedTuple):
    """Which sessions to learn from, and how many patterns to keep."""

    source: str | None = None
    owner: str | None = None
    since: float | None = None
    task: str | None = None  # code, file, research or mixed
    min_messages: int = 30
    max_sessions: int = 50
    most: int = 40  # patterns
    least: int = 2  # independent sessions that must have had one
    most_errors: float = MOST_ERRORS

    def checked(self) -> Wanted:
        """The same, or a refusal that names what is wrong."""
        if self.task is not None and self.task not in (*TASK_KINDS, "mixed"):
            known = ", ".join((*TASK_KINDS, "mixed"))
            raise InvalidInput(f"type: expected one of {known}, got {self.task!r:.40}")
        for name, least in (("min_messages", 0), ("max_sessions", 1), ("most", 1), ("least", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name}: expected {least} or more, got {getattr(self, name)}")
        return self


class Scan(NamedTuple):
    """What a scan looked at, and why sessions were left out."""

    scanned: int
    qualified: int
    skipped: Mapping[str, int]
    looked_through: int  # anew; the others were known from before
    sources: Mapping[str, int]
    tasks: Mapping[str, int]
    avg_proficiency_gain: (
        float | None
    )  # errors of the last fifth less the first; negative is better
    removed: Mapping[str, int] = {}  # by redaction, in this run
    owner: str | None = None  # whose sessions alone were looked at


class Learned(NamedTuple):
    """Patterns, the sessions they come from (newest first), and the scan that gave them."""

    patterns: tuple[Pattern, ...]
    sessions: tuple[str, ...]
    scan: Scan


def learn(
    store: Store,
    redactor: Redactor,
    wanted: Wanted | None = None,
    *,
    now: float,
    progress: Progress | None = None,
) -> Learned:
    """Mine what is new among the sessions that qualify, and put together what they share."""
    wanted = (wanted or Wanted()).checked()
    with _uncollected():
        chosen, scan = _scanned(store, redactor, wanted, progress)
        found = candidate_patterns.patterns(
            store, [one.num for one in chosen], least=wanted.least, most=wanted.most, now=now
        )
        told = [candidate_patterns.told(store, redactor, *one) for one in found]
    removed: Counter[str] = Counter()
    for (kind, _), count in redactor.report.items():
        removed[kind] += count
    scan = scan._replace(removed=dict(removed.most_common()), owner=wanted.owner)
    return Learned(tuple(told), tuple([one.id for one in chosen]), scan)


@contextmanager
def _uncollected() -> Generator[None]:
    """Without the collector: so many small values, no cycle among them, and half the time it takes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Single(NamedTuple):
    """What one session teaches by itself."""

    patterns: tuple[Pattern, ...]
    task: str
    arguments: tuple[str, ...]  # of its calls, redacted


def learn_one(store: Store, redactor: Redactor, session: str, *, now: float, most: int) -> Single:
    """The calls of one session that are worth showing, whatever other sessions did."""
    judge(store, session=session)
    pending = store.mined.pending(MINING_RULES, _EVERYTHING, session=session)
    if not pending:
        raise NotFound(f"no session {session!r}")  # deleted meanwhile
    one = pending[0]
    looking = _Looking(store, _reader(redactor), pending)
    facts = one.known or looking.through([one])[one.num]
    looking.keep()
    found = candidate_patterns.patterns(store, [one.num], least=1, most=most * 4, now=now)
    examples = [one for one in found if one[0].kind == "example"][:most]
    chosen = [candidate_patterns.told(store, redactor, *one) for one in examples]
    deeds = candidate_patterns.deeds_of(store.mined.calls([one.num])[one.num])
    texts = tuple(" ".join(value for value in deed.form.values if value) for deed in deeds)
    return Single(tuple(chosen), facts.task, texts)


def all_messages(store: Store, session: str) -> Iterator[Message]:
    """The messages of a session, page by page."""
    after = -1
    while page := store.messages(session, after=after, limit=PAGE):
        yield from page
        after = page[-1].position or 0


def _scanned(
    store: Store, redactor: Redactor, wanted: Wanted, progress: Progress | None
) -> tuple[list[Pending], Scan]:
    where = Filter(source=wanted.source, owner=wanted.owner, since=wanted.since)
    found = store.mined.pending(MINING_RULES, where)
    skipped: Counter[str] = Counter()
    long = [one for one in found if one.messages >= wanted.min_messages]
    ended = [one for one in long if not one.end_reason or _is_finished(one.end_reason)]
    if few := len(found) - len(long):
        skipped[f"under {wanted.min_messages} messages"] = few
    if otherwise := len(long) - len(ended):
        skipped["ended otherwise"] = otherwise
    eligible = _in_turn(ended)
    chosen: list[Pending] = []
    facts: list[Facts | Pending] = []  # of the chosen ones
    looked = 0
    parts = _parts(eligible)
    new = [[one for one in part if one.task is None] for part in parts]
    looking = _Looking(store, _reader(redactor), [one for part in new for one in part])
    for number, part in enumerate(parts):
        if len(chosen) >= wanted.max_sessions:
            skipped["more than wanted"] += sum(len(rest) for rest in parts[number:])
            break
        fresh = looking.through(new[number])
        looked += len(fresh)
        room = wanted.max_sessions - len(chosen)
        fit, known = _fitting(part, fresh, wanted, skipped)
        if len(fit) > room:
            skipped["more than wanted"] += len(fit) - room
        chosen += fit[:room]
        facts += known[:room]
        following = new[number + 1 : number + 2] if len(chosen) < wanted.max_sessions else []
        looking.keep(*following)
        if progress:
            is_some = wanted.max_sessions < len(eligible)
            done = len(chosen) if is_some else sum(len(each) for each in parts[: number + 1])
            progress(done, min(wanted.max_sessions, len(eligible)))
    gains = [one.gain for one in facts if one.gain is not None]
    return chosen, Scan(
        len(found),
        len(chosen),
        dict(skipped.most_common()),
        looked,
        dict(Counter([one.source for one in chosen]).most_common()),
        dict(Counter([one.task or "" for one in facts]).most_common()),
        round(sum(gains) / len(gains), 4) if gains else None,
    )


def _in_turn(found: Sequence[Pending]) -> list[Pending]:
    """The newest of every source in turn: one busy source must not crowd out the others."""
    sources = {one.source for one in found}
    if len(sources) == 1:
        return [*found]
    ranks = {source: itertools.count() for source in sources}
    ranked = [(next(ranks[one.source]), one) for one in found]
    return [one for _, one in sorted(ranked, key=itemgetter(0))]


def _parts(found: Sequence[Pending]) -> list[Sequence[Pending]]:
    """Sessions in their order, with as many new ones together as one wants to hold in memory."""
    sizes = [0 if one.task is not None else max(one.messages, LEAST) for one in found]
    ends = [*itertools.accumulate(sizes)]
    parts: list[Sequence[Pending]] = []
    start = taken = 0
    while start < len(found):
        end = bisect_right(ends, taken + AT_ONCE, lo=start + 1)
        parts.append(found[start:end])
        start, taken = end, ends[end - 1]
    return parts


@lru_cache(maxsize=1_000)
def _is_finished(end_reason: str) -> bool:
    reason = end_reason.strip().lower().replace("-", "_").replace(" ", "_")
    return not reason or reason in FINISHED


def _fitting(
    part: Sequence[Pending], fresh: Mapping[int, Facts], wanted: Wanted, skipped: Counter[str]
) -> tuple[Sequence[Pending], Sequence[Facts | Pending]]:
    """The sessions that fit, and their facts; the reasons why others do not are counted."""
    most, task = wanted.most_errors, wanted.task
    fit: list[Pending] = []
    facts: list[Facts | Pending] = []
    for one in part:
        known = fresh.get(one.num) if one.task is None else one
        if known is None:
            skipped["deleted meanwhile"] += 1
        elif not known.judged:
            skipped["no judged calls"] += 1
        elif known.failed > most * known.judged:
            skipped[f"over {most:.0%} of the calls failed"] += 1
        elif task is not None and task != known.task:
            skipped["other type of task"] += 1
        else:
            fit.append(one)
            facts.append(known)
    return fit, facts


def _reader(redactor: Redactor) -> Reader:
    return Reader(lambda value: redactor.value(value, "arguments"), call_of)


class _Looking:
    """Looks through sessions part by part; while one part is written, the next is looked through."""

    def __init__(self, store: Store, reader: Reader, new: Sequence[Pending]) -> None:
        self._store = store
        self._reader = reader
        nums = [one.num for one in new]
        self._lines = store.mined.lines(nums)
        before = {num for line in self._lines.values() for num in line}
        due = store.due(RULES, Filter(archived=None), nums=[*{*nums, *before}])
        self._waiting = {one.num: one for one in due}
        self._lets_in: dict[int, bool] = {}  # whether strangers had a say in a session
        self._found: list[Findings] = []
        self._ahead: Ahead[list[Findings]] | None = None

    def through(self, new: Sequence[Pending]) -> dict[int, Facts]:
        """Look through sessions; what they were like."""
        if self._ahead is None:
            self._judge(new)
            self._found = self._look(new)
        else:
            self._found = self._ahead.take()
        return {one.num: one.facts for one in self._found}

    def keep(self, following: Sequence[Pending] = ()) -> None:
        """Write what was found, and look ahead at what follows, if nothing there waits for a verdict."""
        is_ready = not self._due(following)
        self._ahead = Ahead(lambda: self._look(following)) if is_ready else None
        if self._found:
            self._store.mined.keep(MINING_RULES, self._found, meanwhile=self._ahead)

    def _due(self, new: Sequence[Pending]) -> list[Due]:
        """Of these sessions, and of those before them, the ones that are not judged yet."""
        if not self._waiting:
            return []
        nums = {num for one in new for num in (one.num, *self._lines.get(one.num, ()))}
        return [self._waiting[num] for num in sorted(nums & self._waiting.keys())]

    def _judge(self, new: Sequence[Pending]) -> None:
        judged: list[Verdicts] = []
        for one in self._due(new):
            del self._waiting[one.num]
            with suppress(NotFound):  # pruned meanwhile
                judged.append(_verdicts(self._store, one))
        if judged:
            self._store.keep_verdicts(RULES, judged)

    def _look(self, new: Sequence[Pending]) -> list[Findings]:
        if not new:
            return []
        deals = list(self._store.mined.deals([one.num for one in new]))
        done = self._reader.deeds(
            Done(deal.calls, deal.users, deal.cwd, self._is_tainted(deal.num)) for deal in deals
        )
        return [_findings(deal, deeds) for deal, deeds in zip(deals, done, strict=True)]

    def _is_tainted(self, num: int) -> bool:
        """Does this session go on from one in which strangers had a say?"""
        line = self._lines.get(num, ())
        if unknown := [num for num in line if num not in self._lets_in]:
            for deal in self._store.mined.deals(unknown):
                done = Done(deal.calls, deal.users, deal.cwd)
                self._lets_in[deal.num] = self._reader.lets_in(done)
        return any(self._lets_in.get(num, False) for num in line)


def _findings(deal: Deal, deeds: Sequence[Deed]) -> Findings:
    found = mining.candidates(deeds)
    used = sorted({number for _, _, place, _, _ in found for number in place})
    places = {number: f"{place}" for place, number in enumerate(used)}
    num = deal.num
    candidates = [
        (
            num,
            shape,
            num,
            kind,
            places[place[0]] if len(place) == 1 else ",".join([places[one] for one in place]),
            support,
            int(tainted),
        )
        for shape, kind, place, support, tainted in found
    ]
    kept = msgspec.json.encode([deeds[number] for number in used])
    counts: dict[str, list[int]] = {}
    for deed in deeds:
        if deed.form.tier and (deed.ok or deed.failed):
            count = counts.setdefault(deed.form.work, [0, 0])
            count[0] += 1
            count[1] += deed.failed
    attempts = [(work, a, b) for work, (a, b) in counts.items() if len(work) <= LONGEST_WORK]
    return Findings(num, deal.parent, deal.changes, _facts(deal), kept, candidates, attempts)


def _facts(deal: Deal) -> Facts:
    calls = [call for call, _ in deal.calls]
    known = [c.failed for c in calls if c.failed is not None and c.work != "bookkeeping"]
    gain = None
    if len(known) >= FEWEST:
        size = len(known) // END_SHARE
        gain = (sum(known[-size:]) - sum(known[:size])) / size
    return Facts(task_of(calls), len(known), sum(known), gain)
