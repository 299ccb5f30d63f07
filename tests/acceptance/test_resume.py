"""`rekindle resume`, the real command, with stand-ins for the agents that record how they are run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, ToolCall, open_store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.testing import ScriptedModel
from rekindle.transcripts.discovery import SAMPLE
from rekindle.types import Session
from tests import command
from tests.acceptance.test_cli import Rekindle

STAND_IN = """#!/bin/sh
{
    printf '%s\\n' "$(basename "$0")" "$PWD" "$$" "$#"
    printf '%s\\n' "$@"
} >> "$HOME/runs-$(basename "$0")"
test "$1" != import || test -z "$REFUSES" || { echo 'no such project' >&2; exit 3; }
echo started
exit 7
"""
CLAUDE_ID = json.loads((SAMPLE / "claude-code-rounding.jsonl").read_text().splitlines()[1])[
    "sessionId"
]


class Desk(Rekindle):
    """A home with a folder of work, a session of Claude Code in it, and stand-ins for agents."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        (home / "rekindle").mkdir()
        self.work = home / "my work"
        self.work.mkdir()
        self.programs = home / "bin"
        self.programs.mkdir()
        self.env["PATH"] = f"{self.programs}:/usr/bin:/bin"
        self.env["REKINDLE_STORE_REFRESH"] = "never"  # the tests say when something is imported
        self.transcript = home / ".claude" / "projects" / "-some-name" / f"{CLAUDE_ID}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        lines = (SAMPLE / "claude-code-rounding.jsonl").read_text().splitlines()
        changed = [{**json.loads(line), "cwd": str(self.work)} for line in lines]
        self.transcript.write_text("".join(json.dumps(line) + "\n" for line in changed))
        self("import")

    def install(self, *names: str) -> None:
        for name in names:
            program = self.programs / name
            program.write_text(STAND_IN)
            program.chmod(0o755)

    def read_runs(self, program: str) -> list[tuple[str, list[str]]]:
        """Return the folder and the arguments of every run."""
        file = self.home / f"runs-{program}"
        words = file.read_text().splitlines() if file.exists() else []
        runs: list[tuple[str, list[str]]] = []
        while words:
            (_, folder, _, count), words = words[:4], words[4:]
            runs.append((folder, words[: int(count)]))
            words = words[int(count) :]
        return runs

    def put(self, session: Session, *messages: Message) -> None:
        with open_store(self.store) as store:
            store.import_batch([SessionImport(session, messages, is_complete=True)])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# ── in its own agent


def test_a_session_goes_on_in_its_own_agent_and_folder_in_place_of_the_command(desk: Desk) -> None:
    desk.install("claude")
    before = desk.transcript.read_bytes()
    done = desk.run("resume", CLAUDE_ID[:8], code=7)  # the agent's own exit code
    assert done.stdout == b"started\n"
    assert done.stderr == b""
    assert desk.read_runs("claude") == [(str(desk.work), ["--resume", CLAUDE_ID])]
    assert desk.transcript.read_bytes() == before


def test_print_shows_a_command_that_a_shell_runs_as_it_is(desk: Desk) -> None:
    desk.install("claude")
    printed = desk("resume", CLAUDE_ID, "--print")
    assert printed == f"cd '{desk.work}' && claude --resume {CLAUDE_ID}\n"
    assert desk.read_runs("claude") == []
    subprocess.run(["sh", "-c", printed], env=desk.env, cwd="/", stdout=subprocess.DEVNULL)
    assert desk.read_runs("claude") == [(str(desk.work), ["--resume", CLAUDE_ID])]
    shown = desk.json("resume", CLAUDE_ID)
    assert (shown["agent"], shown["folder"]) == ("claude-code", str(desk.work))
    assert shown["command"] == ["claude", "--resume", CLAUDE_ID]
    assert f"{shown['shell']}\n" == printed
    assert shown["installed"] is True


def test_without_a_name_the_last_session_of_this_project_goes_on(desk: Desk) -> None:
    other = Session("20990101_other", source="local", cwd="/elsewhere", started=4e9)
    desk.put(other, Message("user", "newer, elsewhere", timestamp=4e9))
    inner = desk.work / "src" / "deep"
    inner.mkdir(parents=True)
    (desk.work / ".git").mkdir()
    shown = json.loads(run_in(desk, inner, "resume", "--json"))
    assert shown["session"] == CLAUDE_ID
    empty = desk.home / "empty"
    empty.mkdir()
    assert "No session of this project" in run_in(desk, empty, "resume", "--json", code=2)


def run_in(desk: Desk, folder: Path, *words: str, code: int = 0) -> str:
    done = command.run(words, env=desk.env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout or done.stderr


def test_a_session_that_the_agent_deleted_is_put_back_first(desk: Desk) -> None:
    desk.install("claude")
    desk.transcript.unlink()
    done = desk.run("resume", CLAUDE_ID, code=7)
    assert b"no longer has this session" in done.stderr
    assert desk.transcript.exists()
    assert desk.read_runs("claude") == [(str(desk.work), ["--resume", CLAUDE_ID])]
    assert desk.json("import")["messages"] == 0


def test_a_folder_that_is_gone_is_named_and_another_can_be_given(desk: Desk) -> None:
    desk.install("claude")
    shutil.rmtree(desk.work)
    refused = desk.refusal("resume", CLAUDE_ID)
    assert str(desk.work) in refused
    assert "--folder" in refused
    elsewhere = desk.home / "else where"
    elsewhere.mkdir()
    desk.run("resume", CLAUDE_ID, "--folder", elsewhere, code=7)
    assert desk.read_runs("claude") == [(str(elsewhere), ["--resume", CLAUDE_ID])]


def test_a_missing_agent_is_named_with_those_that_are_there(desk: Desk) -> None:
    desk.install("codex", "pi")
    desk.transcript.unlink()
    refused = desk.refusal("resume", CLAUDE_ID)
    assert not desk.transcript.exists()  # nothing is written in vain
    assert "no command claude" in refused
    assert "codex, pi, chat" in refused
    assert f"rekindle resume {CLAUDE_ID} --in codex" in refused
    assert desk.json("resume", CLAUDE_ID)["installed"] is False


def test_a_sub_agent_goes_on_at_its_parent(desk: Desk) -> None:
    inner = Session(
        f"agent-7@{CLAUDE_ID}", source="claude-code", parent=CLAUDE_ID, sub_agent="agent"
    )
    desk.put(inner, Message("user", "Look into it."))
    done = desk.run("resume", "agent-7", "--print")
    assert f"claude --resume {CLAUDE_ID}".encode() in done.stdout
    assert b"is part of session" in done.stderr


# ── in another agent


def hand_over(desk: Desk, agent: str, *words: str) -> Any:
    return desk.json("resume", CLAUDE_ID, "--in", agent, *words)


@pytest.mark.parametrize("agent", ["codex", "pi"])
def test_another_agent_gets_a_copy_that_is_linked_to_its_origin(desk: Desk, agent: str) -> None:
    desk.install(agent)
    before = desk.lines("sessions", "show", CLAUDE_ID, "--json")
    done = desk.run("resume", CLAUDE_ID, "--in", agent, code=7)
    assert b"Handed over from Claude Code" in done.stderr
    assert b"calls written as text" in done.stderr
    ((folder, words),) = desk.read_runs(agent)
    assert (folder, words[0]) == (str(desk.work), {"codex": "resume", "pi": "--session"}[agent])
    copy = next(one for one in desk.json("sessions", "list") if one["id"] == words[1])
    assert (copy["source"], copy["parent"]) == (agent, CLAUDE_ID)
    assert copy["title"].endswith("(from Claude Code)")
    assert desk.json("import")["messages"] == 0  # nothing of the copy is new
    assert len(desk.json("sessions", "list")) == 2
    assert desk.lines("sessions", "show", CLAUDE_ID, "--json") == before


def test_a_search_finds_a_handed_over_message_once(desk: Desk) -> None:
    words = next(
        line["content"]
        for line in desk.lines("sessions", "show", CLAUDE_ID, "--json")
        if line.get("role") == "user"
    ).split()[:3]
    before = len(desk.json("sessions", "search", " ".join(words)))
    hand_over(desk, "codex")
    assert len(desk.json("sessions", "search", " ".join(words))) == before > 0


def test_handing_over_twice_goes_on_with_the_same_copy_until_the_origin_grows(desk: Desk) -> None:
    first = hand_over(desk, "codex")
    with Path(first["written"]).open("a") as file:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        line = {"timestamp": "2026-06-01T00:00:00Z", "type": "response_item", "payload": item}
        file.write(json.dumps(line) + "\n")
    again = hand_over(desk, "codex")
    assert (again["id"], again["written"]) == (first["id"], None)
    assert "already has this copy" in again["notes"][0]
    assert desk.json("import")["messages"] == 1
    with open_store(desk.store) as store:
        store.append(CLAUDE_ID, Message("user", "One more thing."))
    third = hand_over(desk, "codex")
    assert third["id"] != first["id"]
    assert third["written"] != first["written"]


def test_nothing_is_invented_and_what_the_other_agent_lacks_becomes_text(desk: Desk) -> None:
    call = ToolCall("1", "search_web", {"query": "herons"})
    session = Session("h1", source="hermes", cwd=str(desk.work), title="Herons")
    desk.put(
        session,
        Message("user", "Find herons."),
        Message("assistant", "I look.", [call]),
        Message("tool", "forty herons", tool_call_id="1"),
    )
    shown = desk.json("resume", "Herons", "--in", "codex")
    lines = [json.loads(line) for line in Path(shown["written"]).read_text().splitlines()]
    items = [line["payload"] for line in lines if line["type"] == "response_item"]
    assert [(item["type"], item["role"]) for item in items] == [
        ("message", "user"),
        ("message", "assistant"),
    ]
    answer = "\n".join(part["text"] for part in items[1]["content"])
    assert "search_web" in answer
    assert "forty herons" in answer
    assert "Rekindle cannot start hermes" in desk.refusal("resume", "Herons")


def test_opencode_imports_the_session_before_it_is_started(desk: Desk) -> None:
    desk.install("opencode")
    printed = desk("resume", CLAUDE_ID, "--in", "opencode", "--print")
    assert "&& opencode import " in printed
    desk.run("resume", CLAUDE_ID, "--in", "opencode", code=1, REFUSES="yes")
    assert len(desk.read_runs("opencode")) == 1
    # The stand-in exits with an error after an import too; a real one does not.
    (desk.programs / "opencode").write_text(STAND_IN.replace("exit 7", "test $1 = import"))
    desk.run("resume", CLAUDE_ID, "--in", "opencode", code=1)
    _, (folder, imported), (_, started) = desk.read_runs("opencode")
    assert (folder, imported[0]) == (str(desk.work), "import")
    assert not Path(imported[1]).exists()  # OpenCode has its own copy now
    assert started[:2] == ["--session", Path(imported[1]).stem.removeprefix("opencode-")]


def test_a_copy_can_be_handed_back(desk: Desk) -> None:
    there = hand_over(desk, "pi")
    back = desk.json("resume", there["id"], "--in", "claude-code")
    assert back["id"] not in (CLAUDE_ID, there["id"])
    copy = next(one for one in desk.json("sessions", "list") if one["id"] == back["id"])
    assert copy["parent"] == there["id"]
    assert copy["title"].endswith("(from pi)")


# ── in Rekindle's chat


@pytest.fixture
def model() -> Any:
    with ScriptedModel({"turns": []}) as model:
        yield model


def chat(desk: Desk, model: ScriptedModel, *words: str, code: int = 0) -> str:
    env = {"REKINDLE_MODEL": "scripted", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "a-key"}
    done = desk.run(*words, code=code, stdin=b"And now?", **env)
    return (done.stdout + done.stderr).decode()


def test_an_imported_session_goes_on_in_the_chat_as_a_fork(
    desk: Desk, model: ScriptedModel
) -> None:
    before = desk.lines("sessions", "show", CLAUDE_ID, "--json")
    shown = chat(desk, model, "chat", "-r", CLAUDE_ID[:8])
    assert "You said: And now?" in shown
    assert "Continues a copy of a session of Claude Code" in shown
    fork = next(one for one in desk.json("sessions", "list") if one.get("parent") == CLAUDE_ID)
    assert fork["source"] == "local"
    assert fork["title"].endswith("(from Claude Code)")
    origin = next(one for one in desk.json("sessions", "list") if one["id"] == CLAUDE_ID)
    assert fork["message_count"] == origin["message_count"] + 2
    assert desk.lines("sessions", "show", CLAUDE_ID, "--json") == before
    request = model.requests[-1]
    assert request.violations == []
    prompts = [line["content"] for line in before if line.get("role") == "user"]
    assert prompts[0] in [message.content for message in request.messages]
    chat(desk, model, "chat", "-r", fork["id"])
    assert len(desk.json("sessions", "list")) == 2  # its own chat goes on in place


def test_resume_in_chat_works_in_the_folder_of_the_session(
    desk: Desk, model: ScriptedModel
) -> None:
    words = ("resume", CLAUDE_ID, "--in", "chat", "--store", "rekindle/sessions.db")
    shown = chat(desk, model, *words)
    assert "You said: And now?" in shown
    assert shown.count("Continues a copy") == 1
    fork = next(one for one in desk.json("sessions", "list") if one.get("parent") == CLAUDE_ID)
    assert fork["cwd"] == str(desk.work)


def test_the_chat_says_whose_a_session_is(desk: Desk, model: ScriptedModel) -> None:
    with open_store(desk.store) as store:
        bob = store.begin(source="telegram", owner="agent:main:telegram:dm:bob", title="Plan")
        store.append(bob, Message("user", "Bob's plan"))
    refused = chat(desk, model, "chat", "-r", bob.id, code=2)
    assert "belongs to agent:main:telegram:dm:bob" in refused
    assert "--fork" in refused
    assert "You said" in chat(desk, model, "chat", "-r", bob.id, "--fork")
    with open_store(desk.store) as store:
        assert len(store.messages(bob)) == 1
