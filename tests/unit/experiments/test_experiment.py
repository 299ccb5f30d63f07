from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.analytics.anytime_interval import (
    MIN_ARM_SESSIONS,
    Observation,
    RunningSums,
    compute_critical_value,
    compute_needed_sessions,
    iter_effects,
)
from rekindle.errors import InvalidInput
from rekindle.experiments.experiment import (
    AssignedSession,
    Experiment,
    build_report,
    draw_arm,
    normalize_shares,
)
from rekindle.experiments.power import plan_experiment, simulate_plan
from tests.counts import choose_count

TRIAL = Experiment("t", normalize_shares({"warm": 1, "cold": 1}), "seed", 0.0)
THREE = Experiment("t", normalize_shares({"warm": 2, "cold": 2, "placebo": 1}), "seed", 0.0)


def drawn(
    trial: Experiment, count: int, rates: dict[str, float], seed: int = 1
) -> list[AssignedSession]:
    random = Random(seed)
    found: list[AssignedSession] = []
    for number in range(count):
        session = f"s{number}"
        arm = draw_arm(trial, session)
        errors = sum(random.random() < rates[arm] for _ in range(10))
        found.append(AssignedSession(session, f"o{number % 17}", arm, float(number), 10, errors))
    return found


def test_a_session_always_gets_the_same_arm_and_arms_get_their_shares() -> None:
    arms = [draw_arm(THREE, f"session-{number}") for number in range(20_000)]
    assert arms == [draw_arm(THREE, f"session-{number}") for number in range(20_000)]
    for arm, share in THREE.shares:
        assert abs(arms.count(arm) / len(arms) - share) < 0.015
    other = THREE._replace(seed="another")
    assert arms != [draw_arm(other, f"session-{number}") for number in range(20_000)]


def test_arms_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'tepid'"):
        normalize_shares({"warm": 1, "tepid": 1})
    with pytest.raises(InvalidInput, match="a warm and a cold arm"):
        normalize_shares({"warm": 1, "placebo": 1})
    for share in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="share of cold"):
            normalize_shares({"warm": 1, "cold": share})
    with pytest.raises(InvalidInput, match="1%"):
        normalize_shares({"warm": 1000, "cold": 1})


def test_a_real_difference_is_said_with_its_size() -> None:
    found = build_report(TRIAL, drawn(TRIAL, 1500, {"warm": 0.05, "cold": 0.10}))
    assert found.verdict == "helps"
    effect = found.contrasts[0].effect
    assert effect is not None
    assert effect.range.low < -0.05 < effect.range.high < 0
    assert found.summary[0].startswith("Warm helps: ")


def test_harm_is_called_harm() -> None:
    found = build_report(TRIAL, drawn(TRIAL, 1500, {"warm": 0.12, "cold": 0.06}))
    assert found.verdict == "harms"
    assert found.summary[0].startswith("Warm harms")


def test_without_evidence_the_report_says_so_and_how_much_is_missing() -> None:
    none = build_report(TRIAL, [])
    assert none.verdict == "unknown"
    assert none.summary[0].startswith("No evidence yet")
    some = build_report(TRIAL, drawn(TRIAL, 200, {"warm": 0.09, "cold": 0.09}))
    assert some.summary[0].startswith("Not known")
    assert "more sessions are needed" in some.summary[1]
    many = build_report(TRIAL, drawn(TRIAL, 4000, {"warm": 0.09, "cold": 0.09}))
    assert "smaller or zero" in many.summary[1]


def test_sessions_without_calls_running_or_deleted_are_told_and_not_counted() -> None:
    sessions = drawn(TRIAL, 200, {"warm": 0.05, "cold": 0.05})
    arms = {one.arm: [each for each in sessions if each.arm == one.arm] for one in sessions}
    changed = [
        arms["warm"][0]._replace(complete=False),
        arms["warm"][1]._replace(calls=0, errors=0),
        arms["warm"][2]._replace(deleted=True, calls=0, errors=0),
        *arms["warm"][3:],
        *arms["cold"],
    ]
    warm = build_report(TRIAL, changed).arms[0]
    assert (warm.running, warm.without_calls, warm.deleted) == (1, 1, 1)
    assert warm.counted == warm.assigned - 3
    assert any("deleted" in words for words in build_report(TRIAL, changed).summary)


def test_how_many_sessions_succeeded_is_told_for_each_arm_with_enough_of_them() -> None:
    sessions = drawn(TRIAL, 40, {"warm": 0.1, "cold": 0.1})
    assert not any("succeeded" in line for line in build_report(TRIAL, sessions).summary)
    warm = [one for one in sessions if one.arm == "warm"]
    cold = [one for one in sessions if one.arm == "cold"]
    judged = [
        *(one._replace(verdict="failed" if at < 3 else "succeeded") for at, one in enumerate(warm)),
        *(
            one._replace(verdict="succeeded" if at < 4 else "unknown")
            for at, one in enumerate(cold)
        ),
    ]
    found = build_report(TRIAL, judged)
    (line,) = [line for line in found.summary if "succeeded" in line]
    assert f"warm {len(warm) - 3} of {len(warm)} (" in line
    assert "cold no evidence (4 known)" in line
    assert found.arms[1].outcomes.unknown == len(cold) - 4


def test_arms_that_chance_cannot_have_made_take_the_verdict_away() -> None:
    sessions = drawn(TRIAL, 1500, {"warm": 0.03, "cold": 0.12})
    kept = [one for number, one in enumerate(sessions) if one.arm == "cold" or number % 2]
    found = build_report(TRIAL, kept)
    assert not found.is_balanced
    assert found.verdict == "unknown"
    assert "Chance cannot explain" in found.summary[0]


def test_a_placebo_that_does_as_much_is_pointed_out() -> None:
    found = build_report(THREE, drawn(THREE, 6000, {"warm": 0.05, "cold": 0.12, "placebo": 0.05}))
    assert [(one.arm, one.other) for one in found.contrasts] == [
        ("warm", "cold"),
        ("placebo", "cold"),
        ("warm", "placebo"),
    ]
    assert any("Placebo" in words for words in found.summary)


def test_sessions_are_counted_in_the_order_of_their_draw_however_they_come() -> None:
    sessions = drawn(TRIAL, 300, {"warm": 0.05, "cold": 0.1})
    shuffled = list(sessions)
    Random(3).shuffle(shuffled)
    assert build_report(TRIAL, sessions) == build_report(TRIAL, shuffled)


def test_nothing_is_claimed_before_there_are_some_dozens_in_each_arm() -> None:
    sums = RunningSums()
    for number in range(2 * MIN_ARM_SESSIONS - 2):
        sums.add(Observation(bool(number % 2), 0.5, float(number % 2)))
    effect = sums.effect
    assert effect is not None
    assert not effect.is_clear


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 10), st.sampled_from(["a", "b", "c", None])),
        min_size=2,
        max_size=60,
    )
)
def test_running_sums_agree_with_adding_up_from_the_start(
    rows: list[tuple[bool, int, str | None]],
) -> None:
    sessions = [Observation(treated, 0.4, count / 10, owner) for treated, count, owner in rows]
    last = list(iter_effects(sessions))[-1]
    if last is None:
        assert len({seen.treated for seen in sessions}) == 1
        return
    said: list[float] = []
    for number, seen in enumerate(sessions):
        before = sum(one.value for one in sessions[:number]) / number if number else seen.value
        weight = 1 / seen.chance if seen.treated else -1 / (1 - seen.chance)
        said.append((seen.value - before) * weight)
    mean = sum(said) / len(said)
    assert last.value == pytest.approx(mean, abs=1e-9)
    by_owner: dict[object, float] = {}
    for number, (seen, one) in enumerate(zip(sessions, said, strict=True)):
        key = seen.owner or number
        by_owner[key] = by_owner.get(key, 0.0) + one - mean
    alone = sum((one - mean) ** 2 for one in said) / (len(said) - 1)
    groups = len(by_owner)
    clustered = sum(total**2 for total in by_owner.values()) / len(said) * groups
    expected = alone if groups < 2 else max(alone, clustered / (groups - 1))
    assert last.deviation**2 == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_owners_whose_sessions_swing_together_widen_the_interval() -> None:
    random = Random(5)
    together, apart = RunningSums(), RunningSums()
    for number in range(400):
        treated = random.random() < 0.5
        owner = number // 40
        value = (
            0.5 if (owner % 2 == 0) is treated else 0.1
        )  # an owner is all for it, or all against
        together.add(Observation(treated, 0.5, value, f"o{owner}"))
        apart.add(Observation(treated, 0.5, value))
    assert together.effect is not None
    assert apart.effect is not None
    assert together.effect.deviation > 2 * apart.effect.deviation


def test_more_sessions_are_needed_for_smaller_differences_and_none_suffice_for_no_difference() -> (
    None
):
    counts = [compute_needed_sessions(size, 0.2) for size in (0.1, 0.05, 0.03, 0.01)]
    assert counts == sorted(counts, key=lambda count: count or 0)
    assert compute_needed_sessions(0.0, 0.2) is None
    assert compute_critical_value(400) > 1.96  # the price of looking at any time


@pytest.mark.slow
def test_runs_looked_at_after_every_session_keep_what_the_plan_promises() -> None:
    made = plan_experiment(0.09, 0.057)
    # With 200 runs a plan that finds what is there only 7 times in 10, or raises a false alarm in
    # 8% of all runs, leaves these bounds with more than nine seeds of ten.
    result = simulate_plan(made, runs=choose_count(60, 200), seed=7)
    assert result.false_alarms <= 0.05
    assert 0.75 <= result.found <= 0.95
    assert made.sessions is not None
    assert result.median_sessions is not None
    assert result.median_sessions < made.sessions
