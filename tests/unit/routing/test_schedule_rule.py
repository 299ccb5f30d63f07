"""When jobs run: all ways to write it, and every time zone's changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
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


def list_runs(rule: ScheduleRule, start: float, end: float) -> list[float]:
    runs, now = list[float](), start
    while (found := compute_next_run(rule, now, last=now)) is not None and found < end:
        assert found > now
        runs.append(found)
        now = found
    return runs


def _find_changes(zone: ZoneInfo) -> list[datetime]:
    """Days of 2026 on which the clock of a zone changes."""
    days = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(366)]
    offsets = [day.astimezone(zone).utcoffset() for day in days]
    return [days[n - 1] for n in range(1, len(days)) if offsets[n] != offsets[n - 1]]


def _list_zones() -> dict[str, list[datetime]]:
    """Every zone whose clock changes, with the days; of those that are alike this year, one."""
    found: dict[object, tuple[str, list[datetime]]] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        if changes := _find_changes(zone):
            winter = datetime(2026, 1, 1, tzinfo=zone).utcoffset()
            found[winter, tuple(changes)] = (name, changes)
    return dict(found.values())


ZONES = _list_zones()


def test_zones_with_daylight_saving_are_known() -> None:
    assert len(ZONES) > 20


@pytest.mark.parametrize("hour", [0, 1, 2, 3])
def test_at_a_change_of_the_clock_a_fixed_time_comes_once_a_day_in_every_zone(hour: int) -> None:
    for name, changes in ZONES.items():
        zone = ZoneInfo(name)
        rule = ScheduleRule("cron", f"30 {hour} * * *", name)
        for change in changes:
            start = datetime(change.year, change.month, change.day, tzinfo=zone) - timedelta(days=2)
            first = start.replace(hour=12)
            runs = list_runs(rule, first.timestamp(), (first + timedelta(days=5)).timestamp())
            local = [datetime.fromtimestamp(run, zone) for run in runs]
            days = [moment.date() for moment in local]
            assert days == sorted(set(days)), (name, local)
            assert len(days) == 5, (name, local)
            for moment in local:
                wanted = moment.replace(hour=hour, minute=30, fold=0)
                exists = wanted.astimezone(UTC).astimezone(zone).replace(fold=0) == wanted
                if exists:
                    assert moment.replace(fold=0) == wanted, (name, moment)
                    assert moment.fold == 0, (name, moment)


def test_an_hourly_job_runs_every_hour_of_every_day() -> None:
    for name in ("Europe/Berlin", "Australia/Lord_Howe", "America/New_York"):
        zone = ZoneInfo(name)
        for change in _find_changes(zone):
            start = change.timestamp() - 12 * HOUR
            runs = list_runs(ScheduleRule("cron", "0 * * * *", name), start, start + 48 * HOUR)
            gaps = {after - before for before, after in pairwise(runs)}
            if name != "Australia/Lord_Howe":
                assert gaps == {HOUR}, (name, runs)
            assert len(runs) >= 47
