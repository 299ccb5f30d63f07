"""Merge candidates of many sessions into patterns: what they share stays, what varies becomes a slot.

The score estimates how much a pattern helps a session with the same task: many independent sessions
had it, recently; such calls often fail elsewhere; and it says something that is hard to guess. The
number of occurrences alone counts little.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, cast

from rekindle.analytics.sample import is_unique_id
from rekindle.judging.tool_kinds import classify_tool
from rekindle.shell.wrappers import INTERPRETERS, SHELLS
from rekindle.types import JSON, Pattern, PatternKind, PatternStep

from .call_reader import MinedCall
from .call_signature import CallSignature, digest_value
from .command_skeleton import INFORMATIVE
from .recoveries import write_lesson
from .slots import COMMENT_ARGUMENTS, FLEETING_KINDS, MARK_OPEN, fill_slots, list_slot_kinds

MIN_SHARED_SESSIONS = 3  # in fewer, a function's arguments may agree by chance
WIDER_FACTOR = 2  # times more sessions: such a pattern is not covered by a rarer one
HALF_LIFE_SECONDS = 120 * 86_400.0
MAX_PROVENANCE_SESSIONS = 12  # listed as the provenance of a pattern
_PRIOR_ERROR_RATE = 0.06  # of calls
_KIND_WEIGHTS: Mapping[str, float] = {
    "retry": 1.3, "example": 1.0, "sequence": 0.9, "init": 0.9, "final": 0.7,
}  # fmt: skip
_SLOT = re.compile(r"<[a-z]+(?::[a-z0-9]+)?>")
_WORD = re.compile(r"<[a-z:0-9-]+>|[\w./@+-]+")
_OPERATORS = frozenset(("&&", "||", "|", ";", ">", ">>", "<", "<<", "2>", "2>&1", "(", ")"))
# A path worth knowing: inside a folder, or a file that explains a project.
_NOTABLE_PATH = re.compile(
    r"[\w.@+-]+/[\w./@+-]+|[\w-]+\.(?:md|toml|json|ya?ml|cfg|ini|rst)|[A-Z]\w*file"
)
_MIN_SCORE = 0.03  # patterns below are not worth their tokens


class Occurrence(NamedTuple):
    """An occurrence of a candidate."""

    session: str
    family: int
    time: float
    mined_calls: tuple[MinedCall, ...]  # a recovery begins with the failed call
    support: int
    tainted: bool

    @property
    def signatures(self) -> tuple[CallSignature, ...]:
        """The signatures of the calls."""
        return tuple([call.signature for call in self.mined_calls])

    @property
    def call_ids(self) -> tuple[str, ...]:
        """The ids of the calls."""
        return tuple([call.id for call in self.mined_calls])


class CallTypeStats(NamedTuple):
    """How often calls of one type were made, and how often they failed."""

    calls: int = 0
    failed: int = 0

    @property
    def error_rate(self) -> float:
        """The share of failures, shrunk to the prior rate if there are few calls."""
        return (self.failed + 10 * _PRIOR_ERROR_RATE) / (self.calls + 10)


def build_pattern(
    kind: PatternKind,
    occurrences: Sequence[Occurrence],
    call_stats: Mapping[str, CallTypeStats],
    counts: tuple[int, int],
    now: float,
) -> Pattern | None:
    """Build the pattern of candidates of one shape; return None if it would say nothing.

    `occurrences` are the newest ones; `counts` are the total numbers of families and occurrences.
    """
    latest = _drop_copies(sorted(occurrences, key=lambda one: -one.time))
    copies = len(occurrences) - len(latest)
    # Clean occurrences first: only they contribute content to the pattern.
    occurrences = sorted(latest, key=lambda one: one.tainted)
    clean = sum(not one.tainted for one in occurrences) or len(occurrences)
    columns = list(zip(*(one.signatures for one in occurrences), strict=True))
    steps = [_merge_step(column, clean) for column in columns]
    before, lesson_text = None, ""
    if kind == "retry":
        before, *steps = steps
        newest = occurrences[0]
        lesson_text = write_lesson(
            newest.signatures[0], steps, newest.signatures[-1], newest.mined_calls[0].error_kind
        )
        is_command = newest.signatures[0].family in ("shell", "code")
        if not lesson_text or (counts[0] < 2 and not is_command):
            return None  # one session's change to one object teaches nothing
    ratings = list(map(_rate_step, steps, columns[-len(steps) :]))
    informativeness = max(ratings)
    if len(steps) > 1 and kind != "retry" and informativeness:
        informativeness = 0.5 * sum(ratings) + 0.1 * len(
            steps
        )  # a sequence says more than its steps
    if kind == "retry" and occurrences[0].signatures[-1].family == "edit":
        informativeness = 0.5  # its content is the lesson
    if informativeness <= 0:
        return None
    signatures = occurrences[0].signatures[1 if kind == "retry" else 0 :]
    hardest = max(
        (call_stats.get(form.work, CallTypeStats()) for form in signatures),
        key=lambda one: one.error_rate,
    )
    # Copies were counted as families of their own.
    families = max(counts[0] - copies, len({one.family for one in occurrences}))
    made = Pattern(
        id=f"{digest_value((kind, [[step.tool, step.arguments] for step in steps])) & (2**64 - 1):016x}",
        kind=kind,
        steps=tuple(steps),
        before=before,
        lesson=lesson_text,
        support=max(counts[1] - copies, families),
        sessions=tuple(dict.fromkeys(one.session for one in latest))[:MAX_PROVENANCE_SESSIONS],
        seen_in=families,
        last_seen=latest[0].time,
        error_rate=round(hardest.error_rate, 4) if hardest.calls else 0.0,
        tainted=all(one.tainted for one in occurrences),
    )
    return made._replace(score=_compute_score(made, informativeness, hardest, now))


def _drop_copies(occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """Drop copies: a resumed session repeats the calls of another one, with their ids."""
    seen: set[tuple[str, ...]] = set()
    kept: list[Occurrence] = []
    for one in occurrences:
        call_ids = one.call_ids
        if not (call_ids in seen and all(map(is_unique_id, call_ids))):
            kept.append(one)
        seen.add(call_ids)
    return kept


# ── steps


def _merge_step(signatures: Sequence[CallSignature], clean_count: int) -> PatternStep:
    """Merge the calls that different sessions made at one step.

    The content comes from the first ones, which are clean; the others may only agree.
    """
    first = signatures[0]
    if all(form.skeleton == first.skeleton for form in signatures):  # the usual case
        return PatternStep(
            first.tool, _merge_arguments(first, [form.values for form in signatures])
        )
    keys = Counter(
        [
            key
            for form in signatures[:clean_count]
            for key in form.skeleton
            if key not in COMMENT_ARGUMENTS
        ]
    )
    arguments: dict[str, JSON] = {}
    for key, count in keys.items():
        if 2 * count >= clean_count + (clean_count > 1):
            arguments[key] = _merge_argument(key, signatures, clean_count)
    return PatternStep(first.tool, arguments)


def _merge_arguments(first: CallSignature, values: Sequence[tuple[str, ...]]) -> dict[str, JSON]:
    """Merge the arguments of calls with equal skeletons."""
    arguments: dict[str, JSON] = {}
    own, start = first.family == "call", 0
    for key, part in cast("Mapping[str, JSON]", first.skeleton).items():
        kinds = list_slot_kinds(part)
        end = start + len(kinds)
        if key not in COMMENT_ARGUMENTS:
            columns = [
                [given[index] if index < len(given) else "" for given in values]
                for index in range(start, end)
            ]
            arguments[key] = fill_slots(
                part,
                [
                    _find_common_value(*one, is_function=own)
                    for one in zip(kinds, columns, strict=True)
                ],
            )
        start = end
    return arguments


def _merge_argument(key: str, signatures: Sequence[CallSignature], clean_count: int) -> JSON:
    having = [_get_argument(form, key) for form in signatures[:clean_count] if key in form.skeleton]
    digests = [part if isinstance(part, str) else digest_value(part) for part, _ in having]
    usual, count = max(Counter(digests).items(), key=itemgetter(1))
    skeleton = having[digests.index(usual)][0]
    if 2 * count < len(having) and isinstance(skeleton, str) and MARK_OPEN in skeleton:
        return "<text>" if " " in skeleton else fill_slots(skeleton, ())
    if not all(key in form.skeleton and form.skeleton[key] == skeleton for form in signatures):
        return fill_slots(skeleton, ())
    own = signatures[0].family == "call"  # a function's arguments mostly concern its object
    columns = zip(*(_get_argument(form, key)[1] for form in signatures), strict=True)
    kinds = list_slot_kinds(skeleton)
    return fill_slots(
        skeleton,
        [_find_common_value(*one, is_function=own) for one in zip(kinds, columns, strict=False)],
    )


def _get_argument(signature: CallSignature, key: str) -> tuple[JSON, tuple[str, ...]]:
    """Return the skeleton and the values of one argument."""
    start = 0
    for name, part in cast("Mapping[str, JSON]", signature.skeleton).items():
        count = len(list_slot_kinds(part))
        if name == key:
            values = signature.values[start : start + count]
            return part, values + ("",) * (count - len(values))
        start += count
    return None, ()


def _find_common_value(kind: str, values: Sequence[str], *, is_function: bool) -> str | None:
    """Return the value that all calls have, or None if some differ."""
    if kind in FLEETING_KINDS or (is_function and len(values) < MIN_SHARED_SESSIONS):
        return None
    value = values[0]
    return value if value and values.count(value) == len(values) else None


# ── scores


def _rate_step(step: PatternStep, signatures: Sequence[CallSignature]) -> float:
    """Rate how much of a step is hard to guess."""
    signature = signatures[0]
    text = " ".join(_collect_texts(step.arguments))
    literal = _SLOT.sub(" ", text)
    if "<script>" in text:
        return 0.0
    if signature.tier == INFORMATIVE and signature.family in ("shell", "code"):
        program = signature.work.removeprefix(signature.tool).split()
        rest = [word for word in literal.split() if word not in program and word not in _OPERATORS]
        if program and program[-1] in INTERPRETERS | SHELLS:
            rest = [word for word in rest if word[0] == "-" or "/" in word]
            if not rest or rest in (["-c"], ["-e"], ["-"]):
                return 0.0  # a one-off script
        return 1.0 + 0.25 * min(len(rest), 4)
    if signature.tier == INFORMATIVE:
        return 0.6 + 0.1 * min(len(step.arguments), 6)
    if signature.family == "read" or (signature.family == "shell" and ">" not in literal):
        return 0.4 if any(map(_NOTABLE_PATH.fullmatch, _WORD.findall(literal))) else 0.0
    return 0.0


def _collect_texts(value: JSON) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [
            text
            for part in cast("Mapping[str, JSON]", value).values()
            for text in _collect_texts(part)
        ]
    if isinstance(value, list):
        return [text for part in cast("list[JSON]", value) for text in _collect_texts(part)]
    return []


def _compute_score(
    made: Pattern, informativeness: float, hardest: CallTypeStats, now: float
) -> float:
    support = 1 - 0.5**made.seen_in  # the second session adds much, the tenth little
    age = max(0.0, now - made.last_seen)
    recency = 0.4 + 0.6 * 0.5 ** (age / HALF_LIFE_SECONDS)
    errors = min(1.0, hardest.error_rate / 0.3)
    worth = (
        support
        * recency
        * (0.4 + 0.6 * errors)
        * min(informativeness, 2.0)
        / 2
        * _KIND_WEIGHTS[made.kind]
    )
    return round(min(1.0, worth * (0.5 if made.tainted else 1.0)), 4)


# ── selection


def select_patterns(patterns: Iterable[Pattern], limit: int) -> list[Pattern]:
    """Select the best patterns, without those that a better one already covers."""
    kept: list[tuple[Pattern, frozenset[str]]] = []
    counts: Counter[str] = Counter()
    kind_shares = {"example": 0.5, "sequence": 0.3, "retry": 0.4, "init": 0.2, "final": 0.2}
    for one in sorted(
        patterns, key=lambda one: (-one.score, -one.seen_in, -len(one.steps), one.id)
    ):
        if one.score < _MIN_SCORE or counts[one.kind] >= max(
            2, math.ceil(kind_shares[one.kind] * limit)
        ):
            continue
        bag = extract_pattern_words(one)
        twin = next(
            (
                i
                for i, (other, other_bag) in enumerate(kept)
                if _is_covered(one, bag, other, other_bag)
            ),
            None,
        )
        if twin is not None:
            other, other_bag = kept[twin]
            if _contains_steps(one, other):
                kept[twin] = (_merge_evidence(other, one), other_bag)
            continue
        kept.append((one, bag))
        counts[one.kind] += 1
        if len(kept) >= limit:
            break
    return [one for one, _ in kept]


def extract_pattern_words(one: Pattern) -> frozenset[str]:
    """Return the words of a pattern."""
    words = [
        word
        for step in one.steps
        for text in _collect_texts(step.arguments)
        for word in _WORD.findall(text)
    ]
    return frozenset([*words, *(f"tool:{step.tool}" for step in one.steps)])


def _is_covered(
    one: Pattern, bag: frozenset[str], other: Pattern, other_bag: frozenset[str]
) -> bool:
    if one.id == other.id:
        return True
    if one.seen_in >= WIDER_FACTOR * other.seen_in or (other.tainted and not one.tainted):
        return False
    if "retry" in (one.kind, other.kind):
        return one.kind == other.kind and (
            one.lesson == other.lesson or _compute_jaccard(bag, other_bag) > 0.85
        )
    if len(one.steps) == 1 and len(other.steps) == 1:
        (mine,), (theirs,) = one.steps, other.steps
        if classify_tool(mine.tool).shape == "call" and mine.tool == theirs.tool:
            return mine.arguments.keys() <= theirs.arguments.keys()
        return _compute_jaccard(_drop_slots(bag), _drop_slots(other_bag)) > 0.75
    if 1 in (len(one.steps), len(other.steps)):
        return False  # a single call fits other requests than a sequence with it
    # Part of the same sequence, or most of it in another order.
    mine, theirs = set(_format_steps(one)), set(_format_steps(other))
    if mine <= theirs or theirs <= mine:
        return True
    return (
        len(mine & theirs) >= 0.5 * max(len(mine), len(theirs))
        or _compute_jaccard(bag, other_bag) > 0.7
    )


def _drop_slots(bag: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in bag if not word.startswith("<"))


def _compute_jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(1, len(a | b))


def _format_steps(one: Pattern) -> list[str]:
    return [f"{step.tool} {' '.join(_collect_texts(step.arguments))}" for step in one.steps]


def _contains_steps(one: Pattern, kept: Pattern) -> bool:
    """Return whether every session with the one pattern also has the other's steps, in position."""
    if one.kind != kept.kind or one.before != kept.before:
        return False
    own, theirs = _get_calls(one), _get_calls(kept)
    last = len(own) - len(theirs)
    starts = {"init": range(1), "final": range(last, last + 1)}.get(kept.kind, range(last + 1))
    return last >= 0 and any(own[at : at + len(theirs)] == theirs for at in starts)


def _get_calls(one: Pattern) -> list[tuple[str, Mapping[str, JSON]]]:
    return [(step.tool, step.arguments) for step in one.steps]


def _merge_evidence(kept: Pattern, other: Pattern) -> Pattern:
    """Merge the evidence of another pattern; sessions in both must not count twice."""
    sessions = tuple(dict.fromkeys((*kept.sessions, *other.sessions)))[:MAX_PROVENANCE_SESSIONS]
    return kept._replace(
        support=max(kept.support, other.support),
        sessions=sessions,
        seen_in=max(kept.seen_in, other.seen_in),
        last_seen=max(kept.last_seen, other.last_seen),
        tainted=kept.tainted and other.tainted,
    )
