"""Experiments: does a warm start help? Sessions are assigned at random and analysed as assigned.

A session is assigned before its first message, by a hash of its id and the experiment's seed, so that
the assignment is reproducible and never depends on what the session does. The outcome is the share of
its first calls that failed. Sessions count in their assigned arm even if no template fitted and no
prelude was sent: that is the effect a user would see. An experiment about one template includes only
the sessions that it fits, in whichever arm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import NamedTuple

from rekindle.analytics.anytime_interval import (
    DEFAULT_PLANNED_SESSIONS,
    Effect,
    Observation,
    compute_needed_sessions,
    iter_effects,
)
from rekindle.analytics.cluster_stats import Rate, compute_rate
from rekindle.analytics.outcome_rates import OutcomeRate, compute_outcome_rate
from rekindle.errors import InvalidInput

WARM, COLD, PLACEBO = "warm", "cold", "placebo"
ARMS = (WARM, COLD, PLACEBO)
FIRST_CALLS = 10
IMBALANCE_P_VALUE = 0.001  # arm sizes less likely than this cast doubt on the assignment


class ArmShare(NamedTuple):
    """An arm, and the probability that a session is assigned to it."""

    arm: str
    share: float


class Experiment(NamedTuple):
    """An experiment. Its arms and its seed never change: other shares are another experiment."""

    name: str
    shares: tuple[ArmShare, ...]
    seed: str
    started: float
    ended: float | None = None
    calls: int = FIRST_CALLS
    planned: int = DEFAULT_PLANNED_SESSIONS  # number of sessions at which the interval is narrowest
    min_effect: float = 0.03  # the smallest difference worth detecting
    template: str | None = None  # the one under test; it may be in quarantine


class AssignedSession(NamedTuple):
    """A session in an arm, and the outcome of its first calls."""

    session: str
    owner: str | None
    arm: str
    time: float
    calls: int = 0
    errors: int = 0
    complete: bool = True  # it made its first calls, or will make no more
    given: bool = False  # a prelude was sent
    deleted: bool = False  # the session no longer exists
    verdict: str = "unknown"  # what became of the session


class ArmResult(NamedTuple):
    """The result of one arm; `counted` of the `assigned` sessions have calls."""

    arm: str
    assigned: int
    counted: int
    running: int
    without_calls: int
    deleted: int
    given: int
    rate: Rate
    outcomes: OutcomeRate


class EffectStep(NamedTuple):
    """What was known of a difference after one more session, assigned at this time."""

    session: str
    time: float
    effect: Effect | None


class Contrast(NamedTuple):
    """The difference between two arms: the failure rate of `arm` minus that of `other`."""

    arm: str
    other: str
    effect: Effect | None
    needed: int | None  # sessions in both arms, to detect the smallest difference


class ExperimentReport(NamedTuple):
    """The current result of an experiment; `summary` describes it, the most important first."""

    experiment: Experiment
    arms: tuple[ArmResult, ...]
    contrasts: tuple[Contrast, ...]  # the first one is the main result
    is_balanced: bool
    summary: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The verdict: helps, harms, or unknown."""
        effect = self.contrasts[0].effect if self.contrasts else None
        if effect is None or not effect.is_clear or not self.is_balanced:
            return "unknown"
        return "helps" if effect.value < 0 else "harms"


def normalize_shares(given: Mapping[str, float]) -> tuple[ArmShare, ...]:
    """Check the arms of an experiment, and scale their shares to add up to one."""
    for arm, share in given.items():
        if arm not in ARMS:
            raise InvalidInput(f"arm {arm!r:.80}: expected one of {', '.join(ARMS)}")
        if not (isfinite(share) and share > 0):
            raise InvalidInput(f"share of {arm}: expected a number greater than 0, got {share!r}")
    if not {WARM, COLD} <= given.keys():
        raise InvalidInput("an experiment needs a warm and a cold arm: add the missing one")
    total = sum(given.values())
    if min(given.values()) / total < 0.01:
        raise InvalidInput("every arm needs a share of at least 1%: increase the smallest one")
    return tuple(ArmShare(arm, given[arm] / total) for arm in ARMS if arm in given)


def draw_arm(experiment: Experiment, session: str) -> str:
    """Return the arm of a session: always the same, with the probabilities of the shares."""
    hashed = blake2b(
        f"{experiment.seed}\0{session}".encode("utf-8", "replace"), digest_size=8
    ).digest()
    position = int.from_bytes(hashed, "big") / 2**64
    for arm, share in experiment.shares:
        position -= share
        if position < 0:
            return arm
    return experiment.shares[-1].arm


def build_report(experiment: Experiment, sessions: Sequence[AssignedSession]) -> ExperimentReport:
    """Build the current report from all sessions assigned so far."""
    ordered = sorted(sessions, key=lambda one: (one.time, one.session))
    arms = tuple(_summarize_arm(share.arm, ordered) for share in experiment.shares)
    present = [share.arm for share in experiment.shares]
    contrasts = [_compute_contrast(experiment, ordered, WARM, COLD)]
    if PLACEBO in present:
        contrasts.append(_compute_contrast(experiment, ordered, PLACEBO, COLD))
        contrasts.append(_compute_contrast(experiment, ordered, WARM, PLACEBO))
    balanced = _is_balanced(experiment, ordered)
    found = ExperimentReport(experiment, arms, tuple(contrasts), balanced, ())
    return found._replace(summary=tuple(_describe_report(found)))


def _summarize_arm(arm: str, sessions: Sequence[AssignedSession]) -> ArmResult:
    mine = [one for one in sessions if one.arm == arm]
    counted = [one for one in mine if _is_counted(one)]
    parts: dict[str, list[float]] = {}
    for one in counted:
        part = parts.setdefault(one.owner or one.session, [0.0, 0.0])
        part[0] += one.errors
        part[1] += one.calls
    return ArmResult(
        arm,
        len(mine),
        len(counted),
        sum(not one.complete and not one.deleted for one in mine),
        sum(one.complete and not one.deleted and not one.calls for one in mine),
        sum(one.deleted for one in mine),
        sum(one.given for one in mine),
        compute_rate(parts if len(parts) > 1 else _cluster_by_session(counted), len(counted)),
        _summarize_verdicts(arm, [one for one in mine if not one.deleted]),
    )


def _summarize_verdicts(arm: str, sessions: Sequence[AssignedSession]) -> OutcomeRate:
    verdicts = Counter(one.verdict for one in sessions)
    return compute_outcome_rate(
        "arm", arm, verdicts["succeeded"], verdicts["failed"], verdicts["unknown"]
    )


def _cluster_by_session(sessions: Sequence[AssignedSession]) -> dict[str, list[float]]:
    """Use sessions as clusters, since there is only one owner."""
    return {one.session: [float(one.errors), float(one.calls)] for one in sessions}


def _is_counted(one: AssignedSession) -> bool:
    return one.complete and not one.deleted and one.calls > 0


def list_effects(
    experiment: Experiment, sessions: Sequence[AssignedSession], arm: str = WARM, other: str = COLD
) -> list[EffectStep]:
    """Return the difference between two arms as it was known after each session that counts."""
    chances = dict(experiment.shares)
    chance = chances[arm] / (chances[arm] + chances[other])
    counted = sorted(
        (one for one in sessions if one.arm in (arm, other) and _is_counted(one)),
        key=lambda one: (one.time, one.session),
    )
    observed = (
        Observation(one.arm == arm, chance, one.errors / one.calls, one.owner) for one in counted
    )
    effects = iter_effects(observed, experiment.planned)
    return [
        EffectStep(one.session, one.time, effect)
        for one, effect in zip(counted, effects, strict=True)
    ]


def _compute_contrast(
    experiment: Experiment, sessions: Sequence[AssignedSession], arm: str, other: str
) -> Contrast:
    steps = list_effects(experiment, sessions, arm, other)
    effect = steps[-1].effect if steps else None
    if effect is None:
        return Contrast(arm, other, None, None)
    return Contrast(
        arm,
        other,
        effect,
        compute_needed_sessions(experiment.min_effect, effect.deviation, experiment.planned),
    )


def _is_balanced(experiment: Experiment, sessions: Sequence[AssignedSession]) -> bool:
    """Return whether chance explains the sizes of the arms; if not, the assignment was biased.

    Each arm is checked with Hoeffding's bound: conservative, and valid at every look.
    """
    from math import exp

    total = len(sessions)
    for arm, share in experiment.shares:
        deviation = abs(sum(one.arm == arm for one in sessions) / total - share) if total else 0.0
        if 2 * exp(-2 * total * deviation * deviation) * len(experiment.shares) < IMBALANCE_P_VALUE:
            return False
    return True


# ── report in words


def _describe_report(found: ExperimentReport) -> Iterable[str]:
    main = found.contrasts[0]
    if not found.is_balanced:
        yield (
            "Chance cannot explain the sizes of the arms: something biased the assignment. "
            "Do not trust the results below until the cause is found."
        )
    yield _describe_verdict(found, main)
    if outcomes := _describe_outcomes(found.arms):
        yield outcomes
    if more := _describe_remaining(found, main):
        yield more
    placebo = next((one for one in found.contrasts if one.arm == PLACEBO), None)
    if placebo is not None and placebo.effect is not None and placebo.effect.is_clear:
        how = "fewer" if placebo.effect.value < 0 else "more"
        yield (
            f"Placebo, an unrelated prelude of the same size, has {how} failures than cold: "
            "part of the difference is not due to the content of the examples."
        )
    for arm in found.arms:
        if arm.deleted:
            yield f"{arm.deleted} sessions of the {arm.arm} arm were deleted and cannot be counted."
    if main.effect is not None and main.effect.owners == 1:
        yield "All sessions belong to one owner: the result applies to their work only."


def _describe_verdict(found: ExperimentReport, main: Contrast) -> str:
    rates = {arm.arm: arm.rate for arm in found.arms}
    effect, warm, cold = main.effect, rates[WARM], rates[COLD]
    if effect is None or warm.rate is None or cold.rate is None:
        return "No evidence yet: both arms need sessions with calls."
    calls = f"of the first {found.experiment.calls} calls"
    rates_text = f"{warm.rate:.1%} {calls} fail warm, {cold.rate:.1%} cold"
    if not effect.is_clear:
        return f"Not known yet: {rates_text}, which chance alone could explain."
    word = "helps" if effect.value < 0 else "harms"
    low, high = sorted((abs(effect.range.low), abs(effect.range.high)))
    return (
        f"Warm {word}: {rates_text}; the difference is {low * 100:.1f} to {high * 100:.1f} points "
        f"({effect.sessions} sessions)."
    )


def _describe_outcomes(arms: Sequence[ArmResult]) -> str | None:
    """Describe how many sessions succeeded in each arm, if any outcome is known."""
    if not any(arm.outcomes.succeeded + arm.outcomes.failed for arm in arms):
        return None
    return f"Sessions that succeeded: {', '.join(_describe_arm_outcomes(arm) for arm in arms)}."


def _describe_arm_outcomes(arm: ArmResult) -> str:
    found = arm.outcomes
    known = found.succeeded + found.failed
    if found.low is None or found.high is None:
        return f"{arm.arm} no evidence ({known} known)"
    return f"{arm.arm} {found.succeeded} of {known} ({found.low:.0%} to {found.high:.0%})"


def _describe_remaining(found: ExperimentReport, main: Contrast) -> str | None:
    effect = main.effect
    if effect is None or effect.is_clear or main.needed is None:
        return None
    points = f"{found.experiment.min_effect * 100:g} points"
    if (more := main.needed - effect.sessions) > 0:
        return (
            f"About {more:,} more sessions are needed ({main.needed:,} in all) to detect "
            f"a difference of {points} with 80% power."
        )
    return (
        f"A difference of {points} would probably have been detected by now: it is smaller or zero."
    )
