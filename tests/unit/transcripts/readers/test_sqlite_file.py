"""A foreign database can hold anything, also things that never end."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from rekindle.errors import InvalidInput
from rekindle.transcripts.readers.sqlite_file import open_sqlite_file

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"


def create(path: Path, *statements: str) -> Path:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def test_a_view_is_not_read_in_place_of_a_table(tmp_path: Path) -> None:
    file = create(tmp_path / "a.db", f"CREATE VIEW session AS {ENDLESS}")
    with (
        pytest.raises(InvalidInput, match=r"a\.db: expected a table, found a view"),
        open_sqlite_file(file) as connection,
    ):
        connection.execute("SELECT id FROM session ORDER BY id").fetchall()


def test_work_ends_that_no_file_of_this_size_needs(tmp_path: Path) -> None:
    file = create(tmp_path / "a.db", "CREATE TABLE t(x)")
    with (
        pytest.raises(InvalidInput, match="far more work than its size allows"),
        open_sqlite_file(file) as connection,
    ):
        connection.execute(f"SELECT count(*) FROM ({ENDLESS})").fetchall()


def test_no_value_is_larger_than_the_file_could_hold(tmp_path: Path) -> None:
    blown_up = "CREATE TABLE t(x, y AS (hex(zeroblob(40000000))))"
    file = create(tmp_path / "a.db", blown_up, "INSERT INTO t(x) VALUES (1)")
    with open_sqlite_file(file) as connection, pytest.raises(apsw.TooBigError):
        connection.execute("SELECT y FROM t").fetchall()


def test_a_table_beside_a_view_is_read_whole(tmp_path: Path) -> None:
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000)"
    file = create(
        tmp_path / "a.db",
        "CREATE TABLE t(x)",
        f"INSERT INTO t {rows} SELECT i FROM n",
        "CREATE VIEW v AS SELECT x FROM t",
    )
    with open_sqlite_file(file) as connection:
        assert connection.execute("SELECT count(*), sum(x) FROM t").fetchall() == [
            (50_000, 50_000 * 50_001 // 2)
        ]
