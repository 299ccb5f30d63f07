"""Tools of real MCP servers, over pipes and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rekindle.agent.tools import mcp
from rekindle.agent.tools.mcp import McpConnection, connect_servers, expand_variables
from rekindle.agent.tools.registry import Toolbox, ToolRegistry
from rekindle.agent.tools.tool import ToolContext, ToolResult
from rekindle.config import McpServer
from rekindle.errors import McpServerUnreachable
from rekindle.types import ToolCall
from tests import command
from tests.ports import find_port
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

if find_spec("mcp") is None:  # seconds to import, and every worker imports this file
    pytest.skip("mcp is not installed", allow_module_level=True)
SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
CONTEXT = ToolContext(session="s", cwd=Path("/tmp"), approval="never")


def small(**fields: Any) -> McpConnection:
    runner = command.get_script_runner()
    server = McpServer(command=runner, args=(SCRIPT,), **fields)
    return McpConnection("small", server, connect_seconds=PATIENCE)


async def ask(box: Toolbox, tool: str, **arguments: Any) -> ToolResult:
    return await box.run(ToolCall("1", tool, json.dumps(arguments)), CONTEXT)


def with_tools(server: McpConnection, use: Callable[[Toolbox], Awaitable[None]]) -> None:
    async def main() -> None:
        tools, problems = await connect_servers([server])
        assert problems == []
        try:
            await use(ToolRegistry(tools).select())
        finally:
            await server.close()

    asyncio.run(main())


def test_tools_of_a_server_get_its_name_in_front_and_work() -> None:
    async def use(box: Toolbox) -> None:
        assert sorted(box.tools) == sorted(
            f"mcp__small__{name}"
            for name in ("add", "whoami", "fail", "die", "seen", "odd_name_with_signs", "slow")
        )
        assert box.tools["mcp__small__add"].toolset == "mcp-small"
        assert (await ask(box, "mcp__small__add", a=2, b=3)).content == "5"
        assert (await ask(box, "mcp__small__odd_name_with_signs")).content == "odd"
        gathered = await asyncio.gather(*(ask(box, "mcp__small__add", a=n, b=n) for n in range(10)))
        assert [one.content for one in gathered] == [str(2 * n) for n in range(10)]

    with_tools(small(), use)


def test_arguments_are_checked_before_they_are_sent_and_failures_are_results() -> None:
    async def use(box: Toolbox) -> None:
        wrong = await ask(box, "mcp__small__add", a="x", b=3)
        assert wrong.is_error
        assert "a: expected integer" in wrong.content
        failed = await ask(box, "mcp__small__fail")
        assert failed.is_error
        assert "fail" in failed.content
        assert (await ask(box, "mcp__small__add", a=1, b=1)).content == "2"

    with_tools(small(), use)


def test_our_secrets_stay_here_and_those_in_the_settings_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def use(box: Toolbox) -> None:
        assert (await ask(box, "mcp__small__seen", name="OPENAI_API_KEY")).content == "not set"
        assert (await ask(box, "mcp__small__seen", name="SMALL")).content == "yes"

    with_tools(small(env={"SMALL": "yes"}), use)


def test_a_server_that_was_killed_is_started_again() -> None:
    async def use(box: Toolbox) -> None:
        first = (await ask(box, "mcp__small__whoami")).content
        os.kill(int(first), signal.SIGKILL)
        second = await ask(box, "mcp__small__whoami")
        assert not second.is_error
        assert second.content != first

    with_tools(small(), use)


def test_a_server_that_dies_during_a_call_makes_it_fail_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    words = (SCRIPT, "starts", str(starts))
    server = McpConnection("small", McpServer(command=command.get_script_runner(), args=words))

    async def use(box: Toolbox) -> None:
        died = await ask(box, "mcp__small__die")
        assert died.is_error
        assert "died during the call" in died.content
        assert len(starts.read_text().split()) == 1  # the call was not sent a second time
        assert (await ask(box, "mcp__small__add", a=1, b=1)).content == "2"
        assert len(starts.read_text().split()) == 2

    with_tools(server, use)


def test_a_server_that_does_not_come_back_is_a_failed_result(tmp_path: Path) -> None:
    link = tmp_path / "server.py"
    link.write_text(Path(SCRIPT).read_text())

    async def use(box: Toolbox) -> None:
        pid = int((await ask(box, "mcp__small__whoami")).content)
        link.unlink()
        os.kill(pid, signal.SIGKILL)
        gone = await ask(box, "mcp__small__add", a=1, b=1)
        assert gone.is_error
        assert "the server small cannot be reached" in gone.content

    with_tools(McpConnection("small", McpServer(command=sys.executable, args=(str(link),))), use)


def test_a_call_that_takes_too_long_fails_and_the_server_goes_on() -> None:
    async def use(box: Toolbox) -> None:
        pid = (await ask(box, "mcp__small__whoami")).content
        late = await ask(box, "mcp__small__slow")
        assert late.is_error
        assert "within 3 s" in late.content or "imed out" in late.content
        assert (await ask(box, "mcp__small__whoami")).content == pid

    with_tools(small(timeout=3.0), use)


def test_cancelling_a_call_is_passed_on_and_the_server_goes_on() -> None:
    async def use(box: Toolbox) -> None:
        task = asyncio.create_task(ask(box, "mcp__small__slow"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(box, "mcp__small__add", a=1, b=1)).content == "2"

    with_tools(small(), use)


def test_closing_ends_the_server() -> None:
    pids: list[int] = []

    async def use(box: Toolbox) -> None:
        pids.append(int((await ask(box, "mcp__small__whoami")).content))

    with_tools(small(), use)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_server_that_cannot_be_reached_does_not_keep_others_away() -> None:
    async def main() -> None:
        missing = McpConnection("missing", McpServer(command="/nonexistent/server"))
        silent = McpConnection("silent", McpServer(command="true"))
        unset = McpConnection("unset", McpServer(command="true", env={"A": "${NOT_SET_ANYWHERE}"}))
        connections = [missing, small(), silent, unset]
        tools, problems = await connect_servers(connections)
        assert len(tools) == 7
        assert [problem.split()[2] for problem in problems] == ["missing", "silent", "unset"]
        assert "NOT_SET_ANYWHERE is not set" in problems[-1]
        for one in connections:
            await one.close()

    asyncio.run(main())


@pytest.fixture
def over_http() -> Iterator[str]:
    port = find_port()
    process = subprocess.Popen(
        [command.get_script_runner(), SCRIPT, "http", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def test_servers_are_reached_over_http_too(over_http: str) -> None:
    async def use(box: Toolbox) -> None:
        assert (await ask(box, "mcp__net__add", a=2, b=3)).content == "5"
        assert (await ask(box, "mcp__net__fail")).is_error
        os.kill(int((await ask(box, "mcp__net__whoami")).content), signal.SIGKILL)
        gone = await ask(box, "mcp__net__add", a=2, b=3)
        assert gone.is_error
        assert "net" in gone.content

    with_tools(McpConnection("net", McpServer(url=over_http, headers={"X-Test": "1"})), use)


def test_names_are_unlike_any_other_and_what_every_provider_takes() -> None:
    async def main() -> None:
        servers = [McpConnection(name, small()._server) for name in ("a", "a")]  # pyright: ignore[reportPrivateUsage]
        long = McpConnection("x" * 32, small()._server)  # pyright: ignore[reportPrivateUsage]
        taken = ["mcp__a__add", "read_file"]
        try:
            tools, _ = await connect_servers([*servers, long], taken)
        finally:
            for one in (*servers, long):
                await one.close()
        names = [tool.name for tool in tools]
        assert len(tools) == 21
        assert len({*names, *taken}) == 23
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        assert ToolRegistry(tools).select().tools.keys() == set(names)

    asyncio.run(main())


def test_a_name_that_is_too_long_ends_in_a_digest_of_itself() -> None:
    own = mcp._make_tool_name  # pyright: ignore[reportPrivateUsage]
    one, other = own("server", "a" * 70, set()), own("server", "a" * 71, set())
    assert len(one) == len(other) == 64
    assert one != other
    assert one == own("server", "a" * 70, {other}), "whatever else there is"


def test_variables_are_filled_in_where_a_secret_may_stand() -> None:
    given = McpServer(
        command="${BIN}/server",
        args=("--mode=${MODE:-fast}", "$HOME"),
        env={"KEY": "${KEY}"},
        headers={"Authorization": "Bearer ${KEY}"},
    )
    filled = expand_variables(given, {"BIN": "/opt", "KEY": "k", "MODE": ""})
    assert (filled.command, filled.args) == ("/opt/server", ("--mode=fast", "$HOME"))
    assert (filled.env, filled.headers) == ({"KEY": "k"}, {"Authorization": "Bearer k"})
    with pytest.raises(McpServerUnreachable, match="KEY is not set"):
        expand_variables(given, {"BIN": "/opt"})
