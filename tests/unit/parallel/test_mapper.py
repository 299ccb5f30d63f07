"""Mapping chunks of work over processes: order, death, errors, and going on after an interruption."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.errors import InvalidInput, WorkFailed
from rekindle.parallel import SERIAL, Chunk, ChunkMapper, group_items, open_mapper
from rekindle.parallel.finished import FinishedChunks, resume_chunks
from rekindle.parallel.process_pool import ProcessPool
from rekindle.parallel.tasks import make_task
from rekindle.store.address import StoreAddress
from tests.unit.parallel import work
from tests.unit.parallel.work import Step
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    pool = ProcessPool(2)
    yield pool
    pool.close()


def make_chunks(folder: Path, count: int = 6) -> list[Chunk[Step]]:
    return [Chunk(f"step {n}", Step(n, str(folder)), 1.0) for n in range(count)]


def count_traces(folder: Path) -> dict[str, int]:
    return {one.name: one.stat().st_size for one in sorted(folder.iterdir())}


def test_results_come_in_order_from_processes_of_their_own(
    pool: ProcessPool, tmp_path: Path
) -> None:
    found = list(pool.map_chunks(work.double, make_chunks(tmp_path, 20)))
    assert [number for number, _ in found] == [2 * n for n in range(20)]
    assert os.getpid() not in {process for _, process in found}
    assert set(count_traces(tmp_path).values()) == {1}


def test_a_killed_worker_costs_its_chunk_only(pool: ProcessPool, tmp_path: Path) -> None:
    assert list(pool.map_chunks(work.die_once, make_chunks(tmp_path))) == [0, 2, 4, 6, 8, 10]
    assert count_traces(tmp_path) == {f"step-{n}": 2 if n == 2 else 1 for n in range(6)}


def test_a_chunk_that_kills_every_worker_is_named(pool: ProcessPool, tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match="The work on step 2 failed: its worker died 3 times"):
        list(pool.map_chunks(work.die_always, make_chunks(tmp_path)))
    assert list(pool.map_chunks(work.die_once, make_chunks(tmp_path, 2))) == [0, 2]


def test_an_error_in_a_chunk_names_it(pool: ProcessPool, tmp_path: Path) -> None:
    for mapper in (SERIAL, pool):
        with pytest.raises(WorkFailed) as raised:
            list(mapper.map_chunks(work.fail, make_chunks(tmp_path)))
        assert str(raised.value) == ("The work on step 2 failed: ValueError: two is not allowed"), (
            mapper
        )


def test_what_a_worker_prints_does_not_get_between_the_answers(
    pool: ProcessPool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert list(pool.map_chunks(work.print_and_double, make_chunks(tmp_path, 3))) == [0, 2, 4]


def test_workers_end_with_their_pool(tmp_path: Path) -> None:
    pool = ProcessPool(1)
    results = pool.map_chunks(work.double, make_chunks(tmp_path, 3))
    assert next(results)[0] == 0
    processes = pool.list_process_ids()
    pool.close()
    assert len(processes) == 1
    wait_until(lambda: not any(os.path.exists(f"/proc/{one}") for one in processes))


def test_short_work_starts_no_process(tmp_path: Path) -> None:
    chunks = [one._replace(seconds=0.1) for one in make_chunks(tmp_path)]
    with open_mapper(2) as mapper:
        found = list(mapper.map_chunks(work.double, chunks))
    assert {process for _, process in found} == {os.getpid()}


def test_one_job_is_this_process(tmp_path: Path) -> None:
    with open_mapper(1) as mapper:
        assert mapper is SERIAL
    with pytest.raises(InvalidInput, match="jobs: expected 0 or more"), open_mapper(-1):
        pass


@pytest.mark.parametrize("address", ["10.0.0.5:8786", "tcp://host", "http://h:1", "tcp://u:p@h:1"])
def test_a_wrong_address_of_a_scheduler_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="expected tcp://HOST:PORT"), open_mapper(0, address):
        pass


def test_finished_chunks_are_not_made_again(tmp_path: Path) -> None:
    traces, kept = tmp_path / "traces", tmp_path / "home" / "kept"
    traces.mkdir()
    chunks = make_chunks(traces)
    keys = [one.name.replace(" ", "-") for one in chunks]

    def run(mapper: ChunkMapper) -> Iterator[tuple[int, int]]:
        finished: FinishedChunks[tuple[int, int]] = FinishedChunks(kept, tuple[int, int])
        return resume_chunks(mapper, work.double, chunks, keys, finished)

    first = run(SERIAL)
    assert [next(first)[0] for _ in range(3)] == [0, 2, 4]
    first.close()  # type: ignore[attr-defined]  # a generator
    (kept / keys[1]).write_bytes(b"\xc1 damaged")
    assert [number for number, _ in run(SERIAL)] == [0, 2, 4, 6, 8, 10]
    assert count_traces(traces) == {f"step-{n}": 2 if n == 1 else 1 for n in range(6)}
    assert {one.stat().st_mode & 0o777 for one in kept.iterdir()} == {0o600}
    assert kept.stat().st_mode & 0o777 == 0o700


def test_chunks_keep_order_and_groups_and_are_about_equal() -> None:
    items = [("a", 0.1), ("a", 0.1), ("a", 0.9), ("b", 0.1), ("b", 0.1), ("b", 0.1)]
    chunks = group_items(
        items, lambda one: one[1], lambda one: one[0], get_group=lambda one: one[0]
    )
    assert [len(one.work) for one in chunks] == [2, 1, 2, 1]
    assert [item for one in chunks for item in one.work] == items
    assert [one.name for one in chunks] == ["a to a", "a", "b to b", "b"]
    assert group_items([], lambda _: 1.0, str) == []


@pytest.mark.parametrize("workers", [2, 16])
@pytest.mark.parametrize("chunk_seconds", [0.25, 1.0])
def test_no_worker_waits_long_for_the_last_chunk_of_another(
    workers: int, chunk_seconds: float
) -> None:
    rest = 100.0
    chunks = group_items(
        range(10_000), lambda _: 0.01, str, workers=workers, chunk_seconds=chunk_seconds
    )
    assert chunks[0].seconds == pytest.approx(chunk_seconds, abs=0.011)
    for chunk in chunks:  # the others could do what follows meanwhile
        assert chunk.seconds <= max(0.06, rest / workers / 2)
        rest -= chunk.seconds
    assert rest == pytest.approx(0, abs=1e-6)
    assert len(chunks) < 100 / chunk_seconds * 1.3 + 20 * workers
    assert [item for chunk in chunks for item in chunk.work] == [*range(10_000)]


def test_nothing_secret_is_in_what_logs_show() -> None:
    address = StoreAddress("postgresql://ada:hunter2@db/x", "postgresql://ada:…@db/x")
    task = make_task(work.double, Chunk("session a", address), None)
    assert "hunter2" not in repr(task) + repr(address)
    assert pickle.loads(pickle.dumps(address)) == address
    assert repr(pickle.loads(pickle.dumps(task))) == "<task session a>"
