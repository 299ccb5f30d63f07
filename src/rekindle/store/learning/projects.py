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
