"""The JSON of each agent, read into the same facts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import InvalidInput
from rekindle.hooks.events import (
    TAIL_BYTES,
    FailedCall,
    HookInput,
    HookRequest,
    PlannedCall,
    move_call,
    parse_input,
)

COMMON = {"session_id": "s1", "cwd": "/src/app"}


def parse(agent: str, event: str, **fields: Any) -> HookInput:
    data = json.dumps({**COMMON, **fields}).encode()
    return parse_input(HookRequest(agent, event, "/", data, len(data)))


def write_rollout(file: Path, *items: dict[str, Any], padding: int = 0) -> None:
    """Write a Codex transcript: the ends of calls, then other lines."""
    lines = [
        {"type": "event_msg", "payload": {"type": "item_completed", "item": item}} for item in items
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    rest = json.dumps({"type": "response_item", "payload": {"text": "x" * 900}}) + "\n"
    file.write_text("garbage\n" + text + rest * (padding // len(rest)))


def ask_codex(file: Path, call: str = "call_1") -> FailedCall | None:
    return parse(
        "codex",
        "failure",
        transcript_path=str(file),
        tool_name="Bash",
        tool_input={"command": "make"},
        tool_response="make: nothing",
        tool_use_id=call,
    ).failure


def make_item(id: str, code: int) -> dict[str, Any]:
    status = "failed" if code else "completed"
    return {"type": "CommandExecution", "id": id, "exit_code": code, "status": status}


def test_codex_tells_how_a_call_ended_in_its_transcript_only(tmp_path: Path) -> None:
    file = tmp_path / "rollout.jsonl"
    write_rollout(file, make_item("call_1", 2), make_item("call_2", 0))
    assert ask_codex(file) == FailedCall("Bash", {"command": "make"}, "make: nothing")
    assert ask_codex(file, "call_2") is None
    assert ask_codex(file, "call_9") is None


def test_a_call_far_from_the_end_is_found_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "rollout.jsonl"
    write_rollout(file, make_item("call_1", 2), padding=TAIL_BYTES[0] * 3)
    assert ask_codex(file) is not None
    write_rollout(file, make_item("call_1", 2), padding=TAIL_BYTES[1] + 10_000)
    assert ask_codex(file) is None


def test_a_transcript_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert ask_codex(tmp_path / "pipe") is None


@pytest.mark.parametrize(
    ("content", "failed"),
    [("Output: no\nExit Code: 127\nProcess Group PGID: 7", True),
     ("Output: Exit Code: 3 is what I print\nProcess Group PGID: 7", False),
     ("Output: yes\nExit Code: 0", False)],
)  # fmt: skip
def test_gemini_tells_the_exit_code_in_the_text(content: str, failed: bool) -> None:
    given = parse(
        "gemini",
        "failure",
        tool_name="run_shell_command",
        tool_input={"command": "make"},
        tool_response={"llmContent": f"<untrusted_context>\n{content}\n</untrusted_context>"},
    )
    assert (given.failure is not None) == failed
    if given.failure is not None:
        assert given.failure.result == "no\nExit Code: 127\n"


def test_the_failures_of_claude_code_and_of_plugins_need_no_proof() -> None:
    for agent in ("claude-code", "opencode", "pi"):
        given = parse(agent, "failure", tool_name="bash", tool_input={"command": "x"}, error="no")
        assert given.failure == FailedCall("bash", {"command": "x"}, "no")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tool_name": "sh", "tool_input": {"a": "x"}}, PlannedCall("sh", {"a": "x"}, "/src/app")),
        ({"tool_name": "sh", "tool_input": "x"}, PlannedCall("sh", "x", "/src/app")),
        ({"tool_name": "sh"}, PlannedCall("sh", {}, "/src/app")),
        ({"tool_input": {"command": "x"}}, None),
        (
            {"tool_name": "sh", "tool_input": {"dir_path": "web"}},
            PlannedCall("sh", {"dir_path": "web"}, "/src/app/web"),
        ),
        (
            {"tool_name": "sh", "tool_input": {"workdir": "/tmp/x"}},
            PlannedCall("sh", {"workdir": "/tmp/x"}, "/tmp/x"),
        ),
    ],
)
def test_a_call_that_has_not_run_is_read_with_its_arguments(
    fields: dict[str, Any], expected: PlannedCall | None
) -> None:
    given = parse("codex", "call", **fields)
    assert (given.call, given.failure, given.name) == (expected, None, "PreToolUse")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/src/app", "make"),
        ("/src/app/", "make"),
        ("/src/app/web", "cd web && make"),
        ("/src/app/my web/..x", "cd 'my web/..x' && make"),
        ("/src/app/..x", "cd ..x && make"),
        ("/src", None),
        ("/tmp", None),
    ],
)
def test_a_call_is_seen_from_the_folder_that_its_session_began_in(
    folder: str, expected: str | None
) -> None:
    found = move_call(PlannedCall("Bash", {"command": "make", "x": 1}, folder), "/src/app")
    assert (found and found.arguments) == (expected and {"command": expected, "x": 1})


def test_a_call_without_a_command_has_only_its_own_folder() -> None:
    assert move_call(PlannedCall("sh", "make", "/src/app/web"), "/src/app") is None
    assert move_call(PlannedCall("sh", "make", "/src/app"), "/src/app") is not None


def test_a_long_result_keeps_its_beginning_and_its_end() -> None:
    given = parse("pi", "failure", tool_name="bash", error="first" + "x" * 99_999 + "last")
    assert given.failure is not None
    assert given.failure.result.startswith("first")
    assert given.failure.result.endswith("last")
    assert len(given.failure.result) < 21_000


def test_a_prompt_of_gemini_is_read_without_what_the_start_hook_said() -> None:
    given = parse("gemini", "prompt", prompt="<hook_context>notes</hook_context>\n\nGo on")
    assert given.prompt == "Go on"


def test_an_event_has_the_name_that_the_agent_gave_it_unless_it_is_no_name() -> None:
    assert parse("codex", "start", hook_event_name="SessionStart").name == "SessionStart"
    assert parse("gemini", "prompt", hook_event_name='x"}').name == "BeforeAgent"
    assert parse("gemini", "prompt").name == "BeforeAgent"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"session_id": 1}', b"[" * 100_000,
     b'{"session_id": "\\ud800", "cwd": 5}', b'{"a":' * 50_000],
)  # fmt: skip
def test_broken_input_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_input(HookRequest("codex", "start", "", data, len(data)))


def test_a_cut_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too large"):
        parse_input(HookRequest("codex", "start", "/", b"{}", 100_000_000))
