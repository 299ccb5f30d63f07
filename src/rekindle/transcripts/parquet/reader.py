"""Read an archive in Parquet with DuckDB: the same judged sessions as from a store."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from rekindle.analytics.outcome_rates import OutcomeCount
from rekindle.errors import InvalidInput, NotFound
from rekindle.projects import KnownProjects
from rekindle.store import Filter
from rekindle.store.core.filter import PROJECT_KEY
from rekindle.store.core.text_encoding import unescape_text
from rekindle.types import JudgedCall, JudgedSession

from .tables import (
    CALL_COLUMNS,
    COLUMNS,
    FILE_NAME,
    SESSION_COLUMNS,
    require_library,
    row_to_call,
    row_to_session,
)

ROWS_PER_FETCH = 5_000
_NO_CALLS: tuple[str | None, list[JudgedCall]] = (None, [])

# The names that conditions of a filter use: a session's number is its id here.
_VIEWS = (
    "CREATE VIEW sessions AS SELECT *, id AS num, lower(title) AS title_base, 0 AS title_number"
    " FROM read_parquet({sessions}, hive_partitioning = false)",
    "CREATE VIEW calls AS SELECT * REPLACE (CAST(failed AS INTEGER) AS failed)"
    " FROM read_parquet({calls}, hive_partitioning = false)",
    "CREATE VIEW session_outcomes AS SELECT id AS session, coalesce(verdict, 'unknown') AS verdict"
    " FROM sessions",
)


class ParquetArchive:
    """The sessions and judged calls of an archive."""

    def __init__(self, folder: Path, connection: Any, now: float) -> None:
        self._folder = folder
        self._connection = connection
        self._now = now

    def load_projects(self) -> KnownProjects:
        """Return the projects of the sessions."""
        rows = self._run(f"SELECT DISTINCT {PROJECT_KEY} FROM sessions s ORDER BY 1", [])
        return KnownProjects([unescape_text(key) for (key,) in rows if key], {})

    def iter_judged_sessions(self, where: Filter) -> Iterator[JudgedSession]:
        """Yield sessions with their judged calls, in order of their start."""
        condition, params = where.to_sql(self._now)
        names = ", ".join(f's."{name}"' for name in SESSION_COLUMNS)
        order = "s.started, s.number, s.id"
        sessions = self._run(
            f"SELECT {names} FROM sessions s WHERE {condition} ORDER BY {order}", params
        )
        calls = self._iter_calls(condition, params, order)
        current, following = next(calls, _NO_CALLS)
        for values in sessions:
            row = dict(zip(SESSION_COLUMNS, values, strict=True))
            session, found = row_to_session(row), ()
            if current == session.id:
                found = tuple(following)
                current, following = next(calls, _NO_CALLS)
            yield JudgedSession(session, found, tuple(row["compressions"] or ()))

    def count_outcomes(self, where: Filter) -> list[OutcomeCount]:
        """Count the sessions of each source, project and verdict."""
        condition, params = where.to_sql(self._now)
        rows = self._run(
            "SELECT s.source, s.project, coalesce(s.verdict, 'unknown'), count(*) FROM sessions s"
            f" WHERE {condition} GROUP BY ALL ORDER BY ALL",
            params,
        )
        return [
            OutcomeCount(unescape_text(source), project and unescape_text(project), verdict, count)
            for source, project, verdict, count in rows
        ]

    def iter_rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table by session, in the order of the sessions' start.

        An archive of an earlier version has no table `usage`.
        """
        names, order = [*COLUMNS[table]], "s.started, s.number, s.id"
        columns = ", ".join(f't."{name}"' for name in names)
        if table == "sessions":
            source = "sessions t JOIN sessions s ON s.id = t.id"
        elif table == "usage" and not any(self._folder.glob(f"{table}/month=*/{FILE_NAME}")):
            return
        else:
            files = _list_files(self._folder, table)
            source = f"read_parquet({files}, hive_partitioning = false) t"
            source += " JOIN sessions s ON s.id = t.session"
            order += {"messages": ", t.position", "calls": ", t.position, t.number"}.get(table, "")
        cursor = self._connection.cursor()
        cursor.execute(f"SELECT {columns} FROM {source} ORDER BY {order}")
        for row in _fetch_rows(cursor):
            yield dict(zip(names, row, strict=True))

    def _iter_calls(
        self, condition: str, params: list[Any], order: str
    ) -> Iterator[tuple[str, list[JudgedCall]]]:
        names = ", ".join(f'k."{name}"' for name in CALL_COLUMNS)
        cursor = self._connection.cursor()
        cursor.execute(
            f"SELECT {names} FROM calls k JOIN sessions s ON s.id = k.session WHERE {condition}"
            f" ORDER BY {order}, k.position, k.number",
            params,
        )
        for id, rows in groupby(_fetch_rows(cursor), key=lambda row: row[0]):
            yield unescape_text(id), [_make_call(row) for row in rows]

    def _run(self, sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, params).fetchall()


@contextmanager
def open_archive(
    folder: Path, now: float, *, temporary: Path | None = None
) -> Generator[ParquetArchive]:
    """Open the archive in a folder that `rekindle sessions export --format parquet` has written.

    What does not fit into memory while it is sorted goes to the folder `temporary`, if one is given.
    """
    duckdb = require_library("duckdb", "duckdb")
    files = {table: _list_files(folder, table) for table in ("sessions", "calls")}
    # Nothing is installed from the network.
    config = {"autoinstall_known_extensions": "false"}
    if temporary is not None:
        config["temp_directory"] = str(temporary)
    connection = duckdb.connect(":memory:", config=config)
    try:
        for view in _VIEWS:
            connection.execute(view.format(**files))
        yield ParquetArchive(folder, connection, now)
    except duckdb.Error as error:
        message = " ".join(str(error).split())
        raise InvalidInput(f"{folder}: not an archive that can be read: {message:.300}") from None
    finally:
        connection.close()


def _list_files(folder: Path, table: str) -> str:
    """Return the files of a table as a list in SQL."""
    found = sorted(folder.glob(f"{table}/month=*/{FILE_NAME}"))
    if not found:
        raise NotFound(
            f"No sessions in {folder}. Write them with `rekindle sessions export -f parquet -o DIR`."
        )
    quoted = ", ".join("'" + _escape_glob(str(one)).replace("'", "''") + "'" for one in found)
    return f"[{quoted}]"


def _escape_glob(path: str) -> str:
    """Escape what DuckDB would take for a pattern."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _fetch_rows(cursor: Any) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(ROWS_PER_FETCH):
        yield from rows


def _make_call(row: tuple[Any, ...]) -> JudgedCall:
    call = row_to_call(dict(zip(CALL_COLUMNS, row, strict=True)))
    return call._replace(failed=None if call.failed is None else bool(call.failed))
