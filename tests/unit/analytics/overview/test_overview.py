"""What people ask of their sessions, from sessions whose numbers are known."""

from __future__ import annotations

from decimal import Decimal

from rekindle.analytics.overview.facts import CommandCount, KnownFailures, Mend, SessionFacts
from rekindle.analytics.overview.overview import Overview, compute_overview
from rekindle.analytics.overview.problems import count_problems
from rekindle.analytics.sample import collect_sample
from rekindle.types import JudgedSession, Tokens
from tests.unit.analytics.synthetic_sessions import EDIT, call, judged

MONDAY = 20_600  # 2026-05-27 is a Wednesday; the week began on Monday, the 25th
MEND = Mend("app", "npm test", "npm test", "npm ci && npm test", ("s1",))


def overview_of(
    sessions: list[JudgedSession], facts: dict[str, SessionFacts], *mends: Mend
) -> Overview:
    return compute_overview(collect_sample(sessions), facts, KnownFailures(mends))


def facts_of(one: JudgedSession, day: int = MONDAY, **more: object) -> SessionFacts:
    return SessionFacts(one.session, "app", day, 60.0)._replace(**more)


def test_the_totals_add_up_time_cost_and_failures() -> None:
    sessions = [judged(f"s{n}", [True] + [False] * 9) for n in range(6)]
    facts = {
        one.session.id: facts_of(one, cost=Decimal("1.5"), tokens=Tokens(input=10))
        for one in sessions
    }
    facts["s5"] = facts["s5"]._replace(seconds=None, project="other", unpriced=7)
    totals = overview_of(sessions, facts).totals
    assert (totals.sessions, totals.projects, totals.timed, totals.seconds) == (6, 2, 5, 300.0)
    assert (totals.cost, totals.tokens.input, totals.unpriced) == (Decimal("9.0"), 60, 7)
    assert (totals.rate.errors, totals.rate.calls) == (6, 60)
    assert totals.rate.low is not None
    assert totals.rate.low < 0.1


def test_a_refused_call_is_counted_and_in_no_rate() -> None:
    refused = call(1, None, outcome="refused", kind="declined")
    one = JudgedSession(judged("s", []).session, (call(0, True), refused, call(2, False)))
    totals = overview_of([one], {"s": facts_of(one)}).totals
    assert (totals.refused, totals.rate.errors, totals.rate.calls) == (1, 1, 2)


def test_commands_are_ranked_by_the_sessions_they_failed_in() -> None:
    sessions = [judged(f"s{n}", [False]) for n in range(3)]
    counts = {
        "s0": [CommandCount("npm test", 1, 1)],
        "s1": [CommandCount("npm test", 3, 1), CommandCount("npm run build", 2, 0)],
        "s2": [CommandCount("make", 0, 9)],
    }
    facts = {one.session.id: facts_of(one, commands=counts[one.session.id]) for one in sessions}
    first, second = overview_of(sessions, facts, MEND).commands
    assert (first.name, first.rate.errors, first.rate.calls, first.rate.sessions) == (
        "npm test", 2, 6, 2,
    )  # fmt: skip
    assert first.rate.low is None  # too few for an interval
    assert [(one.session, one.failed, one.calls) for one in first.newest] == [
        ("s1", 1, 4), ("s0", 1, 2),
    ]  # fmt: skip
    assert first.mends == (MEND,)
    assert (second.name, second.failing_sessions, second.mends) == ("make", 1, ())


def test_a_session_that_repeats_another_does_not_count_its_commands_twice() -> None:
    made = [call(n, True, id=f"toolu_01aB3dE5fG7hJ{n}", session="s0") for n in range(3)]
    one = JudgedSession(judged("s0", []).session, tuple(made))
    again = JudgedSession(
        judged("s1", []).session, tuple(each._replace(session="s1") for each in made)
    )
    commands = [CommandCount("make", 0, 3)]
    facts = {x.session.id: facts_of(x, commands=commands) for x in (one, again)}
    found = overview_of([one, again], facts)
    assert [(row.rate.errors, row.rate.sessions) for row in found.commands] == [(3, 1)]
    assert found.totals.repeated == 1


def test_weeks_are_in_order_with_empty_ones_between_and_cost_on_its_day() -> None:
    sessions = [judged("s0", [True, False]), judged("s1", [False]), judged("s2", [False])]
    facts = {
        "s0": facts_of(sessions[0], costs_by_day={MONDAY: Decimal(1), MONDAY + 7: Decimal(2)}),
        "s1": facts_of(sessions[1], MONDAY + 15),
        "s2": facts_of(sessions[2], MONDAY + 300, seconds=None),  # seems to be of its import
    }
    weeks = overview_of(sessions, facts).weeks
    assert [(one.sessions, one.cost) for one in weeks] == [
        (1, Decimal(1)), (0, Decimal(2)), (1, Decimal(0)),
    ]  # fmt: skip
    assert weeks[0].newest == ("s0",)


def test_every_session_that_a_row_names_is_described() -> None:
    sessions = [judged(f"s{n}", [True], [EDIT]) for n in range(3)]
    found = overview_of(sessions, {one.session.id: facts_of(one) for one in sessions})
    assert [one.session for one in found.tools[0].newest] == ["s2", "s1", "s0"]
    assert set(found.sessions) == {"s0", "s1", "s2"}


def test_nothing_gives_an_empty_overview() -> None:
    found = overview_of([], {})
    assert (found.totals.sessions, found.weeks, found.commands) == (0, (), ())
    assert found.totals.rate.rate is None


def test_problems_that_differ_in_names_and_numbers_are_one() -> None:
    found = count_problems(
        [
            "File not found: /a/b.py",
            "File not found: ./src/c.go",
            "timed out after 30 s",
            "timed out after 120 s",
            "timed out after 5 s",
            "",
        ]
    )
    assert found == [("timed out after … s", 3), ("File not found: …", 2)]
