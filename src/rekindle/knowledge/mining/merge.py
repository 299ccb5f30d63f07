"""Patterns out of candidates of many sessions: what they share stays, what varies becomes a slot.

The score says how much a pattern should help a session that does the same: many independent sessions
had it, not long ago, others fail at such calls, and it says something that one could not guess. How
often it occurs by itself counts little.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, cast

from rekindle.analytics.sample import is_telling
from rekindle.judging.tool_kinds import kind_of
from rekindle.types import JSON, Pattern, PatternKind, Step

from .call_reader import Deed
from .call_signature import Form, digest
from .command_skeleton import INTERPRETERS, TELLING
from .recoveries import lesson
from .slots import COMMENTS, FLEETING, OPEN, fill, marks

FEW = 3  # sessions: in fewer, what a function was given may be alike by chance
WIDER = 2  # times the sessions: what is so much more usual does not vanish into what is rare
HALF_LIFE = 120 * 86_400.0  # seconds
MOST_SESSIONS = 12  # named as the provenance of a pattern
_USUAL_ERRORS = 0.06  # of calls, where nothing is known
_KIND: Mapping[str, float] = {
    "retry": 1.3, "example": 1.0, "sequence": 0.9, "init": 0.9, "final": 0.7,
}  # fmt: skip
_SLOT = re.compile(r"<[a-z]+(?::[a-z0-9]+)?>")
_WORD = re.compile(r"<[a-z:0-9-]+>|[\w./@+-]+")
_JOINTS = frozenset(("&&", "||", "|", ";", ">", ">>", "<", "<<", "2>", "2>&1", "(", ")"))
# A place that is worth knowing: inside a folder, or one of the files that explain a project.
_PLACE = re.compile(r"[\w.@+-]+/[\w./@+-]+|[\w-]+\.(?:md|toml|json|ya?ml|cfg|ini|rst)|[A-Z]\w*file")
_LEAST = 0.03  # a score below this is not worth the room


class Found(NamedTuple):
    """A candidate where it was found."""

    session: str
    family: int
    time: float
    deeds: tuple[Deed, ...]  # for a recovery the failed call first
    support: int
    tainted: bool

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple([deed.form for deed in self.deeds])

    @property
    def calls(self) -> tuple[str, ...]:
        """The ids of the calls."""
        return tuple([deed.id for deed in self.deeds])


class Sort(NamedTuple):
    """How calls of one sort fare: how many there were, how many failed."""

    calls: int = 0
    failed: int = 0

    @property
    def error_rate(self) -> float:
        """The share of failures, pulled to the usual where there is little to go by."""
        return (self.failed + 10 * _USUAL_ERRORS) / (self.calls + 10)


def pattern(
    kind: PatternKind,
    found: Sequence[Found],
    sorts: Mapping[str, Sort],
    counts: tuple[int, int],
    now: float,
) -> Pattern | None:
    """The pattern that candidates of one shape make; None where it would say nothing.

    `found` are the newest of them; `counts` are the families and occurrences in all.
    """
    latest = _apart(sorted(found, key=lambda one: -one.time))
    copies = len(found) - len(latest)
    # First what is known without strangers: only that puts words into the pattern.
    found = sorted(latest, key=lambda one: one.tainted)
    clean = sum(not one.tainted for one in found) or len(found)
    columns = list(zip(*(one.forms for one in found), strict=True))
    steps = [_step(column, clean) for column in columns]
    before, lesson_ = None, ""
    if kind == "retry":
        before, *steps = steps
        newest = found[0]
        lesson_ = lesson(newest.forms[0], steps, newest.forms[-1], newest.deeds[0].error_kind)
        is_command = newest.forms[0].family in ("shell", "code")
        if not lesson_ or (counts[0] < 2 and not is_command):
            return None  # what one session did to one object teaches nobody
    tells = list(map(_tells, steps, columns[-len(steps) :]))
    told = max(tells)
    if len(steps) > 1 and kind != "retry" and told:
        told = 0.5 * sum(tells) + 0.1 * len(steps)  # a longer way says more than each of its steps
    if kind == "retry" and found[0].forms[-1].family == "edit":
        told = 0.5  # what it says stands in the lesson
    if told <= 0:
        return None
    forms = found[0].forms[1 if kind == "retry" else 0 :]
    hardest = max((sorts.get(form.work, Sort()) for form in forms), key=lambda one: one.error_rate)
    # What turned out to be a copy was counted for one.
    families = max(counts[0] - copies, len({one.family for one in found}))
    made = Pattern(
        id=f"{digest((kind, [[step.tool, step.arguments] for step in steps])) & (2**64 - 1):016x}",
        kind=kind,
        steps=tuple(steps),
        before=before,
        lesson=lesson_,
        support=max(counts[1] - copies, families),
        sessions=tuple(dict.fromkeys(one.session for one in latest))[:MOST_SESSIONS],
        seen_in=families,
        last_seen=latest[0].time,
        error_rate=round(hardest.error_rate, 4) if hardest.calls else 0.0,
        tainted=all(one.tainted for one in found),
    )
    return made._replace(score=_score(made, told, hardest, now))


def _apart(found: Sequence[Found]) -> list[Found]:
    """Each once: a session that was resumed repeats the calls of another, with their ids."""
    seen: set[tuple[str, ...]] = set()
    kept: list[Found] = []
    for one in found:
        calls = one.calls
        if not (calls in seen and all(map(is_telling, calls))):
            kept.append(one)
        seen.add(calls)
    return kept


# ── steps


def _step(forms: Sequence[Form], clean: int) -> Step:
    """One call of a pattern, from the calls it was in different sessions.

    What stands in it is taken from the first of them, which are clean; the others may only agree.
    """
    first = forms[0]
    if all(form.skeleton == first.skeleton for form in forms):  # as they mostly are
        return Step(first.tool, _arguments(first, [form.values for form in forms]))
    keys = Counter([key for form in forms[:clean] for key in form.skeleton if key not in COMMENTS])
    arguments: dict[str, JSON] = {}
    for key, count in keys.items():
        if 2 * count >= clean + (clean > 1):
            arguments[key] = _argument(key, forms, clean)
    return Step(first.tool, arguments)


def _arguments(first: Form, values: Sequence[tuple[str, ...]]) -> dict[str, JSON]:
    """The arguments of calls with the same skeleton."""
    arguments: dict[str, JSON] = {}
    own, start = first.family == "call", 0
    for key, part in cast("Mapping[str, JSON]", first.skeleton).items():
        kinds = marks(part)
        end = start + len(kinds)
        if key not in COMMENTS:
            columns = [
                [given[at] if at < len(given) else "" for given in values]
                for at in range(start, end)
            ]
            arguments[key] = fill(
                part, [_agreed(*one, own=own) for one in zip(kinds, columns, strict=True)]
            )
        start = end
    return arguments


def _argument(key: str, forms: Sequence[Form], clean: int) -> JSON:
    having = [_part(form, key) for form in forms[:clean] if key in form.skeleton]
    signs = [part if isinstance(part, str) else digest(part) for part, _ in having]
    usual, count = max(Counter(signs).items(), key=itemgetter(1))
    skeleton = having[signs.index(usual)][0]
    if 2 * count < len(having) and isinstance(skeleton, str) and OPEN in skeleton:
        return "<text>" if " " in skeleton else fill(skeleton, ())
    if not all(key in form.skeleton and form.skeleton[key] == skeleton for form in forms):
        return fill(skeleton, ())
    own = forms[0].family == "call"  # a function's arguments are mostly about its object
    columns = zip(*(_part(form, key)[1] for form in forms), strict=True)
    kinds = marks(skeleton)
    return fill(skeleton, [_agreed(*one, own=own) for one in zip(kinds, columns, strict=False)])


def _part(form: Form, key: str) -> tuple[JSON, tuple[str, ...]]:
    """One argument's skeleton and its values."""
    start = 0
    for name, part in cast("Mapping[str, JSON]", form.skeleton).items():
        count = len(marks(part))
        if name == key:
            values = form.values[start : start + count]
            return part, values + ("",) * (count - len(values))
        start += count
    return None, ()


def _agreed(kind: str, values: Sequence[str], *, own: bool) -> str | None:
    """The value that all have, or nothing: where some differ, it was not seen in so many sessions."""
    if kind in FLEETING or (own and len(values) < FEW):
        return None
    value = values[0]
    return value if value and values.count(value) == len(values) else None


# ── what it is worth


def _tells(step: Step, forms: Sequence[Form]) -> float:
    """How much of a step one could not have guessed."""
    form = forms[0]
    text = " ".join(_texts(step.arguments))
    literal = _SLOT.sub(" ", text)
    if "<script>" in text:
        return 0.0
    if form.tier == TELLING and form.family in ("shell", "code"):
        program = form.work.removeprefix(form.tool).split()
        rest = [word for word in literal.split() if word not in program and word not in _JOINTS]
        if program and program[-1] in INTERPRETERS:
            rest = [word for word in rest if word[0] == "-" or "/" in word]
            if not rest or rest in (["-c"], ["-e"], ["-"]):
                return 0.0  # a script of that moment
        return 1.0 + 0.25 * min(len(rest), 4)
    if form.tier == TELLING:
        return 0.6 + 0.1 * min(len(step.arguments), 6)
    if form.family == "read" or (form.family == "shell" and ">" not in literal):
        return 0.4 if any(map(_PLACE.fullmatch, _WORD.findall(literal))) else 0.0
    return 0.0


def _texts(value: JSON) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [
            text for part in cast("Mapping[str, JSON]", value).values() for text in _texts(part)
        ]
    if isinstance(value, list):
        return [text for part in cast("list[JSON]", value) for text in _texts(part)]
    return []


def _score(made: Pattern, told: float, hardest: Sort, now: float) -> float:
    support = 1 - 0.5**made.seen_in  # the second session tells much, the tenth little
    age = max(0.0, now - made.last_seen)
    recency = 0.4 + 0.6 * 0.5 ** (age / HALF_LIFE)
    errors = min(1.0, hardest.error_rate / 0.3)
    worth = support * recency * (0.4 + 0.6 * errors) * min(told, 2.0) / 2 * _KIND[made.kind]
    return round(min(1.0, worth * (0.5 if made.tainted else 1.0)), 4)


# ── among each other


def select(patterns: Iterable[Pattern], most: int) -> list[Pattern]:
    """The best, without those that say what a better one says already."""
    kept: list[tuple[Pattern, frozenset[str]]] = []
    counts: Counter[str] = Counter()
    rooms = {"example": 0.5, "sequence": 0.3, "retry": 0.4, "init": 0.2, "final": 0.2}
    for one in sorted(
        patterns, key=lambda one: (-one.score, -one.seen_in, -len(one.steps), one.id)
    ):
        if one.score < _LEAST or counts[one.kind] >= max(2, math.ceil(rooms[one.kind] * most)):
            continue
        bag = said(one)
        twin = next(
            (i for i, (other, its) in enumerate(kept) if _is_said(one, bag, other, its)), None
        )
        if twin is not None:
            other, its = kept[twin]
            if _shows(one, other):
                kept[twin] = (_joined(other, one), its)
            continue
        kept.append((one, bag))
        counts[one.kind] += 1
        if len(kept) >= most:
            break
    return [one for one, _ in kept]


def said(one: Pattern) -> frozenset[str]:
    """The words of a pattern."""
    words = [
        word
        for step in one.steps
        for text in _texts(step.arguments)
        for word in _WORD.findall(text)
    ]
    return frozenset([*words, *(f"tool:{step.tool}" for step in one.steps)])


def _is_said(one: Pattern, bag: frozenset[str], other: Pattern, its: frozenset[str]) -> bool:
    if one.id == other.id:
        return True
    if one.seen_in >= WIDER * other.seen_in or (other.tainted and not one.tainted):
        return False
    if "retry" in (one.kind, other.kind):
        return one.kind == other.kind and (one.lesson == other.lesson or _alike(bag, its) > 0.85)
    if len(one.steps) == 1 and len(other.steps) == 1:
        (mine,), (theirs,) = one.steps, other.steps
        if kind_of(mine.tool).shape == "call" and mine.tool == theirs.tool:
            return mine.arguments.keys() <= theirs.arguments.keys()
        return _alike(_bare(bag), _bare(its)) > 0.75
    if 1 in (len(one.steps), len(other.steps)):
        return False  # a call by itself fits other requests than the way it is part of
    # A stretch of the same way, or most of it in another order.
    mine, theirs = set(_ways(one)), set(_ways(other))
    if mine <= theirs or theirs <= mine:
        return True
    return len(mine & theirs) >= 0.5 * max(len(mine), len(theirs)) or _alike(bag, its) > 0.7


def _bare(bag: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in bag if not word.startswith("<"))


def _alike(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(1, len(a | b))


def _ways(one: Pattern) -> list[str]:
    return [f"{step.tool} {' '.join(_texts(step.arguments))}" for step in one.steps]


def _shows(one: Pattern, kept: Pattern) -> bool:
    """Does every session that shows the one show the steps of the other too, where they belong?"""
    if one.kind != kept.kind or one.before != kept.before:
        return False
    own, theirs = _calls(one), _calls(kept)
    last = len(own) - len(theirs)
    starts = {"init": range(1), "final": range(last, last + 1)}.get(kept.kind, range(last + 1))
    return last >= 0 and any(own[at : at + len(theirs)] == theirs for at in starts)


def _calls(one: Pattern) -> list[tuple[str, Mapping[str, JSON]]]:
    return [(step.tool, step.arguments) for step in one.steps]


def _joined(kept: Pattern, other: Pattern) -> Pattern:
    """The kept one with what another knows of it; sessions that both have must not count twice."""
    sessions = tuple(dict.fromkeys((*kept.sessions, *other.sessions)))[:MOST_SESSIONS]
    return kept._replace(
        support=max(kept.support, other.support),
        sessions=sessions,
        seen_in=max(kept.seen_in, other.seen_in),
        last_seen=max(kept.last_seen, other.last_seen),
        tainted=kept.tainted and other.tainted,
    )
