"""The tool `warm_session` where many people talk to one program, and what an agent must not undo."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Store, ToolCall
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ApprovalRequest, ToolContext
from rekindle.learning import build
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.warm_session_tool import create_warm_session_tool
from rekindle.redaction.redactor import Redactor
from rekindle.types import Template, TemplateNote, replace_fields

NOTE = TemplateNote("p", "command", "`make`", command="make")
TOKEN = "AKIA" + "Z7QX3MNB5TRW8KLP"


class Agent:
    """Somebody's agent, who calls the tool."""

    def __init__(
        self, store: Store, folder: TemplateLibrary, owner: str = "bob", *, shared: bool = True
    ) -> None:
        tool = create_warm_session_tool(folder, Redactor, shared=shared)
        self.asked: list[ApprovalRequest] = []
        self._toolbox = ToolRegistry([tool]).select()
        self._context = ToolContext(
            "s", folder.folder, owner=owner, store=store, approve=self._approve
        )

    async def _approve(self, question: ApprovalRequest) -> bool:
        self.asked.append(question)
        return True

    def calls(self, action: str, **arguments: Any) -> dict[str, Any]:
        call = ToolCall("c", "warm_session", json.dumps({"action": action, **arguments}))
        return json.loads(asyncio.run(self._toolbox.run(call, self._context)).content)

    def lists(self) -> list[str]:
        return [one["id"] for one in self.calls("list")["templates"]]


def worked(store: Store, owner: str | None, command: str = "make sync --all") -> str:
    """A session of somebody that is long enough, and went well."""
    session = store.begin(owner=owner)
    said = [Message("user", "check it")]
    for number in range(16):
        call = ToolCall(f"c{number}", "terminal", json.dumps({"command": command}))
        said.append(Message("assistant", None, [call]))
        said.append(Message("tool", "ok", tool_call_id=f"c{number}", meta={"exit_code": 0}))
    store.append(session, *said)
    return session.id


@pytest.fixture
def ours(store: Store, folder: TemplateLibrary) -> TemplateLibrary:
    """A template of each sort: of alice, of bob, of both, of nobody, and for everybody."""
    alice, bob, nobody = worked(store, "alice"), worked(store, "bob"), worked(store, None)
    made = Template("", "", notes=(NOTE,))
    for id, more in {
        "alices": {"sources": (alice,)},
        "bobs": {"sources": (bob,)},
        "of-both": {"sources": (alice, bob)},
        "of-nobody": {"sources": (nobody,)},
        "of-the-gone": {"sources": (bob, "gone")},
        "without-sources": {},
        "said-to-be-bobs": {"sources": ("gone",), "scan": {"owner": "bob"}},
        "for-all": {"sources": (alice,), "tags": ("shared",)},
    }.items():
        folder.create(replace_fields(made, id=id, name=id.replace("-", " ").title(), **more))
    return folder


def test_everybody_sees_what_is_their_own_and_what_is_shared(
    store: Store, ours: TemplateLibrary
) -> None:
    bob = Agent(store, ours)
    assert bob.lists() == ["bobs", "for-all", "said-to-be-bobs"]
    assert bob.calls("load", name="Bobs")["success"]
    assert bob.calls("load", name="for-all")["success"]
    for hidden in ("alices", "Alices", "of-both", "of-nobody", "without-sources", "of-the-gone"):
        for action in ("load", "delete"):
            said = bob.calls(action, name=hidden)["error"]
            assert (
                said == f"Template not found: {hidden!r}. List templates with `rekindle warm list`."
            )
    assert bob.asked == [], "nobody is asked about what is not theirs"
    assert "is shared" in bob.calls("delete", name="for-all")["error"]
    assert bob.calls("delete", name="Bobs")["deleted"] == "bobs"
    assert len(Agent(store, ours, shared=False).lists()) == 7


def test_an_agent_cannot_take_the_name_of_what_it_must_not_see(
    store: Store, ours: TemplateLibrary
) -> None:
    bob = Agent(store, ours)
    mine = worked(store, "bob")
    before = ours.read("alices")
    for name in ("Alices", "alices!"):
        for said in (
            bob.calls("build", name=name)["error"],
            bob.calls("extract", name=name, session_id=mine)["error"],
        ):
            assert said == "template 'alices': already exists; choose another name"
    assert ours.read("alices") == before


def test_an_agent_that_many_talk_to_cannot_give_a_template_to_everybody(
    store: Store, folder: TemplateLibrary
) -> None:
    mine = worked(store, "bob")
    worked(store, "bob")
    bob = Agent(store, folder)
    for tags in (["shared"], ["a", " shared "]):
        assert "only a person" in bob.calls("build", name="x", tags=tags)["error"]
        assert (
            "only a person" in bob.calls("extract", name="x", session_id=mine, tags=tags)["error"]
        )
    assert folder.list_ids() == []
    assert bob.calls("build", name="x", tags=["a"])["tags"] == ["a"]
    assert Agent(store, folder, "alice").lists() == []
    assert bob.lists() == ["x"]


def test_an_agent_does_not_replace_what_is_in_use(store: Store, folder: TemplateLibrary) -> None:
    one = worked(store, "bob")
    worked(store, "bob")
    bob = Agent(store, folder, shared=False)
    assert bob.calls("build", name="checks")["state"] == "quarantined"
    assert bob.calls("build", name="checks")["revision"] == 2, "what waits can be built anew"
    build.accept_template(store, folder, "checks")
    assert "in use; choose another name" in bob.calls("build", name="checks")["error"]
    build.extract_template(store, folder, Redactor(), one, "by hand")
    said = bob.calls("extract", name="by hand", session_id=one)["error"]
    assert "in use; choose another name" in said
    assert folder.read("checks").state == folder.read("by-hand").state == "active"
    build.retire_template(store, folder, "checks")
    again = bob.calls("build", name="checks")
    assert (again["state"], again["kept"]) == ("retired", {"state": "retired"})


def test_what_an_agent_extracts_is_never_in_use_before_it_is_accepted(
    store: Store, folder: TemplateLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []
    write = folder._write  # pyright: ignore[reportPrivateUsage]

    def watched(path: Path, template: Template) -> None:
        states.append(template.state)
        write(path, template)

    monkeypatch.setattr(folder, "_write", watched)
    answer = Agent(store, folder).calls("extract", name="x", session_id=worked(store, "bob"))
    assert (answer["state"], answer["revision"]) == ("quarantined", 1)
    assert states == ["quarantined"]


def test_what_was_removed_is_told_with_its_place(store: Store, folder: TemplateLibrary) -> None:
    one, _ = (worked(store, "bob", f"make sync --key {TOKEN} --all") for _ in range(2))
    bob = Agent(store, folder)
    assert bob.calls("build", name="x")["removed"] == {"value": {"notes": 1}}
    again = bob.calls("build", name="y", description=f"for {TOKEN}")
    assert again["removed"] == {"aws-key": {"description": 1}, "value": {"notes": 1}}
    told = bob.calls("extract", name="z", session_id=one, description=f"for {TOKEN}")["removed"]
    assert told["aws-key"]["description"] == 1
