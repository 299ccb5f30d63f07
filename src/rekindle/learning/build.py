"""From sessions to template files, and from files to the index: build, extract, merge, take in, edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.knowledge import file_format
from rekindle.knowledge import seed as extracting
from rekindle.knowledge.mining import merge as merging
from rekindle.knowledge.redact_template import rescanned
from rekindle.redaction.redactor import Redactor
from rekindle.store import Filter, Store
from rekindle.types import JSON, Pattern, Seed, Style, Template, TemplateState, plain, replace

from . import library, miner
from .library import Templates, index
from .miner import Learned, Progress, Scan, Wanted
from .template_slot import Guard, Place, new_name

EXAMPLES = 5  # calls of a session that are extracted from it
WELL = 0.1  # a session with fewer errors than this did well
_REBUILT = ("built", "automatic")

Removed = Mapping[str, Mapping[str, int]]  # kind of secret → place → how many


def removed_by(redactor: Redactor) -> Removed:
    """What redaction removed so far: how many of which kind, and from where."""
    found: dict[str, dict[str, int]] = {}
    for (kind, where), count in sorted(redactor.report.items()):
        found.setdefault(kind, {})[where] = count
    return found


class Built(NamedTuple):
    """A template, what building it looked at, and what it has from the one that was there before."""

    template: Template
    scan: Scan
    kept: Mapping[str, JSON] = {}


def build(
    store: Store,
    folder: Templates,
    redactor: Redactor,
    name: str,
    wanted: Wanted | None = None,
    *,
    now: float,
    description: str | None = None,
    tags: Sequence[str] = (),
    automatic: bool = False,
    progress: Progress | None = None,
    guard: Guard | None = None,
) -> Built:
    """Mine sessions into a template. One that was built before is built anew, as its next revision.

    What a person decided about that one stays: its state, the patterns that were dropped, and its
    description and tags unless they are given.
    """
    wanted = (wanted or Wanted()).checked()
    if automatic:
        wanted = wanted._replace(most_errors=min(wanted.most_errors, WELL))
    place = Place(folder, redactor, name, description, tags, _for_build(automatic, guard))
    widened = wanted._replace(most=wanted.most + len(place.dropped))
    learned = miner.learn(store, redactor, widened, now=now, progress=progress)
    if not learned.patterns:
        raise NotFound(_nothing(learned.scan))
    template = Template(
        place.id,
        place.name,
        _about(learned),
        _task(learned.scan),
        (),
        learned.patterns,
        sources=learned.sessions,
        state="quarantined" if automatic else "active",
        made="automatic" if automatic else "built",
        scan=plain(learned.scan),
    )
    kept = place.put(template, wanted.most)
    index(store, folder)
    return Built(kept, learned.scan, place.kept)


def _for_build(automatic: bool, guard: Guard | None) -> Guard:
    def why_not(old: Template) -> str:
        if guard is not None and (why := guard(old)):
            return why
        if old.made not in _REBUILT:
            return f"there is one already, and it was {old.made}: delete it, or take another name"
        if automatic and old.made != "automatic":
            return "there is one already that was built by hand: take another name"
        return ""

    return why_not


def _nothing(scan: Scan) -> str:
    why = ", ".join(f"{count} {reason}" for reason, count in scan.skipped.items())
    told = f" (left out: {why})" if why else ""
    if not scan.qualified:
        return (
            f"none of {scan.scanned} sessions qualified{told};"
            " try --min-messages, --source or `rekindle import`"
        )
    return (
        f"{scan.qualified} of {scan.scanned} sessions have nothing in common that is worth showing"
        f"{told}; try --max-sessions or `rekindle warm extract`"
    )


def _about(learned: Learned) -> str:
    scan = learned.scan
    sources = ", ".join(list(scan.sources)[:4]) + (" …" if len(scan.sources) > 4 else "")
    return f"Learned from {scan.qualified} sessions of {sources}."


def _task(scan: Scan) -> str:
    """The type of most of the sessions, or mixed."""
    task, count = max(scan.tasks.items(), key=lambda pair: pair[1], default=("mixed", 0))
    return task if count > 0.6 * scan.qualified else "mixed"


def extract(
    store: Store,
    folder: Templates,
    redactor: Redactor,
    session: str,
    name: str,
    *,
    now: float,
    description: str | None = None,
    tags: Sequence[str] = (),
    owner: str | None = None,
    state: TemplateState = "active",
    guard: Guard | None = None,
) -> Template:
    """A template out of one session: what it was about, and a few of its calls that worked."""
    found = store.resolve(session, owner=owner)
    place = Place(folder, redactor, name, description, tags, _for_extract(found.id, guard))
    single = miner.learn_one(store, redactor, found.id, now=now, most=EXAMPLES + len(place.dropped))
    seed = extracting.seed(
        miner.all_messages(store, found.id),
        lambda text: redactor.text(text, "messages"),
        single.arguments,
    )
    template = Template(
        place.id,
        place.name,
        f"Extracted from one session: {found.title or found.preview or found.id}"[:200],
        single.task,
        (),
        single.patterns,
        seed,
        (found.id,),
        state=state,
        made="extracted",
        scan=_scan_of({found.source: 1}, {owner}),
    )
    kept = place.put(template, EXAMPLES)
    index(store, folder)
    return kept


def _for_extract(session: str, guard: Guard | None) -> Guard:
    def why_not(old: Template) -> str:
        if guard is not None and (why := guard(old)):
            return why
        if old.made != "extracted" or old.sources != (session,):
            return f"there is one already, “{old.name}”: delete it, or take another name"
        return ""

    return why_not


def _scan_of(sources: Mapping[str, int], owners: set[JSON]) -> dict[str, JSON]:
    """What is known of the sessions of a template that was not built."""
    scan: dict[str, JSON] = {"sources": dict(sources)}
    if len(owners) == 1 and None not in owners:
        scan[file_format.OWNER] = owners.pop()
    return scan


def merge(
    store: Store,
    folder: Templates,
    redactor: Redactor,
    names: Sequence[str],
    name: str,
    *,
    most: int,
) -> Template:
    """One template out of several: their patterns and seeds without the doubles."""
    chosen = new_name(name, redactor)
    parts = list({one.id: one for one in map(folder.find, names)}.values())
    if len(parts) < 2:
        raise InvalidInput("merge: expected two different templates")
    retired = next((one for one in parts if one.state != "active"), None)
    if retired is not None:
        raise InvalidInput(f"template {retired.id!r} is {retired.state}: accept it first")
    patterns = merging.select(_together(p for one in parts for p in one.patterns), most)
    tasks = {one.task_type for one in parts}
    template = Template(
        folder.id_for(chosen),
        chosen,
        f"Merged from {', '.join(one.name for one in parts)}.",
        tasks.pop() if len(tasks) == 1 else "mixed",
        tuple(dict.fromkeys(tag for one in parts for tag in one.tags)),
        tuple(patterns),
        _seeds_joined([one.seed for one in parts]),
        tuple(dict.fromkeys(source for one in parts for source in one.sources)),
        made="merged",
        scan=_scan_of(_sources_of(parts), {one.scan.get(file_format.OWNER) for one in parts}),
    )
    kept = folder.create(rescanned(template, redactor))
    index(store, folder)
    return kept


def _sources_of(parts: Iterable[Template]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for one in parts:
        found.update(file_format.sources_of(one))
    return found


def _seeds_joined(seeds: Sequence[Seed]) -> Seed:
    """What all of them say, the first of each before the second of any, within the limits of one."""
    rules = _in_turn([seed.instructions for seed in seeds])[: extracting.MOST_INSTRUCTIONS]
    markers = _in_turn([seed.markers for seed in seeds])[: extracting.MOST_MARKERS]
    system = next((seed.system for seed in seeds if seed.system), "")
    return Seed(system, tuple(rules), tuple(markers), _styles_joined([one.style for one in seeds]))


def _in_turn(lists: Sequence[Sequence[str]]) -> list[str]:
    together = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(one for one in together if one is not None))


def _styles_joined(styles: Sequence[Style]) -> Style:
    total = sum(one.messages for one in styles)
    if not total:
        return Style()

    def mean(values: Iterable[float], digits: int) -> float:
        weighed = zip(values, styles, strict=True)
        return round(sum(value * one.messages for value, one in weighed) / total, digits)

    return Style(
        total,
        mean((one.mean_length for one in styles), 1),
        mean((one.questions for one in styles), 3),
        mean((one.commands for one in styles), 3),
        max(styles, key=lambda one: one.messages).preferred,
    )


def _together(patterns: Iterable[Pattern]) -> list[Pattern]:
    """The same pattern from two templates was seen in the sessions of both."""
    found: dict[str, Pattern] = {}
    for one in patterns:
        known = found.get(one.id)
        if known is None:
            found[one.id] = one
            continue
        fresh = [name for name in one.sessions if name not in known.sessions]
        found[one.id] = replace(
            max(known, one, key=lambda p: p.last_seen),
            sessions=(*known.sessions, *fresh)[: merging.MOST_SESSIONS],
            support=known.support + one.support if fresh else max(known.support, one.support),
            seen_in=known.seen_in + len(fresh),
            score=max(known.score, one.score),
            tainted=known.tainted and one.tainted,
        )
    return list(found.values())


class Received(NamedTuple):
    """A template that came from elsewhere; `missing` are tools that nobody has called here."""

    template: Template
    missing: tuple[str, ...]
    removed: Removed


def receive(
    store: Store, folder: Templates, redactor: Redactor, data: bytes, where: str, name: str | None
) -> Received:
    """Take a template in: checked, redacted again, and in quarantine until somebody accepts it."""
    given, origin = library.arrived(data, where)
    template = rescanned(replace(given, scan=_scan_here(given, origin)), redactor)
    chosen = template.name if name is None else new_name(name, redactor)
    template = replace(
        template,
        id=folder.id_for(chosen),
        name=library.checked_name(chosen),
        state="quarantined",
        made="imported",
    )
    kept = folder.create(template)
    index(store, folder)
    known = store.mined.tools()
    missing = tuple(tool for tool in library.tools_of([kept]) if tool not in known)
    return Received(kept, missing, removed_by(redactor))


def _scan_here(given: Template, origin: Mapping[str, JSON]) -> dict[str, JSON]:
    """Nobody of here is the owner of what comes from elsewhere, and it is not built anew here."""
    scan = {
        name: one
        for name, one in given.scan.items()
        if name not in (file_format.OWNER, file_format.DROPPED)
    }
    return {**scan, file_format.ORIGIN: dict(origin)} if origin else scan


class Edit(NamedTuple):
    """What a person wants otherwise about a template; `drop` are beginnings of ids of patterns."""

    description: str | None = None
    name: str | None = None
    tags: Sequence[str] = ()
    untags: Sequence[str] = ()
    drop: Sequence[str] = ()


def edit(store: Store, folder: Templates, redactor: Redactor, name: str, wanted: Edit) -> Template:
    """Change a template. Its id stays, and what was dropped stays dropped when it is built anew."""
    more = library.checked_tags(wanted.tags)
    said = wanted.description
    if said is not None:
        library.checked_description(said)

    def change(old: Template) -> Template:
        gone = [_pattern_id(old, one) for one in wanted.drop]
        dropped = dict.fromkeys((*file_format.dropped_of(old), *gone))
        new = replace(
            old,
            name=old.name if wanted.name is None else library.checked_name(wanted.name),
            description=old.description if said is None else said,
            tags=tuple(
                one for one in dict.fromkeys((*old.tags, *more)) if one not in wanted.untags
            ),
            patterns=tuple(one for one in old.patterns if one.id not in gone),
            scan={**old.scan, file_format.DROPPED: [*dropped]} if dropped else old.scan,
        )
        new = rescanned(new, redactor)
        if wanted.name is not None:
            _check_free(folder, new)
        return new

    kept = folder.change(name, change)
    index(store, folder)
    return kept


def _check_free(folder: Templates, template: Template) -> None:
    """Refuse a name by which another template is found."""
    others = [one.id for one in folder.named(template.name)]
    others += [id for id in folder.ids() if id == template.name]
    taken = next((id for id in others if id != template.id), None)
    if taken is not None:
        raise InvalidInput(f"template {taken!r} has the name {template.name!r} already")


def _pattern_id(template: Template, start: str) -> str:
    found = [one.id for one in template.patterns if start and one.id.startswith(start)]
    if len(found) != 1:
        many = "more than one pattern begins" if found else "no pattern begins"
        raise NotFound(f"template {template.id!r}: {many} with {start!r:.60}")
    return found[0]


def sessions_of(store: Store, where: Filter) -> set[str]:
    """The ids of all sessions that a filter finds, archived ones too."""
    found = store.mined.pending(miner.MINING_RULES, where._replace(archived=None))
    return {one.id for one in found}


def retire(store: Store, folder: Templates, name: str) -> Template:
    """Take a template out of use, without losing it: what an experiment calls when one harms."""
    kept = folder.change(name, lambda old: replace(old, state="retired"))
    index(store, folder)
    return kept


def accept(store: Store, folder: Templates, name: str) -> Template:
    """Let a template be used that came from elsewhere, was made by itself, or was retired."""
    kept = folder.change(name, lambda old: replace(old, state="active"))
    index(store, folder)
    return kept


# ── what became of it


class Use(NamedTuple):
    """The sessions that were started from a template, and how their calls went."""

    sessions: int = 0
    calls: int = 0
    failed: int = 0
    success_rate: float | None = None
    last: float | None = None


def use_of(store: Store, template: str) -> Use:
    """Derived from the sessions that began with the template, as they are now.

    Those that go on or branch off from one hold its calls too; the cold and placebo had nothing of it.
    """
    where = Filter(template=template, archived=None)
    miner.judge(store, where)
    sessions = calls = failed = 0
    last: float | None = None
    for session, made, _ in store.judged(where):
        if session.parent is not None or session.arm in ("cold", "placebo"):
            continue
        known = [one for one in made if one.failed is not None and one.work != "bookkeeping"]
        sessions += 1
        calls += len(known)
        failed += sum(bool(one.failed) for one in known)
        last = max(last or 0.0, session.last_active)
    rate = None if not calls else round(1 - failed / calls, 4)
    return Use(sessions, calls, failed, rate, last)
