"""Tools of real MCP servers, over pipes and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle.agent.mcp_tools import Server, connect, servers_from
from rekindle.agent.registry import Registry, Toolbox
from rekindle.agent.tools.tool import ToolContext, ToolResult
from rekindle.errors import InvalidSetting
from rekindle.types import ToolCall

pytest.importorskip("mcp")
SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
CONTEXT = ToolContext(session="s", cwd=Path("/tmp"))


def small(**fields: Any) -> Server:
    return Server("small", command=sys.executable, args=(SCRIPT,), **fields)


async def ask(box: Toolbox, tool: str, **arguments: Any) -> ToolResult:
    return await box.run(ToolCall("1", tool, json.dumps(arguments)), CONTEXT)


def with_tools(server: Server, use: Callable[[Toolbox], Awaitable[None]]) -> None:
    async def main() -> None:
        tools, connections, problems = await connect([server])
        assert problems == []
        try:
            await use(Registry(tools).select())
        finally:
            for one in connections:
                await one.close()

    asyncio.run(main())


def test_tools_of_a_server_get_its_name_in_front_and_work() -> None:
    async def use(box: Toolbox) -> None:
        assert sorted(box.tools) == sorted(
            f"small_{name}"
            for name in ("add", "whoami", "fail", "die", "seen", "odd_name_with_signs", "slow")
        )
        assert box.tools["small_add"].toolset == "mcp-small"
        assert (await ask(box, "small_add", a=2, b=3)).content == "5"
        assert (await ask(box, "small_odd_name_with_signs")).content == "odd"
        gathered = await asyncio.gather(*(ask(box, "small_add", a=n, b=n) for n in range(10)))
        assert [one.content for one in gathered] == [str(2 * n) for n in range(10)]

    with_tools(small(), use)


def test_arguments_are_checked_before_they_are_sent_and_failures_are_results() -> None:
    async def use(box: Toolbox) -> None:
        wrong = await ask(box, "small_add", a="x", b=3)
        assert wrong.failed
        assert "a: expected integer" in wrong.content
        failed = await ask(box, "small_fail")
        assert failed.failed
        assert "fail" in failed.content
        assert (await ask(box, "small_add", a=1, b=1)).content == "2"

    with_tools(small(), use)


def test_our_secrets_stay_here_and_those_in_the_settings_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def use(box: Toolbox) -> None:
        assert (await ask(box, "small_seen", name="OPENAI_API_KEY")).content == "not set"
        assert (await ask(box, "small_seen", name="SMALL")).content == "yes"

    with_tools(small(env={"SMALL": "yes"}), use)


def test_a_server_that_was_killed_is_started_again() -> None:
    async def use(box: Toolbox) -> None:
        first = (await ask(box, "small_whoami")).content
        os.kill(int(first), signal.SIGKILL)
        second = await ask(box, "small_whoami")
        assert not second.failed
        assert second.content != first

    with_tools(small(), use)


def test_a_server_that_dies_during_a_call_makes_it_fail_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    server = Server("small", command=sys.executable, args=(SCRIPT, "starts", str(starts)))

    async def use(box: Toolbox) -> None:
        died = await ask(box, "small_die")
        assert died.failed
        assert "died during the call" in died.content
        assert len(starts.read_text().split()) == 1  # the call was not sent a second time
        assert (await ask(box, "small_add", a=1, b=1)).content == "2"
        assert len(starts.read_text().split()) == 2

    with_tools(server, use)


def test_a_server_that_does_not_come_back_is_a_failed_result(tmp_path: Path) -> None:
    link = tmp_path / "server.py"
    link.write_text(Path(SCRIPT).read_text())

    async def use(box: Toolbox) -> None:
        pid = int((await ask(box, "small_whoami")).content)
        link.unlink()
        os.kill(pid, signal.SIGKILL)
        gone = await ask(box, "small_add", a=1, b=1)
        assert gone.failed
        assert "small cannot be reached" in gone.content

    with_tools(Server("small", command=sys.executable, args=(str(link),)), use)


def test_a_call_that_takes_too_long_fails_and_the_server_goes_on() -> None:
    async def use(box: Toolbox) -> None:
        pid = (await ask(box, "small_whoami")).content
        late = await ask(box, "small_slow")
        assert late.failed
        assert "within 1 s" in late.content or "imed out" in late.content
        assert (await ask(box, "small_whoami")).content == pid

    with_tools(small(seconds=1.0), use)


def test_cancelling_a_call_is_passed_on_and_the_server_goes_on() -> None:
    async def use(box: Toolbox) -> None:
        task = asyncio.create_task(ask(box, "small_slow"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(box, "small_add", a=1, b=1)).content == "2"

    with_tools(small(), use)


def test_closing_ends_the_server() -> None:
    pids: list[int] = []

    async def use(box: Toolbox) -> None:
        pids.append(int((await ask(box, "small_whoami")).content))

    with_tools(small(), use)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_server_that_cannot_be_reached_does_not_keep_others_away() -> None:
    async def main() -> None:
        missing = Server("missing", command="/nonexistent/server")
        silent = Server("silent", command="true")
        tools, connections, problems = await connect([missing, small(), silent])
        assert len(tools) == 7
        assert [problem.split()[0] for problem in problems] == ["missing", "silent"]
        for one in connections:
            await one.close()

    asyncio.run(main())


@pytest.fixture
def over_http() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "http", str(port)],
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
        assert (await ask(box, "net_add", a=2, b=3)).content == "5"
        assert (await ask(box, "net_fail")).failed
        os.kill(int((await ask(box, "net_whoami")).content), signal.SIGKILL)
        gone = await ask(box, "net_add", a=2, b=3)
        assert gone.failed
        assert "net" in gone.content

    with_tools(Server("net", url=over_http, headers={"X-Test": "1"}), use)


# -- settings


def test_settings_become_servers() -> None:
    settings = {
        "files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "timeout": 5},
        "net": {
            "type": "http",
            "url": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer x"},
        },
        "off": {"command": "x", "enabled": False},
    }
    files, net = servers_from(settings)
    assert files == Server("files", command="npx", args=("-y", "x"), env={"A": "b"}, seconds=5.0)
    assert net.url == "https://example.com/mcp"
    assert net.headers == {"Authorization": "Bearer x"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"a b": {"command": "x"}}, "mcp.servers.a b: 'a b' is not allowed as a name"),
        ({"a": "x"}, "mcp.servers.a: expected a table"),
        ({"a": {}}, "mcp.servers.a: needs either command"),
        ({"a": {"command": "x", "url": "http://x"}}, "mcp.servers.a: needs either command"),
        ({"a": {"url": "ftp://x"}}, "mcp.servers.a.url: 'ftp://x' is not allowed"),
        ({"a": {"command": "x", "args": "y"}}, "mcp.servers.a.args: expected a list of texts"),
        ({"a": {"command": "x", "args": [1]}}, "mcp.servers.a.args: expected a list of texts"),
        ({"a": {"command": "x", "env": {"K": 1}}}, "mcp.servers.a.env.K: expected a text"),
        ({"a": {"command": "x", "timeout": 0}}, "mcp.servers.a.timeout: 0 is not allowed"),
        (
            {"a": {"command": "x", "comand": 0}},
            "mcp.servers.a.comand: no such setting; allowed: command",
        ),
    ],
)
def test_wrong_settings_are_refused_with_their_names(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        servers_from(settings)
    assert str(caught.value).startswith(said)
