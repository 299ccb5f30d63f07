"""Experiments: does a warm start help? Chance decides who gets one, and everyone is counted as drawn.

A session is assigned before its first message, by a number that its id and the trial's seed give, so
that the draw can be repeated and never depends on what the session does. What counts is the share of
its first calls that failed. Sessions count where they were assigned, even if nothing fitted and
nothing was given: that is what a user of the whole would get. An experiment about one template has
the sessions that it fits, whichever arm they are in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import NamedTuple

from rekindle.analytics.anytime_interval import PLANNED, Effect, Seen, Sums, needed
from rekindle.analytics.cluster_stats import Rate, rate_of
from rekindle.errors import InvalidInput

WARM, COLD, PLACEBO = "warm", "cold", "placebo"
ARMS = (WARM, COLD, PLACEBO)
FIRST_CALLS = 10
MISMATCH = 0.001  # how unlikely arms of these sizes must be before the draw itself is doubted


class Share(NamedTuple):
    """An arm, and the chance of a session to be in it."""

    arm: str
    share: float


class Trial(NamedTuple):
    """An experiment. Its arms and its seed never change: other shares are another experiment."""

    name: str
    shares: tuple[Share, ...]
    seed: str
    started: float
    ended: float | None = None
    calls: int = FIRST_CALLS
    planned: int = PLANNED  # sessions at which the interval is narrowest
    smallest: float = 0.03  # the difference that would be worth knowing
    template: str | None = None  # the one that it is about; it may wait in quarantine


class Assigned(NamedTuple):
    """A session in an arm, and what became of its first calls."""

    session: str
    owner: str | None
    arm: str
    time: float
    calls: int = 0
    errors: int = 0
    ripe: bool = True  # it has had its first calls, or will have no more
    given: bool = False  # a prelude was really sent
    gone: bool = False  # deleted since


class ArmResult(NamedTuple):
    """One arm: `assigned` sessions, of which `counted` have calls."""

    arm: str
    assigned: int
    counted: int
    running: int
    without_calls: int
    gone: int
    given: int
    rate: Rate


class Contrast(NamedTuple):
    """Two arms beside each other: the failures of `arm` less those of `other`."""

    arm: str
    other: str
    effect: Effect | None
    needed: int | None  # sessions of both arms, for a difference of the smallest size worth knowing


class Report(NamedTuple):
    """What an experiment says by now; `words` says it for people, the most important first."""

    trial: Trial
    arms: tuple[ArmResult, ...]
    contrasts: tuple[Contrast, ...]  # the first one is what the experiment is about
    is_balanced: bool
    words: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """helps, harms, or unknown."""
        effect = self.contrasts[0].effect if self.contrasts else None
        if effect is None or not effect.is_clear or not self.is_balanced:
            return "unknown"
        return "helps" if effect.value < 0 else "harms"


def checked_shares(given: Mapping[str, float]) -> tuple[Share, ...]:
    """The arms of an experiment, or the one that is wrong; shares are made to add up to one."""
    for arm, share in given.items():
        if arm not in ARMS:
            raise InvalidInput(f"arm {arm!r:.80}: expected one of {', '.join(ARMS)}")
        if not (isfinite(share) and share > 0):
            raise InvalidInput(f"share of {arm}: expected a number over 0, got {share!r}")
    if not {WARM, COLD} <= given.keys():
        raise InvalidInput("an experiment needs both arms, warm and cold: add the one that misses")
    total = sum(given.values())
    if min(given.values()) / total < 0.01:
        raise InvalidInput("every arm needs a share of at least 1%: give the small one more")
    return tuple(Share(arm, given[arm] / total) for arm in ARMS if arm in given)


def assign(trial: Trial, session: str) -> str:
    """The arm of a session: always the same, and as likely as the shares say."""
    said = blake2b(f"{trial.seed}\0{session}".encode("utf-8", "replace"), digest_size=8).digest()
    place = int.from_bytes(said, "big") / 2**64
    for arm, share in trial.shares:
        place -= share
        if place < 0:
            return arm
    return trial.shares[-1].arm


def report(trial: Trial, sessions: Sequence[Assigned]) -> Report:
    """What is known by now. `sessions` are all that were assigned."""
    ordered = sorted(sessions, key=lambda one: (one.time, one.session))
    arms = tuple(_arm(share.arm, ordered) for share in trial.shares)
    present = [share.arm for share in trial.shares]
    contrasts = [_contrast(trial, ordered, WARM, COLD)]
    if PLACEBO in present:
        contrasts.append(_contrast(trial, ordered, PLACEBO, COLD))
        contrasts.append(_contrast(trial, ordered, WARM, PLACEBO))
    balanced = _is_balanced(trial, ordered)
    found = Report(trial, arms, tuple(contrasts), balanced, ())
    return found._replace(words=tuple(_words(found)))


def _arm(arm: str, sessions: Sequence[Assigned]) -> ArmResult:
    mine = [one for one in sessions if one.arm == arm]
    counted = [one for one in mine if _counts(one)]
    parts: dict[str, list[float]] = {}
    for one in counted:
        part = parts.setdefault(one.owner or one.session, [0.0, 0.0])
        part[0] += one.errors
        part[1] += one.calls
    return ArmResult(
        arm,
        len(mine),
        len(counted),
        sum(not one.ripe and not one.gone for one in mine),
        sum(one.ripe and not one.gone and not one.calls for one in mine),
        sum(one.gone for one in mine),
        sum(one.given for one in mine),
        rate_of(parts if len(parts) > 1 else _alone(counted), len(counted)),
    )


def _alone(sessions: Sequence[Assigned]) -> dict[str, list[float]]:
    """With one owner, sessions are all the clusters there are."""
    return {one.session: [float(one.errors), float(one.calls)] for one in sessions}


def _counts(one: Assigned) -> bool:
    return one.ripe and not one.gone and one.calls > 0


def _contrast(trial: Trial, sessions: Sequence[Assigned], arm: str, other: str) -> Contrast:
    chances = dict(trial.shares)
    chance = chances[arm] / (chances[arm] + chances[other])
    sums = Sums(trial.planned)
    for one in sessions:
        if one.arm in (arm, other) and _counts(one):
            sums.add(Seen(one.arm == arm, chance, one.errors / one.calls, one.owner))
    effect = sums.effect
    if effect is None:
        return Contrast(arm, other, None, None)
    return Contrast(arm, other, effect, needed(trial.smallest, effect.deviation, trial.planned))


def _is_balanced(trial: Trial, sessions: Sequence[Assigned]) -> bool:
    """Are the arms as large as chance makes them? If not, something took part in the draw.

    The bound on the chance of each arm's count is Hoeffding's: crude, and true at every look.
    """
    from math import exp

    total = len(sessions)
    for arm, share in trial.shares:
        off = abs(sum(one.arm == arm for one in sessions) / total - share) if total else 0.0
        if 2 * exp(-2 * total * off * off) * len(trial.shares) < MISMATCH:
            return False
    return True


# ── in words


def _words(found: Report) -> Iterable[str]:
    main = found.contrasts[0]
    if not found.is_balanced:
        yield (
            "The arms are not as large as chance makes them: something took part in the draw. "
            "Nothing below can be trusted until that is found."
        )
    yield _verdict(found, main)
    if more := _still_needed(found, main):
        yield more
    placebo = next((one for one in found.contrasts if one.arm == PLACEBO), None)
    if placebo is not None and placebo.effect is not None and placebo.effect.is_clear:
        how = "fewer" if placebo.effect.value < 0 else "more"
        yield (
            f"Placebo, an unrelated prelude of the same size, has {how} failures than cold: "
            "a part of the difference is not what the examples say."
        )
    for arm in found.arms:
        if arm.gone:
            yield f"{arm.gone} sessions of the {arm.arm} arm were deleted and cannot be counted."
    if main.effect is not None and main.effect.owners == 1:
        yield "All of it comes from one owner: it speaks of that owner's work."


def _verdict(found: Report, main: Contrast) -> str:
    rates = {arm.arm: arm.rate for arm in found.arms}
    effect, warm, cold = main.effect, rates[WARM], rates[COLD]
    if effect is None or warm.rate is None or cold.rate is None:
        return "No evidence yet: there are not sessions with calls in both arms."
    said = (
        f"of the first {found.trial.calls} calls fail {warm.rate:.1%} warm and {cold.rate:.1%} cold"
    )
    if not effect.is_clear:
        return f"Not known: {said}, and chance alone can do that."
    word = "helps" if effect.value < 0 else "harms"
    low, high = sorted((abs(effect.range.low), abs(effect.range.high)))
    return (
        f"Warm {word}: {said}; the difference is {low * 100:.1f} to {high * 100:.1f} points "
        f"({effect.sessions} sessions)."
    )


def _still_needed(found: Report, main: Contrast) -> str | None:
    effect = main.effect
    if effect is None or effect.is_clear or main.needed is None:
        return None
    points = f"{found.trial.smallest * 100:g} points"
    if (more := main.needed - effect.sessions) > 0:
        return (
            f"About {more:,} more sessions are needed (of {main.needed:,}) to see a difference of "
            f"{points} with a chance of 80%."
        )
    return (
        f"A difference of {points} would most likely have been seen by now: it is smaller, or none."
    )
