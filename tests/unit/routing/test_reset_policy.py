"""When a conversation is stale, beside an oracle that looks at a clock on the wall every minute."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.errors import InvalidInput
from rekindle.routing.reset_policy import (
    compute_next_reset,
    find_reset_reason,
    find_reset_time,
    get_policy,
)
from rekindle.types import Overridable, ResetMode, ResetPolicy, Source
from tests.unit.routing.hypothesis_settings import unhurried

# Each is a year in which something happens to the clocks of the zone.
YEARS = [
    ("UTC", 2024),  # nothing
    ("Europe/Berlin", 2024),  # 02:00 skipped and repeated
    ("America/New_York", 2023),
    ("America/Havana", 2024),  # midnight skipped
    ("America/Nuuk", 2024),  # 23:00 skipped: the next moment is another day
    (
        "America/St_Johns",
        2006,
    ),  # half an hour; one minute past midnight goes back to the day before
    ("Australia/Lord_Howe", 2024),  # by half an hour
    ("Pacific/Chatham", 2024),  # 45 minutes
    ("Asia/Kathmandu", 2024),  # 45 minutes, never changed
    ("Asia/Tehran", 2022),  # half an hour, midnight repeated
    ("Antarctica/Troll", 2024),  # by two hours
    ("Africa/Casablanca", 2024),  # goes back in spring
    ("Asia/Pyongyang", 2015),  # half an hour for good
    ("Pacific/Apia", 2011),  # 30 December left out
    ("Pacific/Kwajalein", 1993),  # 21 August left out
]
HOUR = 3600
DAY = 24 * HOUR


def at(text: str, zone: str = "UTC", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def iter_changes(zone: ZoneInfo, start: int, end: int) -> Iterator[tuple[int, tuple[date, int]]]:
    """Yield each minute at which the clock shows another day or hour, and what it shows.

    In an hour after which the clock shows one hour more, it is looked at only where the hour changes.
    """
    before = (date.min, 0)
    for hour in range(start, end, HOUR):
        wall = datetime.fromtimestamp(hour, zone)
        after = datetime.fromtimestamp(hour + HOUR, zone)
        is_plain = after.replace(tzinfo=None) - wall.replace(tzinfo=None) == timedelta(hours=1)
        minutes = (0, 60 - wall.minute) if is_plain else range(60)
        for minute in (hour + 60 * one for one in minutes):
            wall = datetime.fromtimestamp(minute, zone)
            if (shows := (wall.date(), wall.hour)) != before and minute < end:
                before = shows
                yield minute, shows


@cache
def clock_on_the_wall(zone_name: str, year: int) -> tuple[dict[int, list[int]], set[date]]:
    """For each hour the moments of its daily reset, and the days there were.

    A day's reset is at the first minute at which the clock has shown the day, and now shows the
    hour of that day or anything later.
    """
    zone = ZoneInfo(zone_name)
    start, end = at(f"{year - 1}-12-25"), at(f"{year + 1}-01-08")
    moments: dict[int, list[int]] = {hour: [] for hour in range(24)}
    waiting: set[tuple[date, int]] = set()
    days: set[date] = set()
    for minute, shows in iter_changes(zone, int(start), int(end)):
        if shows[0] not in days:
            days.add(shows[0])
            waiting |= {(shows[0], hour) for hour in range(24)}
        for reached in [each for each in waiting if each <= shows]:
            waiting.remove(reached)
            moments[reached[1]].append(minute)
    return moments, days


@pytest.mark.parametrize(("zone", "year"), YEARS)
def test_in_a_whole_year_the_daily_resets_are_those_of_the_clock_on_the_wall(
    zone: str, year: int
) -> None:
    moments, days = clock_on_the_wall(zone, year)
    begin, end = at(f"{year - 1}-12-28"), at(f"{year + 1}-01-05")
    for hour in range(24):
        expected = [moment for moment in moments[hour] if begin < moment <= end]
        policy = ResetPolicy("daily", hour=hour, time_zone=zone)
        found: list[float] = []
        moment = begin
        while (moment := compute_next_reset(policy, moment, moment) or 0) <= end:
            found.append(moment)
        assert found == expected
    of_the_year = {day for day in days if day.year == year}
    whole = 366 if year % 4 == 0 else 365
    assert len(of_the_year) == whole - (zone in ("Pacific/Apia", "Pacific/Kwajalein"))


@given(
    st.sampled_from(YEARS),
    st.integers(0, 23),
    st.floats(0, 365 * DAY),
    st.floats(0, 4 * DAY) | st.floats(0, 2 * HOUR),
)
def test_a_session_is_stale_exactly_if_a_reset_came_after_its_last_activity(
    zone_and_year: tuple[str, int], hour: int, offset: float, silence: float
) -> None:
    zone, year = zone_and_year
    moments = clock_on_the_wall(zone, year)[0][hour]
    last = at(f"{year}-01-01") + offset
    now = last + silence
    came = bisect_right(moments, now) > bisect_right(moments, last)
    policy = ResetPolicy("daily", hour=hour, time_zone=zone)
    assert (find_reset_reason(policy, last, now) == "daily") == came
    assert compute_next_reset(policy, last, now) == max(now, moments[bisect_right(moments, last)])


@given(
    st.sampled_from(["none", "idle", "daily", "both"]),
    st.integers(1, 5000),
    st.integers(0, 23),
    st.sampled_from(YEARS),
    st.floats(0, 365 * DAY),
    st.floats(0, 5 * DAY),
)
def test_the_moment_of_the_next_reset_is_when_the_session_becomes_stale(
    mode: ResetMode,
    idle: int,
    hour: int,
    zone_and_year: tuple[str, int],
    offset: float,
    silence: float,
) -> None:
    zone, year = zone_and_year
    last = at(f"{year}-01-01") + offset
    policy = ResetPolicy(mode, idle, hour, zone)
    moment = compute_next_reset(policy, last, last)
    if moment is None:
        assert mode == "none"
        assert find_reset_reason(policy, last, last + 1000 * DAY) is None
        return
    assert moment > last
    assert find_reset_reason(policy, last, moment - 0.001) is None
    assert find_reset_reason(policy, last, moment) in ("idle", "daily")
    assert compute_next_reset(policy, last, last + silence) == max(moment, last + silence)
    assert (
        find_reset_reason(policy, moment, moment) is None
    )  # once: whoever starts anew then goes on


@pytest.mark.parametrize(
    ("zone", "hour", "day", "moment"),
    [
        ("Europe/Berlin", 2, "2024-03-31", "2024-03-31T01:00"),  # skipped: at 03:00 summer time
        ("Europe/Berlin", 2, "2024-10-27", "2024-10-27T00:00"),  # twice: the first 02:00
        ("Europe/Berlin", 4, "2024-03-31", "2024-03-31T02:00"),
        ("Europe/Berlin", 4, "2024-10-27", "2024-10-27T03:00"),
        ("America/Havana", 0, "2024-03-10", "2024-03-10T05:00"),
        ("America/Nuuk", 23, "2024-03-30", "2024-03-31T01:00"),
        ("Australia/Lord_Howe", 2, "2024-10-06", "2024-10-05T15:30"),
        ("Asia/Kathmandu", 4, "2024-06-01", "2024-05-31T22:15"),
    ],
)
def test_a_skipped_hour_is_made_up_for_at_once_and_of_a_repeated_one_the_first_counts(
    zone: str, hour: int, day: str, moment: str
) -> None:
    policy = ResetPolicy("daily", hour=hour, time_zone=zone)
    before = at(moment) - 2 * HOUR
    assert compute_next_reset(policy, before, before) == at(moment), day


def test_between_the_two_occurrences_of_the_hour_nothing_is_reset_again() -> None:
    policy = ResetPolicy("daily", hour=2, time_zone="Europe/Berlin")
    first = at("2024-10-27T02:00", "Europe/Berlin")
    second = at("2024-10-27T02:00", "Europe/Berlin", fold=1)
    assert second - first == HOUR
    assert find_reset_reason(policy, first - 60, first) == "daily"
    assert find_reset_reason(policy, first + 60, second + 60) is None


@pytest.mark.parametrize(
    ("zone", "before", "after"),
    [
        ("Pacific/Apia", "2011-12-29T04:00", "2011-12-31T04:00"),
        ("Pacific/Kwajalein", "1993-08-20T04:00", "1993-08-22T04:00"),
    ],
)
def test_a_day_that_a_zone_left_out_has_no_reset(zone: str, before: str, after: str) -> None:
    policy = ResetPolicy("daily", time_zone=zone)
    first, second = at(before, zone), at(after, zone)
    assert second - first == DAY
    assert compute_next_reset(policy, first, first) == second


def test_the_default_is_both_after_a_day_of_silence_or_at_four() -> None:
    assert ResetPolicy() == ResetPolicy("both", 1440, 4, "UTC")
    noon = at("2024-06-01T12:00")
    assert find_reset_time(ResetPolicy(), noon, noon) == (at("2024-06-02T04:00"), "daily")
    assert find_reset_reason(ResetPolicy("idle"), noon, noon + DAY - 1) is None
    assert find_reset_reason(ResetPolicy("idle"), noon, noon + DAY) == "idle"


def test_the_reason_is_what_came_first() -> None:
    policy = ResetPolicy("both", idle_minutes=60, hour=4)
    last = at("2024-06-01T02:30")
    assert find_reset_reason(policy, last, last + 10 * DAY) == "idle"
    last = at("2024-06-01T03:30")
    assert find_reset_reason(policy, last, last + 10 * DAY) == "daily"


def test_a_message_at_the_very_hour_belongs_to_the_new_day() -> None:
    four = at("2024-06-01T04:00")
    assert find_reset_reason(ResetPolicy("daily"), four - 0.5, four) == "daily"
    assert find_reset_reason(ResetPolicy("daily"), four, four + DAY - 1) is None


def test_a_mode_looks_only_at_its_own_limit() -> None:
    last = at("2024-06-01T03:59")
    assert find_reset_reason(ResetPolicy("idle", 120), last, last + HOUR) is None
    assert find_reset_reason(ResetPolicy("daily", 1), last, last + 30) is None
    assert find_reset_reason(ResetPolicy("daily", 1), last, last + 60) == "daily"
    assert find_reset_reason(ResetPolicy("none", 1), last, last + 1000 * DAY) is None


def test_a_session_with_running_processes_is_never_reset() -> None:
    last = at("2024-06-01T12:00")
    assert find_reset_reason(ResetPolicy(), last, last + 1000 * DAY) == "daily"
    assert find_reset_reason(ResetPolicy(), last, last + 1000 * DAY, busy=True) is None
    assert compute_next_reset(ResetPolicy(), last, last, busy=True) is None


@unhurried
@given(st.floats(0, 1e15))
def test_a_last_activity_in_the_future_is_no_reason_to_reset(ahead: float) -> None:
    now = at("2024-06-01T12:00")
    assert find_reset_reason(ResetPolicy(), now + ahead, now) is None
    assert compute_next_reset(ResetPolicy(), now + ahead, now) == at("2024-06-02T04:00")


def test_a_clock_that_stood_at_the_epoch_leaves_a_stale_session() -> None:
    assert (
        find_reset_reason(ResetPolicy(), 0.0, datetime(2024, 6, 1, tzinfo=UTC).timestamp())
        == "daily"
    )


@pytest.mark.parametrize("zone", ["Europe/Berln", "", "../../etc/passwd", "/etc/localtime", "Asia"])
def test_a_zone_that_does_not_exist_is_refused_by_name(zone: str) -> None:
    with pytest.raises(InvalidInput, match=r"policy\.time_zone"):
        find_reset_reason(ResetPolicy(time_zone=zone), 0.0, 1.0)


def test_the_policy_of_a_source_is_that_of_the_nearest_place() -> None:
    policies = Overridable(
        ResetPolicy(), {("telegram", "group"): {"mode": "none"}, (None, "group"): {"hour": 7}}
    )
    assert get_policy(policies, Source("telegram", "1", chat_type="group")).mode == "none"
    assert get_policy(policies, Source("slack", "1", chat_type="group")) == ResetPolicy(hour=7)
    assert get_policy(policies, Source("slack", "1")) == ResetPolicy()
