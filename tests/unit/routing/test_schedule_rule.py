"""When jobs run: all ways to write it, and every time zone's changes of the clock."""

from __future__ import annotations

from bisect import bisect
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rekindle.errors import InvalidInput
from rekindle.routing.schedule_rule import ScheduleRule, compute_next_run, parse_rule

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 17, 12, 0, tzinfo=ZoneInfo(BERLIN)).timestamp()  # a Tuesday
HOUR = 3600.0


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("30m", NOW + 1800),
        ("in 2 hours", NOW + 2 * HOUR),
        ("tomorrow 9:00", at("2026-11-18 09:00")),
        ("today at 18:30", at("2026-11-17 18:30")),
        ("2026-12-24 18:30", at("2026-12-24 18:30")),
        ("2026-12-24T18:30:05Z", datetime(2026, 12, 24, 18, 30, 5, tzinfo=UTC).timestamp()),
        ("every 2h", NOW + 2 * HOUR),
        ("every 45 minutes", NOW + 2700),
        ("every day", NOW + 24 * HOUR),
        ("0 9 * * MON-FRI", at("2026-11-18 09:00")),
        ("@daily", at("2026-11-18 00:00")),
        ("weekdays at 8:30", at("2026-11-18 08:30")),
        ("every monday at 9:00", at("2026-11-23 09:00")),
        ("Sundays 10:15", at("2026-11-22 10:15")),
        ("daily 13:00", at("2026-11-17 13:00")),
    ],
)
def test_a_rule_is_written_in_many_ways(text: str, first: float) -> None:
    rule = parse_rule(text, BERLIN, NOW)
    assert compute_next_run(rule, NOW) == first
    assert parse_rule(rule.to_text(), BERLIN, NOW) == rule


@pytest.mark.parametrize(
    "text",
    ["", "soon", "every 5s", "every 3 years", "2020-01-01 10:00", "2026-13-01 10:00", "0 25 * * *",
     "tomorrow 24:00", "0 0 30 2 *", "* * * *", "someday at 9:00", "every", "9" * 40 + "h"],
)  # fmt: skip
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="schedule"):
        parse_rule(text, BERLIN, NOW)


def test_an_interval_keeps_its_beat_and_catches_up_once() -> None:
    rule = ScheduleRule("interval", HOUR)
    assert compute_next_run(rule, NOW + 5, last=NOW) == NOW + HOUR
    assert compute_next_run(rule, NOW + 10.5 * HOUR, last=NOW) == NOW + 11 * HOUR
    assert compute_next_run(rule, NOW - 50 * HOUR, last=NOW) == NOW - 49 * HOUR, "clock set back"


def test_a_job_that_runs_once_has_no_second_time() -> None:
    rule = ScheduleRule("once", NOW)
    assert compute_next_run(rule, NOW) == NOW
    assert compute_next_run(rule, NOW, last=NOW) is None


# -- a year in every zone


def _find_changes(zone: ZoneInfo) -> list[float]:
    """Return the moments of 2026 at which the clock of a zone changes, to the second."""
    found: list[float] = []
    for start in range(int(YEAR), int(YEAR_END), 86_400):
        low, high = start, start + 86_400
        if _find_offset(zone, low) == _find_offset(zone, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if _find_offset(zone, middle) == _find_offset(zone, start):
                low = middle
            else:
                high = middle
        found.append(float(high))
    return found


def _find_offset(zone: ZoneInfo, moment: float) -> timedelta | None:
    return datetime.fromtimestamp(moment, zone).utcoffset()


@cache
def list_zones() -> dict[str, list[float]]:
    """Every zone whose clock changes, with the moments; of those that are alike this year, one."""
    found: dict[object, tuple[str, list[float]]] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        if changes := _find_changes(zone):
            offsets = [_find_offset(zone, moment) for moment in (YEAR, *changes)]
            found[tuple(changes), tuple(offsets)] = (name, changes)
    return dict(found.values())


YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
YEAR_END = datetime(2027, 1, 1, tzinfo=UTC).timestamp()


def list_fixed_runs(zone: ZoneInfo, changes: list[float], hour: int, minute: int) -> list[float]:
    """Return when a time of the day comes in a year: once a day, however the clock changes."""
    runs: list[float] = []
    for number in range(-1, 366):
        day = datetime(2026, 1, 1) + timedelta(days=number)
        wall = day.replace(hour=hour, minute=minute)
        moment = wall.replace(tzinfo=zone, fold=0).timestamp()
        if datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0) != wall:
            moment = next(one for one in changes if abs(one - moment) < 7200)  # it was skipped
        if YEAR < moment < YEAR_END:
            runs.append(moment)
    return runs


def list_runs(rule: ScheduleRule, start: float, end: float) -> list[float]:
    runs, now = list[float](), start
    while (found := compute_next_run(rule, now, last=now)) is not None and found < end:
        assert found > now
        runs.append(found)
        now = found
    return runs


def test_zones_with_daylight_saving_are_known() -> None:
    assert len(list_zones()) > 20
    assert sum(map(len, list_zones().values())) > 40


@pytest.mark.slow
def test_a_fixed_time_comes_once_a_day_for_a_year_in_every_zone() -> None:
    """A time near one that a change of the clock skips or repeats."""
    rng = Random(26)
    for name, changes in list_zones().items():
        zone = ZoneInfo(name)
        shown = [datetime.fromtimestamp(change - 1, zone) for change in changes]
        near = rng.choice(shown) + timedelta(minutes=rng.randrange(-59, 60))
        rule = ScheduleRule("cron", f"{near.minute} {near.hour} * * *", name)
        wanted = list_fixed_runs(zone, changes, near.hour, near.minute)
        assert list_runs(rule, YEAR, YEAR_END) == wanted, (name, rule)
        assert len(wanted) in (364, 365, 366)


@pytest.mark.parametrize(
    "expression", ["0 * * * *", "*/20 * * * *", "30 */2 * * *", "*/30 1-3 * * *"]
)
def test_a_rule_with_a_step_runs_whenever_the_clock_shows_it_in_every_zone(expression: str) -> None:
    """Each minute around each change of the clock is compared; a repeated time comes twice."""
    minutes, hours = (
        _list_matches(field, top) for field, top in zip(expression.split(), (60, 24), strict=False)
    )
    for name, changes in list_zones().items():
        zone, rule = ZoneInfo(name), ScheduleRule("cron", expression, name)
        for change in changes:
            start, end = change - 8 * HOUR, change + 8 * HOUR
            moments = (start + 60 * number for number in range(1, 16 * 60))
            shown = ((moment, datetime.fromtimestamp(moment, zone)) for moment in moments)
            wanted = [m for m, one in shown if one.minute in minutes and one.hour in hours]
            assert list_runs(rule, start, end) == wanted, (name, expression)


def _list_matches(field: str, top: int) -> range:
    if field.startswith("*"):
        return range(0, top, int(field.partition("/")[2] or 1))
    first, _, last = field.partition("-")
    return range(int(first), int(last or first) + 1)


def test_the_next_time_is_right_from_every_moment_around_a_change() -> None:
    rng = Random(27)
    for name, changes in list_zones().items():
        zone = ZoneInfo(name)
        for change in changes:
            shown = datetime.fromtimestamp(change - 1, zone) + timedelta(
                minutes=rng.randrange(-50, 50)
            )
            rule = ScheduleRule("cron", f"{shown.minute} {shown.hour} * * *", name)
            runs = list_fixed_runs(zone, changes, shown.hour, shown.minute)
            for _ in range(20):
                after = change + rng.uniform(-1.5, 1.5) * 86_400
                assert compute_next_run(rule, after) == runs[bisect(runs, after)], (name, after)


def test_an_interval_does_not_care_about_the_clock_of_a_zone() -> None:
    for name in list_zones():
        runs = list_runs(ScheduleRule("interval", 6 * HOUR, name), YEAR, YEAR_END)
        assert runs == [YEAR + 6 * HOUR * number for number in range(1, 1460)], name


def test_a_single_time_that_is_skipped_comes_at_the_first_moment_after_it_in_every_zone() -> None:
    for name, changes in list_zones().items():
        zone = ZoneInfo(name)
        for change in changes:
            before = datetime.fromtimestamp(change - 60, zone).replace(tzinfo=None)
            wall = before + timedelta(minutes=11)
            moment = wall.replace(tzinfo=zone, fold=0).timestamp()
            if datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0) != wall:
                moment = change
            rule = parse_rule(f"{wall:%Y-%m-%d %H:%M}", name, change - 3 * 86_400)
            assert compute_next_run(rule, change - 3 * 86_400) == moment, (name, wall)
