"""`rekindle import`, the real command: whole, once, gently, and with an exit code that tells."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle import open_store
from rekindle.transcripts.discovery import SAMPLE
from tests import command
from tests.acceptance.test_cli import Rekindle, claude_code_session
from tests.unit.transcripts.conftest import CORPUS
from tests.waiting import PATIENCE, wait_until

MESSAGES = 62  # in the sample


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """The sample, where nothing may be written."""
    folder = tmp_path / "tree"
    shutil.copytree(SAMPLE, folder)
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    folder.chmod(0o755)


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


def long_session(path: Path, session: str, messages: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for number in range(messages):
            line = {
                "type": "user", "sessionId": session, "uuid": f"{session}-{number}",
                "parentUuid": None, "timestamp": "2026-03-01T10:00:00Z",
                "message": {"role": "user", "content": f"message {number} " + "words " * 60},
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    return path


def dump(rekindle: Rekindle) -> list[bytes]:
    with open_store(rekindle.store) as store:
        assert store.verify() == []
        return sorted(store.dump())


def test_a_tree_is_taken_in_whole_and_never_written_to(rekindle: Rekindle, tree: Path) -> None:
    before = state(tree)
    report = rekindle.json("import", tree)
    assert (report["files"], report["sessions"], report["messages"]) == (4, 4, MESSAGES)
    assert sum(share["messages"] for share in report["formats"].values()) == MESSAGES
    assert sum(share["calls"] for share in report["formats"].values()) == report["calls"] > 0
    assert state(tree) == before
    first = dump(rekindle)
    again = rekindle.json("import", tree)
    assert (again["files"], again["unchanged"], again["messages"]) == (0, 4, 0)
    assert dump(rekindle) == first


def test_the_summary_has_a_line_for_each_format(rekindle: Rekindle, tree: Path) -> None:
    shown = rekindle("import", tree)
    assert re.search(r"^format +files +sessions +messages +calls +damaged$", shown, re.MULTILINE)
    assert re.search(r"^claude-code +2 +2 +\d+ +\d+ +0$", shown, re.MULTILINE)
    assert f"4 sessions and {MESSAGES} messages imported from 4 files." in shown
    assert rekindle("import", tree) == "Nothing new: 4 files unchanged.\n"


def test_a_terminal_shows_how_far_it_is(rekindle: Rekindle) -> None:
    path = long_session(rekindle.home / "long.jsonl", "long", 8_000)
    shown = rekindle.terminal("import", str(path))
    assert "Importing" in shown
    assert re.search(r"\b[1-9]\d?%", shown)
    assert "8,000 messages imported from 1 file" in shown


def test_the_exit_code_tells_whether_something_was_left_out(rekindle: Rekindle) -> None:
    file = claude_code_session(rekindle.home, "c0ffee00-0000-4000-8000-000000000001", "hello")
    (file.parent / "LICENSE").write_text("do what you like")
    shown = rekindle("import")
    assert "1 file not recognized" in shown
    stranger = file.parent / "LICENSE"
    for _ in range(2):
        said = rekindle.run("import", stranger, code=1).stderr.decode()
        assert said == f"not a session: {stranger}\n"
    with file.open("a") as lines:
        lines.write('{"type": "user", broken\n')
    done = rekindle.run("import", code=1)
    assert f"damaged: {file}, line 3: not JSON" in done.stderr.decode()
    assert b"1 damaged record skipped" in done.stdout
    assert "Nothing new" in rekindle("import", code=0)
    (file.parent / "dangling.jsonl").symlink_to(file.parent / "nowhere")
    done = rekindle.run("import", code=1)
    assert b"failed: " in done.stderr
    assert b"1 file failed" in done.stdout
    assert "does not exist" in rekindle.refusal("import", "nothing.jsonl")
    assert "No such option" in rekindle.run("import", "--nonsense", code=2).stderr.decode()


def test_one_bad_file_does_not_stop_the_rest(rekindle: Rekindle, tmp_path: Path) -> None:
    for path in SAMPLE.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "a-garbage.jsonl").write_bytes(os.urandom(5_000))
    (tmp_path / "b-cut.db").write_bytes(b"SQLite format 3\0" + os.urandom(2_000))
    (tmp_path / "c-cut.eval").write_bytes(b"PK\x03\x04" + os.urandom(2_000))
    (tmp_path / "d-empty.jsonl").touch()
    done = rekindle.run("import", *sorted(tmp_path.glob("*.*")), "--json", code=1)
    assert json.loads(done.stdout)["messages"] == MESSAGES


def has_open(pid: int, file: Path) -> bool:
    """Before that it is Python that starts, and takes Ctrl-C in its own way."""
    with contextlib.suppress(OSError):
        return any(os.readlink(one) == str(file) for one in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_an_import_that_is_stopped_is_completed_by_the_next(rekindle: Rekindle) -> None:
    folder = rekindle.home / "in"
    for number in range(6):
        long_session(folder / f"{number}.jsonl", f"s{number}", 1_500)
    for round in range(4):
        child = command.start(
            ["import", str(folder)],
            env=rekindle.env,
            cwd=rekindle.home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda: child.poll() is not None or has_open(child.pid, rekindle.store))  # noqa: B023
        time.sleep(0.15 * round)
        child.send_signal(signal.SIGINT)
        stderr = child.communicate(timeout=PATIENCE)[1].decode()
        assert (child.returncode in (0, 130), "Traceback" in stderr) == (True, False), stderr
    rekindle("import", folder)
    rows = rekindle.json("sessions", "list")
    assert {row["id"]: row["message_count"] for row in rows} == {f"s{n}": 1_500 for n in range(6)}
    dump(rekindle)


def test_imports_of_one_tree_at_once_write_it_once(rekindle: Rekindle) -> None:
    folder = rekindle.home / "in"
    for number in range(6):
        long_session(folder / f"{number}.jsonl", f"s{number}", 1_500)
    children = [
        command.start(
            ["import", folder, "--json"],
            env=rekindle.env,
            cwd=rekindle.home,
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    reports = [json.loads(child.communicate(timeout=PATIENCE)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sum(report["messages"] for report in reports) == 9_000
    rows = rekindle.json("sessions", "list")
    assert {row["id"]: row["message_count"] for row in rows} == {f"s{n}": 1_500 for n in range(6)}
    dump(rekindle)


def traced(rekindle: Rekindle, folder: Path, *words: object) -> list[str]:
    """The system calls of a command that name a folder."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log = rekindle.home / "trace"
    subprocess.run(
        [strace, "-f", "-y", "-s", "400", "-o", str(log), command.COMMAND, *map(str, words)],
        env=rekindle.env,
        cwd=rekindle.home,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    lines = log.read_text(errors="replace").splitlines()
    return [line.split(maxsplit=1)[1] for line in lines if str(folder) in line]


def test_a_second_import_looks_at_sizes_and_times_alone(rekindle: Rekindle, tree: Path) -> None:
    first = traced(rekindle, tree, "import", tree)
    assert any(call.startswith("openat") and ".jsonl" in call for call in first)
    assert not any("O_WRONLY" in call or "O_RDWR" in call for call in first)
    second = traced(rekindle, tree, "import", tree)
    touching = [call for call in second if ".jsonl" in call]
    assert {re.split(r"\W", call)[0] for call in touching} <= {
        "newfstatat",
        "statx",
        "stat",
        "lstat",
    }
    assert len(touching) <= 4, "one look at each file"


def test_every_session_of_the_corpus_comes_in_and_nothing_is_left_out(rekindle: Rekindle) -> None:
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus of real transcripts is not at {CORPUS}")
    report: dict[str, Any] = rekindle.json("import", CORPUS)
    assert (report["failed"], report["damaged"]) == ([], 0)
    formats = report["formats"]
    assert formats["claude-code"] == {
        "files": 33, "sessions": 33, "messages": 1546, "calls": 699, "damaged": 0,
        "new_sessions": 33,
    }  # fmt: skip
    assert (formats["codex"]["sessions"], formats["codex"]["messages"]) == (15, 1418)
    again = rekindle.json("import", CORPUS)
    assert (again["files"], again["messages"]) == (0, 0)
    dump(rekindle)
