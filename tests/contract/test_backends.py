"""What holds of every place that is reached through a shell. The registry's suite runs on them too."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rekindle.errors import BackendUnreachable, InputClosed, InvalidInput, ProcessStartFailed
from rekindle.processes.backends import remote
from rekindle.processes.backends.base import ProcessSpec, RunningProcess, TerminalSize, Vanished
from rekindle.processes.backends.container import ContainerTransport
from rekindle.processes.backends.exec_command import create_apptainer_transport
from rekindle.processes.backends.modal import ModalTransport
from rekindle.processes.backends.registry import open_backend
from rekindle.processes.backends.remote import RemoteBackend, ScriptTransport
from rekindle.processes.backends.ssh import SshTransport
from tests import remote_hosts
from tests.processes import runs
from tests.waiting import PATIENCE

PLACES = ("container", "ssh", "apptainer", "modal")
Open: TypeAlias = Callable[[], RemoteBackend]


class Kept:
    """All output, in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def total(self) -> int:
        return len(self.data)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Makes the place anew each time, as another program would."""
    kind = request.param
    if kind == "container":
        box: remote_hosts.Podman = request.getfixturevalue("podman")
        return lambda: RemoteBackend(f"container:{box.name}", ContainerTransport(box.name, box.url))
    if kind == "ssh":
        host: remote_hosts.Sshd = request.getfixturevalue("sshd")
        return lambda: RemoteBackend(
            f"ssh:{host.target}", SshTransport(host.target, **host.options)
        )
    if kind == "apptainer":
        remote_hosts.apptainer_shim(tmp_path)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return lambda: RemoteBackend("apptainer:box", create_apptainer_transport("box"))
    return lambda: RemoteBackend(
        "modal:sb-box", ModalTransport("sb-box", remote_hosts.ModalStandIn())
    )


def spec(*argv: str, **fields: Any) -> ProcessSpec:
    known: dict[str, Any] = {"cwd": "", "env": {}, "pty": None, "folder": Path()}
    return ProcessSpec(f"p{secrets.token_hex(6)}", argv, **{**known, **fields})


@asynccontextmanager
async def started(opened: Open, what: ProcessSpec) -> AsyncGenerator[tuple[RunningProcess, Kept]]:
    one = opened()
    process, output = await one.start(what), Kept()
    copying = asyncio.create_task(process.copy_output(output))
    try:
        yield process, output
    finally:
        await process.kill(0)
        await asyncio.wait_for(copying, PATIENCE)
        await process.clean_up()
        await one.close()


async def until(output: Kept, text: bytes) -> None:
    while text not in output.data:
        await asyncio.sleep(0.02)


async def ended(process: RunningProcess, output: Kept, last: bytes) -> int | None:
    code = await process.wait()
    await until(output, last)
    return code


@runs
async def test_output_and_exit_code_come_back(place: Open) -> None:
    what = spec("sh", "-c", 'printf "%s\\n" "$1"; echo err >&2; exit 3', "x", "it's “ä”\\n $HOME")
    async with started(place, what) as (process, output):
        assert await ended(process, output, b"err\n") == 3
        assert output.data.decode() == "it's “ä”\\n $HOME\nerr\n"


@runs
async def test_environment_and_folder_are_those_asked_for(place: Open) -> None:
    what = spec("sh", "-c", 'echo "$SAID in $PWD"', cwd="/proc", env={"SAID": "it's\ntwo lines"})
    async with started(place, what) as (process, output):
        assert await ended(process, output, b"/proc\n") == 0
        assert output.data == b"it's\ntwo lines in /proc\n"


@runs
async def test_input_reaches_it_until_it_is_closed(place: Open) -> None:
    async with started(place, spec("cat")) as (process, output):
        said = bytes(range(256)) * 40
        assert await process.write(said) == len(said)
        await until(output, said)
        await process.close_stdin()
        assert await process.wait() == 0
        with pytest.raises(InputClosed):
            await process.write(b"too late")


@runs
async def test_input_that_nobody_reads_is_given_back_and_does_not_come_later(
    place: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "WRITE_TIMEOUT", "1")
    script = "trap go=1 USR1; echo deaf; until [ $go ]; do sleep 0.1; done; wc -c"
    async with started(place, spec("sh", "-c", script)) as (process, output):
        await until(output, b"deaf\n")
        said = b"x" * 100_000  # a pipe holds 65,536
        taken = await process.write(said)
        assert taken < len(said)
        await process.signal(signal.SIGUSR1)
        await process.close_stdin()
        assert await process.wait() == 0
        while output.data.count(b"\n") < 2:  # the last output may come after the exit code
            await asyncio.sleep(0.02)
        assert int(output.data.split()[1]) == taken


@runs
async def test_what_cannot_be_started_is_an_error_and_leaves_nothing(place: Open) -> None:
    one = place()
    for what, why in (
        (spec("no-such-program"), "no-such-program"),
        (spec("sh", cwd="/no/such/folder"), "/no/such/folder"),
        (spec("/proc/version"), "not a program"),
    ):
        with pytest.raises(ProcessStartFailed, match=why):
            await one.start(what)
        assert isinstance(await one.find(what, {}, 0), Vanished)
    await one.close()


@runs
async def test_a_terminal_has_its_size_and_takes_what_is_typed(place: Open) -> None:
    what = spec(
        "sh", "-c", "tty; stty size; read x; stty size; echo $x; exit 4", pty=TerminalSize(30, 100)
    )
    async with started(place, what) as (process, output):
        await until(output, b"30 100")
        assert b"not a tty" not in output.data
        await process.resize(TerminalSize(40, 120))
        await process.write(b"typed\n")
        assert await ended(process, output, b"typed\r\n") == 4
        assert b"40 120" in output.data


@runs
async def test_the_whole_tree_is_ended_however_stubborn(place: Open) -> None:
    stubborn = "trap '' TERM HUP INT; while :; do sleep 1; done"
    line = f'setsid sh -c "{stubborn}" & (sh -c "{stubborn}" &); echo ready; {stubborn}'
    what = spec("sh", "-c", line)
    async with started(place, what) as (process, output):
        await until(output, b"ready")
        await process.kill(0.2)
        assert await process.wait() == 137
        listing = spec("sh", "-c", f"grep -l {what.id} /proc/[0-9]*/environ 2>/dev/null; echo done")
        async with started(place, listing) as (_, found):
            await until(found, b"done\n")
            assert found.data == b"done\n"


@runs
async def test_it_goes_on_without_us_and_is_found_again_where_we_left(place: Open) -> None:
    what = spec("sh", "-c", "echo one; read x; echo two $x; exit 5")
    first = place()
    process, output = await first.start(what), Kept()
    copying = asyncio.create_task(process.copy_output(output))
    await until(output, b"one\n")
    copying.cancel()
    process.detach()
    await first.close()

    second = place()
    found = await second.find(what, process.ref, output.total)
    assert not isinstance(found, (Vanished, tuple))
    assert found.pid == process.pid
    copying = asyncio.create_task(found.copy_output(output))
    await found.write(b"again\n")
    assert await found.wait() == 5
    await copying
    assert output.data == b"one\ntwo again\n"

    third, last = place(), Kept()
    after = await third.find(what, process.ref, 0)
    assert not isinstance(after, (Vanished, tuple))
    await after.copy_output(last)
    assert await after.wait() == 5
    assert last.data == output.data
    await after.clean_up()
    assert isinstance(await third.find(what, process.ref, 0), Vanished)
    await second.close()
    await third.close()


@runs
async def test_megabytes_come_whole_and_in_order(place: Open) -> None:
    count = 150_000
    what = spec("awk", f'BEGIN {{ for (i = 0; i < {count}; i++) print "number " i }}')
    async with started(place, what) as (process, output):
        assert await ended(process, output, b"number %d\n" % (count - 1)) == 0
        assert output.data == b"".join(b"number %d\n" % number for number in range(count))


@runs
async def test_one_whose_shell_was_killed_is_lost_and_said_so(place: Open) -> None:
    what = spec("sh", "-c", "echo $PPID; sleep 60")
    async with started(place, what) as (process, output):
        await until(output, b"\n")
        kept = f"/tmp/rekindle-$(id -u)/{what.id}"
        killer = spec("sh", "-c", f"cd {kept}; kill -9 $(cat waiter) $(cat pid)")
        async with started(place, killer) as (other, _):
            await other.wait()
        found = await place().find(what, process.ref, output.total)
        assert isinstance(found, Vanished)
        assert "killed" in found.reason


@pytest.mark.parametrize("place", ["container", "ssh"], indirect=True)
@runs
async def test_a_broken_connection_loses_no_output(
    place: Open, request: pytest.FixtureRequest
) -> None:
    is_ssh = place().name.startswith("ssh")
    server = request.getfixturevalue("sshd" if is_ssh else "podman")
    what = spec("sh", "-c", "echo before; read x; echo after; exit 6")
    async with started(place, what) as (process, output):
        await until(output, b"before\n")
        server.cut()
        if not is_ssh:
            with pytest.raises(BackendUnreachable):
                await process.write(b"lost\n")
            server.start()
        await process.write(b"go\n")
        assert await ended(process, output, b"after\n") == 6
        assert output.data == b"before\nafter\n"


def test_a_place_that_is_none_is_refused_and_nothing_runs_here() -> None:
    for name in ("", "docker", "ssh:", "moon:base", "Local"):
        with pytest.raises(InvalidInput, match="expected local"):
            open_backend(name)


@runs
async def test_nothing_meant_for_a_sandbox_runs_here_when_it_is_not_there(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    lines: list[ScriptTransport] = [
        ContainerTransport("no-such-box", "unix:///nonexistent.sock"),
        SshTransport("nobody@127.0.0.1:1"),
        create_apptainer_transport("box", "no-such-apptainer"),
        ModalTransport("sb-none", remote_hosts.ModalStandIn()),
    ]
    for line in lines:
        with pytest.raises(BackendUnreachable):
            await RemoteBackend("gone", line).start(spec("touch", str(mark)))
        await line.close()
    assert not mark.exists()
