"""Further stores to open in a test, and ways to keep background processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import aiodocker
import psycopg
import pytest

from rekindle import Store, open_store
from rekindle.processes import connection
from tests.conftest import Clock
from tests.contract.ways import WAYS
from tests.processes import Kept
from tests.remote_hosts import Podman, Sshd
from tests.servers import Postgres, find_quick_folder
from tests.warm_supervisors import WarmSupervisors

Schema = Callable[[], str]
Opened = Callable[..., Store]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where there is plenty: to wait for a disk takes longer than most tests."""
    if (quick := find_quick_folder()) is None:
        yield tmp_path_factory.mktemp("test")
        return
    folder = Path(tempfile.mkdtemp(prefix="rekindle-test-", dir=quick))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def schema(postgres: Postgres) -> Schema:
    """Call it for the URL of a new, empty schema, which is a place for a store as well."""
    url, numbers = postgres.database(), count(1)

    def schema() -> str:
        name = f"store_{next(numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # pyright: ignore
        return f"{url}?options=-csearch_path%3D{name}"

    return schema


@pytest.fixture
def another(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Opened]:
    """Open further empty stores of either engine."""
    opened: list[Store] = []

    def another(engine: str = "sqlite") -> Store:
        target = str(tmp_path / f"other{len(opened)}.db")
        if engine != "sqlite":
            target = request.getfixturevalue("store_database")()
        opened.append(open_store(target, clock=clock))
        return opened[-1]

    yield another
    for store in opened:
        store.close()


@pytest.fixture(scope="session")
def warm_supervisors() -> Iterator[WarmSupervisors]:
    with WarmSupervisors() as started:
        yield started


@pytest.fixture(params=WAYS)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    keeper, _, kind = request.param.partition(", ")
    folder = tmp_path / "home" / "processes"
    if keeper == "supervisor":  # test_processes_crash.py starts each by its command
        warm: WarmSupervisors = request.getfixturevalue("warm_supervisors")
        monkeypatch.setattr(connection, "_run_supervisor", warm.run)
    if kind == "container":
        box: Podman = request.getfixturevalue("podman")
        monkeypatch.setenv("DOCKER_HOST", box.url)
        # Podman asks the package manager when a client asks for its version (test_backends.py does).
        monkeypatch.setattr(aiodocker, "Docker", partial(aiodocker.Docker, api_version="v1.41"))
        return Kept(keeper, folder, f"container:{box.name}", box.proc)
    if kind == "ssh":
        host: Sshd = request.getfixturevalue("sshd")
        monkeypatch.setenv("HOME", str(host.home))
        return Kept(keeper, folder, f"ssh:{host.target}")
    return Kept(keeper, folder, groups=kind == "control group")
