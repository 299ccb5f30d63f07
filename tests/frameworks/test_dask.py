"""Work on a Dask cluster: two worker processes on this machine, one of which is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from distributed import Client

import rekindle
from rekindle import open_store
from rekindle.errors import SchedulerUnreachable, WorkFailed
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.replay import replay_projects
from rekindle.learning.verdicts.judged_sessions import judge_sessions
from rekindle.learning.verdicts.session_outcomes import judge_outcomes
from rekindle.parallel import SERIAL, ChunkMapper, dask_cluster, open_mapper
from tests.acceptance.test_cli import Rekindle
from tests.new_store import open_new_store
from tests.unit.learning.test_parallel import read_tables
from tests.unit.parallel import work
from tests.unit.parallel.test_mapper import count_traces, make_chunks
from tests.unit.web.histories import tell
from tests.waiting import wait_until

_PATHS = (Path(rekindle.__file__).parents[1], Path(__file__).parents[2])


class Cluster(NamedTuple):
    address: str
    log: Path

    def list_processes(self) -> list[int]:
        with Client(self.address, set_as_default=False) as client:
            return list(client.run(os.getpid).values())


def start_dask(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, _PATHS)),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    }
    with open(folder / "dask.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *words, "--no-dashboard"],
            stdout=log,
            stderr=log,
            env=env,
            cwd=folder,
        )


def start_scheduler(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a scheduler that chooses its port; return its address."""
    file = folder / "scheduler.json"
    words = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
    process = start_dask(folder, "scheduler", *words)

    def read_address() -> str:
        try:
            return json.loads(file.read_text())["address"]
        except (OSError, ValueError):
            return ""

    wait_until(read_address)
    return process, read_address()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("dask")
    scheduler, address = start_scheduler(folder)
    words = ("--host", "127.0.0.1", "--nworkers", "2", "--nthreads", "1")
    started = [scheduler, start_dask(folder, "worker", address, *words)]
    try:
        with Client(address, timeout=120, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        yield Cluster(address, folder / "dask.log")
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


@pytest.fixture(scope="module")
def mapper(cluster: Cluster) -> Iterator[ChunkMapper]:
    with open_mapper(scheduler=cluster.address) as mapper:
        yield mapper


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("original") / "sessions.db"
    with open_new_store(file) as store:
        for number in range(40):
            failed = [("go vet ./...", "error: no build cache", False)] if number % 3 == 0 else []
            tell(
                store,
                f"s{number:02}",
                *failed,
                *((f"make check-{step}", "ok", True) for step in range(number % 5 + 1)),
                folder=f"/gone/work/shop{number % 4}",
                asked="the password is hunter2-Zx81, please fix the build",
                started=1.7e9 + number,
            )
    return file


def do_everything(file: Path, mapper: ChunkMapper, progress: Any = None) -> list[Any]:
    with open_store(file) as store:
        judge_sessions(store, mapper=mapper, progress=progress)
        learn_from_sessions(store, mapper=mapper)
        judge_outcomes(store, mapper=mapper)
        replayed = replay_projects(store, mapper=mapper)
    return [read_tables(file), replayed]


@pytest.mark.parametrize("sees_store", [True, False])
def test_the_results_are_those_of_one_process_though_a_worker_is_killed(
    cluster: Cluster,
    mapper: ChunkMapper,
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sees_store: bool,
) -> None:
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if not killed:
            killed.append(cluster.list_processes()[0])
            os.kill(killed[0], signal.SIGKILL)

    for name in ("here.db", "there.db"):
        shutil.copy(original, tmp_path / name)
    assert mapper.can_open(str(tmp_path / "there.db"))
    if not sees_store:
        monkeypatch.setattr(mapper, "can_open", lambda path: False)  # pyright: ignore
    expected = do_everything(tmp_path / "here.db", SERIAL)
    assert do_everything(tmp_path / "there.db", mapper, kill_one) == expected
    assert killed


def test_a_chunk_whose_worker_dies_is_done_again(mapper: ChunkMapper, tmp_path: Path) -> None:
    assert list(mapper.map_chunks(work.die_once, make_chunks(tmp_path))) == [0, 2, 4, 6, 8, 10]
    assert count_traces(tmp_path)["step-2"] == 2


def test_a_chunk_that_waits_at_a_dying_worker_is_not_blamed(
    mapper: ChunkMapper, tmp_path: Path
) -> None:
    results = mapper.map_chunks(work.die_always, make_chunks(tmp_path, 12))
    assert [next(results), next(results)] == [0, 2]
    with pytest.raises(WorkFailed, match="The work on step 2 failed: its worker died 2 times"):
        next(results)


def test_errors_name_the_chunk_and_logs_show_no_content(
    cluster: Cluster, mapper: ChunkMapper, tmp_path: Path
) -> None:
    secret = tmp_path / "hunter2-Zx81"
    secret.mkdir()
    with pytest.raises(WorkFailed, match="The work on step 2 failed: ValueError: two is not all"):
        list(mapper.map_chunks(work.fail, make_chunks(secret)))
    with pytest.raises(WorkFailed, match="The work on step 2 failed: its worker died 2 times"):
        list(mapper.map_chunks(work.die_always, make_chunks(secret)))
    log = cluster.log.read_text(errors="replace")
    assert "Starting established connection" in log or "Worker" in log
    assert "hunter2" not in log


def test_the_command_learns_on_the_cluster(
    cluster: Cluster, original: Path, tmp_path: Path
) -> None:
    command = Rekindle(tmp_path)
    found: list[Any] = []
    for name, where in (("a.db", ("--jobs", "1")), ("b.db", ("--scheduler", cluster.address))):
        shutil.copy(original, tmp_path / name)
        learned = command.json("--store", tmp_path / name, "warm", "learn", *where)
        shown = command.json("--store", tmp_path / name, "insights", "--all", *where)
        found.append((learned, shown, read_tables(tmp_path / name)))
    assert found[0] == found[1]
    assert found[0][0]["sessions"] == 40


def test_a_scheduler_that_is_away_or_has_no_workers_is_a_plain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(
                SchedulerUnreachable, match=f"Cannot reach the Dask scheduler at {address}"
            ),
            open_mapper(scheduler=address),
        ):
            pass
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 120)
    monkeypatch.setattr(dask_cluster, "NO_WORKER_SECONDS", 0.1)
    scheduler, address = start_scheduler(tmp_path)
    try:
        with (
            pytest.raises(SchedulerUnreachable, match=f"No worker has connected to {address}"),
            open_mapper(scheduler=address),
        ):
            pass
    finally:
        scheduler.terminate()
        scheduler.wait()
