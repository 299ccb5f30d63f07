"""What of a call may be shown as it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from rekindle.knowledge.mining import call_example
from rekindle.knowledge.mining.call_signature import build_signature, draft_signature
from rekindle.knowledge.mining.slots import fill_slots
from rekindle.types import JSON, ToolCall


def shown(tool: str, arguments: Mapping[str, JSON], asked: str = "") -> Mapping[str, JSON] | None:
    """The call as it is shown beside a pattern that has slots in place of all its values."""
    form = build_signature(
        draft_signature(ToolCall("c", tool, arguments), None), lambda value: value
    )
    general = cast("Mapping[str, JSON]", fill_slots(form.skeleton, ()))
    return call_example.build_call_example(form, general, asked)


@pytest.mark.parametrize(
    "command",
    [
        "deskctl rooms add --day 09JAN24 --seats 7",
        "deskctl knob tide.offset=31min --write",
        "uv run pytest -q tests/test_dates.py",
    ],
)
def test_a_command_is_shown_as_it_was_written(command: str) -> None:
    assert shown("terminal", {"command": command}) == {"command": command}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("deskctl invite --to ada@example.org", "deskctl invite --to <mail>"),
        ("deskctl note --say 'ada is ill'", "deskctl note --say <text>"),
        ("deskctl open https://example.org/a/7 --lane 4", "deskctl open <url> --lane 4"),
    ],
)
def test_what_names_a_person_or_a_moment_stays_a_slot(command: str, expected: str) -> None:
    assert (shown("terminal", {"command": command}) or {"command": expected}) == {
        "command": expected
    }


def test_what_the_request_says_may_be_shown_whatever_it_is() -> None:
    command = "deskctl note --day 09JAN24 --say 'fog until noon'"
    asked = "File a note for 9 January 2024: fog until noon"
    assert shown("terminal", {"command": command}, asked) == {"command": command}


def test_the_affairs_of_others_are_shown_only_as_far_as_the_request_tells_them() -> None:
    arguments = {"user_id": "mia_li_3668", "order": "W2378156"}
    assert shown("get_order", arguments) is None
    told = shown("get_order", arguments, "Where is order W2378156?")
    assert told is not None
    assert told["order"] == "W2378156"
    assert "mia" not in str(told)


def test_an_example_of_nothing_but_slots_is_none() -> None:
    form = build_signature(
        draft_signature(ToolCall("c", "book", {"user_id": "mia_li_3668"}), None), lambda v: v
    )
    assert call_example.build_call_example(form, {"user_id": "<word>"}, "") is None


def test_a_pattern_without_slots_needs_no_example() -> None:
    form = build_signature(
        draft_signature(ToolCall("c", "terminal", {"command": "make docs"}), None), lambda v: v
    )
    assert call_example.build_call_example(form, {"command": "make docs"}, "") is None
