"""What holds when background processes are killed, or their keeper goes, wherever they run."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rekindle.errors import InputClosed, InvalidInput
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.types import Watch
from tests.contract.ways import elsewhere, lasting, trees
from tests.processes import NASTY, OWNER, Kept, alive, output_of, python, runs, sh
from tests.waiting import PATIENCE, until

# -- killing


@pytest.mark.parametrize("pty", [None, TerminalSize()], ids=["pipes", "terminal"])
@runs
async def test_a_polite_program_may_clean_up_when_it_is_killed(
    kept: Kept, pty: TerminalSize | None
) -> None:
    async with kept() as processes:
        script = (
            "exec 2>&-; trap 'echo bye; exit 7' TERM HUP; echo up; while :; do sleep 0.05; done"
        )
        one = await sh(processes, script, pty=pty)
        await output_of(processes, one.id, "up")
        killed = await processes.kill(one.id)
        assert (killed.state, killed.exit_code) == ("killed", 7)
        assert (await processes.read_log(one.id)).output == "up\nbye\n"


@runs
async def test_a_signal_reaches_the_program_and_only_that(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "trap 'echo got it' USR1; echo up; while :; do sleep 0.05; done")
        await output_of(processes, one.id, "up")
        await processes.signal(one.id, signal.SIGUSR1)
        await output_of(processes, one.id, "got it")
        assert (await processes.poll(one.id)).process.state == "running"
        with pytest.raises(InvalidInput):
            await processes.signal(one.id, 4000)
        await processes.kill(one.id)
        with pytest.raises(InputClosed):
            await processes.signal(one.id, signal.SIGUSR1)


@pytest.mark.parametrize("pty", [None, TerminalSize()], ids=["pipes", "terminal"])
@trees
@runs
async def test_nothing_of_a_tree_is_left_after_a_kill(
    kept: Kept, tmp_path: Path, pty: TerminalSize | None
) -> None:
    """Children that ignore the polite signal, fork twice, start sessions and clear their names."""
    async with kept() as processes:
        pids = tmp_path / "pids"
        one = await processes.start(python(NASTY, str(pids)), owner=OWNER, pty=pty)
        await until(lambda: pids.exists() and pids.read_text().count("\n") == 3)
        tree = [int(pid) for pid in pids.read_text().split()]
        assert all(kept.alive(pid) for pid in tree)
        killed = await processes.kill(one.id)
        assert (killed.state, killed.exit_code) == ("killed", 137)
        assert [pid for pid in tree if kept.alive(pid)] == []


@elsewhere
@pytest.mark.parametrize("pty", [None, TerminalSize()], ids=["pipes", "terminal"])
@runs
async def test_nothing_of_a_tree_is_left_elsewhere_either(
    kept: Kept, pty: TerminalSize | None
) -> None:
    """Children that ignore the polite signal, fork twice and start sessions."""
    stays = "echo $$; while :; do sleep 1; done"
    script = f"trap '' TERM HUP; (setsid sh -c '{stays}' &); sh -c '{stays}' & {stays}"
    async with kept() as processes:
        one = await sh(processes, script, pty=pty)

        async def all_there() -> bool:
            return (await processes.read_log(one.id)).output.count("\n") == 3

        await until(all_there)
        tree = [int(pid) for pid in (await processes.read_log(one.id)).output.split()]
        assert all(kept.alive(pid) for pid in tree)
        killed = await processes.kill(one.id)
        assert (killed.state, killed.exit_code) == ("killed", 137)
        assert [pid for pid in tree if kept.alive(pid)] == []


@trees
@runs
async def test_a_program_that_keeps_forking_is_ended_whole(kept: Kept, tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork() == 0:  # the child goes on, the parent ends: never the same process for long
        time.sleep(0.005)
        continue
    os.setsid() if os.getpid() != os.getsid(0) else None
    time.sleep(0.02)
    os._exit(0) if os.getppid() != int(sys.argv[1]) else time.sleep(0.05)
"""
    async with kept() as processes:
        one = await processes.start(python(code, str(os.getpid())), owner=OWNER)
        await asyncio.sleep(0.3)
        await processes.kill(one.id)
        assert _marked(one.id) == []


def _marked(id: str) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/environ").read_bytes() if name.isdigit() else b""
        except OSError:
            continue
        if f"REKINDLE_PROCESS={id}".encode() in words.split(b"\0") and alive(int(name)):
            found.append(int(name))
    return found


@runs
async def test_a_stopped_program_is_ended_too(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "kill -STOP $$; echo never")
        await asyncio.sleep(0.1)
        assert (await processes.kill(one.id)).state == "killed"
        assert one.pid
        assert not kept.alive(one.pid)


@runs
async def test_a_kill_after_the_end_ends_what_was_left_behind(kept: Kept) -> None:
    async with kept() as processes:
        # From elsewhere the last words take a while, if somebody still holds the output open.
        one = await sh(processes, f"sleep 300 {'' if kept.here else '>/dev/null'} & echo $!")
        waited = await processes.wait(one.id, PATIENCE)
        assert waited.process.state == "exited"
        child = int(waited.output)
        assert kept.alive(child)
        assert (await processes.kill(one.id)).state == "exited"
        assert not kept.alive(child)


# -- when its keeper goes


@lasting
@pytest.mark.parametrize("pty", [None, TerminalSize()], ids=["pipes", "terminal"])
@runs
async def test_it_outlives_its_keeper_and_is_found_again(
    kept: Kept, pty: TerminalSize | None
) -> None:
    async with kept(leave=True) as processes:
        script = "stty -echo 2>/dev/null; echo one; read x; echo two $x; exit 5"
        one = await sh(processes, script, pty=pty, watches=[Watch("end", note="n")])
        await output_of(processes, one.id, "one\n")
        assert (await processes.poll(one.id, reader="x")).output == "one\n"
    assert one.pid
    assert kept.alive(one.pid)
    async with kept() as processes:
        (found,) = await processes.list()
        assert (found.id, found.state, found.pid) == (one.id, "running", one.pid)
        await processes.submit(one.id, "again")
        waited = await processes.wait(one.id, PATIENCE, reader="x")
        assert (waited.output, waited.process.exit_code) == ("two again\n", 5)
        assert [(e.kind, e.note) for e in await processes.fetch_events(wait=20)] == [("end", "n")]


@lasting
@runs
async def test_what_ended_while_nobody_looked_is_told_by_the_next_keeper(kept: Kept) -> None:
    async with kept(leave=True) as processes:
        one = await sh(processes, "echo one; read x; sleep 0.5; echo two; exit 6")
        await output_of(processes, one.id, "one\n")
        await processes.submit(one.id, "")
    pid = one.pid
    assert pid
    await until(lambda: not kept.alive(pid))
    async with kept() as processes:
        waited = await processes.wait(one.id, PATIENCE)
        assert (waited.process.state, waited.process.exit_code) == ("exited", 6)
        assert waited.output == "one\ntwo\n"
