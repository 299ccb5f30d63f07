"""OTLP requests as JSON and as protobuf; spans are dictionaries in the JSON of OTLP.

The messages of OTLP that spans need are few and final, so they are written here field by field
instead of with a library: the number of each field is that of `opentelemetry/proto`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rekindle import __version__
from rekindle.json_fields import as_object

from .attributes import encode_attributes

_VARINT, _FIXED64, _BYTES = 0, 1, 2


class SpanResource(NamedTuple):
    """What sends the spans: attributes such as `service.name`."""

    attributes: Mapping[str, str] = {"service.name": "rekindle"}


DEFAULT_RESOURCE = SpanResource()


def build_request(spans: Sequence[Mapping[str, Any]], resource: SpanResource) -> dict[str, Any]:
    """Return an export request in the JSON of OTLP."""
    scope = {"name": "rekindle", "version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": encode_attributes(resource.attributes.items())},
                "scopeSpans": [{"scope": scope, "spans": spans}],
            }
        ]
    }


def encode_json(request: Mapping[str, Any]) -> bytes:
    """Return a request as JSON in one line."""
    return json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode()


def encode_protobuf(request: Mapping[str, Any]) -> bytes:
    """Return a request as protobuf."""
    return b"".join(
        _encode_field(1, _encode_resource_spans(one)) for one in request["resourceSpans"]
    )


def _encode_resource_spans(group: Mapping[str, Any]) -> bytes:
    resource = _encode_attributes(1, group["resource"]["attributes"])
    scopes = b"".join(_encode_field(2, _encode_scope_spans(one)) for one in group["scopeSpans"])
    return _encode_field(1, resource) + scopes


def _encode_scope_spans(group: Mapping[str, Any]) -> bytes:
    scope = _encode_field(1, group["scope"]["name"].encode()) + _encode_field(
        2, group["scope"]["version"].encode()
    )
    return _encode_field(1, scope) + b"".join(
        _encode_field(2, _encode_span(span)) for span in group["spans"]
    )


def _encode_span(span: Mapping[str, Any]) -> bytes:
    parent = span.get("parentSpanId")
    status: Mapping[str, Any] = span["status"]
    return b"".join(
        (
            _encode_field(1, bytes.fromhex(span["traceId"])),
            _encode_field(2, bytes.fromhex(span["spanId"])),
            _encode_field(4, bytes.fromhex(parent)) if parent else b"",
            _encode_field(5, span["name"].encode()),
            _encode_number(6, span["kind"]),
            _encode_fixed(7, int(span["startTimeUnixNano"])),
            _encode_fixed(8, int(span["endTimeUnixNano"])),
            _encode_attributes(9, span["attributes"]),
            _encode_field(15, _encode_number(3, status["code"]) if status else b""),
        )
    )


def _encode_attributes(number: int, attributes: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(
        _encode_field(
            number,
            _encode_field(1, one["key"].encode()) + _encode_field(2, _encode_value(one["value"])),
        )
        for one in attributes
    )


def _encode_value(value: Mapping[str, Any]) -> bytes:
    ((kind, inner),) = value.items()
    if kind == "stringValue":
        return _encode_field(1, inner.encode())
    if kind == "boolValue":
        return _encode_number(2, int(inner))
    if kind == "intValue":
        return _encode_number(3, int(inner))
    if kind == "doubleValue":
        return _encode_tag(4, _FIXED64) + struct.pack("<d", inner)
    return _encode_field(
        5, b"".join(_encode_field(1, _encode_value(one)) for one in inner["values"])
    )


def _encode_field(number: int, data: bytes) -> bytes:
    return _encode_tag(number, _BYTES) + _encode_varint(len(data)) + data


def _encode_number(number: int, value: int) -> bytes:
    return _encode_tag(number, _VARINT) + _encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _encode_fixed(number: int, value: int) -> bytes:
    return _encode_tag(number, _FIXED64) + struct.pack("<Q", value & 0xFFFF_FFFF_FFFF_FFFF)


def _encode_tag(number: int, kind: int) -> bytes:
    return _encode_varint(number << 3 | kind)


def _encode_varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


# -- answers --------------------------------------------------------------------------------------


class PartialSuccess(NamedTuple):
    """What a collector says about a request that it accepted in part."""

    rejected: int = 0
    message: str = ""


def decode_answer(data: bytes, *, is_json: bool) -> PartialSuccess:
    """Return the contents of a collector's response; empty if it cannot be read."""
    try:
        return _decode_json_answer(data) if is_json else _decode_protobuf_answer(data)
    except (ValueError, IndexError, AttributeError, TypeError, RecursionError):
        return PartialSuccess()


def _decode_json_answer(data: bytes) -> PartialSuccess:
    partial = as_object(as_object(json.loads(data or b"{}")).get("partialSuccess"))
    return PartialSuccess(
        int(partial.get("rejectedSpans", 0)), str(partial.get("errorMessage", ""))
    )


def _decode_protobuf_answer(data: bytes) -> PartialSuccess:
    fields = _decode_fields(_decode_fields(data).get(1, b""))
    rejected, message = fields.get(1, 0), fields.get(2, b"")
    return PartialSuccess(
        rejected if isinstance(rejected, int) else 0,
        message.decode("utf-8", "replace") if isinstance(message, bytes) else "",
    )


def _decode_fields(data: int | bytes) -> dict[int, int | bytes]:
    """Return the numbers and texts of a protobuf message by field number."""
    fields: dict[int, int | bytes] = {}
    place = 0
    while isinstance(data, bytes) and place < len(data):
        tag, place = _decode_varint(data, place)
        value, place = _decode_varint(data, place)
        if tag & 7 == _BYTES:
            fields[tag >> 3] = data[place : place + value]
            place += value
        elif tag & 7 == _VARINT:
            fields[tag >> 3] = value
        else:
            break
    return fields


def _decode_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            break
    return value, place
