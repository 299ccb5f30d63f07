"""The profile of one session."""

import pytest

from rekindle.analytics.profile import Profile, build_profile, classify_task, select_first_turns
from rekindle.types import JudgedCall, JudgedSession, Session
from tests.unit.analytics.synthetic_sessions import BASH, EDIT, READ, RUN, Tool, call, judged

TODO: Tool = ("TodoWrite", "bookkeeping")
FETCH: Tool = ("WebFetch", "research")


def of(*calls: JudgedCall) -> Profile:
    return build_profile(JudgedSession(Session(id="s", message_count=2 * len(calls) + 1), calls))


def test_rates_are_over_judged_calls_without_bookkeeping() -> None:
    found = of(
        call(0, True), call(1, False), call(2, None), call(3, True, TODO), call(4, False, READ)
    )
    assert (found.messages, found.calls, found.bookkeeping, found.unknown) == (11, 5, 1, 1)
    assert found.rate[:4] == (1, 3, 1, pytest.approx(1 / 3))
    assert found.rate.range is not None
    assert found.rate.range.low < 1 / 3 < found.rate.range.high


def test_errors_are_told_apart_by_whose_they_are() -> None:
    found = of(
        call(0, True, fault="agent", kind="missing-file"),
        call(1, True, fault="agent", kind="missing-file"),
        call(2, True, fault="environment", kind="timeout"),
        call(3, False),
    )
    assert found.faults == {"agent": 2, "environment": 1}
    assert found.errors == {"missing-file": 2, "timeout": 1}


def test_a_refused_call_is_counted_and_is_no_error() -> None:
    found = of(call(0, None, outcome="refused", kind="declined"), call(1, True), call(2, None))
    assert (found.refused, found.unknown, found.rate.errors, found.rate.calls) == (1, 1, 1, 1)
    assert [(use.refused, use.unknown) for use in found.tools] == [(1, 1)]
    assert "declined" not in found.errors


def test_each_tool_has_its_own_count_and_rate() -> None:
    found = of(*(call(n, n == 0, READ) for n in range(3)), call(3, None, BASH), call(4, True, BASH))
    assert [
        (use.tool, use.kind, use.calls, use.unknown, use.rate.errors) for use in found.tools
    ] == [
        ("Read", "file", 3, 0, 1),
        ("Bash", "terminal", 2, 1, 1),
    ]


def test_the_gain_is_the_last_fifth_less_the_first() -> None:
    gain = build_profile(judged("s", [True, True, *[False] * 7, True])).gain
    assert gain is not None
    assert (gain.first.errors, gain.first.calls) == (2, 2)
    assert (gain.last.errors, gain.last.calls) == (1, 2)
    assert gain.difference.value == -0.5
    assert gain.difference.range.contains(0)


def test_four_calls_are_not_enough_for_a_gain() -> None:
    assert build_profile(judged("s", [True, False, False, None, False])).gain is None


def test_a_terminal_is_a_terminal_whatever_runs_in_it() -> None:
    script: Tool = ("Bash", "code")
    found = of(*(call(n, False, script) for n in range(4)), call(4, False, READ))
    assert found.kinds == {"file": 1, "terminal": 4}
    assert found.dominant == "terminal"
    assert found.task == "code"


@pytest.mark.parametrize(
    ("tools", "task"),
    [
        ([RUN] * 7 + [READ] * 3, "code"),
        ([RUN] * 6 + [READ] * 4, "mixed"),
        ([READ] * 4 + [EDIT] * 3 + [RUN] * 3, "file"),
        ([FETCH] * 2 + [READ], "research"),
        ([RUN] * 2 + [READ] + [TODO] * 9, "code"),
        ([BASH] * 9, "mixed"),
        ([], "mixed"),
    ],
)
def test_a_task_is_of_the_kind_that_is_over_60_percent(tools: list[Tool], task: str) -> None:
    assert classify_task(call(number, False, tool) for number, tool in enumerate(tools)) == task


def test_the_task_of_the_first_30_turns_is_told_too() -> None:
    found = build_profile(judged("s", [False] * 130, [RUN] * 30 + [READ] * 100))
    assert (found.early_task, found.task) == ("code", "file")


def test_a_turn_is_a_message_with_all_its_calls() -> None:
    calls = [call(n, position=n // 3) for n in range(12)]
    assert len(select_first_turns(calls, 2)) == 6
    assert len(select_first_turns(calls, 9)) == 12


def test_a_retry_is_the_same_tool_right_after_it_failed() -> None:
    found = of(
        call(0, True, BASH), call(1, False, BASH),  # tried again, worked
        call(2, True, EDIT), call(3, True, EDIT), call(4, True, EDIT),  # twice, neither worked
        call(5, False, READ), call(6, False, EDIT),
        call(7, True, READ, position=20), call(8, False, READ, position=20),  # at once: no retry
    )  # fmt: skip
    assert (found.retries, found.recovered) == (3, 1)


@pytest.mark.parametrize(
    ("digests", "loops", "calls"),
    [
        ([1, 1, 1, 2], 1, 3),
        ([1, 1, 2, 2], 0, 0),
        ([1, 2, 1, 2, 1, 2, 3], 1, 6),
        ([1, 2, 3] * 3, 1, 9),
        ([5, 5, 5, 5, 6, 7, 7, 7], 2, 7),
        ([1, 2, 3, 4] * 3, 0, 0),
    ],
)
def test_a_loop_is_up_to_three_calls_made_at_least_three_times(
    digests: list[int], loops: int, calls: int
) -> None:
    found = of(*(call(n, False, digest=digest) for n, digest in enumerate(digests)))
    assert (found.loops, found.loop_calls) == (loops, calls)


def test_a_session_without_calls_has_a_profile() -> None:
    found = of()
    assert (found.calls, found.rate.rate, found.dominant, found.task) == (0, None, None, "mixed")
