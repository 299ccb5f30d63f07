"""The plugins for agents in JavaScript, run by Node.js with an agent that is only played."""

import json
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from rekindle.coding_agents.agent import InstallTarget
from rekindle.coding_agents.plugins import build_plugin
from rekindle.hooks.command import get_launcher
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

HOOK = """#!{python}
import json, os, sys, time
event = json.load(sys.stdin)
with open({log!r}, "a") as file:
    file.write(json.dumps([sys.argv[2], event]) + "\\n")
mode = {mode!r}
if mode == "answer":
    text = "context of " + sys.argv[2]
    if sys.argv[2] == "call":
        print(json.dumps({{"decision": "deny", "reason": text}}))
    else:
        print(json.dumps({{"hookSpecificOutput": {{"additionalContext": text}}}}))
elif mode == "allow":
    print(json.dumps({{"decision": "allow", "reason": "context of " + sys.argv[2]}}))
elif mode == "garbage":
    print("{{ not json")
elif mode == "fail":
    sys.exit(2)
elif mode == "hang" and sys.argv[2] not in ("compact", "end"):
    time.sleep(600)
"""

PI = """
import start from "./plugin.mjs"
const handlers = {}
const sent = []
start({ on: (name, handle) => (handlers[name] = handle), sendMessage: (one) => sent.push(one) })
const sessionManager = {
  getSessionId: () => "s1", getSessionFile: () => "/t/s1.jsonl", getCwd: () => "/src/app",
}
const fire = (name, event = {}, ctx = { sessionManager }) => handlers[name](event, ctx)
await fire("session_start", { reason: "startup" })
const prompt = await fire("before_agent_start", { prompt: "Fix it" })
const call = { toolName: "bash", input: { command: "x" }, toolCallId: "c1" }
const content = [{ type: "text", text: "not found" }]
const stopped = await handlers.tool_call?.(call, { sessionManager })
const other = await handlers.tool_call?.({ ...call, toolName: "read" }, { sessionManager })
const broken = await handlers.tool_call?.({ ...call }, {})
const fine = await fire("tool_result", { ...call, content, isError: false })
const failed = await fire("tool_result", { ...call, content, isError: true })
const odd = await fire("tool_result", {}, {})
await fire("session_before_compact", { reason: "manual" })
await fire("session_shutdown", { reason: "quit" })
console.log(JSON.stringify({ sent, prompt, stopped, other, broken, fine, failed, odd }))
"""

OPENCODE = """
import { Rekindle } from "./plugin.mjs"
const hooks = await Rekindle({ directory: "/src/app" })
const first = { id: "prt_1", sessionID: "s1", messageID: "m1", type: "text", text: "Fix it" }
const parts = [first]
await hooks["chat.message"]({}, { parts })
const second = [{ ...first, text: "And that" }]
await hooks["chat.message"]({}, { parts: second })
const input = { tool: "bash", sessionID: "s1", callID: "c1", args: { command: "x" } }
const before = async (...given) => {
  try {
    await hooks["tool.execute.before"]?.(...given)
  } catch (error) {
    return error.message
  }
}
const stopped = await before(input, { args: input.args })
const other = await before({ ...input, tool: "read" }, { args: {} })
const broken = await before({ tool: "bash" }, null)
const fine = { output: "good", metadata: { exit: 0 } }
await hooks["tool.execute.after"](input, fine)
const failed = { output: "bad", metadata: { exit: 127 } }
await hooks["tool.execute.after"](input, failed)
const server = { content: [], isError: true }
await hooks["tool.execute.after"](input, server)
const thrown = () => ({
  info: { role: "assistant" },
  parts: [{ type: "tool", tool: "read", callID: "c2", sessionID: "s1",
            state: { status: "error", error: "no such file", input: {} } }],
})
const old = thrown()
old.parts[0].callID = "c0"
const messages = [old, thrown()]
await hooks["experimental.chat.messages.transform"]({}, { messages })
const again = [old, thrown(), { info: { role: "assistant" }, parts: [] }]
await hooks["experimental.chat.messages.transform"]({}, { messages: again })
await hooks["chat.message"](null, null)
await hooks["tool.execute.after"]()
await hooks["experimental.session.compacting"]({ sessionID: "s1" })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
await hooks.dispose()
const errors = [messages, again].map((list) => list.map((one) => one.parts[0]?.state.error))
console.log(JSON.stringify({ parts, second, stopped, other, broken, fine, failed, server, errors }))
"""
AGENTS = {"pi": PI, "opencode": OPENCODE}


class Play:
    """A plugin, a hook that does as told, and what came of it."""

    def __init__(self, agent: str, folder: Path, mode: str, *, before_call: bool = False) -> None:
        node = shutil.which("node")
        if node is None:
            warnings.warn("PLUGINS ARE NOT TESTED: node is not installed", stacklevel=1)
            pytest.skip("node is not installed")
        self.log = folder / "events.jsonl"
        home = folder / "re kindle"
        launcher = get_launcher(home)
        launcher.parent.mkdir(parents=True)
        if mode != "missing":
            launcher.write_text(HOOK.format(python=sys.executable, log=str(self.log), mode=mode))
            launcher.chmod(0o755)
        target = InstallTarget(folder, {}, home, before_call=before_call)
        (folder / "plugin.mjs").write_text(build_plugin(agent, target).content)
        (folder / "play.mjs").write_text(AGENTS[agent])
        began = time.monotonic()
        done = subprocess.run(
            [node, "play.mjs"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
        )
        self.seconds = time.monotonic() - began
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        self.result: dict[str, Any] = json.loads(done.stdout)

    def read_events(self) -> list[tuple[str, dict[str, Any]]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def test_pi_is_given_what_the_hooks_answer(tmp_path: Path) -> None:
    play = Play("pi", tmp_path, "answer")
    (message,) = play.result["sent"]
    assert message["content"] == "context of start"
    assert play.result["prompt"]["message"]["content"] == "context of prompt"
    assert "fine" not in play.result
    assert play.result["failed"]["content"] == [
        {"type": "text", "text": "not found"},
        {"type": "text", "text": "context of failure"},
    ]
    wait_until(lambda: len(play.read_events()) == 5)
    events = dict(play.read_events())
    assert set(events) == {"start", "prompt", "failure", "compact", "end"}
    for event in events.values():
        assert event["session_id"] == "s1"
        assert event["transcript_path"] == "/t/s1.jsonl"
        assert event["cwd"] == "/src/app"
    assert events["start"]["source"] == "startup"
    assert events["prompt"]["prompt"] == "Fix it"
    assert events["failure"]["tool_name"] == "bash"
    assert events["failure"]["tool_input"] == {"command": "x"}
    assert events["failure"]["error"] == "not found"


def test_opencode_is_given_what_the_hooks_answer(tmp_path: Path) -> None:
    play = Play("opencode", tmp_path, "answer")
    assert [part["text"] for part in play.result["parts"]] == [
        "Fix it",
        "context of start",
        "context of prompt",
    ]
    assert [part["id"] for part in play.result["parts"]] == ["prt_1", "prt_1r", "prt_1rr"]
    assert [part["text"] for part in play.result["second"]] == ["And that", "context of prompt"]
    assert play.result["fine"]["output"] == "good"
    assert play.result["failed"]["output"] == "bad\ncontext of failure"
    assert play.result["server"]["content"] == [{"type": "text", "text": "context of failure"}]
    told = "no such file\ncontext of failure"
    # An error of an earlier process is left alone; one that was answered stays answered.
    assert play.result["errors"] == [["no such file", told], ["no such file", told, None]]
    wait_until(lambda: {"end", "compact"} <= {event for event, _ in play.read_events()})
    names = [event for event, _ in play.read_events()]
    assert sorted(names) == sorted(
        ["start", "prompt", "prompt", "failure", "failure", "failure", "compact", "end"]
    )
    end = dict(play.read_events())["end"]
    assert end["session_id"] == "s1"
    assert end["transcript_path"].endswith("/opencode/opencode.db")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_call_of_the_shell_is_not_run_if_the_hook_denies_it(agent: str, tmp_path: Path) -> None:
    play = Play(agent, tmp_path, "answer", before_call=True)
    reason = "context of call"
    expected = {"pi": {"block": True, "reason": reason}, "opencode": reason}
    assert play.result["stopped"] == expected[agent]
    assert not {"other", "broken"} & play.result.keys()
    (event,) = [event for name, event in play.read_events() if name == "call"]
    assert event["session_id"] == "s1"
    assert event["cwd"] == "/src/app"
    assert (event["tool_name"], event["tool_input"]) == ("bash", {"command": "x"})


@pytest.mark.parametrize("agent", AGENTS)
def test_without_the_setting_no_hook_runs_before_a_call(agent: str, tmp_path: Path) -> None:
    play = Play(agent, tmp_path, "answer")
    assert "stopped" not in play.result
    assert "call" not in {name for name, _ in play.read_events()}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("mode", ["garbage", "fail", "missing", "silent", "hang", "allow"])
def test_a_call_runs_unless_the_hook_denies_it(agent: str, mode: str, tmp_path: Path) -> None:
    play = Play(agent, tmp_path, mode, before_call=True)
    assert "stopped" not in play.result


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("mode", ["garbage", "fail", "missing", "silent"])
def test_a_hook_that_fails_changes_nothing(agent: str, mode: str, tmp_path: Path) -> None:
    result = Play(agent, tmp_path, mode).result
    assert "context of" not in json.dumps(result)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_hook_that_hangs_is_given_up(agent: str, tmp_path: Path) -> None:
    play = Play(agent, tmp_path, "hang")
    assert "context of" not in json.dumps(play.result)
    assert play.seconds < PATIENCE / 2
