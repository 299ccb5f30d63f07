"""A tool call on one line: what is called, with what, and what came of it."""

import json

import pytest

from rekindle.agent.tools.tool import ToolResult, build_failure
from rekindle.cli.chat.tool_call_line import (
    describe_failure,
    escape_invisible,
    format_duration,
    summarize_call,
)
from rekindle.cli.terminal.text import fit_to_width
from rekindle.types import ToolCall


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"timeout": 5, "command": "ls\\n-l"}', "ls -l"),
        ('{"content": "long", "path": "a.py"}', "a.py"),
        ('{"other": "this"}', "this"),
        ('{"entries": [1]}', '{"entries": [1]}'),
        ("{}", ""),
        ("", ""),
        ("{broken", "{broken"),
        ("[1]", "[1]"),
    ],
)
def test_the_argument_that_says_most_is_shown(arguments: str, told: str) -> None:
    assert summarize_call(ToolCall("1", "x", arguments)) == told


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (3.21, "3.2 s"), (42, "42 s"), (300, "5 min")]
)
def test_a_duration_is_as_exact_as_it_needs_to_be(seconds: float, shown: str) -> None:
    assert format_duration(ToolResult("", {"duration": seconds})) == shown


def test_a_duration_that_is_not_known_is_not_shown() -> None:
    assert format_duration(ToolResult("")) == ""


def test_trouble_is_the_error_or_the_end_of_the_output() -> None:
    said = json.dumps({"output": "one\nlast words\n", "exit_code": 2, "error": None})
    assert describe_failure(ToolResult(said, {"exit_code": 2})) == "exit code 2: last words"
    assert describe_failure(build_failure("no such file")) == "no such file"
    assert describe_failure(ToolResult("plain words", {"is_error": True})) == "plain words"


def test_what_went_well_is_no_trouble() -> None:
    said = json.dumps({"output": "error: in the text", "exit_code": 0, "error": None})
    assert describe_failure(ToolResult(said, {"exit_code": 0})) is None
    assert describe_failure(ToolResult("{not json")) is None


def test_what_a_terminal_would_obey_or_hide_is_escaped() -> None:
    assert escape_invisible("ls \u202e\x1b[2J\u200b") == "ls \\u202e\\x1b[2J\\u200b"
    assert escape_invisible("größe 日本 💻") == "größe 日本 💻"


def test_a_line_is_cut_by_the_cells_it_takes() -> None:
    assert fit_to_width("short", 10) == "short"
    assert fit_to_width("日本語日本語", 7) == "日本語…"
    assert fit_to_width("abcdef", 4) == "abc…"
