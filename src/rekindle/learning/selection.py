"""Select the template, and the notes of it, that a new session is told besides those of its project.

A template fits if it was learned in the project of the session, or if a person shared it. Where many
people use one process, each is told only what is known from their own sessions. Nothing is selected if
nothing fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.knowledge.file_format import OWNER_KEY
from rekindle.knowledge.notes.note import RecalledNote
from rekindle.knowledge.notes.records import hash_words
from rekindle.knowledge.render import MAX_NOTES, Tools, is_usable
from rekindle.knowledge.template_notes import hash_named_words, rank_notes
from rekindle.projects import hash_folder
from rekindle.store import Store
from rekindle.store.learning.template_index import IndexedTemplate
from rekindle.types import Template, TemplateNote

from .library import SHARED_TAG, TemplateLibrary


class SessionScope(NamedTuple):
    """The project (see `hash_folder`) and the owner of a new session.

    `is_shared_process`: many people use the process.
    """

    project: str | None
    owner: str | None
    is_shared_process: bool = False


class FittingTemplate(NamedTuple):
    """A template that fits a session; `is_own` if it was learned in its project or by its owner."""

    template: Template
    is_own: bool


class ConsideredTemplate(NamedTuple):
    """A template that fits, how many of its notes can be used, and why it was selected or not."""

    template: str
    name: str
    notes: int
    words: int  # that its notes share with the request
    used: int
    reason: str


class Selection(NamedTuple):
    """The selected template and its notes, best first; no template if nothing fits."""

    template: Template | None
    notes: tuple[TemplateNote, ...]
    reason: str
    is_own: bool = False
    considered: tuple[ConsideredTemplate, ...] = ()

    def drop_known(self, told: Iterable[RecalledNote]) -> Selection:
        """Return the selection without what the session is told already."""
        known = {(note.kind, note.command, note.path) for note in told}
        notes = [note for note in self.notes if (note.kind, note.command, note.path) not in known]
        return self._replace(notes=tuple(notes))


def find_fitting_templates(
    store: Store,
    library: TemplateLibrary | None,
    scope: SessionScope,
    only: Sequence[Template] | None = None,
) -> list[FittingTemplate]:
    """Return the templates that fit a session; with `only`, those of them, whatever their state."""
    found: list[FittingTemplate] = []
    if only is None:
        indexed = store.template_index.find_fitting(scope.project)
    else:
        indexed = [describe_template(template) for template in only]
    for one in indexed:
        is_own = _is_in_project(store, one, scope) or (scope.is_shared_process and not one.projects)
        is_own = is_own and _is_visible(store, one, scope)
        if not one.is_shared and not is_own:
            continue
        try:
            template = library.read(one.id) if only is None and library is not None else None
        except (InvalidInput, NotFound, OSError):
            continue  # deleted or spoiled meanwhile
        template = template or next(each for each in only or () if each.id == one.id)
        if not one.is_shared:
            kept = [note for note in template.notes if note.project in (None, scope.project)]
            template = template._replace(notes=tuple(kept))
        found.append(FittingTemplate(template, is_own))
    return found


def describe_template(template: Template) -> IndexedTemplate:
    """Describe a template as the index does."""
    projects = {template.project, *(note.project for note in template.notes)}
    owner = template.scan.get(OWNER_KEY)
    return IndexedTemplate(
        template.id,
        frozenset(one for one in projects if one is not None),
        SHARED_TAG in template.tags,
        owner if isinstance(owner, str) else None,
        template.sources,
    )


def _is_in_project(store: Store, template: IndexedTemplate, scope: SessionScope) -> bool:
    if scope.project is None:
        return False
    if template.projects:
        return scope.project in template.projects
    # A template of an older version, which knew no projects.
    origins = store.template_index.load_origins(template.sources)
    return {hash_folder(project) for _, project in origins} == {scope.project}


def _is_visible(store: Store, template: IndexedTemplate, scope: SessionScope) -> bool:
    """Return whether the owner of the session may see what the sessions of the template did."""
    if scope.owner is None or template.owner == scope.owner:
        return True
    owners = {owner for owner, _ in store.template_index.load_origins(template.sources)}
    return owners == {scope.owner} if scope.is_shared_process else owners <= {scope.owner, None}


def is_owned_by(store: Store, template: Template, owner: str | None) -> bool:
    """Return whether a template was learned from one owner's sessions alone; all are without one."""
    return _is_visible(store, describe_template(template), SessionScope(None, owner, True))


def select_template(
    store: Store, fitting: Sequence[FittingTemplate], scope: SessionScope, text: str, tools: Tools
) -> Selection:
    """Select the template whose notes say most about the request; the least used if several do."""
    words = hash_words(text)
    considered: list[tuple[tuple[bool, int, int, str], FittingTemplate, tuple[TemplateNote, ...]]]
    considered = []
    for one in fitting:
        notes = select_notes(one.template, text, tools)
        named = (hash_named_words(note.command, note.path, note.asked) for note in notes)
        shared = len({word for each in named for word in each} & words)
        used = store.template_index.count_uses(one.template.id)
        if notes or one.template.seed.instructions:
            key = (not one.is_own, -shared, used, one.template.id)
            considered.append((key, one, notes))
    considered.sort(key=lambda each: each[0])
    reports = tuple(
        ConsideredTemplate(
            template=one.template.id,
            name=one.template.name,
            notes=len(notes),
            words=-shared,
            used=used,
            reason=_explain_fit(one, scope)
            if not number
            else "another says more about the request",
        )
        for number, ((_, shared, used, _), one, notes) in enumerate(considered)
    )
    if not considered:
        reason = (
            "no template fits" if not fitting else "its notes need tools that are not available"
        )
        return Selection(None, (), reason)
    _, best, notes = considered[0]
    return Selection(best.template, notes, _explain_fit(best, scope), best.is_own, reports)


def select_notes(template: Template, text: str, tools: Tools) -> tuple[TemplateNote, ...]:
    """Return the notes of a template that these tools can use, the best for the request first."""
    usable = [note for note in template.notes if is_usable(note, tools)]
    return tuple(rank_notes(usable, text)[: 4 * MAX_NOTES])


def _explain_fit(one: FittingTemplate, scope: SessionScope) -> str:
    name = f"“{one.template.name}”"
    if not one.is_own:
        return f"{name} is shared"
    where = "in this project" if scope.project is not None else "from this user's sessions"
    return f"{name} was learned {where}"
