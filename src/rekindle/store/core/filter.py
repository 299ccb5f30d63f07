"""One grammar to say which sessions: for listing, exporting, archiving and pruning.

    source=telegram owner=ada model=gpt-5     equal
    title~deploy                              contains, in any case
    idle>30d idle<2h                          time since the last activity (m, h, d, w)
    messages<5 calls>=100                     counts
    ended=no ended=yes ended=compression      by end, or by its reason
    titled=no parent=yes archived=any         yes, no (archived: also any; no unless asked for)
    arm=warm template=review                  how it was started
    since=2026-01-31 until=2026-02-28T12:00   last activity, local time; a bare day includes all of it

Terms are separated by spaces and must all hold; a value with spaces goes in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.types import replace

from .text_encoding import escape

_TERM = r"(?s)([a-z]+)(<=|>=|=|<|>|~)(.+)"
_DURATION = r"(\d+(?:\.\d+)?)([mhdw])"
_SINCE = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}  # idle for longer: active before
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Filter(NamedTuple):
    """Which sessions. The default is every session that is neither archived nor pruned."""

    source: str | None = None
    owner: str | None = None
    model: str | None = None
    title: str | None = None
    ended: str | None = None
    titled: bool | None = None
    parent: bool | None = None
    archived: bool | None = False
    pruned: bool = False
    arm: str | None = None
    template: str | None = None
    idle: tuple[tuple[str, float], ...] = ()
    messages: tuple[tuple[str, int], ...] = ()
    calls: tuple[tuple[str, int], ...] = ()
    since: float | None = None
    until: float | None = None

    @staticmethod
    def parse(text: str) -> Filter:
        """Read a filter; a term that is not one is refused by name."""
        import shlex

        try:
            terms = shlex.split(text)
        except ValueError as error:
            raise InvalidInput(f"filter {text!r}: {error}") from None
        found = Filter()
        for term in terms:
            found = _with_term(found, term)
        return found

    def with_(self, **fields: Any) -> Filter:
        """This filter, with those of `fields` that are not None."""
        given = {name: value for name, value in fields.items() if value is not None}
        return replace(self, **given)

    def sql(self, now: float) -> tuple[str, list[Any]]:
        """The filter as a condition on `s`."""
        conditions = [f"s.pruned IS {'NOT ' if self.pruned else ''}NULL"]
        params: list[Any] = []

        def need(condition: str, *values: Any) -> None:
            conditions.append(condition)
            params.extend(values)

        for name in ("source", "owner", "model", "arm", "template"):
            value = getattr(self, name)
            if value is not None:
                need(f"s.{name} = ?", escape(value))
        if self.owner:
            need("s.owner <> ''")  # lets the planner use the index of owners
        for name, flag in (
            ("title", self.titled),
            ("parent", self.parent),
            ("archived", self.archived),
        ):
            if flag is not None:
                need(f"s.{name} IS {'NOT ' if flag else ''}NULL")
        if self.title is not None:
            number = "CASE WHEN s.title_number > 1 THEN ' #' || s.title_number ELSE '' END"
            need(
                f"s.title_base || {number} LIKE ? ESCAPE '!'",
                f"%{_literal(escape(self.title.casefold()))}%",
            )
        if self.ended in ("yes", "no"):
            need(f"s.ended IS {'NOT ' if self.ended == 'yes' else ''}NULL")
        elif self.ended is not None:
            need("s.end_reason = ?", escape(self.ended))
        for operator, seconds in self.idle:
            need(f"s.last_active {_SINCE[operator]} ?", now - seconds)
        for column, bounds in (("message_count", self.messages), ("tool_call_count", self.calls)):
            for operator, count in bounds:
                need(f"s.{column} {operator} ?", count)
        if self.since is not None:
            need("s.last_active >= ?", self.since)
        if self.until is not None:
            need("s.last_active < ?", self.until)
        return " AND ".join(conditions), params


def among(nums: Iterable[int] | None, column: str = "session") -> str:
    """A condition; whole numbers of our own may stand in the statement, however many there are."""
    if nums is None:
        return "true"
    listed = ", ".join([str(int(num)) for num in nums])
    return f"{column} IN ({listed})" if listed else "false"


def _literal(text: str) -> str:
    return re.sub(r"([!%_])", r"!\1", text)


def _with_term(found: Filter, term: str) -> Filter:
    match = re.fullmatch(_TERM, term)
    field = match[1] if match else ""
    if match is None or field not in _READERS:
        raise InvalidInput(f"filter term {term!r}: expected one of {_allowed()}")
    operators, read = _READERS[field]
    if match[2] not in operators:
        raise InvalidInput(f"filter term {term!r}: {field} takes {' '.join(operators)}")
    value = read(field, match[2], match[3])
    before = getattr(found, field)
    return replace(found, **{field: before + value if isinstance(value, tuple) else value})


def _allowed() -> str:
    return ", ".join(f"{field}{''.join(ops[:1])}…" for field, (ops, _) in _READERS.items())


def _text(_field: str, _operator: str, value: str) -> str:
    return value


def _flag(field: str, _operator: str, value: str) -> bool | None:
    allowed: dict[str, bool | None] = {"yes": True, "no": False}
    if field == "archived":
        allowed["any"] = None
    if value not in allowed:
        raise InvalidInput(f"filter term {field}={value}: expected {' or '.join(allowed)}")
    return allowed[value]


def _count(field: str, operator: str, value: str) -> tuple[tuple[str, int], ...]:
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise InvalidInput(f"filter term {field}{operator}{value}: expected a whole number")
    return ((operator, int(value)),)


def _idle(field: str, operator: str, value: str) -> tuple[tuple[str, float], ...]:
    match = re.fullmatch(_DURATION, value)
    if match is None:
        raise InvalidInput(
            f"filter term {field}{operator}{value}: expected a time like 30m 2h 7d 4w"
        )
    return ((operator, float(match[1]) * _SECONDS[match[2]]),)


def moment(text: str, *, is_end: bool = False) -> float:
    """Read a local date or time as UTC seconds; a bare day at an end means the end of that day."""
    from datetime import datetime, timedelta

    try:
        at = datetime.fromisoformat(text)
        if is_end and len(text) == 10:
            at += timedelta(days=1)
        return at.astimezone().timestamp()
    except (ValueError, OverflowError):  # also a day before or after all days
        raise InvalidInput(f"{text!r} is not a date like 2026-01-31 or 2026-01-31T18:00") from None


def _moment(field: str, _operator: str, value: str) -> float:
    return moment(value, is_end=field == "until")


_EQUAL = ("=",)
_BOUNDS = ("<", ">", "<=", ">=")
_READERS: dict[str, tuple[tuple[str, ...], Callable[[str, str, str], Any]]] = {
    "source": (_EQUAL, _text),
    "owner": (_EQUAL, _text),
    "model": (_EQUAL, _text),
    "title": (("~",), _text),
    "idle": (_BOUNDS, _idle),
    "messages": ((*_BOUNDS, "="), _count),
    "calls": ((*_BOUNDS, "="), _count),
    "ended": (_EQUAL, _text),
    "titled": (_EQUAL, _flag),
    "parent": (_EQUAL, _flag),
    "archived": (_EQUAL, _flag),
    "arm": (_EQUAL, _text),
    "template": (_EQUAL, _text),
    "since": (_EQUAL, _moment),
    "until": (_EQUAL, _moment),
}
