"""Build, extract, merge, import and edit template files, and update their index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.knowledge import file_format
from rekindle.knowledge import seed as extracting
from rekindle.knowledge.mining import merge as merging
from rekindle.knowledge.redact_template import redact_template
from rekindle.redaction.redactor import Redactor
from rekindle.store import Filter, Store
from rekindle.types import (
    JSON,
    Pattern,
    Seed,
    Template,
    TemplateState,
    UserStyle,
    replace_fields,
    to_json_value,
)

from . import library, miner
from .library import TemplateLibrary, update_index
from .miner import MiningFilter, MiningOutcome, MiningReport, Progress
from .template_slot import OverwriteCheck, TemplateSlot, validate_new_name

MAX_EXTRACTED_EXAMPLES = 5  # calls extracted from a session
AUTOMATIC_MAX_ERROR_RATE = 0.1  # of the sessions that an automatic build may use
_REBUILDABLE = ("built", "automatic")

RedactionCounts = Mapping[str, Mapping[str, int]]  # kind of secret → location → count


def count_redactions(redactor: Redactor) -> RedactionCounts:
    """Count what redaction has removed so far, by kind and location."""
    found: dict[str, dict[str, int]] = {}
    for (kind, where), count in sorted(redactor.report.items()):
        found.setdefault(kind, {})[where] = count
    return found


class BuildResult(NamedTuple):
    """A template, its mining report, and what it keeps from the revision it replaced."""

    template: Template
    scan: MiningReport
    kept: Mapping[str, JSON] = {}


def build_template(
    store: Store,
    template_library: TemplateLibrary,
    redactor: Redactor,
    name: str,
    mining_filter: MiningFilter | None = None,
    *,
    now: float,
    description: str | None = None,
    tags: Sequence[str] = (),
    automatic: bool = False,
    progress: Progress | None = None,
    overwrite_check: OverwriteCheck | None = None,
) -> BuildResult:
    """Mine sessions into a template, or into the next revision of one that was built before.

    Decisions made by a person are kept: the state, dropped patterns, and the description and tags
    unless they are given.
    """
    mining_filter = (mining_filter or MiningFilter()).validate()
    if automatic:
        mining_filter = mining_filter._replace(
            max_error_rate=min(mining_filter.max_error_rate, AUTOMATIC_MAX_ERROR_RATE)
        )
    slot = TemplateSlot(
        template_library,
        redactor,
        name,
        description,
        tags,
        _make_build_check(automatic, overwrite_check),
    )
    widened = mining_filter._replace(max_patterns=mining_filter.max_patterns + len(slot.dropped))
    mined = miner.mine_sessions(store, redactor, widened, now=now, progress=progress)
    if not mined.patterns:
        raise NotFound(_explain_empty_build(mined.scan))
    template = Template(
        slot.id,
        slot.name,
        _describe_sources(mined),
        _pick_task_type(mined.scan),
        (),
        mined.patterns,
        sources=mined.sessions,
        state="quarantined" if automatic else "active",
        made="automatic" if automatic else "built",
        scan=to_json_value(mined.scan),
    )
    kept = slot.write(template, mining_filter.max_patterns)
    update_index(store, template_library)
    return BuildResult(kept, mined.scan, slot.kept)


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


def _explain_empty_build(scan: MiningReport) -> str:
    why = ", ".join(f"{count} {reason}" for reason, count in scan.skipped.items())
    details = f" (skipped: {why})" if why else ""
    if not scan.qualified:
        return (
            f"none of {scan.scanned} sessions qualified{details};"
            " try --min-messages, --source or `rekindle import`"
        )
    return (
        f"{scan.qualified} of {scan.scanned} sessions have no useful patterns in common"
        f"{details}; try --max-sessions or `rekindle warm extract`"
    )


def _describe_sources(mined: MiningOutcome) -> str:
    scan = mined.scan
    sources = ", ".join(list(scan.sources)[:4]) + (" …" if len(scan.sources) > 4 else "")
    return f"Learned from {scan.qualified} sessions of {sources}."


def _pick_task_type(scan: MiningReport) -> str:
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
    now: float,
    description: str | None = None,
    tags: Sequence[str] = (),
    owner: str | None = None,
    state: TemplateState = "active",
    overwrite_check: OverwriteCheck | None = None,
) -> Template:
    """Extract a template from one session: its subject, and a few calls that worked."""
    found = store.resolve(session, owner=owner)
    slot = TemplateSlot(
        template_library,
        redactor,
        name,
        description,
        tags,
        _make_extract_check(found.id, overwrite_check),
    )
    session_extract = miner.mine_single_session(
        store, redactor, found.id, now=now, max_patterns=MAX_EXTRACTED_EXAMPLES + len(slot.dropped)
    )
    seed = extracting.extract_seed(
        miner.iter_messages(store, found.id),
        lambda text: redactor.redact_text(text, "messages"),
        session_extract.arguments,
    )
    template = Template(
        slot.id,
        slot.name,
        f"Extracted from one session: {found.title or found.preview or found.id}"[:200],
        session_extract.task,
        (),
        session_extract.patterns,
        seed,
        (found.id,),
        state=state,
        made="extracted",
        scan=_build_scan({found.source: 1}, {owner}),
    )
    kept = slot.write(template, MAX_EXTRACTED_EXAMPLES)
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
    max_patterns: int,
) -> Template:
    """Merge several templates into one: their patterns and seeds without duplicates."""
    chosen = validate_new_name(name, redactor)
    parts = list({one.id: one for one in map(template_library.find, names)}.values())
    if len(parts) < 2:
        raise InvalidInput("merge: expected at least two different templates")
    inactive = next((one for one in parts if one.state != "active"), None)
    if inactive is not None:
        raise InvalidInput(f"template {inactive.id!r} is {inactive.state}; accept it first")
    patterns = merging.select_patterns(
        _merge_patterns(p for one in parts for p in one.patterns), max_patterns
    )
    tasks = {one.task_type for one in parts}
    template = Template(
        template_library.resolve_id(chosen),
        chosen,
        f"Merged from {', '.join(one.name for one in parts)}.",
        tasks.pop() if len(tasks) == 1 else "mixed",
        tuple(dict.fromkeys(tag for one in parts for tag in one.tags)),
        tuple(patterns),
        _merge_seeds([one.seed for one in parts]),
        tuple(dict.fromkeys(source for one in parts for source in one.sources)),
        made="merged",
        scan=_build_scan(
            _count_sources(parts), {one.scan.get(file_format.OWNER_KEY) for one in parts}
        ),
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


def _merge_patterns(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Merge equal patterns from several templates, adding up their sessions."""
    found: dict[str, Pattern] = {}
    for one in patterns:
        known = found.get(one.id)
        if known is None:
            found[one.id] = one
            continue
        fresh = [name for name in one.sessions if name not in known.sessions]
        found[one.id] = replace_fields(
            max(known, one, key=lambda p: p.last_seen),
            sessions=(*known.sessions, *fresh)[: merging.MAX_PROVENANCE_SESSIONS],
            support=known.support + one.support if fresh else max(known.support, one.support),
            seen_in=known.seen_in + len(fresh),
            score=max(known.score, one.score),
            tainted=known.tainted and one.tainted,
        )
    return list(found.values())


class ImportResult(NamedTuple):
    """An imported template; `missing` are tools that were never called here."""

    template: Template
    missing: tuple[str, ...]
    removed: RedactionCounts


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
    template = redact_template(replace_fields(given, scan=_localize_scan(given, origin)), redactor)
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
    known = store.mining_results.list_tools()
    missing = tuple(tool for tool in library.collect_tools([kept]) if tool not in known)
    return ImportResult(kept, missing, count_redactions(redactor))


def _localize_scan(given: Template, origin: Mapping[str, JSON]) -> dict[str, JSON]:
    """Remove data about the origin's owner and dropped patterns, and add the provenance."""
    scan = {
        name: one
        for name, one in given.scan.items()
        if name not in (file_format.OWNER_KEY, file_format.DROPPED_KEY)
    }
    return {**scan, file_format.ORIGIN_KEY: dict(origin)} if origin else scan


class TemplateEdit(NamedTuple):
    """Changes to a template; `drop` holds prefixes of pattern ids."""

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
    """Edit a template. Its id stays, and dropped patterns stay dropped when it is rebuilt."""
    new_tags = library.validate_tags(changes.tags)
    description = changes.description
    if description is not None:
        library.validate_description(description)

    def apply_changes(old: Template) -> Template:
        gone = [_resolve_pattern_id(old, one) for one in changes.drop]
        dropped = dict.fromkeys((*file_format.get_dropped_patterns(old), *gone))
        new = replace_fields(
            old,
            name=old.name if changes.name is None else library.validate_template_name(changes.name),
            description=old.description if description is None else description,
            tags=tuple(
                one for one in dict.fromkeys((*old.tags, *new_tags)) if one not in changes.untags
            ),
            patterns=tuple(one for one in old.patterns if one.id not in gone),
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


def _resolve_pattern_id(template: Template, prefix: str) -> str:
    found = [one.id for one in template.patterns if prefix and one.id.startswith(prefix)]
    if len(found) != 1:
        problem = "more than one pattern id begins" if found else "no pattern id begins"
        raise NotFound(f"template {template.id!r}: {problem} with {prefix!r:.60}")
    return found[0]


def find_session_ids(store: Store, where: Filter) -> set[str]:
    """Return the ids of all sessions that match a filter, including archived ones."""
    found = store.mining_results.list_candidate_sessions(
        miner.MINING_VERSION, where._replace(archived=None)
    )
    return {one.id for one in found}


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
    miner.judge_sessions(store, where)
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
