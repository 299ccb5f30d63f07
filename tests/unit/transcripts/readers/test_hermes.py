from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

from rekindle.errors import InvalidInput
from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.transcripts.importer import import_transcripts
from rekindle.transcripts.readers import sqlite_file as foreign
from rekindle.types import Tokens
from tests.new_store import open_new_store
from tests.unit.transcripts.conftest import Write, messages

OLD_SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT,
    model_config TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL,
    ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
    timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT);
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
"""
NEW_COLUMNS = """
ALTER TABLE sessions ADD COLUMN session_key TEXT;
ALTER TABLE sessions ADD COLUMN title TEXT;
ALTER TABLE sessions ADD COLUMN cwd TEXT;
ALTER TABLE sessions ADD COLUMN git_branch TEXT;
ALTER TABLE sessions ADD COLUMN cache_read_tokens INTEGER DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cache_write_tokens INTEGER DEFAULT 0;
ALTER TABLE sessions ADD COLUMN reasoning_tokens INTEGER DEFAULT 0;
ALTER TABLE sessions ADD COLUMN estimated_cost_usd REAL;
ALTER TABLE sessions ADD COLUMN actual_cost_usd REAL;
ALTER TABLE messages ADD COLUMN reasoning TEXT;
ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1;
ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;
"""
START = 1_772_359_200.0
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "terminal", "arguments": '{"command":"ls"}'},
}
RAN = json.dumps({"output": "no such file", "exit_code": 2, "error": None})


class State:
    """Writes a database as Hermes does."""

    def __init__(self, path: Path, schema: str = OLD_SCHEMA + NEW_COLUMNS) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(schema)

    def session(self, id: str, **more: Any) -> None:
        self._insert("sessions", {"id": id, "source": "cli", "started_at": START, **more})

    def say(self, session: str, role: str, content: str | None, **more: Any) -> None:
        row = {"session_id": session, "role": role, "content": content, "timestamp": START + 1}
        self._insert("messages", {**row, **more})

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(row))
        values = tuple(json.dumps(v) if isinstance(v, list) else v for v in row.values())
        self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", values)

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Callable[..., State]]:
    made: list[State] = []

    def make(name: str = "state.db", **more: Any) -> State:
        made.append(State(tmp_path / name, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ended(path: Path) -> dict[str, Any]:
    return {
        event.session.id: event.session
        for event in read_transcript(path)
        if isinstance(event, SessionUpdated)
    }


def folder(path: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.iterdir() if p.is_file()}


# -- the database ---------------------------------------------------------------------------------


def test_rows_become_messages_with_calls_results_and_what_the_session_knows(state: Any) -> None:
    db = state()
    db.session(
        "20260301_100000_ab12cd",
        model="m",
        title="Find it",
        user_id="u",
        session_key="agent:main:telegram:dm:1",
        cwd="/work",
        git_branch="main",
        ended_at=START + 9,
        end_reason="cli_close",
        input_tokens=5,
        output_tokens=7,
        cache_read_tokens=11,
        reasoning_tokens=2,
        estimated_cost_usd=0.25,
    )
    db.say("20260301_100000_ab12cd", "system", "rules")
    db.say("20260301_100000_ab12cd", "user", "where?")
    db.say("20260301_100000_ab12cd", "assistant", "I look.", tool_calls=[CALL], reasoning="hm")
    db.say("20260301_100000_ab12cd", "tool", RAN, tool_call_id="c1", tool_name="terminal")
    db.say("20260301_100000_ab12cd", "assistant", "Nowhere.", finish_reason="stop")
    format = detect_format(db.path)
    assert format is not None
    assert format.name == "hermes"
    told = messages(read_transcript(db.path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant"]
    assert told[1].tool_calls[0] == ("c1", "terminal", '{"command":"ls"}')
    assert told[1].reasoning == "hm"
    assert (told[2].content, told[2].tool_call_id, told[2].name) == (RAN, "c1", "terminal")
    assert told[2].meta == {"exit_code": 2}
    assert told[3].finish_reason == "stop"
    assert told[0].timestamp == START + 1
    session = ended(db.path)["20260301_100000_ab12cd"]
    assert (session.source, session.owner) == ("hermes", "agent:main:telegram:dm:1")
    assert (session.model, session.title, session.user) == ("m", "Find it", "u")
    assert (session.cwd, session.git_branch) == ("/work", "main")
    assert (session.started, session.ended, session.end_reason) == (START, START + 9, "cli_close")
    assert session.tokens == Tokens(input=5, output=7, cache_read=11, reasoning=2)
    assert session.cost == Decimal("0.25")


def test_a_database_of_an_old_version_is_read_with_the_columns_it_has(state: Any) -> None:
    db = state(schema=OLD_SCHEMA)
    db.session("s", input_tokens=3, user_id="u")
    db.say("s", "user", "x")
    db.say("s", "assistant", None, tool_calls=[CALL])
    assert [m.role for m in messages(read_transcript(db.path))] == ["user", "assistant"]
    assert ended(db.path)["s"].tokens == Tokens(input=3)


def test_a_compression_that_opened_a_new_session_is_its_parent(state: Any) -> None:
    db = state()
    db.session("old", ended_at=START + 5, end_reason="compression")
    db.session("new", parent_session_id="old")
    db.say("old", "user", "x")
    db.say("new", "user", "[CONTEXT COMPACTION — REFERENCE ONLY] we did x")
    db.say("new", "user", "y")
    sessions = ended(db.path)
    assert (sessions["old"].end_reason, sessions["new"].parent) == ("compression", "old")
    told = messages(read_transcript(db.path))
    assert [m.text for m in told] == ["x", "y"]
    assert told[1].meta == {
        "compacted": {"summary": "[CONTEXT COMPACTION — REFERENCE ONLY] we did x"}
    }


def test_rows_that_were_taken_back_are_left_out_and_rows_that_a_summary_replaced_are_not(
    state: Any,
) -> None:
    db = state()
    db.session("s")
    for n, text in enumerate(("one", "two", "three")):
        db.say("s", "user", text, active=0, compacted=1, timestamp=START + n)
    db.say("s", "user", "undone", active=0)
    db.say("s", "user", "one", timestamp=START)
    db.say("s", "assistant", "[CONTEXT SUMMARY]: one, two", timestamp=START + 50)
    db.say("s", "user", "three", timestamp=START + 51)
    db.say("s", "user", "four", timestamp=START + 52)
    db.say("s", "user", "three", timestamp=START + 53)
    told = messages(read_transcript(db.path))
    assert [m.text for m in told] == ["one", "two", "three", "four", "three"]
    assert told[3].meta == {"compacted": {"summary": "[CONTEXT SUMMARY]: one, two"}}


def test_rewritten_rows_keep_the_ids_of_what_they_say(state: Any) -> None:
    db = state()
    db.session("s")
    for text in ("go", "go", "stop"):
        db.say("s", "user", text)
    first = [m.platform_message_id for m in messages(read_transcript(db.path))]
    assert len(set(first)) == 3
    db.connection.execute("DELETE FROM messages WHERE content = 'stop'")
    db.connection.execute("UPDATE messages SET id = id + 100")
    db.say("s", "user", "stop")
    assert [m.platform_message_id for m in messages(read_transcript(db.path))] == first


def test_the_newest_rows_of_a_live_database_are_read_and_nothing_is_written(state: Any) -> None:
    db = state()
    db.session("s")
    db.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.say("s", "user", "only in the log")
    assert Path(f"{db.path}-wal").stat().st_size
    before = folder(db.path.parent)
    assert [m.text for m in messages(read_transcript(db.path))] == ["only in the log"]
    assert folder(db.path.parent) == before


def test_a_crashed_database_is_read_without_being_mended(state: Any, tmp_path: Path) -> None:
    db = state()
    db.session("s")
    db.say("s", "user", "last words")
    left = tmp_path / "left"
    left.mkdir()
    for end in ("", "-wal"):
        Path(left, f"state.db{end}").write_bytes(Path(f"{db.path}{end}").read_bytes())
    before = folder(left)
    assert [m.text for m in messages(read_transcript(left / "state.db"))] == ["last words"]
    assert folder(left) == before


def test_a_quiet_database_is_read_in_place_and_nothing_appears_beside_it(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = state()
    db.session("s")
    db.say("s", "user", "x")
    db.close()
    os.chmod(db.path, 0o400)
    monkeypatch.setattr(foreign.shutil, "copyfile", None)
    assert [m.text for m in messages(read_transcript(db.path))] == ["x"]
    assert [path.name for path in db.path.parent.iterdir()] == ["state.db"]


def test_a_database_that_changes_while_it_is_read_is_said_to_and_not_half_trusted(
    state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = state()
    db.session("s")
    db.say("s", "user", "x")
    monkeypatch.setattr(foreign, "_RETRY_SECONDS", 0)
    moments = iter(range(1000))
    monkeypatch.setattr(foreign, "_fingerprint_database", lambda path: next(moments))  # pyright: ignore
    with pytest.raises(InvalidInput, match="import it again"):
        list(read_transcript(db.path))


def test_messages_of_a_session_that_is_not_listed_are_read_too(state: Any) -> None:
    db = state()
    db.say("lost", "user", "x")
    assert [
        event.session.id for event in read_transcript(db.path) if isinstance(event, SessionStarted)
    ] == ["lost"]


def test_text_that_is_not_utf_8_or_not_json_costs_no_row(state: Any) -> None:
    db = state()
    db.session("s")
    db.connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp, tool_calls)"
        " VALUES ('s', 'assistant', CAST(x'61ff62' AS TEXT), 1, '[{broken')"
    )
    db.say("s", "user", '\0json:[{"type": "text", "text": "part"}]')
    told = messages(read_transcript(db.path))
    assert [m.text for m in told] == ["a\ufffdb", "part"]
    assert told[0].tool_calls == ()


def test_other_databases_and_broken_ones_are_no_state_of_hermes(state: Any, tmp_path: Path) -> None:
    other = state("other.db", schema="CREATE TABLE messages (id INTEGER, role TEXT, content TEXT)")
    assert detect_format(other.path) is None
    db = state()
    db.session("s")
    db.say("s", "user", "x")
    db.close()
    whole = db.path.read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole[:6000])
    assert detect_format(cut) is not None
    events = list(read_transcript(cut))
    assert events
    assert all(isinstance(event, UnreadableEntry) for event in events)


def test_a_view_in_the_place_of_a_table_is_not_run(state: Any) -> None:
    db = state()
    db.session("s")
    db.connection.execute("ALTER TABLE messages RENAME TO real")
    db.connection.execute(
        "CREATE VIEW messages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n)"
        " SELECT i AS id, 's' AS session_id, 'user' AS role, 'x' AS content FROM n"
    )
    assert [type(event) for event in read_transcript(db.path)] == [UnreadableEntry]


def test_a_long_session_is_read_row_by_row(state: Any) -> None:
    import tracemalloc

    db = state()
    db.session("s")
    with db.connection:
        for n in range(3000):
            db.say("s", "user", f"{n} " + "x" * 5000)
    db.close()
    tracemalloc.start()
    try:
        assert (
            sum(
                1
                for event in read_transcript(db.path)
                if not isinstance(event, (SessionStarted, SessionUpdated))
            )
            == 3000
        )
        assert tracemalloc.get_traced_memory()[1] < 3_000_000 < db.path.stat().st_size / 4
    finally:
        tracemalloc.stop()


# -- the files ------------------------------------------------------------------------------------

ID = "20260301_101010_ab12cd34"
ENTRY = {
    "session_key": "agent:main:telegram:dm:77",
    "session_id": ID,
    "created_at": "2026-03-01T10:10:10.500000",
    "updated_at": "2026-03-01T11:00:00",
    "display_name": "Ada",
    "platform": "telegram",
    "chat_type": "dm",
    "input_tokens": 10,
    "output_tokens": 20,
    "total_tokens": 30,
    "origin": {"platform": "telegram", "chat_id": "77", "user_id": "42"},
}
SAID = [
    {"role": "session_meta", "model": "m", "tools": [], "timestamp": "2026-03-01T10:10:11"},
    {"role": "user", "content": "hi", "timestamp": "2026-03-01T10:10:12"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": RAN, "tool_call_id": "c1"},
]


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_transcript_is_read_with_its_entry_in_the_index(write: Write, in_tokyo: None) -> None:
    path = write(*SAID, name=f"{ID}.jsonl")
    write({"agent:main:telegram:dm:77": ENTRY}, name="sessions.json")
    format = detect_format(path)
    assert format is not None
    assert format.name == "hermes"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool"]
    assert (told[2].name, told[2].meta) == ("terminal", {"exit_code": 2})
    session = ended(path)[ID]
    assert (session.source, session.owner) == ("telegram", "agent:main:telegram:dm:77")
    assert (session.title, session.user, session.model) == ("Ada", "42", "m")
    assert session.tokens == Tokens(input=10, output=20)
    # Local times: ten past ten in Tokyo is ten past one in UTC.
    assert session.started == 1_772_327_410.5
    assert told[0].timestamp == 1_772_327_412.0


@pytest.mark.parametrize(
    ("platform", "source"),
    [("carrier-pigeon", "carrier-pigeon"), (None, "hermes"), (7, "hermes"), ("a b\n", "hermes")],
)
def test_a_platform_that_nobody_knows_is_tolerated(
    write: Write, platform: Any, source: str
) -> None:
    path = write(*SAID, name="chat-77.jsonl")
    entry = {**ENTRY, "session_id": "chat-77", "platform": platform, "display_name": "77"}
    del entry["origin"]
    write({"key": entry}, name="sessions.json")
    session = ended(path)["chat-77"]
    assert (session.source, session.title) == (source, None)


def test_a_damaged_index_is_reported_and_the_transcripts_are_read(write: Write) -> None:
    path = write(*SAID, "{broken", name=f"{ID}.jsonl")
    index = write("", name="sessions.json")
    entries = json.dumps({"k": ENTRY, "l": {"session_key": "l"}, "m": ENTRY})
    index.write_text(entries[:-200])
    format = detect_format(index)
    assert format is not None
    assert format.name == "hermes"
    damage = list(read_transcript(index))
    assert [type(event) for event in damage] == [UnreadableEntry, UnreadableEntry]
    assert "'l': expected a session_id" in damage[0].what
    events = list(read_transcript(path))
    assert len(messages(events)) == 3
    assert [event.line for event in events if isinstance(event, UnreadableEntry)] == [5]
    assert ended(path)[ID].owner == "agent:main:telegram:dm:77"
    index.write_text("not even JSON")
    assert [type(event) for event in read_transcript(index)] == [UnreadableEntry]
    assert ended(path)[ID].source == "hermes"


def test_a_transcript_without_an_entry_goes_by_its_name_if_that_is_one_of_hermes(
    write: Write,
) -> None:
    assert list(ended(write(*SAID, name=f"{ID}.jsonl"))) == [ID]
    other = detect_format(write(*SAID[1:], name="my-chat.jsonl"))
    assert other is not None
    assert other.name == "openai-chat"


def test_a_folder_is_taken_in_once_whatever_lies_in_it(
    write: Write, state: Any, tmp_path: Path
) -> None:
    db = state("home/state.db") if (tmp_path / "home").mkdir() is None else None
    db.session(ID)
    for said in SAID[1:]:
        db.say(ID, said["role"], said["content"], tool_calls=said.get("tool_calls"),
               tool_call_id=said.get("tool_call_id"))  # fmt: skip
    write(*SAID, name=f"home/sessions/{ID}.jsonl")
    write({"key": ENTRY}, name="home/sessions/sessions.json")
    snapshot = {"session_id": ID, "session_start": "2026-03-01T10:10:10", "messages": SAID[1:]}
    write(snapshot, name=f"home/sessions/session_{ID}.json")
    with open_new_store(tmp_path / "store.db") as store:
        intake = import_transcripts(store, [tmp_path / "home"])
        assert (intake.failed, intake.damage, intake.unknown) == ((), (), ())
        assert [session.id for session in store.recent()] == [ID]
        assert [m.role for m in store.messages(ID)] == ["user", "assistant", "tool"]


def test_the_files_alone_reach_the_store_with_owner_and_source(
    write: Write, tmp_path: Path
) -> None:
    write(*SAID, name=f"in/{ID}.jsonl")
    write({"key": ENTRY}, name="in/sessions.json")
    with open_new_store(tmp_path / "store.db") as store:
        import_transcripts(store, [tmp_path / "in"])
        (session,) = store.recent()
    assert (session.id, session.source, session.owner) == (ID, "telegram", ENTRY["session_key"])
    assert (session.title, session.tokens.total) == ("Ada", 30)
