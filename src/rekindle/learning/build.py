"""Build, extract, merge, import and edit template files, and update their index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from rekindle.analytics.profile import classify_task
from rekindle.errors import InvalidInput, NotFound
from rekindle.knowledge import file_format
from rekindle.knowledge import seed as extracting
from rekindle.knowledge.notes.records import SessionObservation
from rekindle.knowledge.redact_template import clean_foreign_note, count_slots, redact_template
from rekindle.knowledge.template_notes import (
    build_notes,
    join_observations,
    merge_notes,
    rank_notes,
)
from rekindle.projects import hash_folder, shorten_project
from rekindle.redaction.redactor import Redactor
from rekindle.store import Filter, Store
from rekindle.types import (
    JSON,
    Seed,
    Session,
    Template,
    TemplateNote,
    TemplateState,
    UserStyle,
    replace_fields,
    to_json_value,
)

from . import library
from .extract import extract_session
from .library import SHARED_TAG, TemplateLibrary, update_index
from .notes.learner import decode_observations, learn_from_sessions, load_observations
from .session_filter import BuildFilter, ScanReport, choose_sessions, list_sessions
from .template_slot import OverwriteCheck, TemplateSlot, validate_new_name
from .verdicts.judged_sessions import Progress, judge_sessions

MAX_PLAYBOOK_NOTES = 100
AUTOMATIC_MAX_ERROR_RATE = 0.1  # of the sessions that an automatic build may use
_REBUILDABLE = ("built", "automatic")

RedactionCounts = Mapping[str, Mapping[str, int]]  # kind of secret → location → count


def count_redactions(redactor: Redactor, template: Template | None = None) -> RedactionCounts:
    """Count what was removed, by kind and location; a `value` is one that the notes leave out."""
    found: dict[str, dict[str, int]] = {}
    for (kind, where), count in sorted(redactor.report.items()):
        found.setdefault(kind, {})[where] = count
    if template is not None and (slots := count_slots(template)):
        found["value"] = {"notes": slots}
    return found


class BuildResult(NamedTuple):
    """A template, the report on its sessions, and what it keeps from the revision it replaced."""

    template: Template
    scan: ScanReport
    kept: Mapping[str, JSON] = {}


def build_template(
    store: Store,
    template_library: TemplateLibrary,
    redactor: Redactor,
    name: str,
    wanted: BuildFilter | None = None,
    *,
    description: str | None = None,
    tags: Sequence[str] = (),
    automatic: bool = False,
    progress: Progress | None = None,
    overwrite_check: OverwriteCheck | None = None,
) -> BuildResult:
    """Build a template from what sessions share, or the next revision of one built before.

    Decisions made by a person are kept: the state, dropped notes, and the description and tags
    unless they are given.
    """
    wanted = (wanted or BuildFilter()).validate()
    if automatic:
        wanted = wanted._replace(
            max_error_rate=min(wanted.max_error_rate, AUTOMATIC_MAX_ERROR_RATE)
        )
    check = _make_build_check(automatic, overwrite_check)
    slot = TemplateSlot(template_library, redactor, name, description, tags, check)
    learned = learn_from_sessions(store, progress=progress)
    chosen = choose_sessions(store, wanted, learned.sessions)
    notes = _collect_notes(store, chosen.sessions, wanted.min_sessions)
    if not notes:
        raise NotFound(_explain_empty_build(chosen.report))
    projects = {note.project for note in notes}
    template = Template(
        slot.id,
        slot.name,
        _describe_sources(chosen.report),
        _pick_task_type(chosen.report),
        notes=tuple(notes),
        sources=tuple(one.id for one in chosen.sessions),
        state="quarantined" if automatic else "active",
        made="automatic" if automatic else "built",
        scan=to_json_value(chosen.report),
        project=projects.pop() if len(projects) == 1 else None,
    )
    kept = slot.write(template, wanted.max_notes)
    update_index(store, template_library)
    removed = {kind: sum(places.values()) for kind, places in count_redactions(redactor).items()}
    return BuildResult(kept, chosen.report._replace(removed=removed), slot.kept)


def _collect_notes(
    store: Store, sessions: Sequence[Session], min_sessions: int
) -> list[TemplateNote]:
    """Return the notes that sessions of a project share; those that continue each other count once."""
    parents = {one.id: one.parent for one in sessions}
    families: dict[tuple[str | None, str], list[SessionObservation]] = {}
    for id, (project, observation) in decode_observations(store, [*parents]).items():
        root = id
        while (parent := parents.get(root)) is not None:
            root = parent
        families.setdefault((hash_folder(project), root), []).append(observation)
    by_project: dict[str | None, list[SessionObservation]] = {}
    for (project, _), family in families.items():
        by_project.setdefault(project, []).append(join_observations(family))
    return rank_notes(
        note
        for project, observations in by_project.items()
        for note in build_notes(observations, project, min_sessions)
    )


def describe_playbook(store: Store, project: str) -> Template:
    """Return what is known about a project now as a template, which nobody has to build."""
    observations = load_observations(store, project)
    key, name = hash_folder(project), shorten_project(project)
    return Template(
        library.make_template_id(name.replace("/", " ")),
        name.replace("/", " "),
        f"What {len(observations)} sessions of this project learned.",
        notes=tuple(build_notes(observations, key, 2)[:MAX_PLAYBOOK_NOTES]),
        sources=tuple(one.session for one in observations),
        made="automatic",
        project=key,
    )


def _make_build_check(automatic: bool, overwrite_check: OverwriteCheck | None) -> OverwriteCheck:
    def explain_refusal(old: Template) -> str:
        if overwrite_check is not None and (why := overwrite_check(old)):
            return why
        if old.made not in _REBUILDABLE:
            return f"already exists and was {old.made}; delete it or choose another name"
        if automatic and old.made != "automatic":
            return "already exists and was built by hand; choose another name"
        return ""

    return explain_refusal


def _explain_empty_build(scan: ScanReport) -> str:
    why = ", ".join(f"{count} {reason}" for reason, count in scan.skipped.items())
    details = f" (skipped: {why})" if why else ""
    if not scan.qualified:
        return (
            f"none of {scan.scanned} sessions qualified{details};"
            " try --min-messages, --source or `rekindle import`"
        )
    return (
        f"{scan.qualified} of {scan.scanned} sessions have no useful notes in common"
        f"{details}; try --max-sessions or `rekindle warm extract`"
    )


def _describe_sources(scan: ScanReport) -> str:
    sources = ", ".join(list(scan.sources)[:4]) + (" …" if len(scan.sources) > 4 else "")
    return f"Learned from {scan.qualified} sessions of {sources}."


def _pick_task_type(scan: ScanReport) -> str:
    """Return the task type of most sessions, or mixed."""
    task, count = max(scan.tasks.items(), key=lambda pair: pair[1], default=("mixed", 0))
    return task if count > 0.6 * scan.qualified else "mixed"


def extract_template(
    store: Store,
    template_library: TemplateLibrary,
    redactor: Redactor,
    session: str,
    name: str,
    *,
    description: str | None = None,
    tags: Sequence[str] = (),
    owner: str | None = None,
    state: TemplateState = "active",
    overwrite_check: OverwriteCheck | None = None,
) -> Template:
    """Extract a template from one session: its subject, and a few commands that worked."""
    found = store.resolve(session, owner=owner)
    check = _make_extract_check(found.id, overwrite_check)
    slot = TemplateSlot(template_library, redactor, name, description, tags, check)
    extracted = extract_session(store, found)
    template = Template(
        slot.id,
        slot.name,
        f"Extracted from one session: {found.id}",
        classify_task(extracted.calls),
        notes=extracted.notes,
        seed=extracted.seed,
        sources=(found.id,),
        state=state,
        made="extracted",
        scan=_build_scan({found.source: 1}, {owner}),
        project=extracted.project,
    )
    kept = slot.write(template, extracting.MAX_EXTRACTED_NOTES)
    update_index(store, template_library)
    return kept


def _make_extract_check(session: str, overwrite_check: OverwriteCheck | None) -> OverwriteCheck:
    def explain_refusal(old: Template) -> str:
        if overwrite_check is not None and (why := overwrite_check(old)):
            return why
        if old.made != "extracted" or old.sources != (session,):
            return f"already exists, “{old.name}”; delete it or choose another name"
        return ""

    return explain_refusal


def _build_scan(sources: Mapping[str, int], owners: set[JSON]) -> dict[str, JSON]:
    """Build the scan data of a template that was not mined."""
    scan: dict[str, JSON] = {"sources": dict(sources)}
    if len(owners) == 1 and None not in owners:
        scan[file_format.OWNER_KEY] = owners.pop()
    return scan


def merge_templates(
    store: Store,
    template_library: TemplateLibrary,
    redactor: Redactor,
    names: Sequence[str],
    name: str,
    *,
    max_notes: int,
) -> Template:
    """Merge several templates into one: their notes and seeds without duplicates."""
    chosen = validate_new_name(name, redactor)
    parts = list({one.id: one for one in map(template_library.find, names)}.values())
    if len(parts) < 2:
        raise InvalidInput("merge: expected at least two different templates")
    inactive = next((one for one in parts if one.state != "active"), None)
    if inactive is not None:
        raise InvalidInput(f"template {inactive.id!r} is {inactive.state}; accept it first")
    notes = merge_notes(
        note._replace(project=note.project or one.project) for one in parts for note in one.notes
    )
    projects = {one.project for one in parts}
    tasks = {one.task_type for one in parts}
    template = Template(
        template_library.resolve_id(chosen),
        chosen,
        f"Merged from {', '.join(one.name for one in parts)}.",
        tasks.pop() if len(tasks) == 1 else "mixed",
        tuple(dict.fromkeys(tag for one in parts for tag in one.tags)),
        tuple(notes[:max_notes]),
        _merge_seeds([one.seed for one in parts]),
        tuple(dict.fromkeys(source for one in parts for source in one.sources)),
        made="merged",
        scan=_build_scan(
            _count_sources(parts), {one.scan.get(file_format.OWNER_KEY) for one in parts}
        ),
        project=projects.pop() if len(projects) == 1 else None,
    )
    kept = template_library.create(redact_template(template, redactor))
    update_index(store, template_library)
    return kept


def _count_sources(parts: Iterable[Template]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for one in parts:
        found.update(file_format.get_source_counts(one))
    return found


def _merge_seeds(seeds: Sequence[Seed]) -> Seed:
    """Merge seeds, taking items from each in turn, within the limits of one seed."""
    rules = _interleave_lists([seed.instructions for seed in seeds])[: extracting.MAX_INSTRUCTIONS]
    markers = _interleave_lists([seed.markers for seed in seeds])[: extracting.MAX_MARKERS]
    system = next((seed.system for seed in seeds if seed.system), "")
    return Seed(system, tuple(rules), tuple(markers), _merge_styles([one.style for one in seeds]))


def _interleave_lists(lists: Sequence[Sequence[str]]) -> list[str]:
    together = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(one for one in together if one is not None))


def _merge_styles(styles: Sequence[UserStyle]) -> UserStyle:
    total = sum(one.messages for one in styles)
    if not total:
        return UserStyle()

    def compute_mean(values: Iterable[float], digits: int) -> float:
        weighted = zip(values, styles, strict=True)
        return round(sum(value * one.messages for value, one in weighted) / total, digits)

    return UserStyle(
        total,
        compute_mean((one.mean_length for one in styles), 1),
        compute_mean((one.questions for one in styles), 3),
        compute_mean((one.commands for one in styles), 3),
        max(styles, key=lambda one: one.messages).preferred,
    )


class ImportResult(NamedTuple):
    """An imported template, what redaction removed, and how many notes were left out as unsafe."""

    template: Template
    removed: RedactionCounts
    dropped: int


def import_template(
    store: Store,
    template_library: TemplateLibrary,
    redactor: Redactor,
    data: bytes,
    where: str,
    name: str | None,
) -> ImportResult:
    """Import a template: validate it, redact it again, and quarantine it until it is accepted."""
    given, origin = library.parse_export(data, where)
    reduced = [clean_foreign_note(note) for note in given.notes]
    notes = tuple(note for note in reduced if note is not None)
    tags = tuple(tag for tag in given.tags if tag != SHARED_TAG)  # only a person here can share it
    template = redact_template(
        replace_fields(given, scan=_localize_scan(given, origin), notes=notes, tags=tags), redactor
    )
    chosen = template.name if name is None else validate_new_name(name, redactor)
    template = replace_fields(
        template,
        id=template_library.resolve_id(chosen),
        name=library.validate_template_name(chosen),
        state="quarantined",
        made="imported",
    )
    kept = template_library.create(template)
    update_index(store, template_library)
    return ImportResult(kept, count_redactions(redactor), len(given.notes) - len(notes))


def _localize_scan(given: Template, origin: Mapping[str, JSON]) -> dict[str, JSON]:
    """Remove data about the origin's owner and dropped notes, and add the provenance."""
    scan = {
        name: one
        for name, one in given.scan.items()
        if name not in (file_format.OWNER_KEY, file_format.DROPPED_KEY)
    }
    return {**scan, file_format.ORIGIN_KEY: dict(origin)} if origin else scan


class TemplateEdit(NamedTuple):
    """Changes to a template; `drop` holds prefixes of note ids."""

    description: str | None = None
    name: str | None = None
    tags: Sequence[str] = ()
    untags: Sequence[str] = ()
    drop: Sequence[str] = ()


def edit_template(
    store: Store,
    template_library: TemplateLibrary,
    redactor: Redactor,
    name: str,
    changes: TemplateEdit,
) -> Template:
    """Edit a template. Its id stays, and dropped notes stay dropped when it is rebuilt."""
    new_tags = library.validate_tags(changes.tags)
    description = changes.description
    if description is not None:
        library.validate_description(description)

    def apply_changes(old: Template) -> Template:
        gone = [_resolve_note_id(old, one) for one in changes.drop]
        dropped = dict.fromkeys((*file_format.get_dropped_notes(old), *gone))
        new = replace_fields(
            old,
            name=old.name if changes.name is None else library.validate_template_name(changes.name),
            description=old.description if description is None else description,
            tags=tuple(
                one for one in dict.fromkeys((*old.tags, *new_tags)) if one not in changes.untags
            ),
            notes=tuple(one for one in old.notes if one.id not in gone),
            scan={**old.scan, file_format.DROPPED_KEY: [*dropped]} if dropped else old.scan,
        )
        new = redact_template(new, redactor)
        if changes.name is not None:
            _require_free_name(template_library, new)
        return new

    kept = template_library.update(name, apply_changes)
    update_index(store, template_library)
    return kept


def _require_free_name(template_library: TemplateLibrary, template: Template) -> None:
    """Reject a name that another template already has."""
    others = [one.id for one in template_library.find_by_name(template.name)]
    others += [id for id in template_library.list_ids() if id == template.name]
    taken = next((id for id in others if id != template.id), None)
    if taken is not None:
        raise InvalidInput(f"template {taken!r} is already named {template.name!r}")


def _resolve_note_id(template: Template, prefix: str) -> str:
    found = [one.id for one in template.notes if prefix and one.id.startswith(prefix)]
    if len(found) != 1:
        problem = "more than one note id begins" if found else "no note id begins"
        raise NotFound(f"template {template.id!r}: {problem} with {prefix!r:.60}")
    return found[0]


def find_session_ids(store: Store, where: Filter) -> set[str]:
    """Return the ids of all sessions that match a filter, including archived ones."""
    return {one.id for one in list_sessions(store, where._replace(archived=None))}


def retire_template(store: Store, template_library: TemplateLibrary, name: str) -> Template:
    """Take a template out of use without deleting it, for example when an experiment shows harm."""
    kept = template_library.update(name, lambda old: replace_fields(old, state="retired"))
    update_index(store, template_library)
    return kept


def accept_template(store: Store, template_library: TemplateLibrary, name: str) -> Template:
    """Put a template into use that was imported, built automatically, or retired."""
    kept = template_library.update(name, lambda old: replace_fields(old, state="active"))
    update_index(store, template_library)
    return kept


# ── usage


class TemplateUsage(NamedTuple):
    """The sessions started from a template, and the results of their calls."""

    sessions: int = 0
    calls: int = 0
    failed: int = 0
    success_rate: float | None = None
    last: float | None = None


def measure_usage(store: Store, template: str) -> TemplateUsage:
    """Measure a template's usage from the sessions that started with it.

    Continuations and forks are excluded, since they repeat calls of their parent; so are cold and
    placebo sessions, which did not receive the template.
    """
    where = Filter(template=template, archived=None)
    judge_sessions(store, where)
    sessions = calls = failed = 0
    last: float | None = None
    for session, made, _ in store.iter_judged_sessions(where):
        if session.parent is not None or session.arm in ("cold", "placebo"):
            continue
        known = [one for one in made if one.failed is not None and one.kind != "bookkeeping"]
        sessions += 1
        calls += len(known)
        failed += sum(bool(one.failed) for one in known)
        last = max(last or 0.0, session.last_active)
    rate = None if not calls else round(1 - failed / calls, 4)
    return TemplateUsage(sessions, calls, failed, rate, last)
