"""What was typed before, and which terminals are there."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

from rekindle.cli.chat.history import InputHistory
from rekindle.cli.chat.terminal_lock import TerminalLocks


def test_what_was_typed_comes_back_with_its_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "home" / "history"
    InputHistory(file, 10).add("two\nlines and ümläut")
    InputHistory(file, 10).add("second")
    assert InputHistory(file, 10).load() == ["two\nlines and ümläut", "second"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_that_begins_with_a_space_is_not_kept(tmp_path: Path) -> None:
    history = InputHistory(tmp_path / "history", 10)
    history.add(" my secret")
    history.add("")
    assert history.load() == []


def test_only_the_newest_lines_are_kept_and_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = InputHistory(file, 3)
    for number in range(7):
        history.add(str(number))
    assert history.load() == ["4", "5", "6"]
    assert file.read_text().split() == ['"4"', '"5"', '"6"']
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["history"]


def test_no_history_is_wished_for(tmp_path: Path) -> None:
    InputHistory(tmp_path / "history", 0).add("x")
    assert not (tmp_path / "history").exists()


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text('"good"\n{broken\n[1]\n"also"\n')
    assert InputHistory(file, 10).load() == ["good", "also"]


def test_a_folder_that_cannot_be_written_to_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = InputHistory(tmp_path / "file" / "history", 10)
    history.add("x")
    assert history.load() == []


def test_a_terminal_is_there_until_it_leaves(tmp_path: Path) -> None:
    presence = TerminalLocks(tmp_path / "chat")
    with presence.acquire() as name:
        assert not TerminalLocks(tmp_path / "chat").is_gone(name)
    assert presence.is_gone(name)
    assert [*(tmp_path / "chat").iterdir()] == []


def test_a_terminal_that_was_killed_is_gone_at_once(tmp_path: Path) -> None:
    code = (
        "import json, sys\nfrom pathlib import Path\n"
        "from rekindle.cli.chat.terminal_lock import TerminalLocks\n"
        f"with TerminalLocks(Path({str(tmp_path)!r})).acquire() as name:\n"
        "    print(json.dumps(name), flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        name = json.loads(child.stdout.readline())
        assert not TerminalLocks(tmp_path).is_gone(name)
        child.kill()
        child.wait()
        assert TerminalLocks(tmp_path).is_gone(name)
    assert [*tmp_path.iterdir()] == []


def test_of_a_terminal_elsewhere_nobody_can_tell(tmp_path: Path) -> None:
    with TerminalLocks(tmp_path / "here").acquire() as name:
        pass
    assert not TerminalLocks(tmp_path / "there").is_gone(name)
    assert not TerminalLocks(tmp_path / "here").is_gone(f"another.{os.urandom(4).hex()}-1")
