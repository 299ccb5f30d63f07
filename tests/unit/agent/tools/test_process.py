"""Commands that go on in the background, and the tool that looks after them: real processes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rekindle.agent.tools.builtin.process import build_background_tools
from rekindle.agent.tools.builtin.terminal import OUTPUT_CHARACTERS
from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.registry import ToolRegistry as Tools
from rekindle.agent.tools.tool import ToolContext, ToolResult
from rekindle.errors import BackendUnreachable
from rekindle.processes.backends.base import Backend
from rekindle.processes.operations import Processes
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.types import ProcessLimits
from rekindle.types import ToolCall
from tests.processes import QUICK, alive, embedded, output_of, runs, supervised
from tests.remote_hosts import Podman
from tests.unit.agent.tools.calling import is_sleeping, name_sleep
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bubblewrap")]


class Agent:
    """Calls the two tools as a session would."""

    def __init__(self, processes: Processes, context: ToolContext, place: str = "local") -> None:
        self.processes, self.context = processes, context
        self.box: Toolbox = Tools(build_background_tools(processes, place)).select()

    async def raw(self, tool: str, /, **arguments: Any) -> ToolResult:
        return await self.box.run(ToolCall("1", tool, json.dumps(arguments)), self.context)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.raw(tool, **arguments)
        assert not result.is_error, result.content
        return json.loads(result.content)

    async def error(self, tool: str, /, **arguments: Any) -> str:
        result = await self.raw(tool, **arguments)
        assert result.is_error, result.content
        return json.loads(result.content)["error"]

    async def start(self, command: str, **more: Any) -> str:
        said = await self.call("terminal", command=command, background=True, **more)
        return said["process_id"]

    async def act(self, action: str, id: str, **more: Any) -> dict[str, Any]:
        return await self.call("process", action=action, process_id=id, **more)


@runs
async def test_a_command_goes_on_in_the_background_and_its_end_is_seen(
    tmp_path: Path, context: ToolContext, work: Path
) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        said = await agent.call("terminal", command="pwd; echo $HOME; exit 3", background=True)
        assert said["state"] == "running"
        assert said["pid"]
        ended = await agent.act("wait", said["process_id"])
        assert (ended["state"], ended["exit_code"], ended["timed_out"]) == ("exited", 3, False)
        assert ended["output"] == f"{work}\n{work.parent / 'home'}\n"
        (one,) = (await agent.call("process", action="list"))["processes"]
        assert (one["process_id"], one["exit_code"]) == (said["process_id"], 3)
        (kept,) = await processes.list()
        assert (kept.owner, kept.session) == ("ada", "s")


@runs
async def test_poll_gives_what_is_new_and_log_gives_lines(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        id = await agent.start("printf '1\\n2\\n3\\n'; read line; echo got $line")
        await output_of(processes, id, "3")
        assert (await agent.act("poll", id))["output"] == "1\n2\n3\n"
        assert (await agent.act("poll", id))["output"] == ""
        assert (await agent.act("log", id, limit=2))["output"] == "2\n3\n"
        assert (await agent.act("log", id, offset=0, limit=1))["output"] == "1\n"
        assert (await agent.act("submit", id, data="a line"))["written"] == 7
        ended = await agent.act("wait", id)
        assert (ended["output"], ended["exit_code"]) == ("got a line\n", 0)


@runs
async def test_input_is_written_raw_and_ended(tmp_path: Path, context: ToolContext) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        id = await agent.start("cat; echo over")
        await agent.act("write", id, data="no newline")
        assert (await agent.act("close", id))["closed"]
        assert (await agent.act("wait", id))["output"] == "no newlineover\n"
        assert "has ended" in await agent.error(
            "process", action="write", process_id=id, data="more"
        )


@runs
async def test_a_program_that_wants_a_terminal_gets_one(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        id = await agent.start("test -t 0 && test -t 1 && echo a terminal", pty=True)
        assert "a terminal" in (await agent.act("wait", id))["output"]


@runs
async def test_a_kill_ends_all_that_was_started(tmp_path: Path, context: ToolContext) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        id = await agent.start(f"{name_sleep(300)} & echo $!; wait")
        await output_of(processes, id, "\n")
        assert is_sleeping(name_sleep(300))
        assert (await agent.act("kill", id))["state"] == "killed"
        assert not is_sleeping(name_sleep(300))


@runs
async def test_nobody_sees_or_touches_what_is_not_theirs(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        ada = Agent(processes, context)
        bob = Agent(processes, context._replace(owner="bob"))
        id = await ada.start("cat")
        assert (await bob.call("process", action="list"))["processes"] == []
        for action in ("poll", "log", "wait", "kill", "write", "submit", "close"):
            said = await bob.error("process", action=action, process_id=id, data="x")
            assert "process not found" in said, action
        assert (await ada.act("poll", id))["state"] == "running"


@runs
async def test_a_session_without_an_owner_has_its_own_processes(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        one = Agent(processes, context._replace(owner=None, session="one"))
        other = Agent(processes, context._replace(owner=None, session="other"))
        await one.start("sleep 300")
        assert len((await one.call("process", action="list"))["processes"]) == 1
        assert (await other.call("process", action="list"))["processes"] == []


@runs
async def test_a_long_wait_is_cut_short_and_that_is_said(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p", QUICK._replace(wait=0.2)) as processes:
        agent = Agent(processes, context)
        id = await agent.start("echo so far; sleep 300")
        await output_of(processes, id, "so far")
        said = await agent.act("wait", id, timeout=3600)
        assert said["timed_out"]
        assert said["output"] == "so far\n"
        assert said["note"] == "3600 s exceeds the limit; waited at most 0.2 s"
        assert "note" not in await agent.act("wait", id, timeout=0.05)


@pytest.mark.parametrize("kept", [embedded, supervised])
@runs
async def test_a_turn_that_is_stopped_ends_the_wait_and_loses_no_output(
    tmp_path: Path, context: ToolContext, kept: Any
) -> None:
    async with kept(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        id = await agent.start("echo before; sleep 300")
        await output_of(processes, id, "before")
        waiting = asyncio.create_task(agent.act("wait", id, timeout=300))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, PATIENCE)
        said = await agent.act("poll", id)
        assert (said["state"], said["output"]) == ("running", "before\n")


@runs
async def test_results_are_bounded_and_stay_json(tmp_path: Path, context: ToolContext) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        id = await agent.start("yes '\"é' | head -c 300000; echo; echo the end")
        said = await agent.act("wait", id)
        assert len(said["output"]) <= OUTPUT_CHARACTERS
        assert "characters left out" in said["output"]
        assert said["output"].endswith("the end\n")
        assert said["dropped_bytes"] > 0


@runs
async def test_mistakes_are_answers_that_help(tmp_path: Path, context: ToolContext) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        assert "get one from `list`" in await agent.error("process", action="poll")
        assert "process not found" in await agent.error(
            "process", action="poll", process_id="pnothere"
        )
        assert "allowed" in await agent.error("process", action="dance")
        assert "not allowed with background=true" in await agent.error(
            "terminal", command="sleep 1", background=True, timeout=5
        )
        assert "only allowed with background=true" in await agent.error(
            "terminal", command="true", check_interval=60
        )
        said = await agent.error("terminal", command="true", background=True, workdir="missing")
        assert "missing" in said
        assert "regular expression" in await agent.error(
            "terminal", command="true", background=True, watch_for="("
        )
        assert await processes.list() == []


@runs
async def test_dangerous_commands_are_asked_about_in_the_background_too(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context._replace(approval="refuse"))
        said = await agent.error("terminal", command="rm -rf /tmp/x", background=True)
        assert said.startswith("refused")
        assert await processes.list() == []


@runs
async def test_the_foreground_works_as_without_processes(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context)
        said = await agent.call("terminal", command="echo here; exit 4", background=False)
        assert said == {"output": "here\n", "exit_code": 4, "error": None}
        assert await processes.list() == []


@runs
async def test_reports_go_to_the_address_of_the_session(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        there = Agent(processes, context._replace(address="over there"))
        await there.start("echo listening on 80; sleep 0.2", watch_for="listening")
        here = Agent(processes, context)
        await here.start("true")

        async def told() -> bool:
            return len(await processes.fetch_events()) == 3

        await until(told)
        events = await processes.fetch_events(notes=["over"])
        assert [one.kind for one in events] == ["pattern", "end"]
        assert events[0].text == "listening on 80"
        assert [one.note for one in await processes.fetch_events(notes=["s"])] == ["s"]


@runs
async def test_a_place_that_cannot_be_reached_is_never_replaced_by_this_machine(
    tmp_path: Path, context: ToolContext, work: Path
) -> None:
    def places(name: str) -> Backend:
        raise BackendUnreachable(f"{name} is not there")

    processes = await ProcessRegistry.open(
        tmp_path / "p", limits=ProcessLimits(), backend_factory=places
    )
    try:
        agent = Agent(processes, context, "container:box")
        for background in (True, False):
            said = await agent.error("terminal", command="touch here", background=background)
            assert "container:box is not there" in said
        assert os.listdir(work) == []
    finally:
        await processes.aclose()


@pytest.mark.places
@runs
async def test_a_command_in_front_runs_in_the_place_of_the_session_and_leaves_nothing_there(
    tmp_path: Path,
    context: ToolContext,
    work: Path,
    podman: Podman,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", podman.url)
    async with embedded(tmp_path / "p") as processes:
        agent = Agent(processes, context, f"container:{podman.name}")
        said = await agent.call("terminal", command="ls -d /bin/busybox; pwd; cat; exit 4")
        assert said == {"output": "/bin/busybox\n/\n", "exit_code": 4, "error": None}
        said = await agent.call("terminal", command="pwd", workdir="/tmp")
        assert said == {"output": "/tmp\n", "exit_code": 0, "error": None}
        assert os.listdir(work) == []
        late = await agent.raw("terminal", command="echo $$; sleep 300", timeout=4)
        assert late.is_error
        said = json.loads(late.content)
        assert "took longer than 4 s" in said["error"]
        assert not alive(int(said["output"]), podman.proc)
        said = await agent.error("terminal", command="true", workdir="/no/such/folder")
        assert "/no/such/folder" in said


@runs
async def test_the_end_of_an_episode_ends_all_processes_of_its_owner(
    tmp_path: Path, context: ToolContext
) -> None:
    async with embedded(tmp_path / "p") as processes:
        agent, other = Agent(processes, context), Agent(processes, context._replace(owner="bob"))
        pids: list[int] = []
        for _ in range(3):
            said = await agent.call("terminal", command="sleep 300", background=True)
            pids.append(said["pid"])
        kept = await other.start("sleep 300")
        assert await processes.kill_all("ada") == 3
        assert not any(alive(pid) for pid in pids)
        assert await processes.count_live("ada") == 0
        assert (await other.act("poll", kept))["state"] == "running"


def test_process_goes_with_terminal_in_every_toolset(tmp_path: Path) -> None:
    async def work() -> Mapping[str, tuple[str, ...]]:
        async with embedded(tmp_path / "p") as processes:
            others = [tool for tool in BUILTIN_TOOLS if tool.name != "terminal"]
            tools = Tools([*build_background_tools(processes), *others])
            assert "process" not in tools.select(off=["terminal"]).tools
            assert "process" in tools.select(["terminal"], off=["process"]).tools
            assert "process" not in tools.select(["files", "process"]).tools
            return tools.toolsets

    for names in asyncio.run(work()).values():
        assert ("terminal" in names) == ("process" in names)
