"""What became of a session: every rule by itself, and which one wins."""

from __future__ import annotations

from typing import Any

import pytest

from rekindle.judging.call_pairing import judge_calls
from rekindle.judging.outcomes.outcome import judge_session
from rekindle.types import Message, Session, SessionOutcome, ToolCall

EDIT = ("Edit", {"file_path": "/w/app/main.go"}, "The file has been updated.", False)
GREEN = "ok  \tapp\t0.1s"
RED = "--- FAIL: TestA (0.00s)\nFAIL\tapp\t0.1s\nFAIL"


def run(command: str, output: str = "", failed: bool = False) -> tuple[str, Any, str, bool]:
    return ("Bash", {"command": command}, f"Exit code 1\n{output}" if failed else output, failed)


def judge(
    *steps: str | tuple[str, Any, str, bool],
    end_reason: str | None = None,
    meta: dict[str, Any] | None = None,
) -> SessionOutcome:
    """Judge a session of words of the user and calls with their results; `A:` begins an answer."""
    messages: list[Message] = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            is_answer = step.startswith("A:")
            text = step[2:] if is_answer else step
            messages.append(Message("assistant" if is_answer else "user", text))
            continue
        name, arguments, output, failed = step
        call = ToolCall(f"c{number}", name, arguments)
        messages.append(Message("assistant", tool_calls=(call,)))
        messages.append(
            Message("tool", output, tool_call_id=call.id, name=name, meta={"is_error": failed})
        )
    if meta is not None:
        messages[-1] = messages[-1]._replace(meta=meta)
    messages = [message._replace(position=at) for at, message in enumerate(messages)]
    calls = [*judge_calls("s", messages)]
    return judge_session(Session("s", end_reason=end_reason), messages, calls)


def check(found: SessionOutcome, verdict: str, rule: str) -> None:
    assert (found.verdict, found.rule) == (verdict, rule)


# ── what the transcript says


@pytest.mark.parametrize(
    ("meta", "verdict", "rule"),
    [
        ({"resolved": True}, "succeeded", "protocol/resolved"),
        ({"resolved": False}, "failed", "protocol/resolved"),
        ({"reward": 1.0}, "succeeded", "protocol/reward"),
        ({"reward": 0}, "failed", "protocol/reward"),
        ({"reward": 0.4}, "unknown", "protocol/partial-reward"),
        ({"reward": True}, "succeeded", "tests/green"),
        ({"reward": "1"}, "succeeded", "tests/green"),
    ],
)
def test_a_reward_decides_before_everything_else(
    meta: dict[str, Any], verdict: str, rule: str
) -> None:
    found = judge("fix it", EDIT, run("go test ./...", GREEN), "A:Done.", meta=meta)
    check(found, verdict, rule)


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("max_steps", "failed"),
        ("RuntimeError: Agent reached maximum iteration", "failed"),
        ("exit_cost", "failed"),
        ("submitted", "unknown"),
        ("routine", "unknown"),
        ("user_stop", "unknown"),
    ],
)
def test_the_reason_of_the_end_tells_a_failure_but_no_success(reason: str, verdict: str) -> None:
    assert judge("do it", "A:Done.", end_reason=reason).verdict == verdict


def test_a_session_that_was_compressed_continues_elsewhere() -> None:
    check(judge("go", EDIT, end_reason="compression"), "unknown", "protocol/continued")


# ── tests, checks and commits


def test_green_tests_after_the_last_edit_are_a_success() -> None:
    found = judge("fix", EDIT, run("go test ./...", GREEN), "A:Done.")
    check(found, "succeeded", "tests/green")
    assert found.where == 3


def test_red_tests_after_the_last_edit_are_a_failure() -> None:
    check(judge("fix", EDIT, run("go test ./...", RED, True), "A:Hm."), "failed", "tests/red")


def test_a_run_that_turned_green_again_counts_as_green() -> None:
    red, green = run("go test ./...", RED, True), run("go test ./...", GREEN)
    check(judge("fix", EDIT, red, green), "succeeded", "tests/green")


def test_another_run_that_stayed_red_lowers_the_confidence() -> None:
    sure = judge("fix", EDIT, run("go test ./a", GREEN))
    mixed = judge("fix", EDIT, run("go test ./b", RED, True), run("go test ./a", GREEN))
    assert mixed.verdict == "succeeded"
    assert mixed.confidence < sure.confidence


def test_tests_before_the_last_edit_say_nothing_about_it() -> None:
    assert judge("fix", EDIT, run("go test ./...", RED, True), EDIT).verdict == "unknown"


def test_tests_of_a_session_that_changed_nothing_say_nothing() -> None:
    assert judge("review it", run("go test ./...", RED, True), "A:Broken.").verdict == "unknown"


def test_an_edit_of_prose_after_the_tests_does_not_matter() -> None:
    readme = ("Edit", {"file_path": "/w/app/README.md"}, "The file has been updated.", False)
    check(
        judge("fix", EDIT, run("pytest -q", "3 passed in 0.1s"), readme), "succeeded", "tests/green"
    )


def test_tests_that_were_left_running_are_judged_when_their_output_is_polled() -> None:
    started = Message(
        "assistant", tool_calls=(ToolCall("a", "exec_command", {"cmd": "go test ./..."}),)
    )
    polled = Message(
        "assistant", tool_calls=(ToolCall("b", "write_stdin", '{"session_id":1,"chars":""}'),)
    )
    edit = Message("assistant", tool_calls=(ToolCall("e", "apply_patch", "*** Begin Patch"),))
    messages = [
        Message("user", "fix"),
        edit, Message("tool", "Success.", tool_call_id="e", meta={"exit_code": 0}),
        started, Message("tool", "running", tool_call_id="a", meta={"running": True}),
        polled, Message("tool", GREEN, tool_call_id="b", meta={"exit_code": 0}),
    ]  # fmt: skip
    messages = [one._replace(position=at) for at, one in enumerate(messages)]
    found = judge_session(Session("s"), messages, [*judge_calls("s", messages)])
    check(found, "succeeded", "tests/green")
    assert found.where == 5


def test_a_build_or_lint_is_weaker_than_tests() -> None:
    found = judge("fix", EDIT, run("go build ./...", ""))
    check(found, "succeeded", "checks/green")
    assert found.confidence < judge("fix", EDIT, run("go test ./...", GREEN)).confidence
    check(judge("fix", EDIT, run("mise run lint", "a.go:1: bad", True)), "failed", "checks/red")


def test_formatting_checks_nothing() -> None:
    assert judge("fix", EDIT, run("gofmt -w main.go", "")).verdict == "unknown"
    assert judge("fix", EDIT, run("mise run fmt", "")).verdict == "unknown"


def test_a_commit_after_the_last_edit_is_a_success() -> None:
    found = judge("fix", EDIT, run("git add . && git commit -m x", "[main 1] x"))
    check(found, "succeeded", "commit/made")
    asked = judge("fix", EDIT, "A:Done.", "commit it", run("git commit -m x", "[main 1] x"))
    assert asked.confidence > found.confidence
    check(judge("fix", EDIT, run("git push", "ok")), "succeeded", "commit/published")
    check(judge("fix", EDIT, run("gh pr create --fill", "ok")), "succeeded", "commit/published")


def test_a_commit_that_failed_or_was_edited_after_is_none() -> None:
    assert judge("fix", EDIT, run("git commit -m x", "hook failed", True)).verdict == "unknown"
    assert judge("fix", EDIT, run("git commit -m x", "[main 1]"), EDIT).verdict == "unknown"


def test_a_change_that_was_taken_back_is_a_failure() -> None:
    restored = run("git checkout -- main.go", "")
    check(judge("fix", EDIT, restored, "A:Reverted."), "failed", "work/reverted")
    assert judge("fix", EDIT, restored, "next one: something else").verdict == "unknown"


def test_a_commit_in_a_scratch_folder_is_none() -> None:
    scratch = run("work=$(mktemp -d); git -C $work init; git -C $work commit -m x", "[main 1] x")
    assert judge("review it", scratch).verdict == "unknown"


def test_work_that_other_requests_followed_says_less() -> None:
    tested = ("fix", EDIT, run("go test ./...", GREEN), "A:Done.")
    near = judge(*tested, "what does it do?", "A:It sorts.")
    far = judge(*tested, "what does it do?", "A:It sorts.", "and the other?", "A:It reads.")
    assert near.confidence > far.confidence


# ── what the user said


def test_the_last_words_decide_with_modest_confidence() -> None:
    approved = judge("fix", EDIT, "A:Done.", "perfect, thanks")
    check(approved, "succeeded", "words/approval")
    corrected = judge("fix", EDIT, "A:Done.", "that's wrong", "A:Sorry.")
    check(corrected, "failed", "words/correction")
    check(judge("fix", EDIT, "A:Done.", "undo that", "A:Ok."), "failed", "words/rejection")
    assert max(approved.confidence, corrected.confidence) < 0.7


def test_words_that_agree_with_the_tests_make_them_surer() -> None:
    tested = judge("fix", EDIT, run("go test ./...", GREEN), "A:Done.")
    approved = judge("fix", EDIT, run("go test ./...", GREEN), "A:Done.", "works, thanks")
    check(approved, "succeeded", "tests/green")
    assert approved.confidence > tested.confidence


def test_a_later_complaint_is_about_the_tested_work() -> None:
    found = judge(
        "fix", EDIT, run("go test ./...", GREEN), "A:Done.", "still failing in ci", "A:Hm."
    )
    check(found, "failed", "words/correction")


def test_a_pasted_failure_is_a_complaint() -> None:
    found = judge("fix", EDIT, "A:Done.", "--- FAIL: TestA (0.00s)\n    a_test.go:3: no")
    check(found, "failed", "words/correction")


def test_a_correction_that_was_worked_on_does_not_decide() -> None:
    found = judge("fix", EDIT, "A:Done.", "no, use the other one", EDIT, run("go test", GREEN))
    check(found, "succeeded", "tests/green")


def test_many_corrections_without_another_sign_are_a_failure() -> None:
    wrong = ("A:Done.", "that's wrong", EDIT)
    check(judge("fix", EDIT, *wrong, *wrong, *wrong), "failed", "words/corrected-often")
    assert judge("fix", EDIT, *wrong, *wrong).verdict == "unknown"


def test_thanks_of_a_customer_say_nothing() -> None:
    booked = ("book_flight", {"id": "F1"}, "booked", False)
    assert judge("book F1", booked, "A:Done.", "great, thank you!").verdict == "unknown"


def test_the_first_message_is_a_request_and_no_reaction() -> None:
    assert judge("revert that", EDIT, "A:Done.").verdict == "unknown"


# ── how it ended


def test_a_session_that_was_interrupted_at_the_end_failed() -> None:
    found = judge("fix", EDIT, "[Request interrupted by user]")
    check(found, "failed", "end/interrupted")
    assert (
        judge("fix", EDIT, "[Request interrupted by user]", "go on", "A:Ok.").verdict == "unknown"
    )


def test_a_plan_that_was_not_accepted_is_no_failure() -> None:
    plan = (
        "ExitPlanMode",
        {"plan": "x"},
        "The user doesn't want to proceed with this tool use.",
        True,
    )
    assert judge("plan it", plan, "[Request interrupted by user for tool use]").verdict == "unknown"


def test_a_refused_call_at_the_end_is_a_failure() -> None:
    refused = (
        "Bash",
        {"command": "rm x"},
        "The user doesn't want to proceed with this tool use.",
        True,
    )
    check(judge("clean up", refused), "failed", "end/refused")


def test_a_session_that_stops_on_an_error_failed() -> None:
    check(judge("go", run("deploy x", "command not found: deploy", True)), "failed", "end/error")
    assert judge("go", run("deploy x", "no", True), "A:I cannot do that.").verdict == "unknown"


def test_an_error_of_the_model_at_the_end_is_a_failure() -> None:
    check(judge("go", "A:API Error: 500", meta={"is_error": True}), "failed", "end/model-error")


def test_without_a_sign_nothing_is_known() -> None:
    assert judge("what is this?", "A:A cache.") == SessionOutcome()
    assert judge_session(Session("s"), [], []) == SessionOutcome()
