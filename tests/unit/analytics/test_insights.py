"""What many sessions show."""

import random

import pytest

from rekindle.analytics.insights import compute_insights
from rekindle.types import JudgedCall, JudgedSession, Session
from tests.unit.analytics.synthetic_sessions import (
    EDIT,
    READ,
    RUN,
    call,
    judged,
    learning,
    survivors,
)


def mixture(seed: int = 1, sessions: int = 60) -> list[JudgedSession]:
    """Sessions of two sources, of all lengths, with tools of different rates."""
    chances = random.Random(seed)
    made: list[JudgedSession] = []
    for number in range(sessions):
        length = chances.choice((8, 30, 80))
        tools = [chances.choice((RUN, READ, EDIT)) for _ in range(length)]
        failures = [chances.random() < (0.2 if tool is RUN else 0.05) for tool in tools]
        source, model = (("codex", "gpt"), ("claude-code", None))[number % 2]
        made.append(judged(f"s{number}", failures, tools, source=source, model=model))
    return made


def test_every_call_is_in_exactly_one_row_of_each_table() -> None:
    found = compute_insights(mixture())
    errors, calls = found.totals.failed, found.totals.judged
    for table in (found.lengths, found.tasks, found.sources, found.models, found.tools):
        assert sum(row.rate.errors for row in table) == errors
        assert sum(row.rate.calls for row in table) == calls
    assert sum(step.rate.calls for step in found.positions) == calls
    assert sum(cell.rate.calls for cell in found.lengths_by_source) == calls
    assert sum(row.rate.sessions for row in found.lengths) == found.totals.sessions == 60
    assert sum(found.errors.values()) == errors
    assert (found.rate.errors, found.rate.calls) == (errors, calls)


def test_lengths_are_in_messages() -> None:
    made = [judged(f"s{n}", [False], messages=count) for n, count in enumerate((29, 30, 99, 100))]
    found = {row.name: row.rate.sessions for row in compute_insights(made).lengths}
    assert found == {"under 30": 1, "30–99": 2, "100 and more": 1}


def test_a_model_that_is_not_told_is_unknown() -> None:
    assert {row.name for row in compute_insights(mixture()).models} == {"gpt", "unknown"}


def test_positions_tell_how_many_sessions_are_still_alive() -> None:
    made = [judged(f"s{n}", [False] * length) for n, length in enumerate((5, 10, 11, 25, 120))]
    found = [
        (step.first, step.sessions, step.rate.calls) for step in compute_insights(made).positions
    ]
    assert found == [
        (1, 5, 45), (11, 3, 21), (21, 2, 15), (31, 1, 20), (51, 1, 25), (76, 1, 25), (101, 1, 20),
    ]  # fmt: skip


def test_a_curve_that_falls_because_bad_sessions_end_is_flat_inside_sessions() -> None:
    made = survivors(3, 900, lambda chances: chances.betavariate(1.2, 12))
    first, *others = compute_insights(made).positions
    steps = [step for step in others if step.change and step.sessions >= 60]
    last = steps[-1]
    assert first.rate.low is not None
    assert last.rate.high is not None
    assert last.rate.high < first.rate.low  # raw: it falls
    assert all(step.change and step.change.range.contains(0) for step in steps[-3:])


def test_a_curve_that_falls_because_sessions_learn_falls_inside_sessions_too() -> None:
    steps = compute_insights(learning(4, 300)).positions
    late = [step.change for step in steps if step.first >= 76 and step.change]
    assert late
    assert all(change.high < 0 for change in late)


def test_the_same_mix_brings_groups_together_that_only_differ_in_their_tools() -> None:
    chances = random.Random(6)
    made: list[JudgedSession] = []
    for number in range(200):
        share = 0.7 if number % 2 else 0.2
        tools = [RUN if chances.random() < share else READ for _ in range(50)]
        failures = [chances.random() < (0.2 if tool is RUN else 0.02) for tool in tools]
        made.append(judged(f"s{number}", failures, tools, source=("few", "many")[number % 2]))
    many, few = sorted(compute_insights(made).sources, key=lambda row: row.name == "few")
    assert many.rate.low is not None
    assert few.rate.high is not None
    assert many.rate.low > few.rate.high
    assert many.same_mix is not None
    assert few.same_mix is not None
    assert abs(many.same_mix.value - few.same_mix.value) < 0.01
    assert few.same_mix.range.contains(many.same_mix.value)


def test_a_group_without_the_tools_of_the_others_is_not_given_their_mix() -> None:
    made = [
        judged(f"s{n}", [n % 7 == 0] * 30, [READ if n % 2 else RUN] * 30, source=("a", "b")[n % 2])
        for n in range(40)
    ]
    assert [row.same_mix for row in compute_insights(made).sources] == [None, None]


def test_tools_tell_the_errors_that_were_the_agents_own() -> None:
    calls: list[JudgedCall] = [
        call(n, n < 6, fault="agent" if n < 4 else "environment") for n in range(20)
    ]
    (tool,) = compute_insights([JudgedSession(Session(id="s"), tuple(calls))]).tools
    assert (tool.name, tool.rate.errors, tool.agent) == ("Bash", 6, 4)


def test_groups_that_are_too_small_have_a_rate_and_no_interval() -> None:
    (row,) = compute_insights([judged("s", [True] + [False] * 99)]).lengths
    assert row.rate.rate == pytest.approx(0.01)
    assert row.rate.range is None
    assert row.change is None


def test_nothing_at_all_is_no_error() -> None:
    found = compute_insights([])
    assert found.totals.sessions == 0
    assert found.rate.rate is None
    assert found.positions == ()


def test_sessions_without_calls_are_counted() -> None:
    found = compute_insights([judged("s", [], messages=7)])
    assert (found.totals.sessions, found.totals.with_calls, found.totals.messages) == (1, 0, 7)
