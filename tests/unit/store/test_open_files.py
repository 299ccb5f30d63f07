"""A store keeps its locks: nothing opens and closes its file beside SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rekindle import Message, open_store
from rekindle.transcripts.detect import FileHead
from tests.waiting import PATIENCE

OTHER = """
import sys
from rekindle import Message, open_store
with open_store(sys.argv[1]) as store:
    store.append(store.begin(id=sys.argv[2]), Message("user", "from another process"))
"""


def visit(path: Path, name: str) -> None:
    """Another process opens the store, writes, and closes it again."""
    subprocess.run([sys.executable, "-c", OTHER, str(path), name], check=True, timeout=PATIENCE)


def test_a_process_that_comes_and_goes_does_not_take_the_log_of_the_one_that_made_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    with open_store(path) as store:
        visit(path, "first")
        store.append(store.begin(id="mine"), Message("user", "kept?"))
        log = Path(f"{path}-wal")
        assert log.exists()
        visit(path, "second")
        assert {one.id for one in store.recent()} == {"first", "mine", "second"}
    with open_store(path) as store:
        assert {one.id for one in store.recent()} == {"first", "mine", "second"}
        assert store.verify() == []


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="locks cannot be seen here")
def test_the_file_is_locked_as_long_as_a_store_is_open(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    first = open_store(path)
    second = open_store(path)
    first.append(first.begin(), Message("user", "hi"))
    number = f":{path.stat().st_ino} "

    def is_locked() -> bool:
        return number in Path("/proc/locks").read_text()

    assert is_locked()
    FileHead.read(path)  # a look for transcripts finds our own store
    assert is_locked()
    first.close()
    second.append(second.begin(), Message("user", "hi"))
    assert is_locked()
    second.close()
    assert not is_locked()
