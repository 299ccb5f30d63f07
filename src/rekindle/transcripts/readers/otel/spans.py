"""Reader for OpenTelemetry spans in the file formats of several exporters.

    OTLP JSON      `resourceSpans[].scopeSpans[].spans[]`, one document, or one per line;
                   log records (`resourceLogs`) likewise
    TRAIL          `{trace_id, spans[]}`, each span with its `child_spans` inside
    the SDK's      one span as an object, or a list of them: `{name, context, attributes, …}`

A span is yielded when it ends, so inner spans come first, as exporters write them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from rekindle.json_fields import (
    JsonObject,
    as_number,
    as_object,
    as_objects,
    get_text,
    parse_timestamp,
)
from rekindle.transcripts.events import UnreadableEntry
from rekindle.transcripts.jsonio.scanner import ContainerEnd, JsonPath
from rekindle.transcripts.jsonio.stream import iter_values

_CONTAINER_KEYS = {
    "resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "instrumentationLibrarySpans",
    "resourceLogs", "resource_logs", "scopeLogs", "scope_logs",
    "spans", "child_spans", "logRecords", "log_records",
}  # fmt: skip
_LOG_KEYS = {"logRecords", "log_records"}
_SPAN_KEYS = {"spans", "child_spans"}
AGENT_KINDS = frozenset({"invoke_agent", "AGENT", "agent"})
_KIND_ATTRIBUTES = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind")
_MAX_DEPTH = 32
_MAX_ATTRIBUTES = 100_000
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")
_ERROR_CODES = {"ERROR", "2"}
_OK_CODES = {"OK", "1"}


class SpanEvent(NamedTuple):
    """An event inside a span, or a log record about it."""

    name: str
    attributes: JsonObject


class OtelSpan(NamedTuple):
    """One span. `failed` is None if its status is not set."""

    trace: str
    id: str
    parent: str | None
    name: str
    attributes: JsonObject
    events: tuple[SpanEvent, ...] = ()
    failed: bool | None = None
    problem: str | None = None
    start: float | None = None
    end: float | None = None
    is_log: bool = False
    # The agents that contain this span, outermost first, if spans are nested.
    agents: tuple[str, ...] = ()

    @property
    def duration(self) -> float | None:
        """The span's duration in seconds, if known."""
        return self.end - self.start if self.start and self.end else None


def read_spans(path: Path) -> Iterator[OtelSpan | UnreadableEntry]:
    """Yield the spans and log records of a file, and its unreadable entries."""
    open_containers: dict[JsonPath, JsonObject] = {}
    for step in iter_values(path, _should_descend):
        if isinstance(step, UnreadableEntry):
            yield step
            continue
        if isinstance(step, ContainerEnd):
            span = _parse_span(open_containers.pop(step.path, {}))
            if span is not None and len(step.path) > 2:
                span = span._replace(agents=tuple(_find_agents(open_containers, step.path)))
        else:
            *above, key = step.path
            container = above[-1] if above else None
            if container in _LOG_KEYS:
                span = _parse_log_record(as_object(step.value))
            elif container in _SPAN_KEYS:
                span = _parse_span(as_object(step.value))
            else:
                span = None
                open_containers.setdefault(tuple(above), {})[str(key)] = step.value
        if span is not None:
            yield span


def _find_agents(open_containers: dict[JsonPath, JsonObject], json_path: JsonPath) -> Iterator[str]:
    for end in range(2, len(json_path), 2):
        fields = open_containers.get(json_path[:end], {})
        attributes = as_object(fields.get("span_attributes", fields.get("attributes")))
        id = get_text(fields, "span_id", "spanId")
        if id and AGENT_KINDS & {
            attributes.get(name)
            for name in _KIND_ATTRIBUTES
            if isinstance(attributes.get(name), str)
        }:
            yield id


def _should_descend(json_path: JsonPath) -> bool:
    *above, last = json_path
    if isinstance(last, str):
        return last in _CONTAINER_KEYS
    # An element: a resource, a scope or, if spans are nested, a span.
    container = above[-1] if above else None
    return container not in _LOG_KEYS and (container not in _SPAN_KEYS or above[0] == "spans")


def _parse_span(fields: JsonObject) -> OtelSpan | None:
    context = as_object(fields.get("context"))
    id = get_text(fields, "spanId", "span_id") or get_text(context, "span_id", "spanId")
    raw_attributes = fields.get("attributes", fields.get("span_attributes"))
    if id is None or not isinstance(raw_attributes, (dict, list)):
        return None
    attributes = _parse_attributes(cast(object, raw_attributes))
    events = tuple(_parse_events(fields.get("events")))
    status = as_object(fields.get("status")) or fields
    failed = _parse_status(status.get("code", status.get("status_code")))
    error_type = get_text(attributes, "error.type")
    exception = as_object(
        next((event.attributes for event in events if event.name == "exception"), None)
    )
    start = _parse_timestamp(
        fields, "startTimeUnixNano", "start_time_unix_nano", "start_time", "timestamp"
    )
    end = _parse_timestamp(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time")
    if end is None and start is not None:
        duration = _parse_duration(fields.get("duration"))
        end = None if duration is None else parse_timestamp(start + duration)
    return OtelSpan(
        trace=get_text(fields, "traceId", "trace_id")
        or get_text(context, "trace_id", "traceId")
        or "",
        id=id,
        parent=get_text(fields, "parentSpanId", "parent_span_id", "parent_id"),
        name=get_text(fields, "name", "span_name") or "",
        attributes=attributes,
        events=events,
        failed=True if error_type else failed,
        problem=get_text(status, "message", "status_message", "description")
        or get_text(exception, "exception.message")
        or error_type,
        start=start,
        end=end,
    )


def _parse_log_record(fields: JsonObject) -> OtelSpan | None:
    """Parse a log record as a span with only this event."""
    attributes = _parse_attributes(fields.get("attributes"))
    name = get_text(fields, "eventName", "event_name") or get_text(attributes, "event.name")
    id = get_text(fields, "spanId", "span_id")
    if name is None or id is None:
        return None
    body = _unwrap_value(fields.get("body"))
    fields_and_body: JsonObject = {**attributes, **(as_object(body) or {"body": body})}
    time = _parse_timestamp(fields, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano")
    trace = get_text(fields, "traceId", "trace_id") or ""
    return OtelSpan(
        trace, id, None, name, {}, (SpanEvent(name, fields_and_body),), start=time, is_log=True
    )


def _parse_events(value: object) -> Iterator[SpanEvent]:
    for event in as_objects(value):
        name = get_text(event, "name", "Name")
        attributes = event.get("attributes", event.get("Attributes"))
        if name is not None:
            yield SpanEvent(name, _parse_attributes(attributes))


def _parse_attributes(value: object) -> JsonObject:
    """Return attributes by their full name, whatever format the file uses."""
    if isinstance(value, list):
        pairs = as_objects(cast(object, value))
        return {
            key: _unwrap_value(pair.get("value"))
            for pair in pairs
            if (key := get_text(pair, "key"))
        }
    flat: JsonObject = {}
    for key, inner in as_object(value).items():
        # Some exports nest what others write with dots.
        if isinstance(inner, dict) and "." not in key:
            _flatten_attributes(key, cast(JsonObject, inner), flat, 0)
        else:
            flat[key] = inner
    return flat


def _flatten_attributes(prefix: str, value: Any, flat: JsonObject, depth: int) -> None:
    if depth > _MAX_DEPTH or len(flat) > _MAX_ATTRIBUTES:
        return
    if isinstance(value, dict):
        for key, inner in cast(JsonObject, value).items():
            _flatten_attributes(f"{prefix}.{key}", inner, flat, depth + 1)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in cast("list[Any]", value)):
        for index, inner in enumerate(cast("list[Any]", value)):
            _flatten_attributes(f"{prefix}.{index}", inner, flat, depth + 1)
    else:
        flat[prefix] = value


def _unwrap_value(value: Any, depth: int = 0) -> Any:
    """Unwrap an OTLP value."""
    wrapped = as_object(value)
    if depth > _MAX_DEPTH or len(wrapped) != 1:
        return value if depth <= _MAX_DEPTH else None
    kind, inner = next(iter(wrapped.items()))
    if kind in ("intValue", "int_value"):
        return _parse_int(inner)
    if kind in ("arrayValue", "array_value"):
        return [_unwrap_value(one, depth + 1) for one in as_objects(as_object(inner).get("values"))]
    if kind in ("kvlistValue", "kvlist_value"):
        pairs = as_objects(as_object(inner).get("values"))
        return {
            key: _unwrap_value(pair.get("value"), depth + 1)
            for pair in pairs
            if (key := get_text(pair, "key"))
        }
    if kind.removesuffix("Value").removesuffix("_value") in ("string", "double", "bool", "bytes"):
        return inner
    return value


def _parse_int(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return value


def _parse_status(code: object) -> bool | None:
    word = str(code).upper().rsplit("_", 1)[-1].rsplit(".", 1)[-1]
    return True if word in _ERROR_CODES else False if word in _OK_CODES else None


def _parse_timestamp(fields: JsonObject, *names: str) -> float | None:
    for name in names:
        value = _parse_int(fields.get(name))
        if name.lower().replace("_", "").endswith("unixnano"):
            nanoseconds = as_number(value)
            value = nanoseconds / 1e9 if nanoseconds else None
        if (time := parse_timestamp(value)) is not None:
            return time
    return None


def _parse_duration(value: object) -> float | None:
    """Return seconds from an ISO 8601 duration."""
    match = _ISO_DURATION.fullmatch(value[:80]) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        return as_number(value)
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
