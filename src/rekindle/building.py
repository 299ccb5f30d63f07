"""From sessions to template files, and from files to the index: build, extract, merge, take in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import learn, templates
from .errors import InvalidInput, NotFound
from .learn import Learned, Progress, Scan, Wanted
from .store import Filter, Store
from .templates import Templates, index
from .types import Pattern, Template, plain, replace
from .warm import extract as extracting
from .warm.patterns import merge as merging
from .warm.redact import Redactor
from .warm.rescan import rescanned

EXAMPLES = 5  # calls of a session that are extracted from it
WELL = 0.1  # a session with fewer errors than this did well
_REBUILT = ("built", "automatic")


class Built(NamedTuple):
    """A template, and what building it looked at."""

    template: Template
    scan: Scan


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
) -> Built:
    """Mine sessions into a template. One that was built before is built anew, as its next revision."""
    id = templates.slug(name)
    wanted = wanted or Wanted()
    if automatic:
        wanted = wanted._replace(most_errors=min(wanted.most_errors, WELL))
    learned = learn.learn(store, redactor, wanted, now=now, progress=progress)
    if not learned.patterns:
        raise NotFound(_nothing(learned.scan))
    template = Template(
        id,
        templates.checked_name(name),
        _about(learned) if description is None else description,
        _task(learned.scan),
        tuple(tags),
        learned.patterns,
        sources=learned.sessions,
        state="quarantined" if automatic else "active",
        made="automatic" if automatic else "built",
        scan=plain(learned.scan),
    )
    kept = folder.create(
        rescanned(template, redactor), unless=lambda old: _not_anew(old, automatic=automatic)
    )
    index(store, folder)
    return Built(kept, learned.scan)


def _not_anew(old: Template, *, automatic: bool) -> str:
    if old.made not in _REBUILT:
        return f"there is one already, and it was {old.made}: delete it, or take another name"
    if automatic and old.made != "automatic":
        return "there is one already that was built by hand: take another name"
    return ""


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
) -> Template:
    """A template out of one session: what it was about, and a few of its calls that worked."""
    id = templates.slug(name)
    found = store.resolve(session, owner=owner)
    single = learn.learn_one(store, redactor, found.id, now=now, most=EXAMPLES)
    seed = extracting.seed(
        learn.all_messages(store, found.id),
        lambda text: redactor.text(text, "session"),
        single.arguments,
    )
    template = Template(
        id,
        templates.checked_name(name),
        f"Extracted from one session: {found.title or found.preview or found.id}"[:200]
        if description is None
        else description,
        single.task,
        tuple(tags),
        single.patterns,
        seed,
        (found.id,),
        made="extracted",
    )
    kept = folder.create(
        rescanned(template, redactor),
        unless=lambda old: (
            ""
            if old.made == "extracted" and old.sources == template.sources
            else "there is one already: delete it, or take another name"
        ),
    )
    index(store, folder)
    return kept


def merge(
    store: Store,
    folder: Templates,
    redactor: Redactor,
    names: Sequence[str],
    name: str,
    *,
    most: int,
) -> Template:
    """One template out of several: their patterns without the doubles."""
    parts = list({one.id: one for one in map(folder.find, names)}.values())
    if len(parts) < 2:
        raise InvalidInput("merge: expected two different templates")
    retired = next((one for one in parts if one.state != "active"), None)
    if retired is not None:
        raise InvalidInput(f"template {retired.id!r} is {retired.state}: accept it first")
    patterns = merging.select(_together(p for one in parts for p in one.patterns), most)
    first = parts[0]
    tasks = {one.task_type for one in parts}
    template = Template(
        templates.slug(name),
        templates.checked_name(name),
        f"Merged from {', '.join(one.name for one in parts)}.",
        tasks.pop() if len(tasks) == 1 else "mixed",
        tuple(dict.fromkeys(tag for one in parts for tag in one.tags)),
        tuple(patterns),
        first.seed,
        tuple(dict.fromkeys(source for one in parts for source in one.sources)),
        made="merged",
    )
    kept = folder.create(rescanned(template, redactor))
    index(store, folder)
    return kept


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
    removed: dict[str, int]


def receive(
    store: Store, folder: Templates, redactor: Redactor, data: bytes, where: str, name: str | None
) -> Received:
    """Take a template in: checked, redacted again, and in quarantine until somebody accepts it."""
    given = templates.arrived(data, where)
    before = Counter(redactor.report)
    template = rescanned(given, redactor)
    chosen = templates.checked_name(name or template.name)
    template = replace(
        template, id=templates.slug(chosen), name=chosen, state="quarantined", made="imported"
    )
    kept = folder.create(template)
    index(store, folder)
    removed: Counter[str] = Counter()
    for (kind, _), count in (redactor.report - before).items():
        removed[kind] += count
    known = store.mined.tools()
    missing = tuple(tool for tool in templates.tools_of([kept]) if tool not in known)
    return Received(kept, missing, dict(removed))


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
    """Derived from the sessions that name the template, as they are now."""
    where = Filter(template=template, archived=None)
    learn.judge(store, where)
    sessions = calls = failed = 0
    last: float | None = None
    for session, made, _ in store.judged(where):
        known = [one for one in made if one.failed is not None and one.work != "bookkeeping"]
        sessions += 1
        calls += len(known)
        failed += sum(bool(one.failed) for one in known)
        last = max(last or 0.0, session.last_active)
    rate = None if not calls else round(1 - failed / calls, 4)
    return Use(sessions, calls, failed, rate, last)
