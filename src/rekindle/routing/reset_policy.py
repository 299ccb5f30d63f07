"""When a conversation starts anew by itself.

Times are UTC seconds. A conversation is stale from the moment it is *due*: after so many minutes
without activity, or at the hour of the daily reset, whichever comes first.

The daily reset happens once in each local day: when the wall clock first shows the hour, or, where
it is put forward past the hour, at the moment it is. A day that a zone left out has none.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from rekindle.errors import InvalidInput
from rekindle.types import Layered, Policy, Source

from . import overrides

Why: TypeAlias = Literal["idle", "daily"]

_DAYS_AHEAD = 4  # a zone that leaves out a day still has two resets in them


class Due(NamedTuple):
    """The moment a conversation becomes stale, and why."""

    moment: float
    why: Why


def policy_for(policies: Layered[Policy], source: Source) -> Policy:
    """The policy for a source: that of its platform and type, platform, type, or the default."""
    return overrides.at(policies, source.platform, source.chat_type)


def is_stale(policy: Policy, last_active: float, now: float, *, busy: bool = False) -> Why | None:
    """Why the conversation has to start anew, or None if it goes on.

    A session with running background processes is `busy`, and never stale.
    """
    found = due(policy, last_active, now, busy=busy)
    return found.why if found and found.moment <= now else None


def next_reset(
    policy: Policy, last_active: float, now: float, *, busy: bool = False
) -> float | None:
    """When the conversation is reset if nothing more is said: `now` if it is stale, None if never."""
    found = due(policy, last_active, now, busy=busy)
    return max(now, found.moment) if found else None


def due(policy: Policy, last_active: float, now: float, *, busy: bool = False) -> Due | None:
    """The moment at which the conversation becomes stale, or became it, and why."""
    if busy or policy.mode == "none":
        return None
    since = min(last_active, now)  # after a clock was put back, what lies ahead counts as now
    found: list[Due] = []
    if policy.mode in ("daily", "both"):
        found.append(Due(_next_daily(policy, since), "daily"))
    if policy.mode in ("idle", "both"):
        found.append(Due(since + policy.idle_minutes * 60, "idle"))
    return min(found, key=lambda each: each.moment)


def _next_daily(policy: Policy, since: float) -> float:
    zone = _zone(policy.zone)
    day = datetime.fromtimestamp(since, zone).date()
    for ahead in range(_DAYS_AHEAD):
        moment = _daily(zone.key, day + timedelta(days=ahead), policy.hour)
        if moment is not None and moment > since:
            return moment
    raise InvalidInput(f"policy.zone: {policy.zone} has no {policy.hour}:00 after {day}")


@lru_cache(maxsize=1024)  # all conversations of a day ask for the same few
def _daily(zone_name: str, day: date, hour: int) -> int | None:
    """The moment of the reset of a local day; None if the zone left that day out."""
    zone = _zone(zone_name)
    wall = datetime(day.year, day.month, day.day, hour)
    first = _moment(wall, zone, fold=0)
    if _wall(first, zone) == wall:
        return first
    # The clock was put forward past the hour. Read with the offset from after the change the hour
    # lies before it, read with the one from before it lies after: the change is between them.
    before, after = _moment(wall, zone, fold=1), first
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (before, middle) if _wall(middle, zone) > wall else (middle, after)
    return after if day in (_wall(before, zone).date(), _wall(after, zone).date()) else None


def _moment(wall: datetime, zone: ZoneInfo, fold: int) -> int:
    return int(wall.replace(tzinfo=zone, fold=fold).timestamp())


def _wall(moment: int, zone: ZoneInfo) -> datetime:
    """What a clock on the wall shows."""
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(f"policy.zone: there is no time zone called {name!r:.80}") from None
