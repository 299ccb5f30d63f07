"""Background processes when programs are killed, disks are full, and names are taken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rekindle.errors import JournalUnwritable, ProcessError, SupervisorUnavailable
from rekindle.processes import connection, protocol
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.backends.local import process_tree
from rekindle.processes.client import ProcessClient
from rekindle.processes.state.journal import Journal, ProcessRecord
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.supervisor.supervisor import SOCKET
from rekindle.processes.types import Process, Watch
from tests.acceptance.faults import read_only_view, small_disk
from tests.processes import (
    NASTY,
    OWNER,
    QUICK,
    alive,
    embedded,
    output_of,
    python,
    runs,
    stop,
    supervised,
    supervisor_of,
)
from tests.waiting import PATIENCE, until
from tests.warm_supervisors import WarmSupervisors

COUNTING = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.05; done; exit 7"


STARTED_BY_COMMAND = (
    "test_two_clients_that_start_at_once_share_one_supervisor",
    "test_a_module_in_the_folder_one_is_in_is_not_run",
    "test_a_process_of_a_revived_supervisor_is_like_any_other",
)


@pytest.fixture(autouse=True)
def start_quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the first supervisor unless its start matters; a keeper starts the next by its command."""
    if request.node.originalname not in STARTED_BY_COMMAND:
        warm: WarmSupervisors = request.getfixturevalue("warm_supervisors")
        monkeypatch.setattr(connection, "_run_supervisor", warm.run)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "processes"


async def sh(client: ProcessClient | ProcessRegistry, script: str, **more: object) -> Process:
    return await client.start(["sh", "-c", script], **{"owner": OWNER, **more})  # type: ignore


def keeper_of(folder: Path) -> int:
    """The keeper: the parent of nobody, known by the socket it listens at."""
    where = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    where.connect(str(protocol.get_socket_folder(folder) / "keeper.sock"))
    pid = protocol.get_peer_credentials(where)[0]
    where.close()
    return pid


def kill_supervisor(folder: Path) -> int:
    pid = supervisor_of(folder)
    assert pid
    os.kill(pid, signal.SIGKILL)
    return pid


# -- the supervisor is killed


@pytest.mark.parametrize("pty", [None, TerminalSize()], ids=["pipes", "terminal"])
@runs
async def test_processes_go_on_when_the_supervisor_is_killed(
    folder: Path, pty: TerminalSize | None
) -> None:
    async with supervised(folder) as client:
        one = await sh(client, COUNTING, pty=pty)
        cat = await client.start(["cat"], owner=OWNER, pty=pty)
        for _ in range(3):
            await asyncio.sleep(0.3)
            kill_supervisor(folder)
            found = {p.id: p for p in await client.list()}
            assert (found[cat.id].state, found[cat.id].pid) == ("running", cat.pid)
        await client.submit(cat.id, "still there")
        await output_of(client, cat.id, "still there")
        waited = await client.wait(one.id, PATIENCE)
        assert (waited.process.state, waited.process.exit_code) == ("exited", 7)
        assert waited.output == "".join(f"line {i}\n" for i in range(1, 41))


@runs
async def test_a_live_stream_goes_on_with_the_next_supervisor(folder: Path) -> None:
    async with supervised(folder) as client:
        one = await sh(client, COUNTING)
        data = b""
        async for chunk in client.attach(one.id):
            if not data:
                kill_supervisor(folder)
            data += chunk.data
        assert data.decode() == "".join(f"line {i}\n" for i in range(1, 41))


@runs
async def test_a_process_that_ended_without_a_supervisor_has_its_exit_code(folder: Path) -> None:
    async with supervised(folder) as client:
        one = await sh(client, "sleep 0.5; echo last words; exit 9", watches=[Watch("end")])
        keeper = keeper_of(folder)
        os.kill(keeper, signal.SIGSTOP)  # so that it starts no other one
        kill_supervisor(folder)
        await until(lambda: not alive(one.pid or 0))
        os.kill(keeper, signal.SIGCONT)
        waited = await client.wait(one.id, PATIENCE)
        assert (waited.process.state, waited.process.exit_code) == ("exited", 9)
        assert waited.output == "last words\n"
        assert [e.kind for e in await client.fetch_events(wait=5)] == ["end"]


@runs
async def test_the_keeper_starts_a_supervisor_so_that_nobody_stands_still(folder: Path) -> None:
    async with supervised(folder) as client:
        pids = folder / "done"
        code = f"import sys; sys.stdout.write('x' * 500_000); open({str(pids)!r}, 'w')"
        one = await sh(client, f'sleep 0.3; exec {sys.executable} -c "{code}"')
        kill_supervisor(folder)
        await until(pids.exists)  # more than a pipe holds, and no client asked
        assert (await client.wait(one.id, PATIENCE)).process.bytes == 500_000


@runs
async def test_a_dead_keeper_is_replaced(folder: Path) -> None:
    async with supervised(folder) as client:
        one = await sh(client, COUNTING)
        first = keeper_of(folder)
        os.kill(first, signal.SIGKILL)
        await until(lambda: _another_holds(folder, first))
        kill_supervisor(folder)
        waited = await client.wait(one.id, PATIENCE)
        assert waited.output.count("\n") == 40
        assert waited.process.exit_code == 7


@pytest.mark.parametrize("which", [0, 1, 2], ids=["spawner", "shim", "its child"])
@runs
async def test_a_spawner_that_was_killed_is_replaced(folder: Path, which: int) -> None:
    async with supervised(folder) as client:
        first = await client.start(["sleep", "30"], owner=OWNER)
        await until(lambda: len(_ready(supervisor_of(folder))) == 3)
        os.kill(_ready(supervisor_of(folder))[which], signal.SIGKILL)
        for _ in range(2):
            starts = [client.start(["echo", str(n)], owner=OWNER) for n in range(5)]
            for number, one in enumerate(await asyncio.gather(*starts)):
                assert (await client.wait(one.id, PATIENCE)).output == f"{number}\n"
        assert (await client.poll(first.id)).process.state == "running"


def _ready(supervisor: int | None) -> list[int]:
    """The spawner, and the two forks that stand ready."""
    forks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (seen := process_tree.read_process(int(folder.name))):
            with suppress(OSError):
                if b"spawner.py" in (folder / "cmdline").read_bytes() and not seen.dead:
                    forks[int(folder.name)] = seen.ppid
    for pid, shim in forks.items():
        spawner = forks.get(shim, 0)
        if forks.get(spawner) == supervisor:
            return [spawner, shim, pid]
    return []


def _another_holds(folder: Path, first: int) -> bool:
    """Whether another keeper has the pipes: that its socket is there comes a moment earlier."""
    try:
        now = keeper_of(folder)
        held = [os.readlink(file) for file in Path(f"/proc/{now}/fd").iterdir()]
    except OSError:
        return False
    return now not in (first, supervisor_of(folder)) and any(h.startswith("pipe:") for h in held)


@runs
async def test_with_keeper_and_supervisor_killed_a_quiet_process_goes_on(folder: Path) -> None:
    async with supervised(folder) as client:
        go = folder / "go"
        one = await sh(client, f"while [ ! -e {go} ]; do sleep 0.05; done; exit 6")
        loud = await sh(client, f"while [ ! -e {go} ]; do sleep 0.05; done; echo out; sleep 20")
        os.kill(keeper_of(folder), signal.SIGKILL)
        kill_supervisor(folder)
        found = {p.id: p.state for p in await client.list()}
        assert found[one.id] == "running"
        go.touch()
        process = (await client.wait(one.id, PATIENCE)).process
        assert (process.state, process.exit_code) == ("exited", 6)
        # What writes into a broken pipe is ended by the kernel; that is told as it is.
        process = (await client.wait(loud.id, PATIENCE)).process
        assert process.state in ("exited", "running")


@runs
async def test_a_kill_that_was_begun_is_brought_to_its_end(folder: Path, tmp_path: Path) -> None:
    async with supervised(folder) as client:
        pids = tmp_path / "pids"
        one = await client.start(python(NASTY, str(pids)), owner=OWNER)
        await until(lambda: pids.exists() and pids.read_text().count("\n") == 3)
        program = process_tree.read_process(one.pid or 0)
        assert program
        killing = asyncio.create_task(client.kill(one.id))
        await until(lambda: _is_stopped(program.ppid))  # a kill begins with this
        kill_supervisor(folder)
        killed = await killing
        assert killed.state == "killed"
        assert [pid for pid in map(int, pids.read_text().split()) if alive(pid)] == []


def _is_stopped(pid: int) -> bool:
    seen = process_tree.read_process(pid)
    return seen is not None and seen.state == "T"


@runs
async def test_a_process_whose_shim_was_killed_is_lost_and_says_so(folder: Path) -> None:
    async with supervised(folder) as client:
        one = await sh(client, "read x")
        program = process_tree.read_process(one.pid or 0)
        assert program
        os.kill(program.ppid, signal.SIGKILL)
        await until(lambda: not alive(program.ppid))
        await client.submit(one.id, "")
        process = (await client.wait(one.id, PATIENCE)).process
        assert (process.state, process.exit_code) == ("lost", None)
        assert "exit code was killed" in process.reason


# -- what the journal says


def planted(folder: Path, **fields: object) -> ProcessRecord:
    """A record that an earlier program left."""
    journal = Journal(folder)
    journal.prepare()
    known = {"owner": OWNER, "argv": ("sleep", "30"), "backend": "local", "started": time.time()}
    record = ProcessRecord(**{"id": "pearlier", **known, **fields})  # type: ignore[arg-type]
    journal.create(record)
    return record


@runs
async def test_a_start_that_a_crash_cut_short_is_told_plainly(folder: Path) -> None:
    planted(folder, state="starting")
    async with embedded(folder) as registry:
        (one,) = await registry.list()
        assert (one.state, one.exit_code) == ("failed", None)
        assert "never ran" in one.reason


@runs
async def test_a_recycled_process_id_is_not_the_process(folder: Path) -> None:
    other = subprocess.Popen(["sleep", "30"], start_new_session=True)
    seen = process_tree.read_process(other.pid)
    assert seen
    ref = {
        "pid": other.pid,
        "started": seen.started - 1,
        "boot": process_tree.get_boot_id(),
        "group": "",
    }
    planted(folder, state="running", ref=ref, pid=other.pid)
    async with embedded(folder) as registry:
        (one,) = await registry.list()
        assert one.state == "lost"
        await registry.kill(one.id)
        assert alive(other.pid)
    other.kill()
    other.wait()


@runs
async def test_after_a_restart_of_the_machine_nothing_is_taken_for_running(folder: Path) -> None:
    me = process_tree.read_process(os.getpid())
    assert me
    ref = {"pid": os.getpid(), "started": me.started, "boot": "another boot", "group": ""}
    planted(folder, state="running", ref=ref)
    async with embedded(folder) as registry:
        (one,) = await registry.list()
        assert one.state == "lost"
        assert "rebooted" in one.reason


@runs
async def test_a_clock_that_was_set_back_keeps_nothing_for_ever(folder: Path) -> None:
    planted(folder, state="exited", exit_code=0, ended=time.time() + 86_400)
    async with embedded(folder, QUICK._replace(finished=0.3)) as registry:
        assert len(await registry.list()) == 1

        async def gone() -> bool:
            return await registry.list() == []

        await until(gone)


# -- clients


@runs
async def test_a_client_killed_in_the_middle_of_output_loses_nothing(folder: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from rekindle.processes.client import ProcessClient
async def main():
    client = ProcessClient(Path({str(folder)!r}))
    one = await client.start(["sh", "-c", {COUNTING!r}], owner="ada")
    print(one.id, flush=True)
    async for chunk in client.attach(one.id):
        print(len(chunk.data), flush=True)
asyncio.run(main())
"""
    async with supervised(folder) as client:
        await client.count_live(OWNER)
        program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert program.stdout
        id = (await asyncio.to_thread(program.stdout.readline)).strip()
        await asyncio.to_thread(program.stdout.readline)
        program.kill()
        await asyncio.to_thread(program.wait)
        waited = await client.wait(id, PATIENCE)
        assert waited.process.exit_code == 7
        assert waited.output.count("\n") == 40


@runs
async def test_two_clients_that_start_at_once_share_one_supervisor(folder: Path) -> None:
    clients = [ProcessClient(folder, linger=20) for _ in range(4)]
    try:
        started = await asyncio.gather(*(sh(client, "sleep 30") for client in clients))
        for client in clients:
            assert {p.id for p in await client.list()} == {p.id for p in started}
        await clients[0].kill_all(OWNER)
    finally:
        for client in clients:
            await client.aclose()
        stop(folder)


@runs
async def test_a_stale_socket_is_no_hindrance(folder: Path) -> None:
    folder.mkdir(parents=True)
    protocol.prepare_socket_folder(protocol.get_socket_folder(folder))
    old = socket.socket(socket.AF_UNIX)
    old.bind(str(protocol.get_socket_folder(folder) / SOCKET))
    old.close()
    async with supervised(folder) as client:
        assert (await sh(client, "sleep 30")).state == "running"
        assert os.stat(protocol.get_socket_folder(folder) / SOCKET).st_mode & 0o777 == 0o600


@runs
async def test_an_old_supervisor_makes_room_for_a_newer_client(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(folder) as client:
        one = await sh(client, "sleep 30")
        first = supervisor_of(folder)
        newer = ProcessClient(folder)
        with monkeypatch.context() as patch:
            patch.setattr(connection, "__version__", "999.0")
            connected = newer._connection.try_connect()  # pyright: ignore[reportPrivateUsage]
            assert not await connected  # it has asked the old one to go, and it went
        assert supervisor_of(folder) is None
        found = await newer.list()
        assert [(p.id, p.state, p.pid) for p in found] == [(one.id, "running", one.pid)]
        assert supervisor_of(folder) != first
        await newer.aclose()


@runs
async def test_a_long_home_has_its_sockets_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40) / "processes"
    async with supervised(folder) as client:
        assert (await sh(client, "sleep 30")).state == "running"
        where = protocol.get_socket_folder(folder)
        assert where != folder
        assert os.stat(where).st_mode & 0o777 == 0o700
    assert not where.exists()


@runs
async def test_a_supervisor_goes_after_its_last_process_and_the_disk_tells_the_rest(
    folder: Path,
) -> None:
    async with supervised(folder, linger=0.3) as client:
        one = await sh(client, "echo said; exit 2", watches=[Watch("end")])
        await client.wait(one.id, PATIENCE)
        await until(lambda: supervisor_of(folder) is None)
        (found,) = await client.list()
        assert (found.id, found.state, found.exit_code) == (one.id, "exited", 2)
        assert (await client.read_log(one.id)).output == "said\n"
        assert (await client.poll(one.id, reader="new")).output == "said\n"
        assert (await client.wait(one.id, PATIENCE)).process.exit_code == 2
        assert [e.kind for e in await client.fetch_events()] == ["end"]
        assert [chunk.data async for chunk in client.attach(one.id)] == [b"said\n"]
        assert supervisor_of(folder) is None


@runs
async def test_only_one_program_keeps_a_folder(folder: Path) -> None:
    async with embedded(folder):
        with pytest.raises(SupervisorUnavailable, match="another program"):
            await ProcessRegistry.open(folder)


# -- the disk


@runs
async def test_a_full_disk_is_told_and_nothing_is_started(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "300k") as disk:
        async with embedded(disk / "processes") as registry:
            one = await sh(registry, "exit 3")  # its ring takes most of the space
            with pytest.raises(JournalUnwritable, match="no space left"):
                await sh(registry, "sleep 30")
            assert [p.id for p in await registry.list()] == [one.id]
            process = (await registry.wait(one.id, PATIENCE)).process
            assert (process.state, process.exit_code) == ("exited", 3)


@runs
async def test_the_exit_code_is_noted_on_a_disk_that_became_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "400k") as disk:
        registry = await ProcessRegistry.open(disk / "processes")
        one = await sh(registry, "read x; exit 3")
        with pytest.raises(OSError, match="space"):
            (disk / "rest").write_bytes(bytes(1 << 20))
        await registry.submit(one.id, "go")
        process = (await registry.wait(one.id, PATIENCE)).process
        assert (process.state, process.exit_code) == ("exited", 3)
        await registry.aclose()
        (disk / "rest").unlink()
        again = await ProcessRegistry.open(disk / "processes")
        (process,) = await again.list()
        assert (process.state, process.exit_code) == ("exited", 3)
        await again.aclose()


@runs
async def test_a_home_that_can_only_be_read_still_tells(folder: Path, tmp_path: Path) -> None:
    async with supervised(folder, linger=0.2) as client:
        one = await sh(client, "echo said; exit 2")
        await client.wait(one.id, PATIENCE)
        await until(lambda: supervisor_of(folder) is None)
    with read_only_view(folder.parent, tmp_path / "view") as view:
        reader = ProcessClient(view / "processes")
        assert [(p.id, p.exit_code) for p in await reader.list()] == [(one.id, 2)]
        assert (await reader.read_log(one.id)).output == "said\n"
        with pytest.raises(ProcessError, match=r"cannot be (started|written)"):
            await sh(reader, "true")
        await reader.aclose()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@runs
async def test_another_user_is_not_answered(folder: Path) -> None:
    code = """
import os, socket, sys
os.setuid(65534)
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
print(line.recv(100))
"""
    async with supervised(folder) as client:
        await sh(client, "sleep 30")
        path = protocol.get_socket_folder(folder) / SOCKET
        os.chmod(path, 0o666)  # as if the modes of the folders were not enough
        places = (Path("/tmp"), Path("/dev/shm"))  # where anybody may go
        place = next(one for one in places if one.stat().st_dev == path.stat().st_dev)
        link = place / f"rekindle-test-{os.getpid()}.sock"
        os.link(path, link)
        try:
            command = [sys.executable, "-c", code, str(link)]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE
            )
        finally:
            link.unlink()
        assert done.stdout == "b''\n"


def test_a_record_holds_no_value_of_the_environment(folder: Path) -> None:
    async def run() -> None:
        async with embedded(folder) as registry:
            env = {"PATH": os.environ["PATH"], "TOKEN": "very-secret-value"}
            one = await registry.start(["sleep", "30"], owner=OWNER, env=env)
            for path in (folder / one.id).iterdir():
                assert b"very-secret-value" not in path.read_bytes()
            assert json.loads((folder / one.id / "record.json").read_text())["argv"] == [
                "sleep",
                "30",
            ]

    asyncio.run(run())


@runs
async def test_a_process_of_a_revived_supervisor_is_like_any_other(folder: Path) -> None:
    """Signals, limits and the mask of new files are those that it would have had without us."""
    # Without the signals that the C library keeps for itself.
    asked = "grep SigBlk /proc/self/status; grep SigIgn /proc/self/status | tail -c 8"
    asked += "; ulimit -S -n; umask"
    here = subprocess.run(
        ["sh", "-c", asked],
        capture_output=True,
        text=True,
        check=True,
        restore_signals=True,
        # Whoever runs the tests may ignore the end of their terminal, as with `nohup`.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ).stdout
    async with supervised(folder) as client:
        stays = await sh(client, "sleep 30")
        first = await sh(client, asked)
        assert (await client.wait(first.id, PATIENCE)).output == here
        kill_supervisor(folder)
        await until(lambda: supervisor_of(folder) is not None)  # started by the keeper
        second = await sh(client, asked)
        assert (await client.wait(second.id, PATIENCE)).output == here
        assert (await client.kill(stays.id)).exit_code == 143


@runs
async def test_a_module_in_the_folder_one_is_in_is_not_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asyncio.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    async with supervised(folder) as client:
        assert (await sh(client, "sleep 30")).cwd == str(tmp_path)


@runs
async def test_short_names_in_the_environment_arrive_as_they_are(folder: Path) -> None:
    async with embedded(folder) as registry:
        env = {"PATH": os.environ["PATH"], **{name: f"<{name}>" for name in "abcdefgprst"}}
        one = await registry.start(["env"], owner=OWNER, env=env)
        said = (await registry.wait(one.id, PATIENCE)).output.splitlines()
        assert {f"{name}=<{name}>" for name in "abcdefgprst"} <= set(said)
