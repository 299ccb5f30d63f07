"""Calls that a small model writes in a form of its own."""

from __future__ import annotations

import pytest
from bench.warm.model.small_model import is_success, parse_call

from rekindle import Message


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('terminal", "arguments": {"command": "quay --help"}}\n```', True),
        ('```json\n{"name": "terminal", "arguments": {"command": "quay --help"}}\n```', False),
        ('{"name": "terminal", "arguments": {"command": "quay --help"}}', False),
    ],
)
def test_a_call_is_understood_in_each_form(text: str, held: bool) -> None:
    message = parse_call(Message("assistant", text), held, 3)
    assert [(c.name, c.arguments) for c in message.tool_calls] == [
        ("terminal", {"command": "quay --help"})
    ]
    assert message.content is None


@pytest.mark.parametrize(
    "text",
    ["Done.", 'It said {"name": "x"} twice.', '{"output": "7"}', '{"name": "terminal", "argum'],
)
def test_what_is_no_call_stays_as_it_is(text: str) -> None:
    message = Message("assistant", text)
    assert parse_call(message, False, 3) == message


def test_only_a_result_in_good_order_lets_it_answer() -> None:
    assert is_success(Message("tool", "x", meta={"exit_code": 0}))
    assert not is_success(Message("tool", "x", meta={"exit_code": 2}))
    assert not is_success(Message("tool", "x", meta={"is_error": True}))
    assert not is_success(Message("user", "x"))
