"""Which template and which few of its patterns a new session is given, if any fits at all.

Nothing is the right answer more often than not: examples that do not fit make an agent worse than
none. So a pattern has to say enough of what is asked (the floor), the tools at hand must be able to do
what it shows, and nothing is taken that only strangers' words vouch for, or a template that waits in
quarantine or is retired. Among templates that fit about equally well the results of the sessions that
had them decide, by a draw that gives each its chance (Thompson sampling).
"""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from rekindle.types import Pattern, Template

from .examples import Tools, could_use, example
from .text_matching import Request, Said, diverse, said, token

PATTERNS = 3
MOST = 15
FLOOR = 0.35
SHARED = "shared"  # the tag of a template that everybody may have
_NEARLY = 0.9  # of the best fit: templates from here on are drawn among
_BESIDE_BEST = 0.6  # of the best pattern's fit: a much weaker one beside it only distracts
_SAME_PLACE = 0.15  # what it is worth that a pattern comes from the folder one works in
_ONE_WITNESS = 0.85  # what a pattern counts that one session alone vouches for
_WORTH = 0.2  # how far the pattern's own score may lift it
_HALF_LIFE = 90 * 86_400.0  # seconds after which what was seen counts half as much in a tie
_ALIKE = 2.8  # calls of one session fail together: so many of them tell as much as one
_PRIOR = (9.0, 1.0)  # calls that went well and that failed, before anything is known
_PARTS = re.compile(r"[/.]")  # between the words of a path
_TOLD = 10  # templates that are told about
_LOOKED_AT = 40  # patterns that are tried on the tools, best first


class Ask(NamedTuple):
    """A new session: its first message, its tools, where it works, and the seed of the draw.

    With an `owner` nothing is used that is known from sessions of others, unless its template is
    tagged `shared`; without one the asker may know everything. A `stranger` is one of many who talk
    to one program: what is not known to be theirs is not theirs.
    """

    text: str
    tools: Tools
    folder: str | None = None
    now: float = 0.0
    seed: str = ""
    owner: str | None = None
    stranger: bool = False


class Candidate(NamedTuple):
    """A pattern that has words in common with what is asked, of a template (without its patterns)."""

    template: Template
    pattern: Pattern
    folders: frozenset[str] = frozenset()  # where it was seen
    owners: frozenset[str | None] = frozenset(
        (None,)
    )  # whose sessions it was seen in; None: unknown
    said: Said | None = None  # its `words_of`, where they are at hand


class Record(NamedTuple):
    """What became of the sessions that were started from a template: their first calls."""

    sessions: int = 0
    calls: int = 0
    errors: int = 0


class Picked(NamedTuple):
    """A pattern that was chosen, how well it fits, and the words that both have."""

    pattern: Pattern
    fit: float
    words: tuple[str, ...] = ()
    here: bool = False  # it comes from the folder one works in


class Considered(NamedTuple):
    """A template that was looked at: its best fit, and why it was taken or not."""

    template: str
    name: str
    fit: float
    patterns: int
    record: Record
    drawn: float | None  # its share of good calls, as drawn; None where there was no draw
    why: str


class Choice(NamedTuple):
    """What was chosen, best first; no template if nothing fits. `why` says it for people."""

    template: Template | None
    picked: tuple[Picked, ...]
    why: str
    considered: tuple[Considered, ...] = ()

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return tuple(one.pattern for one in self.picked)


class Known(NamedTuple):
    """How many patterns have a word, out of how many."""

    words: Mapping[str, int] = {}
    total: int = 0


Records: TypeAlias = Callable[[Sequence[str]], Mapping[str, Record]]


def _no_records(_: Sequence[str]) -> Mapping[str, Record]:
    return {}


def choose(
    ask: Ask,
    candidates: Iterable[Candidate],
    known: Known,
    records: Records = _no_records,
    *,
    patterns: int = PATTERNS,
    floor: float = FLOOR,
) -> Choice:
    """The best template for a new session, and the best few of its patterns; or nothing."""
    request = Request(ask.text, known.words, known.total)
    if not request.words:
        return Choice(None, (), "the message says nothing that could be looked for")
    rivals = _rivals(ask, request, candidates)
    best = [_best(ask, rival, patterns, floor) for rival in rivals]
    fitting = [rival for rival in best if rival.picked]
    if not fitting:
        told = [_told(rival, {}, None, _why_not(rival, floor)) for rival in best[:_TOLD]]
        return Choice(None, (), _nothing(best, floor), tuple(told))
    close = [rival for rival in fitting if rival.fit >= _NEARLY * fitting[0].fit]
    known_records = records([rival.template.id for rival in close] if len(close) > 1 else [])
    looked_at = [
        _told(rival, known_records, None, _why_not(rival, floor)) for rival in best[:_TOLD]
    ]
    return _drawn(ask, close, looked_at, known_records)


class _Rival(NamedTuple):
    """A template with those of its patterns that were found: fit, rank, words."""

    template: Template
    scored: tuple[_Scored, ...]
    refused: str = ""  # why it may not be used
    picked: tuple[Picked, ...] = ()

    @property
    def fit(self) -> float:
        """How well the template fits: by its best pattern, and a little by the next ones."""
        fits = sorted((one.fit for one in self.scored), reverse=True)[:3]
        return 0.8 * fits[0] + 0.2 * sum(fits) / 3 if fits else 0.0


class _Scored(NamedTuple):
    pattern: Pattern
    said: Said
    fit: float
    rank: float
    here: bool


def words_of(pattern: Pattern) -> Said:
    """What a pattern is about: what was asked counts most, then what was called and learned."""
    calls = " ".join(f"{step.tool} {_values(step.arguments)}" for step in pattern.steps)
    also = [(text, 0.5) for text in pattern.also]
    found = said((pattern.asked, 1.0), (calls, 0.6), (pattern.lesson, 0.6), *also)
    # The call as it was made names things that are slots above: no reason to count as long.
    examples = " ".join(_values(step.example) for step in pattern.steps if step.example)
    made = said((_PARTS.sub(" ", examples), 0.6))
    return found._replace(words={**made.words, **found.words}) if made.words else found


def tokens_of(words: Said) -> str:
    """What an index is given to find a pattern by: `token` of each of its words."""
    tokens = [token(word) for word in words.words]
    return " ".join(dict.fromkeys(one for one in tokens if one))


def _values(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(map(_values, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if isinstance(value, (list, tuple)):
        return " ".join(map(_values, value))  # pyright: ignore[reportUnknownArgumentType]
    return value[:500] if isinstance(value, str) else ""


def _rivals(ask: Ask, request: Request, candidates: Iterable[Candidate]) -> list[_Rival]:
    found: dict[str, list[_Scored]] = {}
    templates: dict[str, Template] = {}
    for candidate in candidates:
        template, pattern, folders, _, words = candidate
        templates[template.id] = template
        scored = found.setdefault(template.id, [])
        if not may_use(ask, candidate) or not could_use(pattern, ask.tools):
            continue
        words = words or words_of(pattern)
        fit = request.fit(words)
        here = _is_here(ask.folder, folders)
        scored.append(_Scored(pattern, words, fit, _rank(pattern, fit, here), here))
    rivals = [
        _Rival(templates[id], tuple(scored), _refusal(templates[id]))
        for id, scored in found.items()
    ]
    return sorted(rivals, key=lambda one: (-one.fit, one.template.id))


def may_use(ask: Ask, candidate: Candidate) -> bool:
    """May this be shown to the asker at all, whatever it is about?"""
    template, pattern, _, owners, _ = candidate
    # However many sessions: they may have read the same page.
    if pattern.tainted:
        return False
    if ask.owner is None or is_for(ask.owner, template):
        return True
    return owners <= ({ask.owner} if ask.stranger else {ask.owner, None})


def is_for(owner: str, template: Template) -> bool:
    """Is all of the template for this user: learned from their sessions alone, or for everybody?"""
    return SHARED in template.tags or template.scan.get("owner") == owner


def _refusal(template: Template) -> str:
    return "" if template.state == "active" else f"it is {template.state}"


def _rank(pattern: Pattern, fit: float, here: bool) -> float:
    worth = pattern.score / (1 + abs(pattern.score))  # whatever its scale: from 0 to 1
    witness = _ONE_WITNESS if pattern.seen_in < 2 else 1.0
    return fit * witness * (1 + _WORTH * max(0.0, worth)) * (1 + (_SAME_PLACE if here else 0.0))


def _is_here(folder: str | None, folders: Iterable[str]) -> bool:
    """The same folder, or one inside the other; the roots of a disk say nothing."""
    if not folder:
        return False
    here = os.path.normpath(folder)
    for other in map(os.path.normpath, folders):
        shorter, longer = sorted((here, other), key=len)
        if here == other or (shorter.count(os.sep) > 2 and longer.startswith(shorter + os.sep)):
            return True
    return False


def _best(ask: Ask, rival: _Rival, most: int, floor: float) -> _Rival:
    """The rival with the best few of its patterns that fit and can be shown."""
    top = max((one.fit for one in rival.scored), default=0.0)
    if rival.refused or top < floor:
        return rival
    over = [one for one in rival.scored if one.fit >= max(floor, _BESIDE_BEST * top)]
    over.sort(key=lambda one: (-one.rank, -_recent(ask, one.pattern), one.pattern.id))
    shown = _without_repeats(one for one in over[:_LOOKED_AT] if example(one.pattern, ask.tools))
    count = max(1, min(most, MOST))
    order = diverse([one.rank for one in shown], [one.said.words for one in shown], count)
    picked = [shown[number] for number in order]
    return rival._replace(
        picked=tuple(Picked(one.pattern, round(one.fit, 4), (), one.here) for one in picked)
    )


def _without_repeats(scored: Iterable[_Scored]) -> list[_Scored]:
    """Only those whose calls are not all in a better one, or all of a better one's in them."""
    kept: list[_Scored] = []
    seen: list[frozenset[str]] = []
    for one in scored:
        calls = frozenset(f"{step.tool} {_values(step.arguments)}" for step in one.pattern.steps)
        if not any(calls <= other or calls >= other for other in seen):
            kept.append(one)
            seen.append(calls)
    return kept


def _recent(ask: Ask, pattern: Pattern) -> float:
    return math.exp2(-max(0.0, ask.now - pattern.last_seen) / _HALF_LIFE)


def _drawn(
    ask: Ask, close: Sequence[_Rival], looked_at: list[Considered], records: Mapping[str, Record]
) -> Choice:
    """The template to take: of those that fit about equally, the one whose draw is best."""
    draws: dict[str, float] = {}
    if len(close) > 1:
        random = Random(ask.seed)
        for rival in sorted(close, key=lambda one: one.template.id):
            draws[rival.template.id] = _draw(random, records.get(rival.template.id, Record()))

    def order(rival: _Rival) -> tuple[float, float, int, str]:
        used = records.get(rival.template.id, Record()).sessions
        return -draws.get(rival.template.id, 1.0), -rival.fit, used, rival.template.id

    winner = min(close, key=order)
    request = Request(ask.text, {}, 0)
    picked = tuple(
        one._replace(words=request.shared(words_of(one.pattern))[:6]) for one in winner.picked
    )
    why = _why(winner, picked, len(close))
    told = [
        one._replace(
            drawn=draws.get(one.template),
            why=why if one.template == winner.template.id else one.why,
        )
        for one in looked_at
    ]
    return Choice(winner.template, picked, why, tuple(told))


def _draw(random: Random, record: Record) -> float:
    good, bad = record.calls - record.errors, record.errors
    return random.betavariate(_PRIOR[0] + good / _ALIKE, _PRIOR[1] + bad / _ALIKE)


def _told(
    rival: _Rival, records: Mapping[str, Record], drawn: float | None, why: str
) -> Considered:
    one, record = rival.template, records.get(rival.template.id, Record())
    return Considered(one.id, one.name, round(rival.fit, 4), len(rival.picked), record, drawn, why)


def _why(winner: _Rival, picked: Sequence[Picked], rivals: int) -> str:
    words = list(dict.fromkeys(word for one in picked for word in one.words))[:5]
    text = f"“{winner.template.name}” fits best ({winner.fit:.2f})"
    if rivals > 1:
        text = f"“{winner.template.name}” was drawn among {rivals} that fit about equally well"
    if words:
        text += f": it knows {', '.join(words)}"
    return text


def _why_not(rival: _Rival, floor: float) -> str:
    if rival.refused:
        return rival.refused
    if not rival.scored:
        return "the tools at hand cannot do what it shows, or it is not for this user"
    best = max(one.fit for one in rival.scored)
    if best < floor:
        return f"it fits with {best:.2f}, less than the floor of {floor:.2f}"
    return "another fits better" if rival.picked else "its calls do not fit the tools at hand"


def _nothing(best: Sequence[_Rival], floor: float) -> str:
    usable = [rival for rival in best if not rival.refused]
    if not usable:
        return "no template knows anything like it" if not best else "what fits may not be used"
    return f"nothing fits: {_why_not(usable[0], floor).replace('it fits', 'the best fits')}"
