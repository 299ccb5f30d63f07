"""What the page of experiments shows: reports, how the interval ran, and what it takes to decide."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from secrets import token_hex
from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request

from rekindle.analytics.anytime_interval import (
    MIN_ARM_SESSIONS,
    Effect,
    compute_needed_sessions,
)
from rekindle.errors import InvalidInput
from rekindle.experiments.experiment import (
    ARMS,
    COLD,
    ArmResult,
    AssignedSession,
    Contrast,
    EffectStep,
    Experiment,
    ExperimentReport,
    build_report,
    list_effects,
    normalize_shares,
)
from rekindle.experiments.power import plan_experiment
from rekindle.learning.verdicts.session_outcomes import judge_chosen_sessions
from rekindle.pages.plots import (
    ForestRow,
    PlotPoint,
    Scale,
    Svg,
    create_scale,
    fit_scale,
    format_points,
    render_forest,
    render_line,
)
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Session
from rekindle.web.computed import ComputedValue, ComputedValues, Report
from rekindle.web.context import get_context

from .reliability_plots import describe_rate, format_interval, format_rate

MAX_EXPERIMENTS = 30
MAX_LINE_POINTS = 40
MAX_STEPS = 8  # rows of the forest plot over time
PAGE_SIZE = 50
DIFFERENCES = (0.01, 0.02, 0.03, 0.05, 0.1)
DEFAULT_COLD = 0.09  # calls that fail cold, where nothing is known yet
_MAX_PERCENT = 100.0


class ExperimentView(NamedTuple):
    """An experiment with everything that is known about it."""

    report: ExperimentReport
    steps: tuple[EffectStep, ...]
    sessions: tuple[AssignedSession, ...]

    @property
    def experiment(self) -> Experiment:
        return self.report.experiment

    @property
    def counted(self) -> int:
        return sum(arm.counted for arm in self.report.arms)


class Decision(NamedTuple):
    """What it takes to decide."""

    counted: int
    needed: int | None  # in all
    share: float  # of the sessions that are there
    per_day: float | None
    days: float | None  # left, at this pace
    is_decided: bool
    assumed: bool  # planned with usual figures: nothing is known yet


class NeededSessions(NamedTuple):
    """The sessions it takes to see a difference."""

    difference: str
    needed: int | None
    more: int | None


class ListedSession(NamedTuple):
    """A session of an arm."""

    assigned: AssignedSession
    session: Session | None
    name: str


# ── computing


class ExperimentReports:
    """The reports of a server."""

    def __init__(self, executor: StoreExecutor) -> None:
        self._store = executor.store
        self.values = ComputedValues(executor)

    async def load_all(self) -> ComputedValue[list[ExperimentView]]:
        """Return the newest experiments, as far as they are computed."""
        return await self.values.get("all", self._build_all)

    def _build_all(self, report: Report) -> list[ExperimentView]:
        found = self._store.experiments.list_all()[:MAX_EXPERIMENTS]
        return [self._build_view(one, report) for one in found]

    def _build_view(self, experiment: Experiment, report: Report) -> ExperimentView:
        listed = self._store.experiments.list_assignments(experiment.name)
        judge_chosen_sessions(
            self._store,
            {one.session for one in listed},
            lambda done, total: report("Judging sessions", done, total),
        )
        sessions = self._store.experiments.list_assignments(experiment.name)
        steps = list_effects(experiment, sessions)
        return ExperimentView(build_report(experiment, sessions), tuple(steps), tuple(sessions))

    def list_sessions(self, view: ExperimentView, arm: str, page: int) -> list[ListedSession]:
        """Return a page of the sessions of an arm, newest first."""
        chosen = [one for one in reversed(view.sessions) if not arm or one.arm == arm]
        shown = chosen[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
        found = self._store.find_sessions([one.session for one in shown])
        names = self._store.load_names([*found.values()])
        return [
            ListedSession(one, session, (session and session.title) or names.get(one.session) or "")
            for one in shown
            for session in (found.get(one.session),)
        ]


def get_experiment_reports(request: Request) -> ExperimentReports:
    """Return the reports of the server that answers a request."""
    state = request.app.state
    if not hasattr(state, "experiments"):
        state.experiments = ExperimentReports(get_context(request).executor)
    return state.experiments


# ── starting


def parse_experiment(fields: Mapping[str, str], now: float) -> Experiment:
    """Return the experiment that a form describes."""
    name = fields.get("name", "").strip()
    if not name:
        raise InvalidInput("Give the experiment a name.")
    shares = {
        arm: _parse_percent(f"share of {arm}", fields.get(arm, "")) / 100
        for arm in ARMS
        if fields.get(arm, "").strip() not in ("", "0")
    }
    min_effect = _parse_percent("smallest difference", fields.get("min_effect", "") or "3")
    if not 0 < min_effect < _MAX_PERCENT:
        raise InvalidInput("smallest difference: expected points between 0 and 100")
    return Experiment(
        name, normalize_shares(shares), token_hex(8), now, min_effect=min_effect / 100
    )


def _parse_percent(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput(f"{name}: expected a number, got {text!r:.40}") from None
    if not 0 <= number <= _MAX_PERCENT:
        raise InvalidInput(f"{name}: expected a number from 0 to 100, got {text!r:.40}")
    return number


def get_now() -> float:
    """Return the time at which an experiment is started or stopped."""
    return time.time()


# ── what it takes to decide


def compute_decision(view: ExperimentView, now: float) -> Decision:
    """Return how far an experiment is from a decision, and how long the rest takes at its pace."""
    experiment, main = view.experiment, view.report.contrasts[0]
    needed, assumed = main.needed, False
    if needed is None and main.effect is None:
        needed, assumed = _plan_sessions(view), True
    counted = 0 if main.effect is None else main.effect.sessions
    seconds = (experiment.ended or now) - experiment.started
    per_day = counted / (seconds / 86_400) if counted and seconds > 3600 else None
    left = None if needed is None else max(0, needed - counted)
    return Decision(
        counted=counted,
        needed=needed,
        share=min(1.0, counted / needed) if needed else 0.0,
        per_day=per_day,
        days=None if left is None or not per_day else left / per_day,
        is_decided=view.report.verdict != "unknown",
        assumed=assumed,
    )


def _plan_sessions(view: ExperimentView) -> int | None:
    cold = next((arm.rate.rate for arm in view.report.arms if arm.arm == COLD), None)
    rate = cold if cold is not None and 0.01 <= cold < 1 else DEFAULT_COLD
    warm = max(0.001, rate - view.experiment.min_effect)
    plan = plan_experiment(rate, warm, calls=view.experiment.calls)
    return None if plan.sessions is None else 2 * plan.sessions


def list_needed_sessions(view: ExperimentView) -> list[NeededSessions]:
    """Return how many sessions it takes to see differences of several sizes."""
    effect = view.report.contrasts[0].effect
    if effect is None:
        return []
    found: list[NeededSessions] = []
    for difference in sorted({*DIFFERENCES, view.experiment.min_effect}):
        needed = compute_needed_sessions(difference, effect.deviation, view.experiment.planned)
        more = None if needed is None else max(0, needed - effect.sessions)
        found.append(NeededSessions(f"{difference * 100:g}", needed, more))
    return found


# ── plots


def draw_arms(view: ExperimentView, addresses: Mapping[str, str]) -> Svg:
    """Draw the failures of each arm; `addresses` lead to its sessions."""
    rows = [_build_arm_row(arm, addresses.get(arm.arm, "")) for arm in view.report.arms]
    names = ("Arm", f"Failed in the first {view.experiment.calls} calls", "Sessions", "Counted",
             "Still running", "No calls", "Got a prelude")  # fmt: skip
    return render_forest("Failed calls by arm", rows, names=names)


def _build_arm_row(arm: ArmResult, address: str) -> ForestRow:
    rate = arm.rate
    point = PlotPoint(
        arm.arm, rate.rate, rate.low, rate.high, f"{arm.arm}: {describe_rate(rate)}", address
    )
    counts = (arm.assigned, arm.counted, arm.running, arm.without_calls, arm.given)
    cells = tuple(f"{count:,}" for count in counts)
    return ForestRow(point, format_rate(rate), format_interval(rate) or "too few", cells)


def is_bounded(effect: Effect | None) -> bool:
    """Return whether an effect has an interval that says anything."""
    return effect is not None and effect.range.high - effect.range.low < 2


def draw_contrasts(view: ExperimentView, address: str) -> Svg:
    """Draw the difference of every pair of arms; `address` leads to their sessions."""
    rows = [
        ForestRow(
            _to_point(f"{one.arm} − {one.other}", one.effect, address), *_format_effect(one.effect)
        )
        for one in view.report.contrasts
    ]
    return render_forest(
        "Differences between arms in percentage points",
        rows,
        names=("Difference", "Points"),
        format_value=format_points,
        color="c4",
    )


def format_contrast(contrast: Contrast) -> str:
    """Format a difference and its interval in points: `−2.1 (−4.0 to −0.2)`."""
    value, interval = _format_effect(contrast.effect)
    return f"{value} ({interval})" if is_bounded(contrast.effect) else value


def _format_effect(effect: Effect | None) -> tuple[str, str]:
    if effect is None:
        return "–", ""
    value = _format_signed(effect.value)
    if not is_bounded(effect):
        return value, "too few"
    return value, f"{_format_signed(effect.range.low)} to {_format_signed(effect.range.high)}"


def _format_signed(value: float) -> str:
    points = round(100 * value, 1)
    return f"{points:+.1f}".replace("-", "−") if points else "0.0"


def _to_point(label: str, effect: Effect | None, href: str, words: str = "") -> PlotPoint:
    if effect is None:
        return PlotPoint(label, None)
    value, interval = _format_effect(effect)
    said = f"{words or label}: {value} points, {interval}"
    if not is_bounded(effect):
        said = f"{said}: an interval takes {MIN_ARM_SESSIONS} sessions per arm"
        return PlotPoint(label, effect.value, words=said, href=href)
    return PlotPoint(label, effect.value, *effect.range, said, href)


def _link_session(step: EffectStep) -> str:
    return f"/sessions/{quote(step.session, safe='', errors='replace')}"


def draw_running_interval(view: ExperimentView) -> Svg | None:
    """Draw how the interval ran, session by session."""
    chosen = _choose_steps(view.steps, MAX_LINE_POINTS)
    points = [
        _to_point(f"{number}", step.effect, _link_session(step), f"after {number} sessions")
        for number, step in chosen
    ]
    if not any(point.is_certain for point in points):
        return None
    return render_line(
        "Difference warm − cold in points, by sessions",
        points,
        color="c4",
        format_value=format_points,
        scale=_fit_effects(points, view.experiment),
        mark=-view.experiment.min_effect,
    )


def draw_steps(view: ExperimentView) -> Svg | None:
    """Draw the interval at several times, one below the other."""
    chosen = _choose_steps(view.steps, MAX_STEPS)
    rows = [
        ForestRow(
            _to_point(f"after {number:,} sessions", step.effect, _link_session(step)),
            *_format_effect(step.effect),
            note=datetime.fromtimestamp(step.time).strftime("%Y-%m-%d"),
        )
        for number, step in chosen
        if step.effect is not None
    ]
    if not rows:
        return None
    return render_forest(
        "The difference over time in percentage points",
        rows,
        names=("When", "Points"),
        format_value=format_points,
        color="c4",
        scale=_fit_effects([row.point for row in rows], view.experiment),
        mark=-view.experiment.min_effect,
    )


def _fit_effects(points: Sequence[PlotPoint], experiment: Experiment) -> Scale:
    scale = fit_scale(points)
    reach = 1.5 * experiment.min_effect
    return create_scale(min(scale.low, -reach), max(scale.high, reach))


def _choose_steps(steps: Sequence[EffectStep], limit: int) -> list[tuple[int, EffectStep]]:
    """Return some of the steps, evenly apart, with the last one; each with its number."""
    count = len(steps)
    wanted = sorted({round(count * (one + 1) / limit) for one in range(limit)} - {0})
    return [(number, steps[number - 1]) for number in wanted if number <= count]
