from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rekindle.errors import JournalUnwritable
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.state.journal import Journal, ProcessRecord
from rekindle.processes.types import Watch


def record(id: str = "pone", **more: object) -> ProcessRecord:
    known = {"owner": "ada", "argv": ("true",), "backend": "local", "state": "starting"}
    return ProcessRecord(**{"id": id, "started": 1.5, **known, **more})  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "processes")
    journal.prepare()
    return journal


def test_a_record_comes_back_as_it_was_written(journal: Journal) -> None:
    one = record(pty=TerminalSize(1, 2), ref={"pid": 3}, watches=(Watch("end", number=1),))
    journal.create(one)
    assert journal.load("pone") == one
    two = one.replace(state="exited", exit_code=3, ended=2.0)
    journal.save(two, durable=True)
    assert journal.load_all() == [two]


def test_the_record_of_a_process_that_an_older_version_started_is_read(journal: Journal) -> None:
    folder = journal.folder / "pone"
    folder.mkdir()
    (folder / "record.json").write_text(
        '{"id": "pone", "owner": "ada", "argv": ["make"], "place": "ssh:build", "state": "exited",'
        ' "started": 1.5, "ended": 2.5, "code": 3, "why": "the host restarted"}'
    )
    one = journal.load("pone")
    assert (one.backend, one.exit_code, one.reason) == ("ssh:build", 3, "the host restarted")


def test_nobody_else_can_look_into_the_folder(journal: Journal) -> None:
    journal.create(record())
    assert stat.S_IMODE(os.stat(journal.folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(journal.folder / "pone" / "record.json").st_mode) == 0o600


def test_records_are_listed_by_age_and_damaged_ones_left_out(journal: Journal) -> None:
    for id, started in (("pb", 1.0), ("pa", 2.0), ("pc", 3.0)):
        journal.create(record(id, started=started))
    (journal.folder / "pc" / "record.json").write_text('{"id": "pc", "ow')
    (journal.folder / "not a process").write_text("x")
    assert [one.id for one in journal.load_all()] == ["pb", "pa"]


def test_what_a_crash_left_half_done_is_removed(journal: Journal) -> None:
    journal.create(record())
    (journal.folder / ".gone-pold").mkdir()
    (journal.folder / "pnew").mkdir()
    (journal.folder / "pnew" / "record.json.new").write_text("{")
    journal.remove_leftovers()
    assert [path.name for path in journal.folder.iterdir()] == ["pone"]


@pytest.mark.parametrize("id", ["", ".", "..", "../pone", "a/b", ".gone-x"])
def test_a_name_never_leads_outside(journal: Journal, id: str) -> None:
    (journal.folder.parent / "record.json").write_text("{}")
    assert journal.load(id) is None


def test_a_folder_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnwritable, match=r"file/processes cannot be written: .*directory"):
        Journal(tmp_path / "file" / "processes").prepare()
