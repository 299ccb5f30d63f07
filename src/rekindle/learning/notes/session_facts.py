"""Collect from the store what an overview of sessions is computed from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from decimal import Decimal

from rekindle.analytics.overview.facts import (
    CommandCount,
    KnownFailures,
    Mend,
    RedTest,
    SessionFacts,
)
from rekindle.analytics.overview.overview import CommandRow, Overview, ToolFailures
from rekindle.analytics.overview.problems import count_problems
from rekindle.analytics.usage.pricing import PriceList
from rekindle.analytics.usage.report import compute_total
from rekindle.knowledge.notes.calls import read_forms
from rekindle.knowledge.notes.failures import list_new_words
from rekindle.knowledge.notes.note import describe_fix
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.learning.verdicts.call_details import CallDetail, load_call_details, load_calls
from rekindle.learning.verdicts.judged_sessions import load_judged_session
from rekindle.store import Store
from rekindle.types import QUARTER_SECONDS, JudgedCall, JudgedSession, Session

from .learner import decode_observations
from .playbooks import load_decisions, load_playbook

GetOffset = Callable[[float], int]

MAX_PROJECTS = 20  # whose notes are read
MAX_DETAILED = 10  # commands and tools whose failures are looked at
MAX_INSPECTED = 60  # failures of a tool


def collect_facts(
    store: Store,
    sessions: Sequence[Session],
    prices: PriceList,
    get_offset: GetOffset,
    get_project: Callable[[Session], str | None],
) -> dict[str, SessionFacts]:
    """Return the facts of these sessions, by id."""
    ids = [session.id for session in sessions]
    quarters = store.count_active_quarters(ids)
    commands = load_commands(store, ids)
    facts = {
        one.id: SessionFacts(
            session=one,
            project=get_project(one) or "",
            day=int(one.started + get_offset(one.started)) // 86_400,
            seconds=_measure_time(one, quarters.get(one.id, 0)),
            costs_by_day={},
            commands=commands.get(one.id, ()),
        )
        for one in sessions
    }
    for used in store.sum_session_usage(ids, get_offset):
        known, total = facts[used.key], compute_total(used, prices)
        costs = {**known.costs_by_day}
        costs[used.day] = costs.get(used.day, Decimal(0)) + total.cost
        facts[used.key] = known._replace(
            tokens=known.tokens.add(used.tokens),
            cost=known.cost + total.cost,
            unpriced=known.unpriced + sum(total.unpriced[:4]),
            costs_by_day=costs,
        )
    return facts


def _measure_time(session: Session, quarters: int) -> float | None:
    """Return how long a session was at work: pauses of more than a quarter of an hour do not count."""
    span = session.last_active - session.started
    return min(span, quarters * QUARTER_SECONDS) if span > 0 and quarters else None


def load_commands(store: Store, ids: Sequence[str]) -> dict[str, list[CommandCount]]:
    """Return the commands that observed sessions ran, by session."""
    found: dict[str, list[CommandCount]] = {}
    for session, (_, observation) in decode_observations(store, ids).items():
        counts: dict[str, list[int]] = {}
        for use in observation.commands:
            total = counts.setdefault(use.key, [0, 0])
            total[0] += use.worked
            total[1] += use.failed
        found[session] = [CommandCount(name, *total) for name, total in counts.items()]
    return found


# ── what the notes know


def load_known_failures(store: Store, facts: Mapping[str, SessionFacts]) -> KnownFailures:
    """Return what the notes of the projects of these sessions know about failures."""
    sizes: dict[str, int] = {}
    for one in facts.values():
        if one.session.project:
            sizes[one.session.project] = sizes.get(one.session.project, 0) + 1
    projects = sorted(sizes, key=lambda key: (-sizes[key], key))[:MAX_PROJECTS]
    return load_project_failures(store, projects, facts)


def load_project_failures(
    store: Store, projects: Iterable[str], sessions: Container[str]
) -> KnownFailures:
    """Return what the notes of projects know about failures in some sessions, given by their ids."""
    mends: list[Mend] = []
    red_tests: list[RedTest] = []
    for project in projects:
        playbook = load_playbook(store, project)
        retired = load_decisions(store, project).retired
        mends += _list_mends(project, playbook, retired, sessions)
        for item in playbook.red_tests:
            failing = _list_sessions(playbook, item.sessions, sessions)
            if len(failing) > 1:
                red_tests.append(RedTest(project, item.name, failing))
    mends.sort(key=lambda one: (-len(one.sessions), f"{one.failed} {one.worked}".count("<")))
    red_tests.sort(key=lambda one: (-len(one.sessions), one.name))
    return KnownFailures(mends, red_tests)


def _list_mends(
    project: str,
    playbook: Playbook,
    retired: Iterable[str],
    chosen: Container[str],
) -> Iterable[Mend]:
    for known in reversed(playbook.fixes):  # the newest first
        fix = known.fix
        note = describe_fix(known, playbook)
        sessions = _list_sessions(playbook, known.sessions, chosen)
        says_something = fix.is_informative and list_new_words(fix)
        if says_something and sessions and note.id not in retired:
            folder = f"cd {fix.fixed_folder} && " if fix.fixed_folder != fix.failed_folder else ""
            yield Mend(project, fix.key, fix.failed_text, f"{folder}{note.command}", sessions)


def _list_sessions(
    playbook: Playbook, numbers: Sequence[int], chosen: Container[str]
) -> tuple[str, ...]:
    ids = (playbook.sessions[number].id for number in reversed(numbers))
    return tuple(id for id in ids if id in chosen)


# ── what went wrong


def add_problems(store: Store, overview: Overview) -> Overview:
    """Add to what fails most what went wrong: the last time, or most often."""
    loader = _SessionLoader(store)
    commands = [loader.add_example(row) for row in overview.commands[:MAX_DETAILED]]
    tools = [loader.add_problems(row) for row in overview.tools[:MAX_DETAILED]]
    return overview._replace(
        commands=(*commands, *overview.commands[MAX_DETAILED:]),
        tools=(*tools, *overview.tools[MAX_DETAILED:]),
    )


def load_command_failures(store: Store, row: CommandRow, limit: int) -> list[CallDetail]:
    """Return the newest calls in which a command failed, one of each session."""
    loader = _SessionLoader(store)
    newest = row.newest[:limit]
    return [one for failing in newest for one in loader.load_failures(failing.session, row.name, 1)]


class _SessionLoader:
    """Loads judged sessions, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loaded: dict[str, JudgedSession] = {}

    def _load(self, id: str) -> JudgedSession:
        if id not in self._loaded:
            self._loaded[id] = load_judged_session(self._store, id)
        return self._loaded[id]

    def add_example(self, row: CommandRow) -> CommandRow:
        """Add what went wrong when the command failed the last time."""
        for failing in row.newest[:2]:
            matching = self.load_failures(failing.session, row.name, 1)
            if matching:
                return row._replace(example=matching[0].problem)
        return row

    def load_failures(self, id: str, name: str, limit: int) -> list[CallDetail]:
        """Return the last calls of a session in which a command failed."""
        session, calls, _ = self._load(id)
        failed = [call for call in calls if call.failed and call.kind in ("terminal", "code")]
        matching = self._find_runs(session, failed, name)
        return load_call_details(self._store, session, matching[-limit:])

    def _find_runs(
        self, session: Session, failed: Sequence[JudgedCall], name: str
    ) -> list[JudgedCall]:
        made = load_calls(self._store, session.id, failed)
        return [
            one
            for one, call in zip(failed, made, strict=True)
            if call and any(form.key == name for form in read_forms(call, session.cwd or ""))
        ]

    def add_problems(self, row: ToolFailures) -> ToolFailures:
        """Add what went wrong most often among the newest failures of the tool."""
        problems: list[str] = []
        for failing in row.newest:
            session, calls, _ = self._load(failing.session)
            failed = [call for call in calls if call.failed and call.tool == row.name]
            failed = failed[-(MAX_INSPECTED - len(problems)) :]
            details = load_call_details(self._store, session, failed)
            problems += [one.problem for one in details if one.problem]
            if len(problems) >= MAX_INSPECTED:
                break
        counted = tuple(count_problems(problems)[:3])
        return row._replace(problems=counted, inspected=len(problems))
