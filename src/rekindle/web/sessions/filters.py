"""The filters of the list, as encoded in the address of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from rekindle.errors import InvalidInput, RekindleError
from rekindle.projects import KnownProjects
from rekindle.store import Filter
from rekindle.store.core.filter import parse_local_time
from rekindle.types import Session

LIVE_SECONDS = 300  # since its last message, a session that has not ended counts as at work
MAX_CHARS = 500
STATUSES = ("live", "open", "ended", "archived", "deleted")
OUTCOMES = ("succeeded", "failed", "unknown")
PERIODS = {"1d": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days", "90d": "Last 90 days"}


class ListFilters(NamedTuple):
    """What the person has chosen; an empty text means everything."""

    q: str = ""
    agent: str = ""
    project: str = ""
    model: str = ""
    since: str = ""
    until: str = ""
    status: str = ""
    outcome: str = ""
    errors: str = ""
    owner: str = ""

    def build_query(self, **changes: str) -> str:
        """Return the address of the list with these filters and changes."""
        fields = {name: text for name, text in {**self._asdict(), **changes}.items() if text}
        return f"/sessions?{urlencode(fields, errors='replace')}" if fields else "/sessions"

    @property
    def is_narrow(self) -> bool:
        """Whether anything but the search limits the list."""
        return self._replace(q="") != ListFilters()

    def to_filter(self, known: KnownProjects) -> Filter:
        """Return the filter of the store; raise InvalidInput if a time cannot be read."""
        where = Filter(
            source=self.agent or None,
            model=self.model or None,
            owner=self.owner or None,
            outcome=self.outcome or None,
            errors={"yes": True, "no": False}.get(self.errors),
            since=parse_local_time(self.since) if self.since else None,
            until=parse_local_time(self.until, is_end=True) if self.until else None,
            projects=_find_project_keys(known, self.project) if self.project else None,
        )
        if self.status == "live":
            return where.with_(ended="no", idle=(("<", LIVE_SECONDS),))
        if self.status in ("open", "ended"):
            return where.with_(ended="yes" if self.status == "ended" else "no")
        if self.status == "archived":
            return where.with_(archived=True)
        # Those that were archived before they were deleted are in the trash, too.
        return where._replace(pruned=True, archived=None) if self.status == "deleted" else where


def read_filters(fields: Mapping[str, str]) -> ListFilters:
    """Read filters from the fields of an address; unknown choices are ignored."""
    found = {name: fields.get(name, "").strip()[:MAX_CHARS] for name in ListFilters._fields}
    for name, allowed in (("status", STATUSES), ("outcome", OUTCOMES), ("errors", ("yes", "no"))):
        if found[name] not in allowed:
            found[name] = ""
    for name in ("since", "until"):
        try:
            parse_local_time(found[name] or "today")
        except InvalidInput:
            found[name] = ""
    return ListFilters(**found)


def _find_project_keys(known: KnownProjects, wanted: str) -> tuple[str, ...]:
    try:
        return known.find_named_scope(wanted).keys
    except RekindleError:  # not found, or several: nothing is listed
        return ()


def is_live(session: Session, now: float) -> bool:
    """Return whether somebody seems to be at work in a session."""
    is_recent = now - session.last_active < LIVE_SECONDS
    return session.ended is None and session.archived is None and is_recent


# -- pages of the list


class ListCursor(NamedTuple):
    """Where a page of the list begins: after `skip` of the sessions that were last active at `time`."""

    time: float
    skip: int

    def format(self) -> str:
        """Return the cursor as a field of an address."""
        return f"{self.time!r}~{self.skip}"


def parse_cursor(text: str) -> ListCursor | None:
    """Parse a cursor; return None for the first page, or if it is not one of ours."""
    time, mark, skip = text.partition("~")
    if not mark or len(text) > 60 or not (skip.isascii() and skip.isdigit()):
        return None
    try:
        cursor = ListCursor(float(time), int(skip))
    except ValueError:
        return None
    return cursor if math.isfinite(cursor.time) and cursor.skip < 10**6 else None


def apply_cursor(where: Filter, cursor: ListCursor | None) -> tuple[Filter, int]:
    """Return the filter of the page at a cursor, and how many of its sessions to skip."""
    if cursor is None:
        return where, 0
    just_after = math.nextafter(cursor.time, math.inf)
    is_earlier = where.until is None or just_after < where.until
    return (where._replace(until=just_after), cursor.skip) if is_earlier else (where, 0)


def build_cursor(shown: list[Session], before: ListCursor | None) -> ListCursor:
    """Return where the next page begins after these sessions."""
    time = shown[-1].last_active
    skip = sum(one.last_active == time for one in shown)
    if before is not None and before.time == time:
        skip += before.skip
    return ListCursor(time, skip)
