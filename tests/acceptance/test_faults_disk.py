"""A disk that is full, read-only or failing: a clear error, nothing lost, and on it goes."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, Store, ToolCall, open_store
from rekindle.errors import StoreFull, StoreReadOnly
from tests.acceptance.faults import (
    as_mortal,
    contents,
    read_only_view,
    run,
    run_command,
    small_disk,
    start,
    strace,
)
from tests.waiting import PATIENCE

ROOM = "3m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", ROOM) as place:
        yield place


def said(number: int) -> Message:
    noise = random.Random(number).randbytes(6000).hex(" ", 4)  # nothing to compress
    return Message(role="user", content=f"word{number} {noise}")


def fill(store: Store, session: str) -> int:
    """Append until there is no more room, not even at a third try; how many went in."""
    stored = refused = 0
    while refused < 3:
        try:
            store.append(store.begin(id=session), said(stored))
        except StoreFull:
            refused += 1
        else:
            stored, refused = stored + 1, 0
            assert stored < 1000
    return stored


def test_a_full_disk_is_a_clear_error_and_the_same_store_goes_on_with_space_again(
    disk: Path,
) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes(1_000_000))
    path = disk / "sessions.db"
    with open_store(path) as store:
        stored = fill(store, "one")
        assert stored > 10
        with pytest.raises(StoreFull, match="disk is full"):
            store.append("one", said(stored))
        assert store.messages("one") == [said(number) for number in range(stored)]
        assert store.session("one").message_count == stored
        assert [hit.message.position for hit in store.search("word3")] == [3]

        filler.unlink()
        assert store.append("one", said(stored)) == [stored]
        assert store.append(store.begin(id="two"), said(0)) == [0]
        assert store.verify() == []
    with open_store(path) as store:
        assert store.messages("one") == [said(number) for number in range(stored + 1)]
        assert store.verify() == []


def test_what_was_acknowledged_before_the_disk_was_full_is_there_for_another_process(
    disk: Path,
) -> None:
    path = disk / "sessions.db"
    code = """
import os, signal, sys
from rekindle import open_store
from tests.acceptance.test_faults_disk import fill
print(fill(open_store(sys.argv[1]), "one"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, path)
    output, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, complained
    with open_store(path) as store:
        assert store.messages("one") == [said(number) for number in range(int(output))]
        assert store.verify() == []


def test_a_store_that_cannot_be_made_on_a_full_disk_is_made_once_there_is_room(
    disk: Path,
) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
    path = disk / "sessions.db"
    with pytest.raises(StoreFull, match=str(path)):
        open_store(path)
    filler.unlink()
    with open_store(path) as store:
        assert store.append(store.begin(id="one"), said(0)) == [0]
        assert store.verify() == []


def test_the_command_says_that_the_disk_is_full_and_takes_in_nothing_by_halves(
    disk: Path, tmp_path: Path
) -> None:
    path = disk / "sessions.db"
    with open_store(tmp_path / "large.db", durability="relaxed") as large:
        large.append(large.begin(id="large"), *map(said, range(300)))
        exported = tmp_path / "large.jsonl"
        exported.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in large.dump()))
    with open_store(path) as store:
        store.append(store.begin(id="one"), said(0))
    done = run_command(path, "sessions", "import", exported)
    assert done.returncode == 1
    assert "disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    with open_store(path) as store:
        assert [session.id for session in store.recent()] == ["one"]
        assert store.messages("one") == [said(0)]
        assert store.verify() == []


# -- read-only

LOOK = """
import json, sys
from rekindle import Message, open_store
from rekindle.errors import StoreReadOnly
path, readonly = sys.argv[1], sys.argv[2] == "readonly"
refused = None
with open_store(path, readonly=True) as store:
    read = [message.content for message in store.messages("one")]
    found = [hit.message.content for hit in store.search("ember")]
    listed = [session.id for session in store.recent()]
    findings = [finding.detail for finding in store.verify()]
try:
    with open_store(path, readonly=readonly) as store:
        store.append("one", Message(role="user", content="in vain"))
except StoreReadOnly as error:
    refused = str(error)
print(json.dumps([read, found, listed, findings, refused]))
"""
CONTENT = ["an ember", "and ash"]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a store in it."""
    folder = tmp_path / "library"
    folder.mkdir()
    with open_store(folder / "sessions.db") as store:
        messages = [Message(role="user", content=content) for content in CONTENT]
        store.append(store.begin(id="one"), *messages)
    (folder / "sessions.db-turns").unlink(missing_ok=True)
    return folder


def test_a_store_opened_for_reading_reads_searches_and_refuses_to_write(library: Path) -> None:
    path = library / "sessions.db"
    before = path.read_bytes()
    *seen, refused = json.loads(run(LOOK, path, "readonly"))
    assert seen == [CONTENT, CONTENT[:1], ["one"], []]
    assert "opened read-only" in refused
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["readonly", "writing"])
def test_a_file_that_may_not_be_written_is_read_and_stays_as_it_is(
    library: Path, mode: str
) -> None:
    path = library / "sessions.db"
    before = path.read_bytes()
    path.chmod(0o400)
    *seen, refused = json.loads(run(LOOK, path, mode, before=as_mortal()))
    assert seen == [CONTENT, CONTENT[:1], ["one"], []]
    assert str(path) in refused
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["readonly", "writing"])
def test_a_folder_that_may_not_be_written_is_read_and_stays_as_it_is(
    library: Path, mode: str
) -> None:
    before = contents(library)
    (library / "sessions.db").chmod(0o400)
    library.chmod(0o500)
    try:
        *seen, refused = json.loads(run(LOOK, library / "sessions.db", mode, before=as_mortal()))
        listed = run_command(library / "sessions.db", "sessions", "list", before=as_mortal())
    finally:
        library.chmod(0o700)
    assert seen == [CONTENT, CONTENT[:1], ["one"], []]
    assert str(library) in refused
    assert listed.returncode == 0
    assert "an ember" in listed.stdout
    assert contents(library) == before


@pytest.mark.parametrize("mode", ["readonly", "writing"])
def test_a_disk_that_may_not_be_written_is_read_and_stays_as_it_is(
    library: Path, tmp_path: Path, mode: str
) -> None:
    before = contents(library)
    with read_only_view(library, tmp_path / "view") as view:
        *seen, refused = json.loads(run(LOOK, view / "sessions.db", mode))
    assert seen == [CONTENT, CONTENT[:1], ["one"], []]
    assert str(tmp_path / "view") in refused
    assert contents(library) == before


LEAVE_A_LOG = """
import os, signal, sys
from rekindle import Message, open_store
store = open_store(sys.argv[1])
store.append("one", Message(role="user", content="only in the log"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("beside", ["log and its index", "log alone"])
def test_reading_where_nothing_may_be_written_never_leaves_out_what_is_in_the_log(
    library: Path, beside: str
) -> None:
    start(LEAVE_A_LOG, library / "sessions.db").communicate(timeout=PATIENCE)
    assert (library / "sessions.db-wal").stat().st_size > 0
    if beside == "log alone":
        (library / "sessions.db-shm").unlink()
    before = contents(library)
    for file in library.iterdir():
        file.chmod(0o400)
    library.chmod(0o500)
    code = """
import sys
from rekindle import open_store
from rekindle.errors import StoreError
try:
    with open_store(sys.argv[1], readonly=True) as store:
        print([message.content for message in store.messages("one")])
except StoreError as error:
    print(type(error).__name__, error)
"""
    try:
        answer = run(code, library / "sessions.db", before=as_mortal()).strip()
    finally:
        library.chmod(0o700)
    if beside == "log and its index":
        assert answer == str([*CONTENT, "only in the log"])
    else:
        assert answer == str([*CONTENT, "only in the log"]) or (
            answer.startswith("StoreReadOnly") and "-wal" in answer
        )
    assert contents(library) == before


def test_a_store_that_was_read_only_for_a_while_takes_messages_again(library: Path) -> None:
    code = """
import os, sys
from rekindle import Message, open_store
from rekindle.errors import StoreReadOnly
path = sys.argv[1]
os.chmod(path, 0o400)
try:
    with open_store(path) as store:
        store.append("one", Message(role="user", content="in vain"))
except StoreReadOnly:
    print("refused")
os.chmod(path, 0o600)
with open_store(path) as store:
    print(store.append("one", Message(role="user", content="again")), store.verify())
"""
    assert run(code, library / "sessions.db", before=as_mortal()) == "refused\n[2] []\n"


# -- a disk that reports errors

APPEND = """
import json, os, signal, sys
from rekindle import Message, open_store
from rekindle.errors import StoreError

def note(*line):
    os.write(1, (json.dumps(line) + "\\n").encode())

def tried(work):
    try:
        return work()
    except StoreError as error:
        note("error", type(error).__name__, str(error))

path, stubborn = sys.argv[1], sys.argv[2] == "stubborn"
store = tried(lambda: open_store(path)) or tried(lambda: open_store(path))
if store is None:
    sys.exit()
for number in range(12):
    for _ in range(1 if stubborn else 2):
        message = Message(role="user", content=f"m{number}")
        positions = tried(lambda: store.append(store.begin(id="one"), message))
        if positions:
            note("stored", positions[0], f"m{number}")
            break
note("verify", "", "" if stubborn else str(store.verify()))
os.kill(os.getpid(), signal.SIGKILL)
"""


def injected(path: Path, fault: str, mode: str) -> list[list[str]]:
    """What the child noted, whose flushes of files (not of folders) fail as told."""
    under = strace("-e", "trace=fdatasync", "-e", f"inject=fdatasync:{fault}")
    process = start(APPEND, path, mode, before=under)
    output, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, -signal.SIGKILL), complained
    assert "Traceback" not in complained
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("when", [1, 3, 4, 5, 7, 10])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_flush_that_fails_once_is_a_clear_error_and_the_next_append_goes_through(
    tmp_path: Path, error: str, when: int
) -> None:
    path = tmp_path / "sessions.db"
    notes = injected(path, f"error={error}:when={when}", "tries again")
    errors = [rest for kind, *rest in notes if kind == "error"]
    assert errors
    assert all(str(path) in text for _, text in errors)
    stored = [rest for kind, *rest in notes if kind == "stored"]
    assert stored == [[number, f"m{number}"] for number in range(12)]
    assert notes[-1] == ["verify", "", "[]"]
    with open_store(path) as store:
        assert [message.content for message in store.messages("one")] == [c for _, c in stored]
        assert store.verify() == []


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_disk_that_no_longer_flushes_acknowledges_nothing_more(
    tmp_path: Path, error: str
) -> None:
    path = tmp_path / "sessions.db"
    notes = injected(path, f"error={error}:when=9+", "stubborn")
    stored = [rest[1] for kind, *rest in notes if kind == "stored"]
    errors = [rest for kind, *rest in notes if kind == "error"]
    assert len(stored) + len(errors) == 12
    assert len(errors) >= 5
    assert {name for name, _ in errors} <= {"StoreError", "StoreFull"}
    with open_store(path) as store:
        found = [message.content for message in store.messages("one")]
        assert found[: len(stored)] == stored
        assert store.verify() == []


def test_a_store_on_a_full_disk_can_still_be_opened_for_reading(disk: Path) -> None:
    path = disk / "sessions.db"
    with open_store(path) as store:
        stored = fill(store, "one")
        with open_store(path, readonly=True) as reader:
            assert len(reader.messages("one")) == stored
            with pytest.raises(StoreReadOnly):
                reader.append("one", said(0))


def test_on_a_full_disk_a_file_that_a_command_writes_is_named_and_the_old_one_stays(
    disk: Path, tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    with open_store(path) as store:
        call = {"role": "assistant", "tool_calls": [ToolCall("1", "run", {"command": "true"})]}
        store.append(store.begin(id="one"), said(0), Message(**call))
    old = [disk / name for name in ("page.html", "all.jsonl", "copy.db")]
    for file in old:
        file.write_text("precious")
    (disk / "filler").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
    for words, file in zip(
        (["insights", "--html"], ["sessions", "export", "-o"], ["sessions", "backup", "--force"]),
        old,
        strict=True,
    ):
        done = run_command(path, *words, file)
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith(f"rekindle: {file}: "), done.stderr
        assert done.stderr.count("\n") == 1
        assert file.read_text() == "precious"
    assert {file.name for file in disk.iterdir()} == {"filler", *(file.name for file in old)}
