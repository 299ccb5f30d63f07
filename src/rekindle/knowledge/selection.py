"""Select the template, and the few of its patterns, that a new session starts with.

Selecting nothing is often right: examples that do not fit make an agent worse than none. A pattern
must cover enough of the request (the floor), the available tools must be able to make its calls, and
tainted patterns, quarantined templates and retired templates are never used. Among templates that fit
about equally well, the results of earlier sessions decide by Thompson sampling.
"""

from __future__ import annotations

import math
import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from rekindle.types import Pattern, Template

from .examples import Tools, build_example, has_tools_for
from .pattern_index import (
    CandidatePattern,
    TemplateStats,
    WordCounts,
    join_values,
    weigh_pattern_words,
)
from .text_matching import (
    RequestMatcher,
    WeightedWords,
    select_diverse,
)

DEFAULT_PATTERNS = 3
MAX_PATTERNS = 15
DEFAULT_FLOOR = 0.35
SHARED_TAG = "shared"  # tag of a template that everybody may use
_TIE_RATIO = 0.9  # of the best fit: templates at or above it take part in the draw
_MIN_FIT_RATIO = 0.6  # of the best pattern's fit: a much weaker one only distracts
_SAME_FOLDER_BONUS = 0.15  # bonus for a pattern from the folder of the session
_SINGLE_SESSION_FACTOR = 0.85  # for a pattern that was seen in a single session
_SCORE_WEIGHT = 0.2  # how far the pattern's own score may raise its rank
_HALF_LIFE_SECONDS = 90 * 86_400.0  # breaks ties in favour of recent patterns
_DESIGN_EFFECT = 2.8  # calls of a session fail together: this many weigh as one
_PRIOR = (9.0, 1.0)  # successful and failed calls assumed in advance
_MAX_REPORTED = 10  # templates
_MAX_TRIED = 40  # patterns, best first, that are checked against the tools


class SelectionRequest(NamedTuple):
    """A new session: its first message, its tools, its folder, and the seed of the draw.

    With an `owner`, only patterns known from that owner's sessions or of unknown origin are used,
    unless their template is tagged `shared`; without one, every pattern is allowed. With
    `owned_only`, as for the users of a shared bot, patterns of unknown origin are excluded too.
    """

    text: str
    tools: Tools
    folder: str | None = None
    now: float = 0.0
    seed: str = ""
    owner: str | None = None
    owned_only: bool = False


class SelectedPattern(NamedTuple):
    """A selected pattern, how well it fits, and the words it shares with the request."""

    pattern: Pattern
    fit: float
    words: tuple[str, ...] = ()
    here: bool = False  # it comes from the folder of the session


class CandidateReport(NamedTuple):
    """A template that was considered: its best fit, and why it was selected or rejected."""

    template: str
    name: str
    fit: float
    patterns: int
    record: TemplateStats
    drawn: float | None  # the drawn share of successful calls; None without a draw
    reason: str


class Selection(NamedTuple):
    """The selected template and patterns, best first; no template if nothing fits.

    `reason` explains the result to people.
    """

    template: Template | None
    picked: tuple[SelectedPattern, ...]
    reason: str
    considered: tuple[CandidateReport, ...] = ()

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The selected patterns, best first."""
        return tuple(one.pattern for one in self.picked)


StatsLoader: TypeAlias = Callable[[Sequence[str]], Mapping[str, TemplateStats]]


def _load_no_stats(_: Sequence[str]) -> Mapping[str, TemplateStats]:
    return {}


def select_template(
    query: SelectionRequest,
    candidates: Iterable[CandidatePattern],
    word_counts: WordCounts,
    load_stats: StatsLoader = _load_no_stats,
    *,
    patterns: int = DEFAULT_PATTERNS,
    floor: float = DEFAULT_FLOOR,
) -> Selection:
    """Select the best template for a new session and its best few patterns, or nothing."""
    matcher = RequestMatcher(query.text, word_counts.words, word_counts.total)
    if not matcher.words:
        return Selection(None, (), "the message has no words to search for")
    contenders = _score_templates(query, matcher, candidates)
    ranked = [_select_patterns(query, contender, patterns, floor) for contender in contenders]
    fitting = [contender for contender in ranked if contender.picked]
    if not fitting:
        reports = [
            _build_report(contender, {}, None, _explain_rejection(contender, floor))
            for contender in ranked[:_MAX_REPORTED]
        ]
        return Selection(None, (), _explain_no_match(ranked, floor), tuple(reports))
    close = [contender for contender in fitting if contender.fit >= _TIE_RATIO * fitting[0].fit]
    stats = load_stats([contender.template.id for contender in close] if len(close) > 1 else [])
    reports_with_stats = [
        _build_report(contender, stats, None, _explain_rejection(contender, floor))
        for contender in ranked[:_MAX_REPORTED]
    ]
    return _draw_template(query, close, reports_with_stats, stats)


class _ScoredTemplate(NamedTuple):
    """A template with those of its patterns that were found."""

    template: Template
    scored: tuple[_ScoredPattern, ...]
    refusal: str = ""  # why it may not be used, if so
    picked: tuple[SelectedPattern, ...] = ()

    @property
    def fit(self) -> float:
        """The fit of the template: that of its best pattern, and a little of the next ones."""
        fits = sorted((one.fit for one in self.scored), reverse=True)[:3]
        return 0.8 * fits[0] + 0.2 * sum(fits) / 3 if fits else 0.0


class _ScoredPattern(NamedTuple):
    pattern: Pattern
    words: WeightedWords
    fit: float
    rank: float
    here: bool


def _score_templates(
    query: SelectionRequest, matcher: RequestMatcher, candidates: Iterable[CandidatePattern]
) -> list[_ScoredTemplate]:
    found: dict[str, list[_ScoredPattern]] = {}
    templates: dict[str, Template] = {}
    for candidate in candidates:
        template, pattern, folders, _, words = candidate
        templates[template.id] = template
        scored = found.setdefault(template.id, [])
        if not can_use_pattern(query, candidate) or not has_tools_for(pattern, query.tools):
            continue
        words = words or weigh_pattern_words(pattern)
        fit = matcher.compute_fit(words)
        here = _is_same_folder(query.folder, folders)
        scored.append(_ScoredPattern(pattern, words, fit, _compute_rank(pattern, fit, here), here))
    contenders = [
        _ScoredTemplate(templates[id], tuple(scored), _explain_refusal(templates[id]))
        for id, scored in found.items()
    ]
    return sorted(contenders, key=lambda one: (-one.fit, one.template.id))


def can_use_pattern(query: SelectionRequest, candidate: CandidatePattern) -> bool:
    """Return whether this pattern may be shown to the requester at all."""
    template, pattern, _, owners, _ = candidate
    # However many sessions have it: all of them may have read the same page.
    if pattern.tainted:
        return False
    if query.owner is None or is_visible_to(query.owner, template):
        return True
    return owners <= ({query.owner} if query.owned_only else {query.owner, None})


def is_visible_to(owner: str, template: Template) -> bool:
    """Return whether the whole template is visible to this owner: it is theirs, or shared."""
    return SHARED_TAG in template.tags or template.scan.get("owner") == owner


def _explain_refusal(template: Template) -> str:
    return "" if template.state == "active" else f"it is {template.state}"


def _compute_rank(pattern: Pattern, fit: float, here: bool) -> float:
    worth = pattern.score / (1 + abs(pattern.score))  # scaled to 0 to 1
    session_factor = _SINGLE_SESSION_FACTOR if pattern.seen_in < 2 else 1.0
    return (
        fit
        * session_factor
        * (1 + _SCORE_WEIGHT * max(0.0, worth))
        * (1 + (_SAME_FOLDER_BONUS if here else 0.0))
    )


def _is_same_folder(folder: str | None, folders: Iterable[str]) -> bool:
    """Return whether the folder equals one of these, or one contains the other.

    Folders near the root of the disk do not count.
    """
    if not folder:
        return False
    here = os.path.normpath(folder)
    for other in map(os.path.normpath, folders):
        shorter, longer = sorted((here, other), key=len)
        if here == other or (shorter.count(os.sep) > 2 and longer.startswith(shorter + os.sep)):
            return True
    return False


def _select_patterns(
    query: SelectionRequest, contender: _ScoredTemplate, most: int, floor: float
) -> _ScoredTemplate:
    """Add the best few patterns that fit and can be shown."""
    top = max((one.fit for one in contender.scored), default=0.0)
    if contender.refusal or top < floor:
        return contender
    eligible = [one for one in contender.scored if one.fit >= max(floor, _MIN_FIT_RATIO * top)]
    eligible.sort(
        key=lambda one: (-one.rank, -_compute_recency(query, one.pattern), one.pattern.id)
    )
    shown = _drop_repeats(
        one for one in eligible[:_MAX_TRIED] if build_example(one.pattern, query.tools)
    )
    count = max(1, min(most, MAX_PATTERNS))
    order = select_diverse([one.rank for one in shown], [one.words.words for one in shown], count)
    picked = [shown[number] for number in order]
    return contender._replace(
        picked=tuple(
            SelectedPattern(one.pattern, round(one.fit, 4), (), one.here) for one in picked
        )
    )


def _drop_repeats(scored: Iterable[_ScoredPattern]) -> list[_ScoredPattern]:
    """Drop patterns whose calls include, or are included in, those of a better one."""
    kept: list[_ScoredPattern] = []
    seen: list[frozenset[str]] = []
    for one in scored:
        calls = frozenset(
            f"{step.tool} {join_values(step.arguments)}" for step in one.pattern.steps
        )
        if not any(calls <= other or calls >= other for other in seen):
            kept.append(one)
            seen.append(calls)
    return kept


def _compute_recency(query: SelectionRequest, pattern: Pattern) -> float:
    return math.exp2(-max(0.0, query.now - pattern.last_seen) / _HALF_LIFE_SECONDS)


def _draw_template(
    query: SelectionRequest,
    close: Sequence[_ScoredTemplate],
    reports: list[CandidateReport],
    stats: Mapping[str, TemplateStats],
) -> Selection:
    """Select the template with the best draw among those that fit about equally well."""
    draws: dict[str, float] = {}
    if len(close) > 1:
        random = Random(query.seed)
        for contender in sorted(close, key=lambda one: one.template.id):
            draws[contender.template.id] = _sample_success_rate(
                random, stats.get(contender.template.id, TemplateStats())
            )

    def get_sort_key(contender: _ScoredTemplate) -> tuple[float, float, int, str]:
        used = stats.get(contender.template.id, TemplateStats()).sessions
        return -draws.get(contender.template.id, 1.0), -contender.fit, used, contender.template.id

    winner = min(close, key=get_sort_key)
    matcher = RequestMatcher(query.text, {}, 0)
    picked = tuple(
        one._replace(words=matcher.find_shared_words(weigh_pattern_words(one.pattern))[:6])
        for one in winner.picked
    )
    reason = _explain_selection(winner, picked, len(close))
    final_reports = [
        one._replace(
            drawn=draws.get(one.template),
            reason=reason if one.template == winner.template.id else one.reason,
        )
        for one in reports
    ]
    return Selection(winner.template, picked, reason, tuple(final_reports))


def _sample_success_rate(random: Random, stats: TemplateStats) -> float:
    good, bad = stats.calls - stats.errors, stats.errors
    return random.betavariate(_PRIOR[0] + good / _DESIGN_EFFECT, _PRIOR[1] + bad / _DESIGN_EFFECT)


def _build_report(
    contender: _ScoredTemplate, stats: Mapping[str, TemplateStats], drawn: float | None, reason: str
) -> CandidateReport:
    template, template_stats = contender.template, stats.get(contender.template.id, TemplateStats())
    return CandidateReport(
        template.id,
        template.name,
        round(contender.fit, 4),
        len(contender.picked),
        template_stats,
        drawn,
        reason,
    )


def _explain_selection(
    winner: _ScoredTemplate, picked: Sequence[SelectedPattern], contender_count: int
) -> str:
    words = list(dict.fromkeys(word for one in picked for word in one.words))[:5]
    text = f"“{winner.template.name}” fits best ({winner.fit:.2f})"
    if contender_count > 1:
        text = (
            f"“{winner.template.name}” was drawn from {contender_count} that fit about equally well"
        )
    if words:
        text += f"; shared words: {', '.join(words)}"
    return text


def _explain_rejection(contender: _ScoredTemplate, floor: float) -> str:
    if contender.refusal:
        return contender.refusal
    if not contender.scored:
        return "its calls need tools that are not available, or it is not visible to this user"
    best = max(one.fit for one in contender.scored)
    if best < floor:
        return f"its fit is {best:.2f}, below the floor of {floor:.2f}"
    return "another fits better" if contender.picked else "its calls do not fit the available tools"


def _explain_no_match(ranked: Sequence[_ScoredTemplate], floor: float) -> str:
    usable = [contender for contender in ranked if not contender.refusal]
    if not usable:
        return "no template matches" if not ranked else "the matches may not be used"
    return (
        f"nothing fits: {_explain_rejection(usable[0], floor).replace('its fit', 'the best fit')}"
    )
