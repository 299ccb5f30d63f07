"""The tool `warm_session`: JSON in and out, every action checks what it is given."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rekindle import Store
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ApprovalRequest, ToolContext
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.warm_session_tool import create_warm_session_tool
from rekindle.redaction.redactor import Redactor
from rekindle.types import Message, Template, TemplateNote, ToolCall

OWNER = "ada"


class Agent:
    """Somebody who calls the tool."""

    def __init__(self, store: Store, folder: Path, **context: Any) -> None:
        self.templates = TemplateLibrary(folder / "templates")
        self.shared: bool = context.pop("shared", False)
        tool = create_warm_session_tool(self.templates, Redactor, shared=self.shared)
        self._toolbox = ToolRegistry([tool]).select()
        self._context = ToolContext("s", folder, owner=OWNER, store=store, **context)

    def calls(self, action: str, **arguments: Any) -> dict[str, Any]:
        call = ToolCall("c", "warm_session", json.dumps({"action": action, **arguments}))
        result = asyncio.run(self._toolbox.run(call, self._context))
        answer = json.loads(result.content)
        assert answer.get("success", False) is not result.is_error
        return answer


@pytest.fixture
def agent(store: Store, tmp_path: Path) -> Agent:
    return Agent(store, tmp_path)


def worked(store: Store, *fails: bool, owner: str | None = OWNER, asked: str = "check it") -> str:
    """A session with a call for each of these: whether it failed."""
    session = store.begin(owner=owner)
    said = [Message("user", asked)]
    for number, failed in enumerate(fails):
        command = "make chekc" if failed else "make check --all"
        call = ToolCall(f"c{number}", "terminal", json.dumps({"command": command}))
        said.append(Message("assistant", None, [call]))
        meta = {"is_error": failed, "exit_code": 2 if failed else 0}
        text = "make: *** No rule to make target 'chekc'.  Stop." if failed else "all good"
        said.append(Message("tool", text, tool_call_id=f"c{number}", meta=meta))
    store.append(session, *said, Message("assistant", "Done."))
    return session.id


def test_a_template_that_an_agent_builds_waits_in_quarantine(store: Store, agent: Agent) -> None:
    for _ in range(4):
        worked(store, *[False] * 16)
    answer = agent.calls("build", name="Checks", description="How we check", tags=["a"])
    assert answer["pattern_count"] >= 1
    assert answer["metrics"]["sessions_scanned"] == 4
    assert answer["metrics"]["sessions_qualified"] == 4
    assert "avg_proficiency_gain" in answer["metrics"]
    kept = agent.templates.find("Checks")
    assert (kept.state, kept.description, kept.tags) == ("quarantined", "How we check", ("a",))
    refused = agent.calls("load", name="Checks")
    assert "quarantine" in refused["error"]


def test_too_short_sessions_give_no_template_and_the_answer_says_so(
    store: Store, agent: Agent
) -> None:
    worked(store, False)
    assert "qualified" in agent.calls("build", name="x")["error"]


def test_templates_are_listed_and_loaded_as_advice(agent: Agent) -> None:
    note = TemplateNote("p", "command", "`make`", command="make")
    agent.templates.create(Template("ours", "Ours", notes=(note,), tags=("a",)))
    agent.templates.create(Template("other", "Other"))
    listed = agent.calls("list")
    assert [one["id"] for one in listed["templates"]] == ["other", "ours"]
    assert [one["id"] for one in agent.calls("list", tags=["a"])["templates"]] == ["ours"]
    loaded = agent.calls("load", name="Ours")
    assert loaded["pattern_count"] == 1
    assert "- `make`" in loaded["advice"]
    assert "Template not found" in agent.calls("load", name="nobody")["error"]


def test_a_person_decides_whether_a_template_is_deleted(store: Store, tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(question: ApprovalRequest) -> bool:
        asked.append(question)
        return len(asked) > 1

    agent = Agent(store, tmp_path, approve=approve)
    agent.templates.create(Template("ours", "Ours"))
    assert "not deleted" in agent.calls("delete", name="ours")["error"]
    assert agent.templates.list_ids() == ["ours"]
    assert agent.calls("delete", name="ours") == {"success": True, "deleted": "ours"}
    assert agent.templates.list_ids() == []
    alone = Agent(store, tmp_path, approval="refuse")
    alone.templates.create(Template("ours", "Ours"))
    assert "not deleted" in alone.calls("delete", name="ours")["error"]


def test_a_profile_and_a_comparison_have_the_rates(store: Store, agent: Agent) -> None:
    warm, cold = worked(store, *[False] * 9, True), worked(store, *[False] * 6, *[True] * 4)
    profile = agent.calls("profile", session_id=warm)["profile"]
    assert profile["session"]["id"] == warm
    assert profile["calls"] == 10
    found = agent.calls("compare", session_id=warm, compare_with=cold)
    assert found["warm_error_rate"] == pytest.approx(0.1)
    assert found["cold_error_rate"] == pytest.approx(0.4)
    assert found["improvement"] == pytest.approx(0.3)
    assert found["warm_better"] is True


def test_a_compression_is_checked(store: Store, agent: Agent) -> None:
    id = worked(store, *[False] * 10)
    assert agent.calls("compress-check", session_id=id)["has_compression"] is False
    store.compress(id, Message("user", "summary"))
    answer = agent.calls("compress-check", session_id=id)
    assert answer["has_compression"] is True
    assert "proficiency_preserved" in answer


@pytest.mark.parametrize(
    ("action", "arguments", "wrong"),
    [
        ("build", {}, "name"),
        ("build", {"name": "x", "min_messages": -1}, "min_messages"),
        ("build", {"name": "x", "max_sessions": 0}, "max_sessions"),
        ("build", {"name": "../../x"}, "name"),
        ("extract", {"name": "x"}, "session_id"),
        ("load", {}, "name"),
        ("delete", {"name": " "}, "name"),
        ("profile", {}, "session_id"),
        ("compare", {"session_id": "x"}, "compare_with"),
        ("profile", {"session_id": "nobody"}, "nobody"),
        ("guess", {}, "action"),
        ("list", {"surprise": 1}, "surprise"),
    ],
)
def test_what_is_missing_or_wrong_is_named(
    agent: Agent, action: str, arguments: dict[str, Any], wrong: str
) -> None:
    assert wrong in agent.calls(action, **arguments)["error"]


def test_where_many_people_talk_each_sees_their_own_sessions(store: Store, tmp_path: Path) -> None:
    theirs = worked(store, *[False] * 16, owner="bob")
    agent = Agent(store, tmp_path, shared=True)
    assert "Session not found" in agent.calls("profile", session_id=theirs)["error"]
    assert "error" in agent.calls("extract", session_id=theirs, name="x")
    assert agent.calls("build", name="x")["error"].startswith("none of 0 sessions")
    assert agent.templates.list_ids() == []
