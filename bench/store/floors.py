"""The raw floors: the same work with nothing but SQLite.

They use Rekindle's library (apsw), a write-ahead log, synchronous=FULL, prepared statements, and keep
counts and preview in the session's row. Each measurement gets the minimum it needs: appends do not pay
for the index that the list of recent sessions reads. A change to this file is a separate commit, with
the figures before and after.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from pathlib import Path
from typing import Any

import apsw

from bench.peers.base import MeasuredStore
from bench.workload import WorkloadMessage

TABLES = """
CREATE TABLE IF NOT EXISTS sessions(
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, started REAL, last_active REAL,
    message_count INTEGER, preview TEXT);
CREATE TABLE IF NOT EXISTS messages(
    id INTEGER PRIMARY KEY, session INTEGER, position INTEGER, time REAL,
    role TEXT, content TEXT, calls TEXT, answers TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS messages_session ON messages(session, position);
"""
BY_TIME = "CREATE INDEX IF NOT EXISTS sessions_by_time ON sessions(last_active)"
INDEX = """
CREATE VIRTUAL TABLE IF NOT EXISTS found
    USING fts5(content, content='messages', content_rowid='id');
"""
BUSY_MS = 30_000

ADD_SESSION = (
    "INSERT INTO sessions(name, started, last_active, message_count, preview) VALUES(?,?,?,1,?)"
)
TOUCH_SESSION = "UPDATE sessions SET last_active=?, message_count=message_count+1 WHERE id=?"
ADD_MESSAGE = (
    "INSERT INTO messages(session, position, time, role, content, calls, answers) "
    "VALUES(?,?,?,?,?,?,?)"
)
ADD_FOUND = "INSERT INTO found(rowid, content) VALUES(?,?)"
LOAD = (
    "SELECT position, time, role, content, calls, answers FROM messages "
    "WHERE session=(SELECT id FROM sessions WHERE name=?) ORDER BY position"
)
RECENT = (
    "SELECT name, started, last_active, message_count, preview FROM sessions "
    "ORDER BY last_active DESC LIMIT ?"
)
SEARCH = (
    "SELECT s.name, m.position, m.role, m.time, snippet(found, 0, '«', '»', '…', 16), m.session, "
    "m.content FROM found "
    "JOIN messages m ON m.id=found.rowid JOIN sessions s ON s.id=m.session "
    "WHERE found MATCH ? ORDER BY {order} LIMIT 20"
)
AROUND = (
    "SELECT position, time, role, content, calls, answers FROM messages "
    "WHERE session=? AND position BETWEEN ?-1 AND ?+1"
)
BEST, NEWEST = SEARCH.format(order="found.rank"), SEARCH.format(order="found.rowid DESC")


def open_database(folder: Path, indexed: bool) -> apsw.Connection:
    db = apsw.Connection(str(folder / "floor.db"))
    db.set_busy_timeout(BUSY_MS)
    db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
    db.execute("BEGIN IMMEDIATE;" + TABLES + (INDEX if indexed else "") + "COMMIT")
    return db


class PlainFloor(MeasuredStore):
    """One commit, and thus one flush, per message; no search."""

    indexed = False

    def __init__(self, folder: Path) -> None:
        self.db = open_database(folder, self.indexed)
        self.execute = self.db.cursor().execute
        self.sessions: dict[str, list[int]] = {}  # name -> [row, next position]
        self.lock = threading.Lock()
        self.ordered = False

    def insert(self, session: str, said: WorkloadMessage) -> None:
        now = time.time()
        known = self.sessions.get(session)
        if known is None:
            self.execute(ADD_SESSION, (session, now, now, said.text[:80]))
            known = self.sessions[session] = [self.db.last_insert_rowid(), 0]
        else:
            self.execute(TOUCH_SESSION, (now, known[0]))
        call = said.call
        calls = None
        if call:
            calls = json.dumps([{"id": call.id, "name": call.name, "arguments": call.arguments}])
        row = (known[0], known[1], now, said.role, said.text, calls, said.answers)
        self.execute(ADD_MESSAGE, row)
        if self.indexed:
            self.execute(ADD_FOUND, (self.db.last_insert_rowid(), said.text))
        known[1] += 1

    def append(self, session: str, said: WorkloadMessage) -> None:
        with self.lock:
            self.execute("BEGIN IMMEDIATE")
            self.insert(session, said)
            self.execute("COMMIT")

    def load(self, session: str) -> int:
        rows: list[tuple[Any, ...]] = self.execute(LOAD, (session,)).fetchall()
        loads = json.loads
        # A caller cannot use calls that are still JSON text, so decoding them is part of the work.
        return len([(*row[:4], loads(row[4]) if row[4] else None, row[5]) for row in rows])

    def list_recent(self, limit: int) -> int:
        if not self.ordered:
            # Created here and not with the tables, so that appends are measured without it.
            self.execute(BY_TIME)
            self.ordered = True
        return len(self.execute(RECENT, (limit,)).fetchall())

    def close(self) -> None:
        self.db.close()


class IndexedFloor(PlainFloor):
    """The same with one full-text table, updated in the same transaction."""

    indexed = True
    fresh = f"""
import apsw, time
from sys import argv
db = apsw.Connection(argv[1] + "/floor.db")
db.set_busy_timeout({BUSY_MS})
db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
db.execute('''BEGIN IMMEDIATE;{TABLES}{INDEX}COMMIT''')
now = time.time()
db.execute("BEGIN IMMEDIATE")
db.execute("{ADD_SESSION}", ("s", now, now, "hello there"))
db.execute("{ADD_MESSAGE}", (1, 0, now, "user", "hello there", None, None))
db.execute("{ADD_FOUND}", (1, "hello there"))
db.execute("COMMIT")
"""

    def search(self, query: str, newest: bool, around: bool = True) -> int:
        hits = self.execute(NEWEST if newest else BEST, (query,)).fetchall()
        if around:
            for _, position, _, _, _, session, _ in hits:
                self.execute(AROUND, (session, position, position)).fetchall()
        return len(hits)


class SharedFloor(PlainFloor):
    """One writer thread that commits all waiting messages together and answers them at once."""

    batch = 256

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.waiting: queue.SimpleQueue[tuple[str, WorkloadMessage, threading.Lock] | None]
        self.waiting = queue.SimpleQueue()
        self.writer = threading.Thread(target=self.write, daemon=True)
        self.writer.start()

    def append(self, session: str, said: WorkloadMessage) -> None:
        done = threading.Lock()
        done.acquire()
        self.waiting.put((session, said, done))
        done.acquire()

    def write(self) -> None:
        while (work := self.waiting.get()) is not None:
            batch: list[Any] = [work]
            while len(batch) < self.batch and not self.waiting.empty():
                batch.append(self.waiting.get())
            stop = batch[-1] is None
            batch = [work for work in batch if work]
            self.execute("BEGIN IMMEDIATE")
            for session, said, _ in batch:
                self.insert(session, said)
            self.execute("COMMIT")
            for _, _, done in batch:
                done.release()
            if stop:
                return

    def close(self) -> None:
        self.waiting.put(None)
        self.writer.join()
        super().close()


class SharedPlainFloor(SharedFloor):
    """Shared commits without search."""


class SharedIndexedFloor(SharedFloor, IndexedFloor):
    """Shared commits with the full-text table."""
