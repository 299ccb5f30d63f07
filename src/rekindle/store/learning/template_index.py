"""The index of template files: find those that fit a session without reading them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekindle.store.core.engine import StorePart
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.tables import TEMPLATES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import Template

_UPSERT = TEMPLATES.build_upsert("id")
_BATCH_SIZE = 500  # sessions asked for with one statement


class IndexedTemplate(NamedTuple):
    """An active template as the index knows it; `projects` are those of its notes."""

    id: str
    projects: frozenset[str]
    is_shared: bool
    owner: str | None  # the only owner of its sessions, as its file says
    sources: tuple[str, ...]


class TemplateIndex(StorePart):
    """Updates and searches the index. Use `store.template_index`."""

    def load_stamps(self) -> dict[str, str]:
        """Return the indexed templates and the stamps of the files they were read from."""
        rows = self._select("SELECT id, stamp FROM templates")
        return {unescape_text(id): unescape_text(stamp) for id, stamp in rows}

    def put(self, template: Template, stamp: str, *, is_shared: bool, owner: str | None) -> None:
        """Add a template to the index, replacing its previous version."""
        projects = {template.project, *(note.project for note in template.notes)} - {None}
        row = (
            escape_text(template.id),
            escape_text(stamp),
            template.state,
            encode_json(sorted(projects, key=str)),
            int(is_shared),
            None if owner is None else escape_text(owner),
            encode_json(list(template.sources)),
        )
        self._write(lambda tx: tx.run(_UPSERT, row))

    def drop(self, ids: Iterable[str]) -> None:
        """Remove templates from the index."""
        names = [(escape_text(id),) for id in ids]
        self._write(lambda tx: tx.run_many("DELETE FROM templates WHERE id = ?", names))

    def find_fitting(self, project: str | None) -> list[IndexedTemplate]:
        """Return active templates of a project, those that are shared, and those of no project."""
        rows = self._select(
            "SELECT id, projects, is_shared, owner, CASE WHEN is_shared = 1 OR projects = '[]'"
            " OR projects LIKE ? ESCAPE '\\' THEN sources END FROM templates WHERE state = 'active'",
            (f"%{_escape_like(encode_json(project))}%",),
        )
        found = [
            IndexedTemplate(
                unescape_text(id),
                frozenset(decode_json(projects)),
                bool(is_shared),
                None if owner is None else unescape_text(owner),
                tuple(decode_json(sources)),
            )
            for id, projects, is_shared, owner, sources in rows
            if sources is not None
        ]
        return [
            one for one in found if one.is_shared or project in one.projects or not one.projects
        ]

    def count_uses(self, template: str) -> int:
        """Return how many sessions were started from a template, without their continuations."""
        return self._select(
            "SELECT count(*) FROM sessions WHERE template = ? AND parent IS NULL"
            " AND arm NOT IN ('cold', 'placebo')",
            (escape_text(template),),
        )[0][0]

    def load_origins(self, sessions: Sequence[str]) -> set[tuple[str | None, str | None]]:
        """Return the owners and projects of sessions; a session that is gone has neither."""
        found: set[tuple[str | None, str | None]] = set()
        for start in range(0, len(sessions), _BATCH_SIZE):
            batch = [escape_text(one) for one in sessions[start : start + _BATCH_SIZE]]
            rows = self._select(
                f"SELECT owner, project FROM sessions WHERE id IN ({', '.join('?' * len(batch))})",
                batch,
            )
            found |= {
                (unescape_text(owner) if owner else None, project and unescape_text(project))
                for owner, project in rows
            }
            if len(rows) < len(batch):
                found.add((None, None))
        return found


def _escape_like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
