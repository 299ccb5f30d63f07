"""Many synthetic sessions in a PostgreSQL store, written by COPY past the store's own code.

Texts come from a pool that is drawn like those of the other benches; each message has a word of its own
besides. Indexes of the large tables are dropped before and built after, as one would do for a bulk load.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import psycopg

from bench.peers.rekindle import build_message
from bench.workload import MESSAGES, RHYTHM, SEED, WorkloadCall, WorkloadMessage, make_prose
from rekindle.store.core.rows import (
    MESSAGE_VALUES,
    get_row_search_text,
    message_to_values,
)
from rekindle.store.engines.words.project_numbers import compute_project_number
from rekindle.store.engines.words.vectors import build_vectors

MEAN_BYTES = 300
POOL = 5_000  # texts of each kind of message
PROJECTS = 200
START = 1_700_000_000.0
SESSIONS_PER_COPY = 5_000
CHUNK = 2_000  # lines per write
_LARGE_INDEXES = (
    "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('messages', 'words')"
    " AND schemaname = 'public' AND indexname NOT LIKE '%_pkey'"
)
_DROP_KEYS = (
    "ALTER TABLE words DROP CONSTRAINT IF EXISTS words_id_fkey;"
    " ALTER TABLE messages DROP CONSTRAINT IF EXISTS messages_session_fkey"
)
_ADD_KEYS = (
    "ALTER TABLE words ADD CONSTRAINT words_id_fkey FOREIGN KEY (id) REFERENCES messages (id)"
    " ON DELETE CASCADE NOT VALID;"
    " ALTER TABLE messages ADD CONSTRAINT messages_session_fkey FOREIGN KEY (session)"
    " REFERENCES sessions (num) NOT VALID"
)
_ADD_SESSIONS = f"""
INSERT INTO sessions (num, id, source, owner, title, title_base, title_number, started, last_active,
    next_position, message_count, tool_call_count, model, cwd, repository, preview, last_request)
SELECT n, md5(n::text), (ARRAY['claude-code', 'codex', 'opencode', 'gemini'])[1 + mod(n, 4)], '',
    CASE WHEN mod(n, 2) = 0 THEN 'Plan ' || n END, CASE WHEN mod(n, 2) = 0 THEN 'plan ' || n END,
    CASE WHEN mod(n, 2) = 0 THEN 1 END, {START} + n * 60, {START} + n * 60 + 800, {MESSAGES}, {MESSAGES},
    {MESSAGES // 3}, 'model', '/home/ada/project-' || mod(n, {PROJECTS}),
    'example.com/team/project-' || mod(n, {PROJECTS}), 'Mend part ' || n, 'Mend part ' || n
FROM generate_series(%s::bigint, %s::bigint) n
"""


class PoolRow(NamedTuple):
    """What COPY needs of a message besides its place, escaped."""

    values: str
    vector: str
    words: int
    text_bytes: int


def count_sessions(url: str) -> int:
    """Return how many sessions a database was filled with."""
    with psycopg.connect(url) as connection:
        sql = "SELECT coalesce(max(num), 0) FROM sessions WHERE id NOT LIKE 'new-%'"
        row = connection.execute(sql).fetchone()
    return row[0] if row else 0


def add_sessions(url: str, first: int, last: int) -> dict[str, Any]:
    """Add the sessions with the numbers `first` to `last`; return how long it took."""
    begun = time.monotonic()
    with psycopg.connect(url) as connection:
        connection.execute("SET maintenance_work_mem = '1GB'; SET synchronous_commit = off")
        definitions = connection.execute(_LARGE_INDEXES).fetchall()
        for name, _ in definitions:
            connection.execute(f"DROP INDEX {name}")  # pyright: ignore
        connection.execute(_DROP_KEYS)
        # What was appended in measurements has their numbers.
        last_id = (first - 1) * MESSAGES
        connection.execute("DELETE FROM words WHERE id > %s", (last_id,))
        connection.execute("DELETE FROM messages WHERE id > %s", (last_id,))
        connection.execute("DELETE FROM sessions WHERE num >= %s", (first,))
        connection.execute(_ADD_SESSIONS, (first, last))  # pyright: ignore
        text_bytes = _copy_messages(connection, first, last)
        copied = time.monotonic()
        for _, definition in definitions:
            connection.execute(definition)  # pyright: ignore
        connection.execute(_ADD_KEYS)
        for table, key in (("sessions", "num"), ("messages", "id")):
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), max({key})) FROM {table}"  # pyright: ignore
            )
    loaded = time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) sessions")
        connection.execute("VACUUM (ANALYZE) title_parts")
        connection.execute("VACUUM (ANALYZE) messages")
        connection.execute("VACUUM (ANALYZE) words")
        connection.execute("CHECKPOINT")
    return {
        "load_s": loaded - begun,
        "index_s": loaded - copied,
        "vacuum_s": time.monotonic() - loaded,
        "text_bytes": text_bytes,
    }


def _copy_messages(connection: psycopg.Connection[Any], first: int, last: int) -> int:
    """Write messages and their words, some sessions at a time; return the bytes of their texts."""
    pool, total = _make_pool(), 0
    rng = random.Random(f"{SEED}:scale:{first}")
    values = ", ".join(MESSAGE_VALUES.split(", ")[2:])
    for start in range(first, last + 1, SESSIONS_PER_COPY):
        rows: list[str] = []
        words: list[str] = []
        end = min(start + SESSIONS_PER_COPY - 1, last)
        for id, num, position, row in _iter_places(pool, rng, start, end):
            stamp = START + num * 60 + position * 20
            rows.append(f"{id}\t{num}\t{position}\t{row.values.format(id=id, time=stamp)}\n")
            project = _number_project(num % PROJECTS)
            vector = f"{row.vector} 'u{id}':{row.words + 1}"
            words.append(f"{id}\t0\t{vector}\t{project}\t{num}\t{stamp}\n")
            total += row.text_bytes
        _copy(connection, f"messages (id, session, position, {values})", rows)
        _copy(connection, "words (id, part, text, project, session, time)", words)
    return total


@cache
def _number_project(number: int) -> int:
    return compute_project_number(f"example.com/team/project-{number}")


def _copy(connection: psycopg.Connection[Any], target: str, lines: list[str]) -> None:
    with connection.cursor().copy(f"COPY {target} FROM STDIN") as copy:  # pyright: ignore
        for start in range(0, len(lines), CHUNK):
            copy.write("".join(lines[start : start + CHUNK]))


def _iter_places(
    pool: list[list[PoolRow]], rng: random.Random, first: int, last: int
) -> Iterator[tuple[int, int, int, PoolRow]]:
    for num in range(first, last + 1):
        for position in range(MESSAGES):
            rows = pool[position % len(RHYTHM)]
            id = (num - 1) * MESSAGES + position + 1
            yield id, num, position, rows[int(rng.random() * len(rows))]


@cache
def _make_pool() -> list[list[PoolRow]]:
    """Make texts for each step of the rhythm of an agent."""
    rng = random.Random(f"{SEED}:scale")
    kinds = {kind: [_make_row(rng, kind) for _ in range(POOL)] for kind in dict.fromkeys(RHYTHM)}
    return [kinds[kind] for kind in RHYTHM]


def _make_row(rng: random.Random, kind: str) -> PoolRow:
    text, call, answers = make_prose(rng, MEAN_BYTES), None, None
    if kind == "call":
        call = WorkloadCall(f"call_{rng.getrandbits(48):012x}", "read_file", '{"path": "src/a.py"}')
    elif kind == "tool":
        answers = f"call_{rng.getrandbits(48):012x}"
    role = "assistant" if kind == "call" else kind
    values = message_to_values(
        build_message(WorkloadMessage(role, text, call, answers)), 0.0, None, None
    )
    names = MESSAGE_VALUES.split(", ")[2:]
    fields = dict(zip(names, values, strict=True))
    (vector, *_) = build_vectors(get_row_search_text(fields["content"], fields["body"]))
    shown: list[str] = []
    for name, value in fields.items():
        if name == "time":
            shown.append("{time}")
        elif value is None:
            shown.append("\\N")
        else:
            cell = _escape(str(value)).replace("{", "{{").replace("}", "}}")
            shown.append(f"{cell} u{{id}}" if name == "content" else cell)
    return PoolRow("\t".join(shown), _escape(vector), vector.count(":"), len(text))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
