"""Sessions in Parquet: what is written, who may read it, and the same statistics as from the store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from rekindle import Message, open_store
from rekindle.types import Tokens
from tests.acceptance.test_cli import Rekindle
from tests.new_store import open_new_store
from tests.unit.web.histories import tell

JANUARY, FEBRUARY = 1_767_300_000.0, 1_770_000_000.0  # 2026
TABLES = ("sessions", "calls", "messages")
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("original") / "sessions.db"
    with open_new_store(file) as store:
        for number in range(36):
            broken = [("npm test", "error: 1 test failed", False)] if number % 3 == 0 else []
            tell(
                store,
                f"s{number:02}",
                *broken,
                *((f"make check-{step}", "ok", True) for step in range(number % 4 + 1)),
                folder=f"/gone/work/shop{number % 3}",
                asked=f"use {SECRET} \udc80 and fix it",
                started=(JANUARY if number < 20 else FEBRUARY) + number,
            )
        store.append("s03", Message("user", "thanks, all good"))
        store.undo("s04")
        store.add_usage("s05", Tokens(100, 20), model="gpt-5")
        store.archive_session("s06")
        store.fork("s07", at=2)
    return file


@pytest.fixture
def command(original: Path, tmp_path: Path) -> Rekindle:
    shutil.copy(original, tmp_path / "sessions.db")
    return Rekindle(tmp_path)


def run(command: Rekindle, *words: object, code: int = 0) -> str:
    done = command.run("--store", command.home / "sessions.db", *words, code=code)
    return done.stdout.decode() + done.stderr.decode()


def export(command: Rekindle, *words: object) -> tuple[Path, str]:
    folder = command.home / "archive"
    return folder, run(command, "sessions", "export", "-f", "parquet", "-o", folder, *words)


def read_ids(folder: Path, table: str = "sessions") -> list[str]:
    column = "id" if table == "sessions" else "session"
    found: list[str] = []
    for file in sorted(folder.glob(f"{table}/*/part.parquet")):
        found += parquet.ParquetFile(file).read(columns=[column]).column(0).to_pylist()
    return found


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("archived=any",),
        ("project=shop1",),
        ("source=claude-code", "messages>5", "errors=yes"),
        ("outcome=unknown", "until=2026-02-01"),
        ("title~none",),
    ],
)
def test_statistics_are_those_of_the_store(command: Rekindle, words: tuple[str, ...]) -> None:
    folder, _ = export(command)
    store = ("--store", command.home / "sessions.db")
    expected = command.json(*store, "insights", "--statistics", "--all", *words)
    (command.home / "sessions.db").unlink()
    assert command.json("insights", "--statistics", "--parquet", folder, *words) == expected
    assert expected["totals"]["sessions"] == {
        (): 36,
        ("archived=any",): 37,
        ("project=shop1",): 13,
    }.get(words, expected["totals"]["sessions"])


@pytest.mark.parametrize("words", [(), ("project=shop0", "until=2026-02-01")])
def test_the_overview_is_that_of_the_store(command: Rekindle, words: tuple[str, ...]) -> None:
    with open_store(command.home / "sessions.db") as store:
        for number in range(0, 12, 2):
            store.add_usage(f"s{number:02}", Tokens(50_000, 900), model="claude-sonnet-4-5")
        denied = "cache: operation not permitted\nerror: build failed"
        for number in range(2):
            tell(
                store,
                f"mended{number}",
                ("go list ./...", denied, False),
                ("env GOCACHE=/tmp/c go list ./...", "ok", True),
                folder="/gone/work/shop0",
                started=JANUARY + 100 + number,
            )
    folder, _ = export(command)
    store = ("--store", command.home / "sessions.db")
    expected = command.json(*store, "insights", "--all", *words)
    shown = command.run(*store, "insights", "--all", *words).stdout
    command.run(*store, "insights", "--all", "--html", command.home / "store.html", *words)
    (command.home / "sessions.db").unlink()
    assert command.json("insights", "--parquet", folder, *words) == expected
    assert command.run("insights", "--parquet", folder, *words).stdout == shown
    command.run("insights", "--parquet", folder, "--html", command.home / "page.html", *words)
    page = (command.home / "page.html").read_text()
    assert page == (command.home / "store.html").read_text()
    assert expected["totals"]["cost"] != "0"
    assert expected["commands"]
    assert expected["mends"]
    assert not (command.home / "sessions.db").exists()


def test_an_archive_without_a_table_of_usage_has_the_totals_of_its_sessions(
    command: Rekindle,
) -> None:
    folder, _ = export(command)
    shutil.rmtree(folder / "usage")  # as an earlier version wrote it
    totals = command.json("insights", "--parquet", folder)["totals"]
    assert totals["sessions"] == 36


def test_every_session_is_in_the_files_of_its_month_for_its_owner_alone(command: Rekindle) -> None:
    folder, said = export(command)
    assert "37 sessions in" in said
    assert "Not redacted" in said
    months = sorted(one.name for one in (folder / "sessions").iterdir())
    assert months[:2] == ["month=2026-01", "month=2026-02"]
    assert len(months) == 3  # the fork is of today
    for table in TABLES:
        without = {"s04"} if table == "calls" else set[str]()  # all of its messages are undone
        assert set(read_ids(folder, table)) == set(read_ids(folder)) - without, table
    files = [one for one in folder.rglob("*") if one.is_file()]
    assert len(files) == 12
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600}
    row = parquet.read_table(
        folder / "messages/month=2026-01/part.parquet", filters=[("session", "=", "s04")]
    ).to_pylist()
    assert [one["rewound"] for one in row].count(True) > 0
    assert json.loads(row[1]["tool_calls"])[0]["name"] == "Bash"


def test_a_second_export_writes_what_has_changed_and_keeps_what_has_left(
    command: Rekindle,
) -> None:
    folder, _ = export(command)
    kept = (folder / "sessions/month=2026-01/part.parquet").stat().st_ino
    with open_store(command.home / "sessions.db", active_seconds=0) as store:
        store.append("s30", Message("user", "one more thing"))
        store.prune_session("s31")
        store.purge(older_than=0.0)
    _, said = export(command)
    assert "1 month written, 2 unchanged" in said
    assert (folder / "sessions/month=2026-01/part.parquet").stat().st_ino == kept
    assert sorted(read_ids(folder))[1:] == [f"s{number:02}" for number in range(36)]
    february = parquet.read_table(folder / "messages/month=2026-02/part.parquet").to_pylist()
    assert any(one["session"] == "s31" for one in february)
    assert [one["content"] for one in february].count("one more thing") == 1
    _, said = export(command)
    assert "0 months written, 3 unchanged" in said


def test_redacted_and_plain_exports_do_not_mix(command: Rekindle) -> None:
    folder, said = export(command, "--redact")
    assert "Redacted" in said
    for table in TABLES:
        for file in folder.glob(f"{table}/*/part.parquet"):
            assert SECRET not in str(parquet.read_table(file).to_pylist()), table
    refused = run(command, "sessions", "export", "-f", "parquet", "-o", folder, code=2)
    assert "was written with --redact: choose another folder" in refused


def test_mistakes_are_answered_plainly(command: Rekindle, tmp_path: Path) -> None:
    assert "parquet needs a folder" in command.refusal("sessions", "export", "-f", "parquet")
    assert "No sessions in" in command.refusal("insights", "--parquet", tmp_path / "nowhere")
    folder, _ = export(command)
    (folder / "calls/month=2026-01/part.parquet").write_bytes(b"PAR1 damaged")
    assert "not an archive" in command.refusal("insights", "--parquet", folder)
    damaged = run(command, "sessions", "export", "-f", "parquet", "-o", folder, code=2)
    assert "is damaged" in damaged
