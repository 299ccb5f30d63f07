"""When a scheduled job runs: once, at an interval, or by a cron expression in a time zone.

    30m   in 2h   tomorrow 9:00   2026-12-24 18:30          once
    every 2h   every 45 minutes                             at an interval
    0 9 * * MON-FRI   @daily   weekdays at 8:30             by the clock of a zone

At a change of the clock a job with a fixed time runs exactly once: at the first moment after a time
that is skipped, and the first time a time occurs twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from rekindle.errors import InvalidInput

RuleKind: TypeAlias = Literal["once", "interval", "cron"]

MIN_INTERVAL = 60.0  # seconds
MAX_INTERVAL = 366 * 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAYS = {
    "day": "*", "daily": "*", "weekday": "MON-FRI", "weekdays": "MON-FRI", "weekend": "SAT,SUN",
    "weekends": "SAT,SUN", "monday": "MON", "tuesday": "TUE", "wednesday": "WED", "thursday": "THU",
    "friday": "FRI", "saturday": "SAT", "sunday": "SUN",
}  # fmt: skip
_DURATION = re.compile(r"(\d{1,6})\s?(s|m|h|d|w|seconds?|secs?|minutes?|mins?|hours?|days?|weeks?)")
_DAY_AT = re.compile(r"(?:every )?([a-z]+?)s?(?: at)? (\d{1,2}):(\d{2})")
_ONE_DAY_AT = re.compile(r"(today|tomorrow)(?: at)? (\d{1,2}):(\d{2})")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})[ t](\d{1,2}):(\d{2})(?::(\d{2}))?(z)?")


class ScheduleRule(NamedTuple):
    """When a job runs. `value` is a time, a number of seconds, or a cron expression, by kind."""

    kind: RuleKind
    value: float | str
    zone: str = "UTC"

    def to_text(self) -> str:
        """Return the rule as text that `parse_rule` of the same zone reads back."""
        if self.kind == "cron":
            return str(self.value)
        if self.kind == "interval":
            return f"every {_format_seconds(float(self.value))}"
        moment = datetime.fromtimestamp(float(self.value), ZoneInfo(self.zone))
        return moment.strftime("%Y-%m-%d %H:%M:%S")


def parse_rule(text: str, zone: str, now: float) -> ScheduleRule:
    """Parse a rule. Times are those of `zone`; durations count from `now`."""
    words = " ".join(text.split())
    lower = words.lower()
    rule = _parse_once(lower, zone, now) or _parse_interval(lower, zone) or _parse_cron(words, zone)
    if rule is None:
        raise InvalidInput(
            f"schedule: {text!r:.80} is not a time; write “30m”, “every 2h”, “tomorrow 9:00”,"
            " “2026-12-24 18:30”, “weekdays at 8:30” or a cron expression such as “0 9 * * MON-FRI”"
        )
    if rule.kind == "once" and float(rule.value) < now:
        raise InvalidInput(f"schedule: {text!r:.80} is in the past")
    if compute_next_run(rule, now) is None:
        raise InvalidInput(f"schedule: {text!r:.80} never occurs")
    return rule


def compute_next_run(rule: ScheduleRule, after: float, last: float | None = None) -> float | None:
    """Return the first time of a rule that is later than `after`, or None if there is none.

    `last` is the time of the run before, from which an interval counts.
    """
    if rule.kind == "once":
        return float(rule.value) if last is None and float(rule.value) >= after else None
    if rule.kind == "interval":
        seconds = float(rule.value)
        if last is None or last > after:  # not run yet, or the clock was set back
            return after + seconds
        return last + seconds * max(1, (after - last) // seconds + 1)
    return _compute_cron_run(str(rule.value), rule.zone, after)


def _compute_cron_run(expression: str, zone: str, after: float) -> float | None:
    from cronsim import CronSim, CronSimError

    moment = datetime.fromtimestamp(after, ZoneInfo(zone))
    try:
        for _ in range(3):  # a repeated hour can give a time that is over already
            moment = next(CronSim(expression, moment))
            found = moment.timestamp()
            if found > after:
                return found
            moment = moment.replace(fold=1)
    except (StopIteration, CronSimError, OverflowError, ValueError):
        return None
    return None


def _parse_once(text: str, zone: str, now: float) -> ScheduleRule | None:
    if found := _DURATION.fullmatch(text.removeprefix("in ")):
        return ScheduleRule("once", now + _read_seconds(found), zone)
    if found := _ONE_DAY_AT.fullmatch(text):
        today = datetime.fromtimestamp(now, ZoneInfo(zone))
        day = today + timedelta(days=found[1] == "tomorrow")
        hour, minute = _check_time(text, found[2], found[3])
        moment = day.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
        return ScheduleRule("once", _find_moment(moment), zone)
    if found := _DATE.fullmatch(text):
        *numbers, second, utc = found.groups()
        try:
            zone_info = UTC if utc else ZoneInfo(zone)
            moment = datetime(*map(int, numbers), int(second or 0), tzinfo=zone_info)  # type: ignore[misc,arg-type]
        except ValueError as error:
            raise InvalidInput(f"schedule: {text!r:.80}: {error}") from error
        return ScheduleRule("once", _find_moment(moment), zone)
    return None


def _find_moment(local: datetime) -> float:
    """Return when a local time comes: the first time if twice, the moment after a gap if never."""
    zone, moment = local.tzinfo, local.timestamp()
    offset = datetime.fromtimestamp(moment, zone).utcoffset()
    if offset == local.utcoffset():
        return moment
    low, high = int(moment) - 86_400, int(moment)
    while high - low > 1:  # the offset changes once between them
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return float(high)


def _parse_interval(text: str, zone: str) -> ScheduleRule | None:
    if not text.startswith("every "):
        return None
    amount = text.removeprefix("every ")
    found = _DURATION.fullmatch(amount if amount[:1].isdigit() else f"1 {amount}")
    if found is None:
        return None
    seconds = _read_seconds(found)
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise InvalidInput("schedule: an interval is at least a minute and at most a year")
    return ScheduleRule("interval", seconds, zone)


def _parse_cron(text: str, zone: str) -> ScheduleRule | None:
    from cronsim import CronSim, CronSimError

    lower = text.lower()
    if found := _DAY_AT.fullmatch(lower):
        days = _DAYS.get(found[1]) or _DAYS.get(f"{found[1]}s")
        if days is None:
            return None
        hour, minute = _check_time(text, found[2], found[3])
        return ScheduleRule("cron", f"{minute} {hour} * * {days}", zone)
    expression = _MACROS.get(lower, text)
    if len(expression.split()) != 5:
        return None
    try:
        CronSim(expression, datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)))
    except CronSimError as error:
        raise InvalidInput(f"schedule: {text!r:.80}: {error}") from error
    return ScheduleRule("cron", expression, zone)


def _check_time(text: str, hour: str, minute: str) -> tuple[int, int]:
    if int(hour) > 23 or int(minute) > 59:
        raise InvalidInput(f"schedule: {text!r:.80}: there is no such time of day")
    return int(hour), int(minute)


def _read_seconds(found: re.Match[str]) -> float:
    return int(found[1]) * _UNITS[found[2][0]]


def _format_seconds(seconds: float) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds:.0f}s"
