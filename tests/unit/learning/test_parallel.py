"""Judging, learning and replaying give the same bytes wherever the work is done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from rekindle import Message, Store, open_store
from rekindle.learning.notes.learner import VERSION, learn_from_sessions
from rekindle.learning.notes.replay import UNFINISHED_FOLDER, replay_projects
from rekindle.learning.verdicts.judged_sessions import judge_sessions
from rekindle.learning.verdicts.session_outcomes import judge_outcomes
from rekindle.parallel import SERIAL, ChunkMapper, open_mapper
from rekindle.parallel.tasks import Prepare, make_task, read_result, run_task
from tests.new_store import open_new_store
from tests.unit.web.histories import tell

TABLES = ("calls", "judged_sessions", "session_outcomes", "observations", "playbooks", "folders")


class StorelessMapper:
    """Sends all work through bytes to a worker that sees no file of ours."""

    workers = 3
    chunk_seconds = 0.25

    def map_chunks(
        self, function: Any, chunks: Sequence[Any], *, prepare: Prepare | None = None
    ) -> Iterator[Any]:
        assert prepare is not None
        for chunk in chunks:
            task = make_task(function, chunk, prepare)
            assert b"StoreReader" not in task.data
            yield read_result(chunk.name, run_task(task))

    def can_open(self, path: str) -> bool:
        return False


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("original") / "sessions.db"
    with open_new_store(file) as store:
        for number in range(16):
            fixed = [("go vet ./...", "error: no build cache", False)] if number % 3 == 0 else []
            tell(
                store,
                f"s{number}",
                *fixed,
                ("env GOCACHE=/tmp/c go vet ./...", "ok", True),
                (f"make check-{number % 2}", "ok", True),
                folder=f"/gone/work/shop{number % 2}",
                asked=f"please always run make check-{number % 2} before the \udc80 commit",
                started=1.7e9 + number,
            )
        store.append("s3", Message("user", "thanks, that works now"))
        store.archive_session("s5")
    return file


@pytest.fixture(scope="module")
def pool() -> Iterator[ChunkMapper]:
    with open_mapper(2, min_seconds=0.0) as mapper:
        yield mapper


def read_tables(file: Path) -> dict[str, list[Any]]:
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    return {table: list(connection.execute(f"SELECT * FROM {table}")) for table in TABLES}


def do_everything(
    original: Path, file: Path, mapper: ChunkMapper
) -> tuple[dict[str, list[Any]], list[Any]]:
    shutil.copy(original, file)
    with open_store(file) as store:
        judge_sessions(store, mapper=mapper)
        judge_outcomes(store, mapper=mapper)
        learn_from_sessions(store, mapper=mapper)
        replayed = replay_projects(store, mapper=mapper)
    return read_tables(file), replayed


def test_the_results_are_the_same_everywhere(
    original: Path, tmp_path: Path, pool: ChunkMapper
) -> None:
    expected = do_everything(original, tmp_path / "a.db", SERIAL)
    assert {table: len(rows) > 0 for table, rows in expected[0].items()} == dict.fromkeys(
        TABLES, True
    )
    assert len(expected[1][0].scores) == 5  # of sixteen: two projects, and one session is archived
    assert do_everything(original, tmp_path / "b.db", pool) == expected
    assert do_everything(original, tmp_path / "c.db", StorelessMapper()) == expected


def test_a_session_that_is_deleted_meanwhile_is_left_out(original: Path, tmp_path: Path) -> None:
    class DeletingMapper(StorelessMapper):
        calls = 0

        def map_chunks(
            self, function: Any, chunks: Sequence[Any], *, prepare: Prepare | None = None
        ) -> Iterator[Any]:
            if self.calls < 2:  # while it judges, and while it observes
                store.prune_session(f"s{self.calls}")
            self.calls += 1
            return super().map_chunks(function, chunks, prepare=prepare)

    shutil.copy(original, tmp_path / "a.db")
    with open_store(tmp_path / "a.db", active_seconds=0) as store:
        learn_from_sessions(store, mapper=DeletingMapper())
        found = store.observations.load_sessions([f"s{n}" for n in range(16)], VERSION)
    assert sorted(found) == sorted(f"s{n}" for n in range(2, 16))


def test_a_replay_goes_on_where_it_was(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(original, tmp_path / "a.db")
    monkeypatch.setattr("rekindle.learning.notes.replay.SECONDS_PER_SESSION", 1.0)
    with open_store(tmp_path / "a.db") as store:
        expected = replay_projects(store)
        _interrupt_replay(store, tmp_path)
        kept = sorted((tmp_path / UNFINISHED_FOLDER).iterdir())
        assert len(kept) == 2
        made: list[str] = []
        found = replay_projects(store, mapper=_CountingMapper(made), home=tmp_path)
    assert found == expected
    assert len(made) == 3
    assert not (tmp_path / UNFINISHED_FOLDER).exists()


class _CountingMapper:
    workers = 1
    chunk_seconds = 0.25

    def __init__(self, made: list[str], limit: int = 1_000) -> None:
        self._made, self._limit = made, limit

    def map_chunks(
        self, function: Any, chunks: Sequence[Any], *, prepare: Prepare | None = None
    ) -> Iterator[Any]:
        for chunk, result in zip(chunks, SERIAL.map_chunks(function, chunks), strict=True):
            if len(self._made) == self._limit:
                raise KeyboardInterrupt
            self._made.append(chunk.name)
            yield result

    def can_open(self, path: str) -> bool:
        return True


def _interrupt_replay(store: Store, home: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        replay_projects(store, mapper=_CountingMapper([], limit=2), home=home)
