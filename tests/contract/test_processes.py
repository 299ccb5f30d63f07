"""What holds of background processes, whoever keeps them and wherever they run: start, output, wait."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rekindle.errors import InvalidInput, ProcessStartFailed
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.operations import Processes
from tests.contract.ways import here
from tests.processes import OWNER, QUICK, Kept, output_of, runs, sh, supervisor_of
from tests.waiting import PATIENCE, until

# -- starting


@runs
async def test_a_started_process_has_an_id_a_pid_and_runs(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        assert one.state == "running"
        assert one.pid
        assert kept.alive(one.pid)
        assert [p.id for p in await processes.list(owner=OWNER)] == [one.id]


@runs
async def test_output_exit_code_and_state_come_back(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "echo out; echo err >&2; exit 3")
        waited = await processes.wait(one.id, PATIENCE)
        assert (waited.output, waited.timed_out) == ("out\nerr\n", False)
        assert (waited.process.state, waited.process.exit_code) == ("exited", 3)
        assert waited.process.ended


@runs
async def test_a_signal_from_elsewhere_is_an_exit_code(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "kill -9 $$")
        process = (await processes.wait(one.id, PATIENCE)).process
        assert (process.state, process.exit_code) == ("exited", 137)


@here
@runs
async def test_folder_and_environment_are_those_asked_for(kept: Kept, tmp_path: Path) -> None:
    async with kept() as processes:
        env = {"PATH": os.environ["PATH"], "SAID": "it's\nä"}
        one = await sh(
            processes, 'echo "$SAID" in "$PWD" ${HOME-no home}', cwd=str(tmp_path), env=env
        )
        assert (await processes.wait(one.id, PATIENCE)).output == f"it's\nä in {tmp_path} no home\n"


@here
@runs
async def test_a_script_that_names_no_interpreter_is_one_for_the_shell(
    kept: Kept, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1" and "$2"; exit 3\n')
    script.chmod(0o755)
    async with kept() as processes:
        one = await processes.start([str(script), "one", "a b"], owner=OWNER)
        waited = await processes.wait(one.id, PATIENCE)
        assert (waited.output, waited.process.exit_code) == ("one and a b\n", 3)


@pytest.mark.parametrize(
    ("argv", "cwd", "said"),
    [
        (["no-such-program-anywhere"], "", "command not found in PATH"),
        (["/no/such/program"], "", "no such program"),
        (["/etc/passwd"], "", "is not executable"),
        (["/"], "", "folder"),
        (["true"], "/no/such/folder", "/no/such/folder does not exist"),
        (["true"], "/etc/passwd", "not a folder"),
        (["{tmp}/script"], "", "interpreter /no/such/interpreter"),
        (["{tmp}/loader"], "", "not found"),
    ],
)
@here
@runs
async def test_what_cannot_be_executed_is_an_error_and_no_process(
    kept: Kept, tmp_path: Path, argv: list[str], cwd: str, said: str
) -> None:
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    # The loader that this program asks for does not exist, which only the kernel finds out.
    program = Path("/bin/true").read_bytes().replace(b"/ld-linux", b"/no-linux")
    (tmp_path / "loader").write_bytes(program)
    for name in ("script", "loader"):
        (tmp_path / name).chmod(0o755)
    async with kept() as processes:
        words = [word.format(tmp=tmp_path) for word in argv]
        with pytest.raises(ProcessStartFailed, match=said):
            await processes.start(words, owner=OWNER, cwd=cwd)
        assert await processes.list() == []
        folder = tmp_path / "home" / "processes"
        assert [path.name for path in folder.iterdir() if path.is_dir()] == []


@runs
async def test_what_no_program_can_be_given_is_refused(kept: Kept) -> None:
    async with kept() as processes:
        for argv, more in (
            ([], {}),
            (["true", "a\0b"], {}),
            (["true"], {"env": {"A=B": "x"}}),
            (["true"], {"env": {"A": "\0"}}),
            (["true"], {"pty": TerminalSize(0, 80)}),
            (["true"], {"backend": "nowhere"}),
        ):
            with pytest.raises(InvalidInput):
                await processes.start(argv, owner=OWNER, **more)
        assert await processes.list() == []


# -- output


@runs
async def test_each_reader_sees_what_came_since_its_own_last_look(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "echo a; read x; echo b; read x")
        await output_of(processes, one.id, "a\n")
        assert (await processes.poll(one.id, reader="x")).output == "a\n"
        assert (await processes.poll(one.id, reader="x")).output == ""
        await processes.submit(one.id, "")
        await output_of(processes, one.id, "b\n")
        assert (await processes.poll(one.id, reader="x")).output == "b\n"
        assert (await processes.poll(one.id, reader="y")).output == "a\nb\n"


@runs
async def test_what_no_longer_fits_is_dropped_and_counted(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, r"head -c 1000000 /dev/zero | tr '\0' x; printf end")
        waited = await processes.wait(one.id, PATIENCE)
        assert len(waited.output) == 200 * 1024
        assert waited.output.endswith("xend")
        assert waited.dropped == waited.process.dropped == 1_000_003 - 200 * 1024
        assert waited.process.bytes == 1_000_003


@runs
async def test_a_character_is_never_cut(kept: Kept) -> None:
    written = " ".join(f"'\\{byte:03o}'" for byte in "ä€😀".encode())
    async with kept() as processes:
        one = await sh(processes, f'for byte in {written}; do printf "$byte"; read x; done')
        said = ""
        for count in range(1, 10):
            await until(lambda: _bytes(processes, one.id, count))  # noqa: B023
            piece = (await processes.poll(one.id)).output
            assert "�" not in piece
            said += piece
            await processes.submit(one.id, "")
        assert said == "ä€😀"


async def _bytes(processes: Processes, id: str, count: int) -> bool:
    return (await processes.read_log(id, tail=0)).process.bytes == count


@runs
async def test_the_log_is_read_by_tail_by_lines_and_behind_a_byte(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "for i in 1 2 3 4 5; do echo line $i; done")
        await processes.wait(one.id, PATIENCE)
        assert (await processes.read_log(one.id, tail=2)).output == "line 4\nline 5\n"
        assert (await processes.read_log(one.id, offset=1, limit=2)).output == "line 2\nline 3\n"
        first = await processes.read_log(one.id, limit=2)
        assert (first.output, first.lines) == ("line 1\nline 2\n", 5)
        assert (
            await processes.read_log(one.id, since=first.end)
        ).output == "line 3\nline 4\nline 5\n"


@runs
async def test_control_sequences_are_stripped_on_request(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, r"printf '\033[31mred\033[0m 10%%\r20%%\n'")
        await processes.wait(one.id, PATIENCE)
        assert (await processes.read_log(one.id)).output == "20%\n"
        raw = await processes.read_log(one.id, plain=False)
        assert raw.output == "\x1b[31mred\x1b[0m 10%\r20%\n"


@runs
async def test_a_live_stream_has_every_byte_and_ends_with_the_process(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "for i in 1 2 3; do echo $i; sleep 0.1; done; printf last")
        pieces = [chunk async for chunk in processes.attach(one.id)]
        assert b"".join(chunk.data for chunk in pieces) == b"1\n2\n3\nlast"
        assert pieces[-1].end == 10


@pytest.mark.parametrize("kept", ["supervisor"], indirect=True)
@runs
async def test_a_look_does_not_wait_for_a_supervisor_that_is_busy(
    kept: Kept, tmp_path: Path
) -> None:
    async with kept() as processes:
        one = await sh(processes, "echo ready; sleep 30")
        await output_of(processes, one.id, "ready")
        supervisor = supervisor_of(tmp_path / "home" / "processes")
        assert supervisor
        os.kill(supervisor, signal.SIGSTOP)
        try:
            async with asyncio.timeout(20):
                polled = await processes.poll(one.id, owner=OWNER)
        finally:
            os.kill(supervisor, signal.SIGCONT)
        assert (polled.output, polled.process.state) == ("ready\n", "running")


# -- waiting


@runs
async def test_a_wait_returns_the_output_so_far_when_its_time_is_over(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "echo so far; sleep 30")
        await output_of(processes, one.id, "so far")
        waited = await processes.wait(one.id, 0.1)
        assert (waited.timed_out, waited.output, waited.clamped) == (True, "so far\n", None)


@runs
async def test_a_wait_that_is_too_long_is_clamped_and_says_so(kept: Kept) -> None:
    async with kept(QUICK._replace(wait=0.2)) as processes:
        one = await sh(processes, "sleep 30")
        waited = await processes.wait(one.id, 1000)
        assert (waited.timed_out, waited.clamped) == (True, 0.2)


@runs
async def test_a_wait_can_be_cancelled_and_the_process_goes_on(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        waiting = asyncio.create_task(processes.wait(one.id, 60))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await processes.poll(one.id)).process.state == "running"
