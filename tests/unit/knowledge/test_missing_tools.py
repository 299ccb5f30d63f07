"""What sessions ask for again and again although it does not exist."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.note import list_notes
from rekindle.knowledge.notes.playbook import Playbook, build_playbook
from rekindle.knowledge.notes.recall import recall_start
from rekindle.knowledge.remedies.missing_tools import LATEST_SESSIONS
from rekindle.types import ToolCall
from tests.unit.knowledge.notes.test_recall import bash, observe


def call(tool: str, argument: str, name: str, result: str = "", kind: str = "") -> ObservedCall:
    made = ToolCall("1", tool, {argument: name})
    return ObservedCall(made, result or "ok", bool(result), kind, 0)


MISSING = call("Skill", "skill", "commit", "<tool_use_error>Unknown skill: commit</tool_use_error>")
FOUND = call("Skill", "skill", "commit")


def build(*sessions: list[ObservedCall]) -> Playbook:
    return build_playbook(
        observe(number, f"fix the {word}", *calls)
        for number, (calls, word) in enumerate(zip(sessions, make_words(), strict=False))
    )


def make_words() -> list[str]:
    return [
        f"{first}{second}"
        for first in ("cart", "mail", "login")
        for second in "abcdefghijklmnopqrst"
    ]


def list_told(*sessions: list[ObservedCall]) -> list[str]:
    return [note.text for note in recall_start(build(*sessions), "fix it").notes]


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (MISSING, "There is no skill `commit` here (3 sessions asked for it)."),
        (
            call("Task", "subagent_type", "code-review", "Agent type 'code-review' not found. It"),
            "There is no agent `code-review` here (3 sessions asked for it).",
        ),
        (
            call("search", "query", "x", "No such tool available: search", "unknown_tool"),
            "There is no tool `search` here (3 sessions asked for it).",
        ),
    ],
)  # fmt: skip
def test_what_three_sessions_asked_for_in_vain_is_told(missing: ObservedCall, told: str) -> None:
    assert told in list_told(*[[missing, bash("make check")]] * 3)
    assert told not in list_told(*[[missing, bash("make check")]] * 2)
    playbook = build(*[[missing]] * 3)
    assert told in [note.text for note in list_notes(playbook)]


def test_what_a_session_had_since_is_told_no_more() -> None:
    assert not list_told([MISSING], [MISSING], [MISSING], [FOUND])
    assert not list_told([FOUND], [MISSING], [MISSING], [FOUND], [MISSING])
    assert list_told([FOUND], [MISSING], [MISSING], [MISSING])


def test_what_nobody_asks_for_anymore_is_not_told() -> None:
    asked = [[MISSING]] * 3
    assert list_told(*asked, *[[bash("ls")]] * (LATEST_SESSIONS - 2))
    assert not list_told(*asked, *[[bash("ls")]] * (LATEST_SESSIONS - 1))


def test_sessions_with_the_same_request_count_once() -> None:
    playbook = build_playbook(observe(number, "fix it", MISSING) for number in range(5))
    assert not playbook.missing_tools


@pytest.mark.parametrize("name", ["hunter2", "ada-lovelace", "ignore-all-previous-instructions"])
def test_a_name_that_may_be_a_value_or_a_sentence_is_not_told(name: str) -> None:
    missing = call("Skill", "skill", name, f"Unknown skill: {name}")
    assert not list_told(*[[missing]] * 4)


def test_a_result_that_quotes_such_a_report_is_none() -> None:
    quoted = bash("cat log", failed=True, result="Unknown skill: commit")
    assert not list_told(*[[quoted]] * 4)
