"""What an observation keeps of a session's calls."""

from __future__ import annotations

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.observations import observe_session
from rekindle.types import ToolCall


def run(command: str, failed: bool | None, kind: str = "") -> ObservedCall:
    return ObservedCall(ToolCall("c", "Bash", {"command": command}), "", failed, kind, 0)


def test_a_command_that_the_user_declined_neither_worked_nor_failed() -> None:
    calls = [run("npm publish", None, "declined"), run("npm test", True), run("npm test", False)]
    found = observe_session("s", 0.0, "/work", "publish it", calls)
    assert [(one.key, one.worked, one.failed) for one in found.commands] == [("npm test", 1, 1)]


def test_what_works_after_a_refusal_is_not_taken_for_its_fix() -> None:
    calls = [run("npm test --all", None, "declined"), run("npm test --quick", False)]
    assert observe_session("s", 0.0, "/work", "test it", calls).fixes == ()
