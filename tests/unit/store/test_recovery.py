"""A file that no longer opens: its rows are found whatever version wrote them."""

from __future__ import annotations

from pathlib import Path

import apsw

from rekindle.store import open_store, repair_file
from rekindle.store.core.migrations import load_migrations
from rekindle.store.engines.sqlite import APPLICATION_ID


def test_a_session_from_before_a_column_was_added_is_rescued(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    connection = apsw.Connection(str(path))
    for sql in (
        load_migrations("sqlite")[1],
        "INSERT INTO sessions (id, source, owner, started, last_active, next_position,"
        " message_count, tool_call_count) VALUES ('old', 'cli', '', 5.0, 6.0, 1, 1, 0)",
        "INSERT INTO messages (session, position, role, time, content)"
        " VALUES (1, 0, 'user', 5.0, 'the tide')",
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1",
    ):
        connection.execute(sql).fetchall()
    connection.close()
    open_store(path).close()  # adds columns, which SQLite does not write into existing rows
    with path.open("r+b") as file:
        file.write(bytes(100))
    assert "recovered 1 sessions and 1 messages" in repair_file(path)[0]
    with open_store(path) as store:
        assert [one.text for one in store.messages("old")] == ["the tide"]
        assert store.session("old").source == "cli"
