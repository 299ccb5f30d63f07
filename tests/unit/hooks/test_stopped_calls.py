"""The hook before a call: a command that is known to fail is stopped once, nothing else ever."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rekindle import Message, ToolCall
from rekindle.api.client import ApiClient
from rekindle.api.values import CallRecall, NoteText, RecalledNotes
from rekindle.errors import ServerUnreachable
from rekindle.hooks import answers
from rekindle.hooks.command import AGENT_EVENTS
from rekindle.hooks.context_text import CALL_HEADING
from rekindle.hooks.troubles import read_troubles
from rekindle.judging.judge import judge_call
from rekindle.knowledge.notes.note import Recall

from .conftest import FAILED, FIXED, HookHome

FIX = f"`{FIXED[0]}` then worked"


@pytest.fixture
def careful_home(home: HookHome) -> HookHome:
    """A home that knows a failing command, with the setting on."""
    home.teach()
    home.set_warm(control_share=0, before_call=True)
    return home


def call(
    home: HookHome, command: str = FAILED[0], *, agent: str = "claude-code", **fields: Any
) -> str:
    """Return why a call is not run; empty if it is."""
    given = {"tool_name": "Bash", "tool_input": {"command": command}, **fields}
    printed = home.print_answer("call", agent=agent, **given)
    assert b"allow" not in printed
    assert b"approve" not in printed
    if not printed:
        return ""
    answer = json.loads(printed)
    if agent in ("claude-code", "codex"):
        (specific,) = answer.values()
        assert specific["permissionDecision"] == "deny"
        assert specific["hookEventName"] == "PreToolUse"
        assert len(specific) == 3
        return specific["permissionDecisionReason"]
    assert answer.keys() == {"decision", "reason"}
    assert answer["decision"] == "deny"
    return answer["reason"]


@pytest.mark.parametrize("agent", AGENT_EVENTS)
def test_a_command_that_is_known_to_fail_is_stopped_once_in_each_session(
    agent: str, careful_home: HookHome
) -> None:
    reason = call(careful_home, agent=agent)
    assert reason.startswith(CALL_HEADING)
    assert FIX in reason
    assert call(careful_home, agent=agent) == ""
    assert FIX in call(careful_home, agent=agent, session_id="s2")


def test_other_calls_run(careful_home: HookHome) -> None:
    for command in (FIXED[0], "make check-all", "ls", "", "make 'unclosed"):
        assert call(careful_home, command) == ""
    assert call(careful_home, tool_name="Read", tool_input={"file_path": FAILED[0]}) == ""
    assert call(careful_home, cwd=str(careful_home.project.with_name("other"))) == ""
    assert FIX in call(careful_home)


def test_a_command_in_another_folder_runs(careful_home: HookHome) -> None:
    careful_home.answer("start")
    inner = str(careful_home.project / "web")
    assert call(careful_home, cwd=inner) == ""
    for name, folder in (("workdir", inner), ("dir_path", "web"), ("workdir", "/tmp")):
        given = {"command": FAILED[0], name: folder}
        assert call(careful_home, tool_input=given) == ""
    assert call(careful_home, cwd=str(careful_home.project.parent)) == ""
    assert FIX in call(careful_home, f"cd {careful_home.project} && {FAILED[0]}", cwd=inner)


def test_nothing_is_stopped_by_default(home: HookHome) -> None:
    home.teach()
    assert call(home) == ""
    assert home.answerer._states.load("claude-code", "s1") is None


def test_the_setting_counts_at_once(careful_home: HookHome) -> None:
    assert call(careful_home, session_id="a") != ""
    careful_home.set_warm(control_share=0, before_call=True, enabled=False)
    assert call(careful_home, session_id="b") == ""
    careful_home.set_warm(control_share=0, before_call=False)
    assert call(careful_home, session_id="c") == ""


def test_a_cold_session_is_never_stopped(careful_home: HookHome) -> None:
    careful_home.set_warm(control_share=1, before_call=True)
    assert call(careful_home) == ""
    careful_home.answer("start", session_id="s2")
    assert call(careful_home, session_id="s2") == ""


def test_the_next_helper_knows_what_was_stopped(careful_home: HookHome) -> None:
    assert call(careful_home) != ""
    careful_home.restart()
    assert call(careful_home) == ""


def test_a_session_is_told_of_a_fix_once_whether_before_or_after_the_call(
    careful_home: HookHome,
) -> None:
    assert call(careful_home) != ""
    assert careful_home.fail() == ""
    assert careful_home.fail(session_id="s2") != ""
    assert call(careful_home, session_id="s2") == ""


def test_after_a_compaction_nothing_is_stopped_again(careful_home: HookHome) -> None:
    careful_home.answer("start", source="startup")
    assert call(careful_home) != ""
    careful_home.answer("start", source="compact")
    assert call(careful_home) == ""
    assert careful_home.fail() != ""


def test_a_stopped_call_is_no_failure(careful_home: HookHome) -> None:
    reason = call(careful_home)
    careful_home.answer("start", source="compact")
    told = careful_home.answer(
        "failure",
        tool_name="bash",
        tool_input={"command": FAILED[0]},
        error=f"Tool execution blocked: {reason}",
    )
    assert told == ""


@pytest.mark.parametrize(
    ("before", "meta"),
    [
        ("PreToolUse:Bash hook error: ", {"is_error": True}),  # Claude Code
        ("Command blocked by PreToolUse hook: ", {"refused": True}),  # Codex
        ("Tool execution blocked: ", {"is_error": True}),  # Gemini CLI
        ("", {"is_error": True}),  # OpenCode, pi
    ],
)
def test_a_stopped_call_is_judged_as_refused_whatever_an_agent_puts_before_it(
    before: str, meta: dict[str, Any], careful_home: HookHome
) -> None:
    made = ToolCall("c1", "bash", {"command": FAILED[0]})
    text = before + call(careful_home)
    result = Message("tool", text, tool_call_id="c1", name="bash", meta=meta)
    assert judge_call(made, result).outcome == "refused"


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_name": None},
        {"tool_name": ["Bash"]},
        {"tool_input": None},
        {"tool_input": 5},
        {"tool_input": [FAILED[0]]},
        {"tool_input": {"command": None}},
        {"tool_input": {"command": {"command": FAILED[0]}}},
        {"tool_input": {}},
    ],
)
def test_input_that_names_no_command_stops_nothing(
    careful_home: HookHome, fields: dict[str, Any]
) -> None:
    assert call(careful_home, **fields) == ""
    assert read_troubles(careful_home.path) == []


def test_a_call_runs_if_that_it_was_stopped_cannot_be_saved(careful_home: HookHome) -> None:
    """Without memory, it would be stopped again and again."""
    (careful_home.path / "hooks" / "sessions").write_text("no folder")
    assert call(careful_home) == ""
    careful_home.restart()
    assert call(careful_home) == ""
    assert read_troubles(careful_home.path) != []


def test_of_several_calls_at_once_one_is_stopped(careful_home: HookHome) -> None:
    with ThreadPoolExecutor(8) as pool:
        reasons = [*pool.map(lambda number: call(careful_home), range(16))]
    assert [bool(reason) for reason in reasons].count(True) == 1


def test_a_home_without_a_store_stops_nothing(home: HookHome) -> None:
    home.set_warm(control_share=0, before_call=True)
    assert call(home) == ""
    assert not (home.path / "sessions.db").exists()


class BrokenNotes:
    """A server that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    def recall_call(self, *given: object) -> Recall:
        self.asked += 1
        raise ServerUnreachable("no route to host")


def test_a_server_that_fails_does_not_delay_every_command(
    careful_home: HookHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = BrokenNotes()
    with monkeypatch.context() as patch:
        patch.setattr(answers, "find_note_source", lambda settings, store: notes)
        assert [call(careful_home) for _ in range(3)] == ["", "", ""]
        assert notes.asked == 1
        patch.setattr(answers, "PAUSE_SECONDS", 0.0)
        careful_home.restart()
        assert [call(careful_home) for _ in range(3)] == ["", "", ""]
        assert notes.asked == 4
    careful_home.restart()
    assert call(careful_home) != ""


def test_a_server_is_asked_with_the_call_and_its_folder(
    home: HookHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[CallRecall] = []

    def recall_before_call(client: ApiClient, recall: CallRecall) -> RecalledNotes:
        asked.append(recall)
        note = NoteText(id="n1", kind="pitfall", text="`make` failed")
        return RecalledNotes(text=note.text, notes=[note])

    monkeypatch.setattr(ApiClient, "recall_before_call", recall_before_call)
    settings = '[server]\nurl = "https://rekindle.example"\napi_key = "rk_abc_def"\n'
    (home.path / "config.toml").write_text(
        f"{settings}[warm]\ncontrol_share = 0\nbefore_call = true\n"
    )
    assert "`make` failed" in call(home), read_troubles(home.path)
    assert call(home) == ""
    arguments = {"command": FAILED[0]}
    folder = str(home.project)
    assert asked[0] == CallRecall(folder=folder, tool="Bash", arguments=arguments)
