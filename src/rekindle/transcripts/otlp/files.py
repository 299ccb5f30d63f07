"""OTLP files: export requests as JSON, one per line, as collectors write and read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rekindle.types import Message, Session

from .encoding import DEFAULT_RESOURCE, SpanResource, build_request, encode_json
from .spans import build_spans

_MAX_SPANS = 100


def render_session(
    session: Session, messages: Iterable[Message], resource: SpanResource = DEFAULT_RESOURCE
) -> Iterator[str]:
    """Yield the session's spans as lines."""
    spans: list[dict[str, Any]] = []
    for step in build_spans(session, messages):
        spans.append(step.span)
        if len(spans) == _MAX_SPANS:
            yield _render_line(spans, resource)
            spans = []
    if spans:
        yield _render_line(spans, resource)


def _render_line(spans: list[dict[str, Any]], resource: SpanResource) -> str:
    return encode_json(build_request(spans, resource)).decode() + "\n"
