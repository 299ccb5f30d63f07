"""Every wording is met by a result invented for it, and by nothing that a tool merely read."""

from __future__ import annotations

import pytest

from rekindle.judging.judge import Outcome, judge_call
from rekindle.judging.rules import phrases, signatures
from rekindle.judging.rules.command_output import has_failure_hint
from rekindle.types import Message, ToolCall
from tests.cases import check_each
from tests.unit.judging.examples import OUTPUTS, PHRASES

_TABLES = (
    phrases.DECLINED,
    phrases.BLOCKED,
    phrases.STOPPED,
    phrases.HARNESS,
    phrases.HARNESS_ERRORS,
    phrases.FILES,
    phrases.EDITS,
    phrases.WEB,
    phrases.CALLS,
    phrases.SHELLS,
    phrases.AGENTS,
)


def verdict(tool: str, text: str, **given: str) -> Outcome:
    call = ToolCall("c1", tool, given)
    return judge_call(call, Message(role="tool", content=text, tool_call_id="c1"))


@check_each("name", PHRASES)
def test_a_sentence_of_a_harness_or_tool_is_known_as_a_failure(name: str) -> None:
    tool, text = PHRASES[name]
    found = verdict(tool, text)
    is_refusal = name.startswith(("refused/", "stopped/"))
    assert (found.rule, found.failed) == (name, None if is_refusal else True)
    assert (found.outcome == "refused") is is_refusal


@check_each("name", OUTPUTS)
def test_what_a_failing_command_writes_is_known_without_its_exit_code(name: str) -> None:
    command, text = OUTPUTS[name]
    found = verdict("Bash", text, command=command)
    assert (found.rule, found.failed) == (f"text/{name}", True)


def test_every_wording_has_an_example() -> None:
    named = {said.name for table in _TABLES for said in table}
    assert named == set(PHRASES)
    assert {said.name for said in (*signatures.ANYWHERE, *signatures.LAST_LINES)} == set(OUTPUTS)


def test_the_quick_look_for_hints_passes_every_failure() -> None:
    assert [name for name, (_, text) in OUTPUTS.items() if not has_failure_hint(text)] == []
    after = {said.name for table in _TABLES[4:] for said in table}
    assert [name for name in after if not phrases.has_failure_hint(PHRASES[name][1])] == []


@pytest.mark.parametrize(
    "command", ["cat build.log", "rg -n foo", "git log -p", "./x 2>&1 | tail -50", "./x || true"]
)
def test_the_same_text_shown_by_a_reader_or_swallowed_by_the_shell_has_not_failed(
    command: str,
) -> None:
    for name, (_, said) in OUTPUTS.items():
        text = f"one\ntwo\n{said}\nthree\n" * 4
        assert verdict("Bash", text, command=command).failed is False, name


@pytest.mark.parametrize("tool", ["Read", "Grep", "WebFetch", "Task", "read_file", "view"])
def test_text_that_was_read_found_or_fetched_never_counts(tool: str) -> None:
    for name, (_, said) in (PHRASES | OUTPUTS).items():
        text = f"     1\tThe manual\n     2\t{said}\n" + "and so on\n" * 90
        assert verdict(tool, text, file_path="manual.md").failed is False, name
