"""The spans of OpenTelemetry, out of the files that people make of them.

    OTLP JSON      `resourceSpans[].scopeSpans[].spans[]`, one document, or one on each line;
                   log records (`resourceLogs`) in the same way
    TRAIL          `{trace_id, spans[]}`, each span with its `child_spans` inside
    the SDK's      one span as an object, or a list of them: `{name, context, attributes, …}`

A span comes when it has ended, so those inside it come first, as an exporter writes them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from rekindle.json_fields import Record, number, record, records, seconds, text
from rekindle.transcripts.events import Damage
from rekindle.transcripts.jsonio.stream import Closed, Place, steps

_LISTS = {
    "resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "instrumentationLibrarySpans",
    "resourceLogs", "resource_logs", "scopeLogs", "scope_logs",
    "spans", "child_spans", "logRecords", "log_records",
}  # fmt: skip
_LOGS = {"logRecords", "log_records"}
_SPANS = {"spans", "child_spans"}
AGENTS = frozenset({"invoke_agent", "AGENT", "agent"})
_KINDS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind")
_DEEPEST = 32
_MOST_ATTRIBUTES = 100_000
_DURATION = re.compile(r"P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")
_FAILED = {"ERROR", "2"}
_WENT_WELL = {"OK", "1"}


class Noted(NamedTuple):
    """An event inside a span, or a log record about it."""

    name: str
    about: Record


class Span(NamedTuple):
    """One span. `failed` is None where its status is not set."""

    trace: str
    id: str
    parent: str | None
    name: str
    attributes: Record
    events: tuple[Noted, ...] = ()
    failed: bool | None = None
    problem: str | None = None
    start: float | None = None
    end: float | None = None
    is_log: bool = False
    # The agents that this span is part of, outermost first, where spans lie inside each other.
    agents: tuple[str, ...] = ()

    @property
    def duration(self) -> float | None:
        return self.end - self.start if self.start and self.end else None


def spans(path: Path) -> Iterator[Span | Damage]:
    """The spans and log records of a file, and the damage between them."""
    open_ones: dict[Place, Record] = {}
    for step in steps(path, _opens):
        if isinstance(step, Damage):
            yield step
            continue
        if isinstance(step, Closed):
            span = _span(open_ones.pop(step.place, {}))
            if span is not None and len(step.place) > 2:
                span = span._replace(agents=tuple(_agents(open_ones, step.place)))
        else:
            *above, key = step.place
            container = above[-1] if above else None
            if container in _LOGS:
                span = _log(record(step.value))
            elif container in _SPANS:
                span = _span(record(step.value))
            else:
                span = None
                open_ones.setdefault(tuple(above), {})[str(key)] = step.value
        if span is not None:
            yield span


def _agents(open_ones: dict[Place, Record], place: Place) -> Iterator[str]:
    for end in range(2, len(place), 2):
        fields = open_ones.get(place[:end], {})
        about = record(fields.get("span_attributes", fields.get("attributes")))
        id = text(fields, "span_id", "spanId")
        if id and AGENTS & {about.get(name) for name in _KINDS if isinstance(about.get(name), str)}:
            yield id


def _opens(place: Place) -> bool:
    *above, last = place
    if isinstance(last, str):
        return last in _LISTS
    # An element: a resource, a scope or, where spans lie inside each other, a span.
    container = above[-1] if above else None
    return container not in _LOGS and (container not in _SPANS or above[0] == "spans")


def _span(fields: Record) -> Span | None:
    context = record(fields.get("context"))
    id = text(fields, "spanId", "span_id") or text(context, "span_id", "spanId")
    given = fields.get("attributes", fields.get("span_attributes"))
    if id is None or not isinstance(given, (dict, list)):
        return None
    attributes = _attributes(cast(object, given))
    events = tuple(_events(fields.get("events")))
    status = record(fields.get("status")) or fields
    failed = _failed(status.get("code", status.get("status_code")))
    kind = text(attributes, "error.type")
    raised = record(next((event.about for event in events if event.name == "exception"), None))
    start = _time(fields, "startTimeUnixNano", "start_time_unix_nano", "start_time", "timestamp")
    end = _time(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time")
    if end is None and start is not None:
        lasted = _lasted(fields.get("duration"))
        end = None if lasted is None else seconds(start + lasted)
    return Span(
        trace=text(fields, "traceId", "trace_id") or text(context, "trace_id", "traceId") or "",
        id=id,
        parent=text(fields, "parentSpanId", "parent_span_id", "parent_id"),
        name=text(fields, "name", "span_name") or "",
        attributes=attributes,
        events=events,
        failed=True if kind else failed,
        problem=text(status, "message", "status_message", "description")
        or text(raised, "exception.message")
        or kind,
        start=start,
        end=end,
    )


def _log(fields: Record) -> Span | None:
    """A log record as a span with nothing but this event."""
    about = _attributes(fields.get("attributes"))
    name = text(fields, "eventName", "event_name") or text(about, "event.name")
    id = text(fields, "spanId", "span_id")
    if name is None or id is None:
        return None
    body = _value(fields.get("body"))
    said: Record = {**about, **(record(body) or {"body": body})}
    time = _time(fields, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano")
    trace = text(fields, "traceId", "trace_id") or ""
    return Span(trace, id, None, name, {}, (Noted(name, said),), start=time, is_log=True)


def _events(value: object) -> Iterator[Noted]:
    for event in records(value):
        name = text(event, "name", "Name")
        about = event.get("attributes", event.get("Attributes"))
        if name is not None:
            yield Noted(name, _attributes(about))


def _attributes(value: object) -> Record:
    """Attributes by their full name, whatever the file makes of them."""
    if isinstance(value, list):
        pairs = records(cast(object, value))
        return {key: _value(pair.get("value")) for pair in pairs if (key := text(pair, "key"))}
    flat: Record = {}
    for key, inner in record(value).items():
        # Some exports nest what others write with dots.
        if isinstance(inner, dict) and "." not in key:
            _flatten(key, cast(Record, inner), flat, 0)
        else:
            flat[key] = inner
    return flat


def _flatten(prefix: str, value: Any, flat: Record, depth: int) -> None:
    if depth > _DEEPEST or len(flat) > _MOST_ATTRIBUTES:
        return
    if isinstance(value, dict):
        for key, inner in cast(Record, value).items():
            _flatten(f"{prefix}.{key}", inner, flat, depth + 1)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in cast("list[Any]", value)):
        for index, inner in enumerate(cast("list[Any]", value)):
            _flatten(f"{prefix}.{index}", inner, flat, depth + 1)
    else:
        flat[prefix] = value


def _value(value: Any, depth: int = 0) -> Any:
    """A value out of the wrapping that OTLP puts around it."""
    wrapped = record(value)
    if depth > _DEEPEST or len(wrapped) != 1:
        return value if depth <= _DEEPEST else None
    kind, inner = next(iter(wrapped.items()))
    if kind in ("intValue", "int_value"):
        return _whole(inner)
    if kind in ("arrayValue", "array_value"):
        return [_value(one, depth + 1) for one in records(record(inner).get("values"))]
    if kind in ("kvlistValue", "kvlist_value"):
        pairs = records(record(inner).get("values"))
        return {
            key: _value(pair.get("value"), depth + 1)
            for pair in pairs
            if (key := text(pair, "key"))
        }
    if kind.removesuffix("Value").removesuffix("_value") in ("string", "double", "bool", "bytes"):
        return inner
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return value


def _failed(code: object) -> bool | None:
    word = str(code).upper().rsplit("_", 1)[-1].rsplit(".", 1)[-1]
    return True if word in _FAILED else False if word in _WENT_WELL else None


def _time(fields: Record, *names: str) -> float | None:
    for name in names:
        value = _whole(fields.get(name))
        if name.lower().replace("_", "").endswith("unixnano"):
            nanoseconds = number(value)
            value = nanoseconds / 1e9 if nanoseconds else None
        if (time := seconds(value)) is not None:
            return time
    return None


def _lasted(value: object) -> float | None:
    """Seconds from an ISO 8601 duration."""
    match = _DURATION.fullmatch(value[:80]) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        return number(value)
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
