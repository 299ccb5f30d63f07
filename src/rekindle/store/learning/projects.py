"""The projects that sessions belong to: their keys, and what each of them has."""

from __future__ import annotations

from typing import NamedTuple

from rekindle.projects import KnownProjects
from rekindle.store.core.engine import Transaction
from rekindle.store.core.filter import PROJECT_KEY, Filter
from rekindle.store.core.text_encoding import escape_text, unescape_text

_STORED = f"FROM sessions s WHERE s.pruned IS NULL AND {PROJECT_KEY}"
# One step of the index per project, however many sessions it has.
SELECT_KEYS = (
    f"WITH RECURSIVE found(key) AS (SELECT min({PROJECT_KEY}) {_STORED} IS NOT NULL"
    f" UNION ALL SELECT (SELECT min({PROJECT_KEY}) {_STORED} > found.key) FROM found"
    " WHERE found.key IS NOT NULL) SELECT key FROM found WHERE key IS NOT NULL"
)
_SELECT_OWNER_KEYS = (
    f"SELECT DISTINCT {PROJECT_KEY} {_STORED} IS NOT NULL AND s.owner <> '' AND s.owner = ?"
)


class ProjectSessions(NamedTuple):
    """The sessions of one source that are stored under one key; the key is None without a project."""

    key: str | None
    source: str
    sessions: int
    last_active: float


class ProjectStarts(NamedTuple):
    """The sessions that were started under one key within an hour (since 1970, UTC)."""

    key: str
    hour: int
    sessions: int


class ProjectCalls(NamedTuple):
    """The judged calls of one conversation under one key: how many failed, of how many."""

    key: str
    conversation: str  # the first known session of it
    sessions: int
    errors: int
    calls: int


def load_projects(tx: Transaction, owner: str | None) -> KnownProjects:
    """Load the projects of all sessions, or of an owner's."""
    sql, params = (
        (SELECT_KEYS, ()) if owner is None else (_SELECT_OWNER_KEYS, (escape_text(owner),))
    )
    keys = [unescape_text(key) for (key,) in tx.run(sql, params)]
    folders = tx.run("SELECT folder, project FROM folders")
    known = {unescape_text(folder): unescape_text(project) for folder, project in folders}
    return KnownProjects(keys, known)


def count_by_project(tx: Transaction, where: Filter, now: float) -> list[ProjectSessions]:
    """Count the sessions of each project and source."""
    condition, params = where.to_sql(now)
    rows = tx.run(
        f"SELECT {PROJECT_KEY}, s.source, count(*), max(s.last_active) FROM sessions s"
        f" WHERE {condition} GROUP BY {PROJECT_KEY}, s.source",
        params,
    )
    return [
        ProjectSessions(key and unescape_text(key), unescape_text(source), count, last)
        for key, source, count, last in rows
    ]


def count_starts(tx: Transaction, since: float) -> list[ProjectStarts]:
    """Count the sessions of each project that were started since a time, by hour."""
    rows = tx.run(
        f"SELECT {PROJECT_KEY}, CAST(s.started AS BIGINT) / 3600, count(*) FROM sessions s"
        # A session is active after its start: the index on activity finds it.
        " WHERE s.pruned IS NULL AND s.archived IS NULL AND s.last_active >= ? AND s.started >= ?"
        f" AND {PROJECT_KEY} IS NOT NULL GROUP BY 1, 2",
        (since, since),
    )
    return [ProjectStarts(unescape_text(key), int(hour), count) for key, hour, count in rows]


def count_calls(tx: Transaction, since: float) -> list[ProjectCalls]:
    """Count the judged calls of sessions that were active since a time, by project and conversation.

    What a fork repeats of its parent counts once.
    """
    rows = tx.run(
        f"SELECT {PROJECT_KEY}, coalesce(s.parent, s.id), count(DISTINCT s.num), sum(c.failed),"
        " count(*) FROM sessions s JOIN calls c ON c.session = s.num"
        " WHERE s.pruned IS NULL AND s.archived IS NULL AND s.last_active >= ?"
        f" AND {PROJECT_KEY} IS NOT NULL AND c.failed IS NOT NULL AND c.tool_kind <> 'bookkeeping'"
        " AND (s.forked_at IS NULL OR c.position > s.forked_at) GROUP BY 1, 2",
        (since,),
    )
    return [
        ProjectCalls(unescape_text(key), unescape_text(conversation), sessions, int(errors), calls)
        for key, conversation, sessions, errors, calls in rows
    ]
