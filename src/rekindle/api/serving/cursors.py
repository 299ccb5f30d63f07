"""Cursors of the list of sessions: a page goes on where the last one ended, whatever came since."""

from __future__ import annotations

import base64
import math
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store import Filter, Store
from rekindle.types import Session


class PageCursor(NamedTuple):
    """The activity of the last session of a page, and how many sessions of that time were seen."""

    last_active: float
    seen: int

    def encode(self) -> str:
        """Return the cursor as clients send it back."""
        text = f"{self.last_active.hex()},{self.seen}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(text: str) -> PageCursor:
    """Parse a cursor; raise `InvalidInput` if it is none of ours."""
    try:
        padded = text + "=" * (-len(text) % 4)
        time, seen = base64.urlsafe_b64decode(padded.encode("ascii")).decode("ascii").split(",")
        cursor = PageCursor(float.fromhex(time), int(seen))
    except (ValueError, OverflowError):
        raise InvalidInput("cursor: expected a next_cursor of an earlier page") from None
    if not math.isfinite(cursor.last_active) or not 0 <= cursor.seen < 10**9:
        raise InvalidInput("cursor: expected a next_cursor of an earlier page")
    return cursor


def list_page(
    store: Store, where: Filter, limit: int, cursor: PageCursor | None
) -> tuple[list[Session], PageCursor | None]:
    """Return a page of sessions, newest first, and the cursor of the next one."""
    offset = 0
    if cursor is not None:
        # Before the next higher number: including those of the same time, which were partly seen.
        until = math.nextafter(cursor.last_active, math.inf)
        until = until if where.until is None else min(until, where.until)
        where, offset = where.with_(until=until), cursor.seen
    found = store.recent(limit + 1, offset=offset, where=where)
    page = found[:limit]
    if len(found) <= limit:
        return page, None
    last = page[-1].last_active
    seen = sum(session.last_active == last for session in page)
    if cursor is not None and cursor.last_active == last:
        seen += cursor.seen
    return page, PageCursor(last, seen)
