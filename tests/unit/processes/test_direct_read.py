"""Looks at a process beside the program that keeps it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from rekindle.processes.operations import PollOutput
from rekindle.processes.state.direct_read import DirectReader
from rekindle.processes.state.journal import Journal, ProcessRecord
from rekindle.processes.state.ring_buffer import RingBuffer


def kept(folder: Path, **fields: object) -> tuple[Journal, RingBuffer, ProcessRecord]:
    """A process with a record and a ring, as the supervisor has them."""
    journal = Journal(folder)
    journal.prepare()
    record = ProcessRecord("p1", "ada", ("true",), "local", "running", time.time())
    record = record.replace(**fields)  # type: ignore[arg-type]
    journal.create(record)
    return journal, RingBuffer.create(journal.get_ring_path("p1"), 1000), record


def look(
    glance: DirectReader, reader: str = "", owner: str | None = None
) -> tuple[str, str] | None:
    polled = glance.poll(PollOutput("p1", owner=owner, reader=reader))
    return polled and (polled.output, polled.process.state)


def test_output_and_end_are_seen_as_they_come(tmp_path: Path) -> None:
    journal, ring, record = kept(tmp_path)
    glance = DirectReader(tmp_path, str)
    ring.append(b"one\n")
    assert look(glance) == ("one\n", "running")
    assert look(glance) == ("", "running")
    ring.append(b"two\n")
    journal.save(record.replace(state="exited", exit_code=3))
    assert look(glance) == ("two\n", "exited")
    assert ring.get_position("") == 8  # the keeper knows what was seen
    glance.close()


def test_the_keeper_is_asked_where_the_files_cannot_tell(tmp_path: Path) -> None:
    journal, ring, _ = kept(tmp_path)
    glance = DirectReader(tmp_path, str)
    assert look(glance, reader="somebody new") is None
    assert look(glance, owner="eve") is None
    assert look(glance, owner="ada") == ("", "running")
    ring.is_record_stale = True  # it has ended, and that is not written yet
    assert look(glance) is None
    ring.is_record_stale = False
    assert look(glance) == ("", "running")
    journal.remove("p1")
    assert look(glance) is None


def test_the_keeper_is_asked_about_other_places(tmp_path: Path) -> None:
    kept(tmp_path, backend="ssh:host")
    assert look(DirectReader(tmp_path, str)) is None


def test_what_is_read_beside_a_fast_writer_is_never_torn(tmp_path: Path) -> None:
    _, ring, _ = kept(tmp_path)
    glance, over = DirectReader(tmp_path, str), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            ring.append(f"<{number:09d}>\n".encode())

    writer = threading.Thread(target=write)
    writer.start()
    last = 0
    try:
        for _ in range(300):
            for line in (look(glance) or ("", ""))[0].splitlines():
                if line.startswith("<") and line.endswith(">"):  # else half of it was dropped
                    assert int(line[1:-1]) > last
                    last = int(line[1:-1])
                else:
                    assert line.strip("<>0123456789") == ""
    finally:
        over.set()
        writer.join()
    assert last > 0
