"""What learning keeps: observations of sessions, projects of folders, playbooks of projects.

Observations and playbooks are derived data in a form that only `knowledge` reads. A session is stale if
it changed since it was observed, or was observed by another version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rekindle.routing.key import KEY_PREFIX
from rekindle.routing.source import LOCAL
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.tables import NOTE_DECISIONS
from rekindle.store.core.text_encoding import escape_text, unescape_text

# Derived data that a new project of a session does not outdate.
_DERIVED_TABLES = ("judged_sessions", "observations", "session_outcomes")
# Owners of sessions on platforms, and of those in a terminal.
_KEYS, _LOCAL_KEYS = f"{KEY_PREFIX}:", f"{KEY_PREFIX}:{LOCAL}:"
_BATCH_SIZE = 500  # sessions asked for with one statement
_DECISION_COLUMNS = "note, state, text, time, origin"
_UPSERT_DECISION = NOTE_DECISIONS.build_upsert("project, note")
# Rows among the playbooks that list sessions whose projects have yet to be renewed. No project has
# such a name: those of folders and repositories contain no blank after the first word.
_UNFINISHED, _AFTER_UNFINISHED = "unfinished run ", "unfinished run!"
_SESSION_COLUMNS = (
    "s.num, s.id, s.changes, s.message_count, s.cwd, s.repository, s.project, s.started,"
    " s.git_branch"
)


class UnobservedSession(NamedTuple):
    """A session that is to be observed."""

    num: int
    id: str
    changes: int
    messages: int
    cwd: str | None
    repository: str | None
    project: str | None
    started: float
    git_branch: str | None = None


class ObservedSession(NamedTuple):
    """The observation of a session, and the project that it belongs to."""

    project: str | None
    data: bytes


class StoredFolder(NamedTuple):
    """The project of a folder, and how often its sessions named each remote."""

    project: str
    remotes: Mapping[str, int]


class NoteDecision(NamedTuple):
    """A decision about a note: pinned, retired, added with this text, or proposed with it.

    `origin` says as JSON where the text comes from, if a model proposed it.
    """

    note: str
    state: str
    text: str | None = None
    time: float = 0.0
    origin: str | None = None


class Observations:
    """The observations of a store. Use `store.observations`."""

    def __init__(
        self, engine: Engine, write: Callable[[Callable[[Transaction], Any]], Any]
    ) -> None:
        self._engine = engine
        self._write = write

    def find_stale(self, version: str) -> list[UnobservedSession]:
        """Return the sessions that this version has not observed in their current state."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                f"SELECT {_SESSION_COLUMNS}"
                " FROM sessions s LEFT JOIN observations o ON o.session = s.num"
                " WHERE s.pruned IS NULL"
                " AND (o.session IS NULL OR o.version <> ? OR o.changes <> s.changes)"
                " ORDER BY s.started, s.num",
                (version,),
            )
        return [_make_session(row) for row in rows]

    def save(
        self,
        version: str,
        observed: Sequence[tuple[UnobservedSession, bytes]],
        *,
        unfinished: str | None = None,
    ) -> None:
        """Save observations; those of deleted sessions are dropped.

        With a name, they are listed as `unfinished` in the same transaction, for a run that is ended
        before the playbooks of their projects are renewed.
        """
        rows = [(one.num, version, one.changes, data, one.num) for one, data in observed]
        nums = encode_json([one.num for one, _ in observed]).encode()

        def save(tx: Transaction) -> None:
            tx.run_many(
                "INSERT INTO observations (session, version, changes, data)"
                " SELECT ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE num = ?)"
                " ON CONFLICT (session) DO UPDATE SET version = excluded.version,"
                " changes = excluded.changes, data = excluded.data",
                rows,
            )
            if unfinished is not None:
                tx.run(
                    "INSERT INTO playbooks (project, version, data) VALUES (?, '', ?)",
                    (_UNFINISHED + unfinished, nums),
                )

        self._write(save)

    def load_unfinished(
        self, version: str
    ) -> tuple[list[str], list[tuple[UnobservedSession, bytes]]]:
        """Return the names that `save` got and nobody finished, and the observations they list."""
        found: list[tuple[UnobservedSession, bytes]] = []
        with self._engine.begin_read() as tx:
            rows = tx.run(
                "SELECT project, data FROM playbooks WHERE project >= ? AND project < ?",
                (_UNFINISHED, _AFTER_UNFINISHED),
            )
            nums = sorted({num for _, data in rows for num in decode_json(bytes(data).decode())})
            for start in range(0, len(nums), _BATCH_SIZE):
                batch = nums[start : start + _BATCH_SIZE]
                observed = tx.run(
                    f"SELECT {_SESSION_COLUMNS}, o.data FROM sessions s JOIN observations o"
                    f" ON o.session = s.num WHERE s.num IN ({', '.join('?' * len(batch))})"
                    " AND o.version = ?",
                    (*batch, version),
                )
                found += [(_make_session(row[:-1]), bytes(row[-1])) for row in observed]
        return [name.removeprefix(_UNFINISHED) for name, _ in rows], found

    def finish(self, names: Sequence[str]) -> None:
        """Forget these names of unfinished observations: their playbooks were renewed."""
        rows = [(_UNFINISHED + name,) for name in names]
        if rows:
            self._write(lambda tx: tx.run_many("DELETE FROM playbooks WHERE project = ?", rows))

    def load_newest(
        self, project: str, version: str, limit: int, *, owner: str | None = None
    ) -> list[bytes]:
        """Return this version's observations of a project's newest sessions, newest first.

        With an `owner`, only of that owner's sessions. Without one, of all that nobody had in a chat
        on a platform: whoever may write there would else teach everybody's sessions.
        """
        condition, params = " AND s.owner = ?", [owner or ""]
        if owner is None:
            condition = (
                " AND (s.owner IS NULL OR substr(s.owner, 1, ?) <> ? OR substr(s.owner, 1, ?) = ?)"
            )
            params = [len(_KEYS), _KEYS, len(_LOCAL_KEYS), _LOCAL_KEYS]
        with self._engine.begin_read() as tx:
            rows = tx.run(
                "SELECT o.data FROM sessions s JOIN observations o ON o.session = s.num"
                f" WHERE s.project = ? AND s.pruned IS NULL AND o.version = ?{condition}"
                " ORDER BY s.last_active DESC LIMIT ?",
                (
                    escape_text(project),
                    version,
                    *(escape_text(one) if isinstance(one, str) else one for one in params),
                    limit,
                ),
            )
        return [bytes(data) for (data,) in rows]

    def load_sessions(self, sessions: Sequence[str], version: str) -> dict[str, ObservedSession]:
        """Return this version's observations of some sessions, by session."""
        found: dict[str, ObservedSession] = {}
        with self._engine.begin_read() as tx:
            for start in range(0, len(sessions), _BATCH_SIZE):
                batch = [escape_text(id) for id in sessions[start : start + _BATCH_SIZE]]
                rows = tx.run(
                    "SELECT s.id, s.project, o.data FROM sessions s JOIN observations o"
                    f" ON o.session = s.num WHERE s.id IN ({', '.join('?' * len(batch))})"
                    " AND o.version = ?",
                    (*batch, version),
                )
                found |= {
                    unescape_text(id): ObservedSession(_unescape_optional(project), bytes(data))
                    for id, project, data in rows
                }
        return found

    def list_projects(self) -> list[tuple[str, int, float]]:
        """Return each project with the number of its sessions and the time of the latest."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                "SELECT project, count(*), max(last_active) FROM sessions"
                " WHERE project IS NOT NULL AND pruned IS NULL GROUP BY project"
                " ORDER BY max(last_active) DESC"
            )
        return [(unescape_text(project), count, last) for project, count, last in rows]

    # ── folders

    def load_folders(self) -> dict[str, StoredFolder]:
        """Return what is known about every folder."""
        with self._engine.begin_read() as tx:
            rows = tx.run("SELECT folder, project, remotes FROM folders")
        return {
            unescape_text(folder): StoredFolder(unescape_text(project), decode_json(remotes))
            for folder, project, remotes in rows
        }

    def find_folder_projects(self, folders: Sequence[str]) -> dict[str, str]:
        """Return the projects of those folders that are known."""
        marks = ", ".join("?" * len(folders))
        with self._engine.begin_read() as tx:
            rows = tx.run(
                f"SELECT folder, project FROM folders WHERE folder IN ({marks})",
                [escape_text(folder) for folder in folders],
            )
        return {unescape_text(folder): unescape_text(project) for folder, project in rows}

    def save_folders(self, folders: Mapping[str, StoredFolder]) -> None:
        """Save the projects of folders."""
        rows = [
            (escape_text(folder), escape_text(one.project), encode_json(dict(one.remotes)))
            for folder, one in folders.items()
        ]
        self._write(
            lambda tx: tx.run_many(
                "INSERT INTO folders (folder, project, remotes) VALUES (?, ?, ?)"
                " ON CONFLICT (folder) DO UPDATE SET project = excluded.project,"
                " remotes = excluded.remotes",
                rows,
            )
        )

    def list_session_folders(self) -> list[str]:
        """Return every folder that a session worked in."""
        with self._engine.begin_read() as tx:
            rows = tx.run("SELECT DISTINCT cwd FROM sessions WHERE cwd IS NOT NULL")
        return [unescape_text(cwd) for (cwd,) in rows]

    def assign_project(self, cwd: str, project: str) -> list[str | None]:
        """Give all sessions of a folder their project; return the projects they had before."""
        return self._write(lambda tx: _assign_project(tx, escape_text(cwd), escape_text(project)))

    # ── playbooks

    def save_playbook(self, project: str, version: str, data: bytes) -> None:
        """Save the playbook of a project."""
        self._write(
            lambda tx: tx.run(
                "INSERT INTO playbooks (project, version, data) VALUES (?, ?, ?)"
                " ON CONFLICT (project) DO UPDATE SET version = excluded.version,"
                " data = excluded.data",
                (escape_text(project), version, data),
            )
        )

    def load_playbook(self, project: str, version: str) -> bytes | None:
        """Return the playbook of a project, if this version built one."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                "SELECT data FROM playbooks WHERE project = ? AND version = ?",
                (escape_text(project), version),
            )
        return bytes(rows[0][0]) if rows else None

    # ── decisions about notes

    def save_decision(self, project: str, decision: NoteDecision) -> None:
        """Save a decision about a note, in place of an earlier one."""
        row = _to_row(project, decision)
        self._write(lambda tx: tx.run(_UPSERT_DECISION, row))

    def propose_decision(self, project: str, decision: NoteDecision, limit: int) -> bool:
        """Save a decision about a note without one, unless `limit` notes are in this state."""
        values = (*_to_row(project, decision), escape_text(project), decision.state, limit)
        rows = self._write(
            lambda tx: tx.run(
                "INSERT INTO note_decisions (project, note, state, text, time, origin)"
                " SELECT ?, ?, ?, ?, ?, ? WHERE"
                " (SELECT count(*) FROM note_decisions WHERE project = ? AND state = ?) < ?"
                " ON CONFLICT (project, note) DO NOTHING RETURNING note",
                values,
            )
        )
        return bool(rows)

    def delete_decision(self, project: str, note: str) -> None:
        """Delete the decision about a note."""
        sql = "DELETE FROM note_decisions WHERE project = ? AND note = ?"
        self._write(lambda tx: tx.run(sql, (escape_text(project), note)))

    def load_decisions(self, project: str) -> list[NoteDecision]:
        """Return the decisions about the notes of a project, oldest first."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                f"SELECT {_DECISION_COLUMNS} FROM note_decisions WHERE project = ?"
                " ORDER BY time, note",
                (escape_text(project),),
            )
        return [_to_decision(row) for row in rows]

    def find_new_decisions(self, since: float, limit: int) -> list[tuple[str, NoteDecision]]:
        """Return the newest decisions since a time, each with its project, newest first."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                f"SELECT project, {_DECISION_COLUMNS} FROM note_decisions WHERE time >= ?"
                " ORDER BY time DESC, project, note LIMIT ?",
                (since, limit),
            )
        return [(unescape_text(project), _to_decision(row)) for project, *row in rows]


def delete_all_observations(tx: Transaction) -> None:
    """Delete everything that can be observed again."""
    tx.run("DELETE FROM playbooks")
    tx.run("DELETE FROM observations")


def _assign_project(tx: Transaction, cwd: str, project: str) -> list[str | None]:
    rows = tx.run(
        "SELECT num, project FROM sessions WHERE cwd = ? AND (project IS NULL OR project <> ?)",
        (cwd, project),
    )
    changed = [(num,) for num, _ in rows]
    tx.run_many(
        "UPDATE sessions SET changes = changes + 1, project = ? WHERE num = ?",
        [(project, num) for (num,) in changed],
    )
    for table in _DERIVED_TABLES:
        tx.run_many(f"UPDATE {table} SET changes = changes + 1 WHERE session = ?", changed)
    return [_unescape_optional(before) for before in Counter(before for _, before in rows)]


def _make_session(row: Sequence[Any]) -> UnobservedSession:
    num, id, changes, messages, cwd, repository, project, started, branch = row
    return UnobservedSession(
        num=num,
        id=unescape_text(id),
        changes=changes,
        messages=messages,
        cwd=_unescape_optional(cwd),
        repository=_unescape_optional(repository),
        project=_unescape_optional(project),
        started=started,
        git_branch=_unescape_optional(branch),
    )


def _to_row(project: str, decision: NoteDecision) -> tuple[Any, ...]:
    note, state, text, time, origin = decision
    return escape_text(project), note, state, _escape_optional(text), time, _escape_optional(origin)


def _to_decision(row: Sequence[Any]) -> NoteDecision:
    note, state, text, time, origin = row
    return NoteDecision(note, state, _unescape_optional(text), time, _unescape_optional(origin))


def _escape_optional(value: str | None) -> str | None:
    return None if value is None else escape_text(value)


def _unescape_optional(value: str | None) -> str | None:
    return None if value is None else unescape_text(value)
