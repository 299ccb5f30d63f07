from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.judging.call_pairing import (
    digest_call,
    find_rejudge_position,
    judge_calls,
    pair_calls,
)
from rekindle.types import JudgedCall, Message, ToolCall


def asks(*calls: tuple[str, str], **more: Any) -> Message:
    return Message(
        role="assistant", tool_calls=[ToolCall(id, name, {}) for id, name in calls], **more
    )


def answers(id: str | None, text: str = "done", name: str | None = None, **more: Any) -> Message:
    return Message(role="tool", content=text, tool_call_id=id, name=name, **more)


def matched(messages: Iterable[Message]) -> list[tuple[str, str | None]]:
    """Each call with the text of its result, in the order of the calls."""
    found = sorted(pair_calls(messages), key=lambda pair: pair.located[:2])
    return [(pair.located.call.name, pair.result.text if pair.result else None) for pair in found]


def test_results_of_parallel_calls_are_matched_by_id_in_any_order_and_at_any_distance() -> None:
    talk = [Message(role="user", content="hm")] * 50
    messages = [asks(("a", "x"), ("b", "y")), answers("b", "2"), *talk, asks(("c", "z"))]
    messages += [answers("c", "3"), answers("a", "1")]
    assert matched(messages) == [("x", "1"), ("y", "2"), ("z", "3")]


def test_a_call_that_is_never_answered_is_told_at_the_end() -> None:
    assert matched([asks(("a", "x"), ("b", "y")), answers("b")]) == [("x", None), ("y", "done")]


def test_an_id_that_is_used_again_answers_the_call_that_waits() -> None:
    messages = [asks(("a", "x")), answers("a", "1"), asks(("a", "x")), answers("a", "2")]
    assert matched(messages) == [("x", "1"), ("x", "2")]
    both = [asks(("a", "x"), ("a", "y")), answers("a", "1"), answers("a", "2")]
    assert matched(both) == [("x", "1"), ("y", "2")]


def test_a_second_result_for_an_answered_call_and_an_orphan_are_left_aside() -> None:
    messages = [asks(("a", "x"), ("b", "y")), answers("a", "1"), answers("a", "copy")]
    assert matched([*messages, answers("nobody", "orphan")]) == [("x", "1"), ("y", None)]


def test_masked_ids_are_matched_by_the_name_of_the_tool_and_then_by_order() -> None:
    masked = "REDACTED"
    messages = [asks((masked, "x"), (masked, "y"), (masked, "x"))]
    messages += [answers(masked, "2", "y"), answers(masked, "1", "x"), answers(masked, "3", "x")]
    assert matched(messages) == [("x", "1"), ("y", "2"), ("x", "3")]


def test_results_without_ids_answer_the_newest_calls_in_their_order() -> None:
    messages = [asks(("a", "x")), asks(("b", "y"), ("c", "z"))]
    messages += [answers(None, "2"), answers(None, "3"), answers(None, "1")]
    assert matched(messages) == [("x", "1"), ("y", "2"), ("z", "3")]


def test_a_judged_call_carries_its_places_its_kind_and_its_verdict() -> None:
    messages = [
        Message(role="user", content="go"),
        Message(role="assistant", tool_calls=[ToolCall("a", "Bash", {"command": "rg x"})]),
        answers("a", "", meta={"exit_code": 1, "duration": 0.5}),
    ]
    assert list(judge_calls("s1", messages)) == [
        JudgedCall(
            session="s1",
            position=1,
            number=0,
            id="a",
            tool="Bash",
            kind="terminal",
            digest=digest_call(messages[1].tool_calls[0]),
            outcome="expected",
            failed=False,
            error_kind=None,
            fault=None,
            rule="protocol/exit-code/search-without-hit",
            confidence=0.99,
            duration=0.5,
            result_position=2,
        )
    ]


def test_positions_of_the_store_are_kept() -> None:
    messages = [asks(("a", "x"), position=7), answers("a", position=9)]
    assert [(call.position, call.result_position) for call in judge_calls("s", messages)] == [
        (7, 9)
    ]
    assert [call.position for call in judge_calls("s", [asks(("a", "x"))], first=5)] == [5]


def test_judging_streams() -> None:
    def endless() -> Iterable[Message]:
        number = 0
        while True:
            number += 1
            yield asks((f"c{number}", "x"))
            yield answers(f"c{number}")

    calls = judge_calls("s", endless())
    assert [next(calls).id for _ in range(3)] == ["c1", "c2", "c3"]


def test_the_same_call_has_the_same_digest_and_another_has_another() -> None:
    one = ToolCall("1", "Bash", {"command": "ls", "timeout": 3})
    assert digest_call(one) == digest_call(ToolCall("2", "Bash", {"timeout": 3, "command": "ls"}))
    assert digest_call(ToolCall("1", "Bash", "ls")) == digest_call(ToolCall("2", "Bash", "ls"))
    others = {digest_call(one), digest_call(ToolCall("1", "Read", {"command": "ls", "timeout": 3}))}
    others |= {
        digest_call(ToolCall("1", "Bash", {"command": "ls"})),
        digest_call(ToolCall("1", "Bash", "")),
    }
    assert len(others) == 4
    assert all(-(2**63) <= number < 2**63 for number in others)


def test_a_session_that_grew_is_judged_again_from_its_earliest_open_call() -> None:
    messages = [asks(("a", "x")), answers("a"), asks(("b", "y"), ("c", "z")), answers("c")]
    assert find_rejudge_position(judge_calls("s", messages), 4) == 2
    assert find_rejudge_position(judge_calls("s", [*messages, answers("b")]), 5) == 5
    assert find_rejudge_position([], 3) == 3


def test_what_is_judged_again_begins_where_no_earlier_call_is_answered_later() -> None:
    messages = [asks(("a", "x")), asks(("b", "y")), asks(("c", "z")), answers("a"), answers("b")]
    # c waits; a and b were made before it and answered after it.
    assert find_rejudge_position(judge_calls("s", messages), 5) == 0


_ids = st.sampled_from(["a", "b", "c", "REDACTED", ""])
_names = st.sampled_from(["x", "y"])
_messages = st.lists(
    st.one_of(
        st.lists(st.tuples(_ids, _names), min_size=1, max_size=3).map(lambda calls: asks(*calls)),
        st.builds(answers, st.one_of(st.none(), _ids), st.just("r"), st.one_of(st.none(), _names)),
    ),
    max_size=14,
)


@given(_messages)
def test_every_call_is_told_once_and_every_result_answers_one_call_at_most(
    messages: list[Message],
) -> None:
    found = list(pair_calls(messages))
    made = [(place, n) for place, m in enumerate(messages) for n in range(len(m.tool_calls))]
    assert sorted((pair.located.position, pair.located.number) for pair in found) == made
    results = [pair.answered for pair in found if pair.answered is not None]
    assert len(results) == len(set(results))
    assert all(pair.answered is None or pair.answered > pair.located.position for pair in found)


@given(_messages, st.integers(0, 14))
def test_judging_again_from_where_it_must_gives_what_judging_all_gives(
    messages: list[Message], cut: int
) -> None:
    messages = [m for m in messages if m.tool_call_id in ("a", "b", "c") or m.tool_calls]
    unique: list[Message] = []
    for place, message in enumerate(messages):
        ids = [(f"{call.id}{place}{n}", call.name) for n, call in enumerate(message.tool_calls)]
        unique.append(asks(*ids) if ids else message)
    before = list(judge_calls("s", unique[:cut]))
    start = find_rejudge_position(before, len(unique[:cut]))
    again = list(judge_calls("s", unique[start:], first=start))
    kept = [call for call in before if call.position < start]
    assert sorted(kept + again) == sorted(judge_calls("s", unique))


@pytest.mark.parametrize(
    ("name", "arguments", "work"),
    [
        ("Bash", {"command": "cd app && pytest -q"}, "code"),
        ("exec_command", '{"cmd": "python3 build.py"}', "code"),
        ("shell", {"command": ["bash", "-lc", "cargo test"]}, "code"),
        ("Bash", {"command": "git status"}, "terminal"),
        ("Bash", {"command": "python --version"}, "terminal"),
        ("Read", {"file_path": "pytest.py"}, "file"),
    ],
)
def test_a_command_that_runs_code_counts_as_code(name: str, arguments: Any, work: str) -> None:
    said = [Message("assistant", tool_calls=[ToolCall("1", name, arguments)])]
    assert [call.kind for call in judge_calls("s", said)] == [work]
