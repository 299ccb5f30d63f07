"""What holds of background processes, whoever keeps them and wherever they run.

`WAYS` are who keeps them, and where they run if not on this machine. Elsewhere is a real container
and a real sshd. A test runs in all ways, if no mark (`here` and those beside it) says why not.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rekindle.errors import (
    InputClosed,
    InvalidInput,
    NotFound,
    ProcessStartFailed,
    TooManyProcesses,
)
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.operations import Processes
from rekindle.processes.types import Process, ProcessEvent, Watch
from tests.processes import (
    NASTY,
    OWNER,
    QUICK,
    Kept,
    alive,
    output_of,
    python,
    runs,
    supervisor_of,
)
from tests.remote_hosts import Podman, Sshd
from tests.waiting import until

ELSEWHERE = ("embedded, container", "embedded, ssh")
HERE = ("embedded", "supervisor")
WAYS = (*HERE, *ELSEWHERE)

# What these tests ask for is of this machine alone: its folders and files, its /proc, what its own
# checks say before a start, and a tree whose members throw away all that marks them (only a
# subreaper finds those). What other places have of it is asked in test_places.py, by their means.
here = pytest.mark.parametrize("kept", HERE, indirect=True)
# A control group is one more way to find a tree, and nothing else.
trees = pytest.mark.parametrize("kept", [*HERE, "embedded, control group"], indirect=True)
# The children of these are what can be found in every place; `here` has harder ones.
elsewhere = pytest.mark.parametrize("kept", ELSEWHERE, indirect=True)
# An embedded registry holds the pipes of this machine itself: they go with it.
lasting = pytest.mark.parametrize(
    "kept", ["supervisor", "supervisor, ssh", "embedded, container"], indirect=True
)


@pytest.fixture(params=WAYS)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    keeper, _, kind = request.param.partition(", ")
    folder = tmp_path / "home" / "processes"
    if kind == "container":
        box: Podman = request.getfixturevalue("podman")
        monkeypatch.setenv("DOCKER_HOST", box.url)
        return Kept(keeper, folder, f"container:{box.name}", box.proc)
    if kind == "ssh":
        host: Sshd = request.getfixturevalue("sshd")
        monkeypatch.setenv("HOME", str(host.home))
        return Kept(keeper, folder, f"ssh:{host.target}")
    return Kept(keeper, folder, groups=kind == "control group")


async def sh(processes: Processes, script: str, **more: object) -> Process:
    return await processes.start(["sh", "-c", script], **{"owner": OWNER, **more})  # type: ignore


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
        waited = await processes.wait(one.id, 20)
        assert (waited.output, waited.timed_out) == ("out\nerr\n", False)
        assert (waited.process.state, waited.process.exit_code) == ("exited", 3)
        assert waited.process.ended


@runs
async def test_a_signal_from_elsewhere_is_an_exit_code(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "kill -9 $$")
        process = (await processes.wait(one.id, 20)).process
        assert (process.state, process.exit_code) == ("exited", 137)


@here
@runs
async def test_folder_and_environment_are_those_asked_for(kept: Kept, tmp_path: Path) -> None:
    async with kept() as processes:
        env = {"PATH": os.environ["PATH"], "SAID": "it's\nä"}
        one = await sh(
            processes, 'echo "$SAID" in "$PWD" ${HOME-no home}', cwd=str(tmp_path), env=env
        )
        assert (await processes.wait(one.id, 20)).output == f"it's\nä in {tmp_path} no home\n"


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
        waited = await processes.wait(one.id, 20)
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
    program = Path("/bin/true").read_bytes().replace(b"/lib64/ld-linux", b"/nolib/ld-linux")
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
        waited = await processes.wait(one.id, 20)
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
        await processes.wait(one.id, 20)
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
        await processes.wait(one.id, 20)
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


# -- input


@runs
async def test_input_reaches_a_program_without_a_terminal(kept: Kept) -> None:
    async with kept() as processes:
        one = await processes.start(["cat"], owner=OWNER)
        assert (await processes.write(one.id, "no newline ")).accepted == 11
        await processes.submit(one.id, "ä")
        await processes.close_stdin(one.id)
        await processes.close_stdin(one.id)
        waited = await processes.wait(one.id, 20)
        assert (waited.output, waited.process.exit_code) == ("no newline ä\n", 0)
        with pytest.raises(InputClosed):
            await processes.write(one.id, "late")


@runs
async def test_more_input_than_a_pipe_holds_arrives_whole(kept: Kept) -> None:
    count = 1_000_000 if kept.here else 100_000  # a pipe holds 65,536
    async with kept() as processes:
        one = await processes.start(["wc", "-c"], owner=OWNER)
        assert await processes.write(one.id, b"x" * count) == (count, count)
        await processes.close_stdin(one.id)
        assert (await processes.wait(one.id, 20)).output.strip() == str(count)


@runs
async def test_a_terminal_has_a_size_an_echo_and_a_prompt(kept: Kept) -> None:
    script = "[ -t 0 ] && [ -t 1 ] && stty size; printf 'name? '; read name; echo hello $name"
    async with kept() as processes:
        one = await sh(processes, script, pty=TerminalSize(30, 90))
        assert "30 90" in await output_of(processes, one.id, "name? ")
        await processes.submit(one.id, "ada")
        waited = await processes.wait(one.id, 20)
        assert waited.output.endswith("name? ada\nhello ada\n")
        assert waited.process.pty


@runs
async def test_a_terminal_can_change_its_size_and_interrupt(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(
            processes,
            "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done",
            pty=TerminalSize(),
        )
        await output_of(processes, one.id, "ready")
        await processes.resize(one.id, TerminalSize(40, 100))
        await output_of(processes, one.id, "40 100")
        await processes.write(one.id, "\x03")
        process = (await processes.wait(one.id, 20)).process
        assert (process.state, process.exit_code) == ("exited", 130)


@runs
async def test_the_end_of_input_can_be_typed_at_a_terminal(kept: Kept) -> None:
    async with kept() as processes:
        one = await processes.start(["cat"], owner=OWNER, pty=TerminalSize())
        await processes.submit(one.id, "line")
        await processes.close_stdin(one.id)
        assert (await processes.wait(one.id, 20)).process.exit_code == 0


@runs
async def test_a_size_is_refused_without_a_terminal(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        with pytest.raises(InvalidInput, match="no terminal"):
            await processes.resize(one.id, TerminalSize())


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
        waited = await processes.wait(one.id, 20)
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
        waited = await processes.wait(one.id, 20, reader="x")
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
        waited = await processes.wait(one.id, 20)
        assert (waited.process.state, waited.process.exit_code) == ("exited", 6)
        assert waited.output == "one\ntwo\n"


# -- owners and limits


@runs
async def test_no_action_reaches_the_process_of_another_owner(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        assert await processes.list(owner="eve") == []
        id, eve = one.id, "eve"
        for act in (
            processes.poll(id, owner=eve),
            processes.read_log(id, owner=eve),
            processes.wait(id, 1, owner=eve),
            processes.kill(id, owner=eve),
            processes.write(id, "x", owner=eve),
            processes.submit(id, "x", owner=eve),
            processes.close_stdin(id, owner=eve),
            processes.resize(id, TerminalSize(), owner=eve),
            processes.watch(id, Watch("end"), owner=eve),
            processes.unwatch(id, 1, owner=eve),
            anext(processes.attach(id, owner=eve)),
        ):
            with pytest.raises(NotFound):
                await act
        assert (await processes.poll(id, owner=OWNER)).process.state == "running"


@runs
async def test_secrets_are_not_in_the_list(kept: Kept) -> None:
    async with kept() as processes:
        secret = "ghp_" + "a8Kd93jfLqP0xZr7Tn2vWm5sBy1cE4uG6hQo"
        await processes.start(
            ["sh", "-c", "sleep 30", f"--token={secret}"], owner=OWNER, env={"KEY": secret}
        )
        assert secret not in repr(await processes.list())


@runs
async def test_an_owner_has_only_so_many_processes(kept: Kept) -> None:
    async with kept(QUICK._replace(per_owner=2)) as processes:
        both = await asyncio.gather(sh(processes, "sleep 30"), sh(processes, "sleep 30"))
        with pytest.raises(TooManyProcesses):
            await sh(processes, "sleep 30")
        await sh(processes, "sleep 30", owner="grace")
        await processes.kill(both[0].id)
        assert (await sh(processes, "true")).state in ("running", "exited")


@runs
async def test_closing_an_owner_ends_all_of_its_processes_and_no_others(kept: Kept) -> None:
    async with kept() as processes:
        mine = [await sh(processes, "sleep 30") for _ in range(3)]
        other = await sh(processes, "sleep 30", owner="grace")
        assert await processes.count_live(OWNER) == 3
        assert await processes.kill_all(OWNER) == 3
        assert await processes.count_live(OWNER) == 0
        assert [p.pid for p in mine if p.pid and kept.alive(p.pid)] == []
        assert (await processes.poll(other.id)).process.state == "running"


@runs
async def test_a_finished_process_is_forgotten_some_time_after_its_end(
    kept: Kept, tmp_path: Path
) -> None:
    async with kept(QUICK._replace(finished=0.4)) as processes:
        long = await sh(processes, "sleep 30")
        short = await sh(processes, "true")
        await processes.wait(short.id, 20)

        async def gone() -> bool:
            return short.id not in [p.id for p in await processes.list()]

        await until(gone)
        assert [p.id for p in await processes.list()] == [long.id]
        await until(lambda: not (tmp_path / "home" / "processes" / short.id).exists())


# -- watching


@runs
async def test_an_end_is_reported_until_it_is_acknowledged(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "echo done; exit 4", watches=[Watch("end", note="to the chat")])
        events = await processes.fetch_events(owner=OWNER, wait=20)
        assert [(e.kind, e.process.id, e.process.exit_code) for e in events] == [("end", one.id, 4)]
        assert (events[0].text, events[0].note) == ("done\n", "to the chat")
        assert await processes.fetch_events(owner=OWNER) == events
        assert await processes.fetch_events(owner="eve") == []
        await processes.ack_events([events[0].number], owner="eve")
        assert await processes.fetch_events(owner=OWNER) == events
        await processes.ack_events([events[0].number], owner=OWNER)
        assert await processes.fetch_events(owner=OWNER) == []


@runs
async def test_a_pattern_is_found_across_pieces_and_reported_once(kept: Kept) -> None:
    async with kept() as processes:
        script = "printf 'a REA'; read x; printf 'DY now'; read x; echo ' then'; read x"
        one = await sh(processes, script, watches=[Watch("pattern", pattern="READY")])
        await output_of(processes, one.id, "REA")
        assert await processes.fetch_events(wait=0.2) == []
        await processes.submit(one.id, "")
        (event,) = await processes.fetch_events(wait=20)
        assert (event.kind, event.text) == ("pattern", "a READY now")
        await processes.ack_events([event.number])
        await processes.submit(one.id, "")
        await output_of(processes, one.id, "then")
        assert await processes.fetch_events(wait=0.5) == []


@runs
async def test_reports_that_come_too_fast_are_held_back_and_counted(kept: Kept) -> None:
    async with kept(QUICK._replace(gap=1.0)) as processes:
        script = "echo hit 1; read x; for i in 2 3 4 5 6; do echo hit $i; sleep 0.05; done; read x"
        one = await sh(processes, script, watches=[Watch("pattern", pattern="hit")])
        first = await processes.fetch_events(wait=20)
        await processes.submit(one.id, "")
        await processes.ack_events([e.number for e in first])
        second = await processes.fetch_events(wait=20)
        assert [e.text for e in first + second] == ["hit 1", "hit 6"]
        assert sum(e.suppressed for e in second) == 4


@runs
async def test_a_report_comes_at_every_interval(kept: Kept) -> None:
    async with kept() as processes:
        script = "echo one; read x; echo two; sleep 30"
        one = await sh(processes, script, watches=[Watch("interval", seconds=1)])

        async def reported(word: str) -> list[ProcessEvent]:
            """The reports until one tells of the word; a busy machine may be late to say it."""
            events: list[ProcessEvent] = []
            while word not in "".join(e.text for e in events):
                events += await processes.fetch_events(wait=20)
                await processes.ack_events([e.number for e in events])
            return events

        first = await reported("one")
        await processes.submit(one.id, "")
        second = await reported("two")
        assert "".join(e.text for e in first + second) == "one\ntwo\n"
        assert {e.kind for e in first + second} == {"interval"}
        await processes.unwatch(one.id, first[0].watch)
        await processes.ack_events([e.number for e in await processes.fetch_events(wait=0)])
        assert await processes.fetch_events(wait=1.3) == []


@runs
async def test_a_pattern_that_would_take_for_ever_is_given_up(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, f"echo {'a' * 60}; sleep 30")
        await output_of(processes, one.id, "aaa")
        await processes.watch(one.id, Watch("pattern", pattern="(a+)+$x"))
        await processes.watch(one.id, Watch("end"))
        await sh(processes, "true")
        await processes.kill(one.id)
        kinds = {e.kind for e in await processes.fetch_events(wait=20)}
        assert kinds <= {"end", "stopped"}


@runs
async def test_watches_that_mean_nothing_are_refused(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        for watch in (Watch("pattern", pattern="("), Watch("pattern"), Watch("interval")):
            with pytest.raises(InvalidInput):
                await processes.watch(one.id, watch)
