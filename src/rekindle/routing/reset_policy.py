"""Decides when a conversation is reset automatically.

Times are UTC seconds. A conversation is stale from its reset time on: after some minutes without
activity, or at the hour of the daily reset, whichever comes first.

The daily reset happens once per local day: when the wall clock first shows the hour or, if the clock is
set forward past the hour, at that moment. A day that a zone skipped has none.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from rekindle.errors import InvalidInput
from rekindle.types import Overridable, ResetPolicy, Source

from . import overrides

ResetReason: TypeAlias = Literal["idle", "daily"]

_MAX_DAYS_AHEAD = 4  # enough even for a zone that skips a day


class ResetTime(NamedTuple):
    """The time at which a conversation becomes stale, and the reason."""

    moment: float
    reason: ResetReason


def get_policy(policies: Overridable[ResetPolicy], source: Source) -> ResetPolicy:
    """Return the reset policy for a source, with the overrides for its platform and chat type."""
    return overrides.apply_overrides(policies, source.platform, source.chat_type)


def find_reset_reason(
    policy: ResetPolicy, last_active: float, now: float, *, busy: bool = False
) -> ResetReason | None:
    """Return why the conversation must be reset, or None if it continues.

    A session with running background processes is `busy`, and never stale.
    """
    found = find_reset_time(policy, last_active, now, busy=busy)
    return found.reason if found and found.moment <= now else None


def compute_next_reset(
    policy: ResetPolicy, last_active: float, now: float, *, busy: bool = False
) -> float | None:
    """Return the time of the next reset without further activity.

    Return `now` if the conversation is already stale, None if it is never reset.
    """
    found = find_reset_time(policy, last_active, now, busy=busy)
    return max(now, found.moment) if found else None


def find_reset_time(
    policy: ResetPolicy, last_active: float, now: float, *, busy: bool = False
) -> ResetTime | None:
    """Return when the conversation becomes or became stale, and why."""
    if busy or policy.mode == "none":
        return None
    since = min(last_active, now)  # after the clock was set back, a future time counts as now
    times: list[ResetTime] = []
    if policy.mode in ("daily", "both"):
        times.append(ResetTime(_find_next_daily_reset(policy, since), "daily"))
    if policy.mode in ("idle", "both"):
        times.append(ResetTime(since + policy.idle_minutes * 60, "idle"))
    return min(times, key=lambda each: each.moment)


def _find_next_daily_reset(policy: ResetPolicy, since: float) -> float:
    zone = _load_zone(policy.time_zone)
    day = datetime.fromtimestamp(since, zone).date()
    for ahead in range(_MAX_DAYS_AHEAD):
        moment = _find_daily_reset(zone.key, day + timedelta(days=ahead), policy.hour)
        if moment is not None and moment > since:
            return moment
    raise InvalidInput(f"policy.time_zone: {policy.time_zone} has no {policy.hour}:00 after {day}")


@lru_cache(maxsize=1024)  # conversations share a few days and hours
def _find_daily_reset(zone_name: str, day: date, hour: int) -> int | None:
    """Return the reset time of a local day, or None if the zone skipped that day."""
    zone = _load_zone(zone_name)
    wall = datetime(day.year, day.month, day.day, hour)
    first = _to_timestamp(wall, zone, fold=0)
    if _to_wall_clock(first, zone) == wall:
        return first
    # The clock was set forward past the hour. With the offset after the change the hour lies before
    # it, with the offset before the change it lies after: search the change between them.
    before, after = _to_timestamp(wall, zone, fold=1), first
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (before, middle) if _to_wall_clock(middle, zone) > wall else (middle, after)
    return (
        after
        if day in (_to_wall_clock(before, zone).date(), _to_wall_clock(after, zone).date())
        else None
    )


def _to_timestamp(wall: datetime, zone: ZoneInfo, fold: int) -> int:
    return int(wall.replace(tzinfo=zone, fold=fold).timestamp())


def _to_wall_clock(moment: int, zone: ZoneInfo) -> datetime:
    """Convert a timestamp to wall-clock time in the zone."""
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0)


def _load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(f"policy.time_zone: unknown time zone {name!r:.80}") from None
