"""The filter grammar that selects sessions for listing, exporting, archiving and pruning.

    source=telegram owner=ada model=gpt-5     equal
    title~deploy model~opus branch~fix        contains, ignoring case
    idle>30d idle<2h                          time since the last activity (m, h, d, w)
    messages<5 calls>=100                     counts
    ended=no ended=yes ended=compression      whether it ended, or its end reason
    titled=no parent=yes archived=any         yes or no (archived: also any; defaults to no)
    arm=warm template=review                  how it was started
    project=github.com/owner/name             the repository it worked in (commands accept short names)
    branch=main                               the git branch it worked on
    outcome=failed outcome=succeeded          what became of it, or outcome=unknown
    errors=yes errors=no                      whether a tool call is known to have failed
    since=2026-01-31 until=2026-02-28T12:00   last activity, local time; a bare date covers the whole day
    since=7d since=yesterday until=today      the same, seen from now (min, h, d, w, y)

Terms are separated by spaces and must all match; quote a value that contains spaces.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.types import replace_fields

from .tables import build_project_key
from .text_encoding import escape_text

_TERM = r"(?s)([a-z]+)(<=|>=|=|<|>|~)(.+)"
_DURATION = r"(\d+(?:\.\d+)?)([mhdw])"
_FLIPPED_OPERATORS = {
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
}  # idle for longer means active earlier
_OUTCOMES = ("succeeded", "failed", "unknown")
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = r"(\d{1,9}(?:\.\d{1,9})?)([a-z]+)"
_AGE_SECONDS = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 365 * 86_400}
_DAYS_AGO = {"today": 0, "yesterday": 1}
PROJECT_KEY = build_project_key("s.")
_BATCH_SIZE = 250  # values of an IN clause


class Filter(NamedTuple):
    """A selection of sessions. By default every session that is neither archived nor pruned."""

    source: str | None = None
    owner: str | None = None
    model: str | None = None
    model_part: str | None = None
    branch: str | None = None
    branch_part: str | None = None
    title: str | None = None
    ended: str | None = None
    titled: bool | None = None
    parent: bool | None = None
    archived: bool | None = False
    pruned: bool = False
    arm: str | None = None
    template: str | None = None
    project: str | None = None
    projects: tuple[str, ...] | None = None  # keys, of which a session has one
    outcome: str | None = None
    errors: bool | None = None
    idle: tuple[tuple[str, float], ...] = ()
    messages: tuple[tuple[str, int], ...] = ()
    calls: tuple[tuple[str, int], ...] = ()
    since: float | None = None
    until: float | None = None

    @staticmethod
    def parse(text: str) -> Filter:
        """Parse a filter; raise `InvalidInput` naming the first invalid term."""
        import shlex

        try:
            terms = shlex.split(text)
        except ValueError as error:
            raise InvalidInput(f"filter {text!r}: {error}") from None
        found = Filter()
        for term in terms:
            found = _apply_term(found, term)
        return found

    def with_(self, **fields: Any) -> Filter:
        """Return this filter with those of `fields` that are not None."""
        given = {name: value for name, value in fields.items() if value is not None}
        return replace_fields(self, **given)

    def to_sql(self, now: float) -> tuple[str, list[Any]]:
        """Return the filter as an SQL condition on `s` and its parameters."""
        conditions = [f"s.pruned IS {'NOT ' if self.pruned else ''}NULL"]
        params: list[Any] = []

        def require(condition: str, *values: Any) -> None:
            conditions.append(condition)
            params.extend(values)

        for condition, values in self._iter_column_conditions():
            require(condition, *values)
        if self.owner:
            require("s.owner <> ''")  # lets the planner use the index on owner
        for name, flag in (
            ("title", self.titled),
            ("parent", self.parent),
            ("archived", self.archived),
        ):
            if flag is not None:
                require(f"s.{name} IS {'NOT ' if flag else ''}NULL")
        if self.title is not None:
            number = "CASE WHEN s.title_number > 1 THEN ' #' || s.title_number ELSE '' END"
            require(
                f"s.title_base || {number} LIKE ? ESCAPE '!'",
                build_like(self.title.casefold()),
            )
        if self.ended in ("yes", "no"):
            require(f"s.ended IS {'NOT ' if self.ended == 'yes' else ''}NULL")
        elif self.ended is not None:
            require("s.end_reason = ?", escape_text(self.ended))
        if self.outcome is not None:
            known = "SELECT 1 FROM session_outcomes o WHERE o.session = s.num AND o.verdict"
            if self.outcome == "unknown":
                require(f"NOT EXISTS ({known} <> 'unknown')")
            else:
                require(f"EXISTS ({known} = ?)", self.outcome)
        if self.errors is not None:
            failed = "SELECT 1 FROM calls c WHERE c.session = s.num AND c.failed = 1"
            require(f"{'' if self.errors else 'NOT '}EXISTS ({failed})")
        for operator, seconds in self.idle:
            require(f"s.last_active {_FLIPPED_OPERATORS[operator]} ?", now - seconds)
        for column, bounds in (("message_count", self.messages), ("tool_call_count", self.calls)):
            for operator, count in bounds:
                require(f"s.{column} {operator} ?", count)
        if self.since is not None:
            require("s.last_active >= ?", self.since)
        if self.until is not None:
            require("s.last_active < ?", self.until)
        return " AND ".join(conditions), params

    def _iter_column_conditions(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the conditions on columns with a text, and their parameters."""
        for column, value in (
            ("s.source", self.source),
            ("s.owner", self.owner),
            ("s.model", self.model),
            ("s.arm", self.arm),
            ("s.template", self.template),
            ("s.git_branch", self.branch),
            (PROJECT_KEY, self.project),
        ):
            if value is not None:
                yield f"{column} = ?", [escape_text(value)]
        for column, part in (("model", self.model_part), ("git_branch", self.branch_part)):
            if part is not None:
                yield f"lower(s.{column}) LIKE lower(?) ESCAPE '!'", [build_like(part)]
        if self.projects is not None:
            marks = ", ".join("?" * len(self.projects))
            condition = f"{PROJECT_KEY} IN ({marks})" if marks else "false"
            yield condition, map(escape_text, self.projects)


def build_in_condition(nums: Iterable[int] | None, column: str = "session") -> str:
    """Build an IN condition with the integers inlined, so that their number is unlimited."""
    if nums is None:
        return "true"
    listed = ", ".join([str(int(num)) for num in nums])
    return f"{column} IN ({listed})" if listed else "false"


def build_like(part: str) -> str:
    """Build the pattern of LIKE for texts with this part, with `!` as the escape character."""
    escaped = re.sub(r"([!%_])", r"!\1", escape_text(part))
    return f"%{escaped}%"


def _apply_term(session_filter: Filter, term: str) -> Filter:
    match = re.fullmatch(_TERM, term)
    field = match[1] if match else ""
    if match is None or field not in _FIELD_PARSERS:
        raise InvalidInput(f"filter term {term!r}: expected one of {_format_term_names()}")
    operators, parse_value = _FIELD_PARSERS[field]
    if match[2] not in operators:
        raise InvalidInput(f"filter term {term!r}: {field} accepts {' '.join(operators)}")
    value = parse_value(field, match[2], match[3])
    name = f"{field}_part" if match[2] == "~" and field != "title" else field
    before = getattr(session_filter, name)
    return replace_fields(
        session_filter, **{name: before + value if isinstance(value, tuple) else value}
    )


def is_term(text: str) -> bool:
    """Return whether a text is one term of a filter, with a value that may be wrong."""
    match = re.fullmatch(_TERM, text)
    return match is not None and match[2] in _FIELD_PARSERS.get(match[1], ((),))[0]


def _format_term_names() -> str:
    return ", ".join(f"{field}{''.join(ops[:1])}…" for field, (ops, _) in _FIELD_PARSERS.items())


def _parse_text(_field: str, _operator: str, value: str) -> str:
    return value


def _parse_flag(field: str, _operator: str, value: str) -> bool | None:
    allowed: dict[str, bool | None] = {"yes": True, "no": False}
    if field == "archived":
        allowed["any"] = None
    if value not in allowed:
        raise InvalidInput(f"filter term {field}={value}: expected {' or '.join(allowed)}")
    return allowed[value]


def _parse_outcome(field: str, _operator: str, value: str) -> str:
    if value not in _OUTCOMES:
        raise InvalidInput(f"filter term {field}={value}: expected {' or '.join(_OUTCOMES)}")
    return value


def _parse_count(field: str, operator: str, value: str) -> tuple[tuple[str, int], ...]:
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise InvalidInput(f"filter term {field}{operator}{value}: expected a whole number")
    return ((operator, int(value)),)


def _parse_idle(field: str, operator: str, value: str) -> tuple[tuple[str, float], ...]:
    match = re.fullmatch(_DURATION, value)
    if match is None:
        raise InvalidInput(
            f"filter term {field}{operator}{value}: expected a duration like 30m, 2h, 7d or 4w"
        )
    return ((operator, float(match[1]) * _UNIT_SECONDS[match[2]]),)


def parse_local_time(text: str, *, is_end: bool = False, now: float | None = None) -> float:
    """Parse a local date or time to UTC seconds; a bare date as an end means the end of that day.

    Also parse `today`, `yesterday`, and an age such as `7d`, as seen from `now`.
    """
    from datetime import datetime, timedelta

    moment = time.time() if now is None else now
    try:
        if age := re.fullmatch(_AGE, text):
            return moment - float(age[1]) * _AGE_SECONDS[age[2]]
        if text in _DAYS_AGO:
            day = datetime.fromtimestamp(moment) - timedelta(days=_DAYS_AGO[text])
            text = day.date().isoformat()
        parsed = datetime.fromisoformat(text)
        if is_end and len(text) == 10:
            parsed += timedelta(days=1)
        return parsed.astimezone().timestamp()
    except (ValueError, KeyError, OverflowError):  # OverflowError: outside the supported range
        raise InvalidInput(
            f"{text!r:.80} is not a date like 2026-01-31 or 2026-01-31T18:00, an age like 90min, 12h,"
            " 7d, 4w or 1y, today or yesterday"
        ) from None


def _parse_time_bound(field: str, _operator: str, value: str) -> float:
    return parse_local_time(value, is_end=field == "until")


_EQUALITY = ("=",)
_COMPARISONS = ("<", ">", "<=", ">=")
_FIELD_PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str, str, str], Any]]] = {
    "source": (_EQUALITY, _parse_text),
    "owner": (_EQUALITY, _parse_text),
    "model": (("=", "~"), _parse_text),
    "title": (("~",), _parse_text),
    "idle": (_COMPARISONS, _parse_idle),
    "messages": ((*_COMPARISONS, "="), _parse_count),
    "calls": ((*_COMPARISONS, "="), _parse_count),
    "ended": (_EQUALITY, _parse_text),
    "titled": (_EQUALITY, _parse_flag),
    "parent": (_EQUALITY, _parse_flag),
    "archived": (_EQUALITY, _parse_flag),
    "arm": (_EQUALITY, _parse_text),
    "template": (_EQUALITY, _parse_text),
    "project": (_EQUALITY, _parse_text),
    "branch": (("=", "~"), _parse_text),
    "outcome": (_EQUALITY, _parse_outcome),
    "errors": (_EQUALITY, _parse_flag),
    "since": (_EQUALITY, _parse_time_bound),
    "until": (_EQUALITY, _parse_time_bound),
}


def iter_in_clauses(values: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield values in batches, each with the placeholders for an IN clause.

    A batch has one value, or is padded to a fixed size by repeating the last one, so that only two
    statements have to be prepared.
    """
    for start in range(0, len(values), _BATCH_SIZE):
        batch = values[start : start + _BATCH_SIZE]
        count = 1 if len(batch) == 1 else _BATCH_SIZE
        yield ", ".join("?" * count), [*batch, *[batch[-1]] * (count - len(batch))]
