from __future__ import annotations

from pathlib import Path

from rekindle.processes.state.events import EventLog
from rekindle.processes.types import EventKind, Process, ProcessEvent


def event(
    kind: EventKind = "pattern", owner: str = "ada", id: str = "pone", watch: int = 1
) -> ProcessEvent:
    process = Process(id, "running", None, "true", owner, "local", 1, 1.0)
    return ProcessEvent(0, process, kind, watch, "said", 2.0)


def test_events_are_numbered_and_outlive_the_program(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events")
    first, second = log.add(event(), 10), log.add(event(), 10)
    assert first
    assert second
    assert (first.number, second.number) == (1, 2)
    again = EventLog(tmp_path / "events")
    assert again.list_pending("ada", 10) == [first, second]
    again.acknowledge([1], "ada")
    last = EventLog(tmp_path / "events")
    assert last.list_pending("ada", 10) == [second]
    third = last.add(event(), 10)
    assert third
    assert third.number == 3


def test_an_end_is_reported_once_even_after_it_was_acknowledged(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events")
    end = log.add(event("end"), 10)
    assert end
    log.acknowledge([end.number], None)
    again = EventLog(tmp_path / "events")
    assert again.add(event("end"), 10) is None
    again.forget_process("pone")
    assert EventLog(tmp_path / "events").add(event("end"), 10)


def test_a_line_that_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events")
    log.add(event(), 10)
    with open(tmp_path / "events", "ab") as file:
        file.write(b'{"event": [2, ["pone"')
    assert len(EventLog(tmp_path / "events").list_pending(None, 10)) == 1


def test_reports_make_room_and_ends_stay(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events")
    log.add(event("end", watch=9), 3)
    for watch in range(5):
        log.add(event(watch=watch), 3)
    log.add(event(owner="grace"), 3)
    assert [(e.kind, e.watch) for e in log.list_pending("ada", 10)] == [
        ("end", 9),
        ("pattern", 3),
        ("pattern", 4),
    ]


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events")
    for number in range(1, 4000):
        log.add(event(), 10)
        log.acknowledge([number], None)
    assert (tmp_path / "events").stat().st_size < 600_000
    added = EventLog(tmp_path / "events").add(event(), 10)
    assert added
    assert added.number == 4000


def test_a_full_disk_does_not_keep_an_event_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "missing" / "events")
    added = log.add(event(), 10)
    assert log.list_pending("ada", 10) == [added]
