"""Spans of sessions against OpenTelemetry's protocol, and what Phoenix and Langfuse read of them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf import json_format
from openinference.semconv.trace import (
    ImageAttributes,
    MessageAttributes,
    MessageContentAttributes,
    OpenInferenceSpanKindValues,
    SpanAttributes,
    ToolCallAttributes,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from rekindle.transcripts.otlp.collector import Collector, CollectorSettings
from rekindle.transcripts.otlp.encoding import (
    SpanResource,
    build_request,
    decode_answer,
    encode_protobuf,
)
from rekindle.transcripts.otlp.spans import build_spans
from tests.unit.transcripts.otlp.collectors import get_attributes, run_collector
from tests.unit.transcripts.otlp.test_spans import CHAT, SESSION

RESOURCE = SpanResource({"service.name": "rekindle"})
# What Langfuse reads, by field: the first that a span has counts (its OpenTelemetry page).
LANGFUSE = {
    "session": ("langfuse.session.id", "session.id", "gen_ai.conversation.id"),
    "user": ("langfuse.user.id", "user.id"),
    "type": ("langfuse.observation.type",),
    "model": ("langfuse.observation.model.name", "gen_ai.response.model", "gen_ai.request.model"),
    "cost": ("langfuse.observation.cost_details",),
    "name": ("langfuse.trace.name",),
}
LANGFUSE_TYPES = {"agent", "generation", "tool", "span", "event", "chain", "retriever"}
# How it knows the type of a span, by what comes first (its ObservationTypeMapper).
LANGFUSE_TYPE_OF = {
    "langfuse.observation.type": {"agent": "agent", "generation": "generation", "tool": "tool"},
    "openinference.span.kind": {"AGENT": "agent", "LLM": "generation", "TOOL": "tool"},
    "gen_ai.operation.name": {
        "invoke_agent": "agent", "chat": "generation", "execute_tool": "tool",
    },
}  # fmt: skip
# What it takes off the input and the output, since they include it (its OtelIngestionProcessor).
LANGFUSE_INCLUDED = {
    "gen_ai.usage.input_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
    ),
    "gen_ai.usage.output_tokens": ("gen_ai.usage.reasoning.output_tokens",),
}  # fmt: skip
# In the schemas of gen_ai.input.messages and gen_ai.output.messages, by type of part.
REQUIRED = {
    "text": {"content"},
    "reasoning": {"content"},
    "tool_call": {"name"},
    "tool_call_response": {"response"},
    "blob": {"modality", "content"},
    "uri": {"modality", "uri"},
}


@pytest.fixture(scope="module")
def spans() -> list[dict[str, Any]]:
    return [step.span for step in build_spans(SESSION, CHAT)]


@pytest.fixture(scope="module")
def request_message(spans: list[dict[str, Any]]) -> ExportTraceServiceRequest:
    message = ExportTraceServiceRequest()
    message.ParseFromString(encode_protobuf(build_request(spans, RESOURCE)))
    return message


@pytest.mark.parametrize("is_json", [True, False], ids=["json", "protobuf"])
def test_a_collector_receives_what_the_protocol_describes(
    spans: list[dict[str, Any]], request_message: ExportTraceServiceRequest, is_json: bool
) -> None:
    settings = CollectorSettings(is_json=is_json, is_gzip=True, resource=RESOURCE)
    with run_collector() as server:
        report = Collector(f"{server.url}/v1/traces", settings=settings).send(spans, lambda _: True)
        (request,) = server.requests
    assert report == (len(spans), 0, "")
    assert request.headers["content-encoding"] == "gzip"
    received = ExportTraceServiceRequest()
    if is_json:
        assert request.headers["content-type"] == "application/json"
        json_format.ParseDict(decode_ids(json.loads(request.body)), received)
    else:
        assert request.headers["content-type"] == "application/x-protobuf"
        received.ParseFromString(request.body)
    assert received == request_message


def decode_ids(fields: dict[str, Any]) -> dict[str, Any]:
    """OTLP writes ids in hex where protobuf's own JSON has base64."""
    for span in fields["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = b64encode(bytes.fromhex(span[name])).decode()
    return fields


def test_protobuf_has_every_span(
    spans: list[dict[str, Any]], request_message: ExportTraceServiceRequest
) -> None:
    (group,) = request_message.resource_spans
    (scope,) = group.scope_spans
    assert [one.span_id.hex() for one in scope.spans] == [span["spanId"] for span in spans]
    assert all(len(one.trace_id) == 16 and len(one.span_id) == 8 for one in scope.spans)
    assert all(one.start_time_unix_nano <= one.end_time_unix_nano for one in scope.spans)
    assert scope.scope.name == "rekindle"


def test_a_partial_success_is_understood() -> None:
    partial = ExportTracePartialSuccess(rejected_spans=300, error_message="no room")
    answer = ExportTraceServiceResponse(partial_success=partial)
    assert decode_answer(answer.SerializeToString(), is_json=False) == (300, "no room")
    text = json_format.MessageToJson(answer).encode()
    assert decode_answer(text, is_json=True) == (300, "no room")
    assert decode_answer(b"\xff\xff\xff", is_json=False) == (0, "")
    assert decode_answer(b"<html>", is_json=True) == (0, "")
    assert decode_answer(b"", is_json=True) == (0, "")


def test_attributes_of_gen_ai_are_those_of_the_convention(spans: list[dict[str, Any]]) -> None:
    known = {
        value
        for name, value in vars(gen_ai_attributes).items()
        if name.startswith("GEN_AI_") and isinstance(value, str)
    }
    # Newer than the package.
    known |= {"gen_ai.usage.reasoning.output_tokens"}
    used = {name for span in spans for name in get_attributes(span) if name.startswith("gen_ai.")}
    assert used - known == set()
    operations = {get_attributes(span)["gen_ai.operation.name"] for span in spans}
    values = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    assert operations == {"invoke_agent", "chat", "execute_tool"}
    assert operations <= values


def test_messages_have_the_required_fields_of_their_schema(spans: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for span in spans:
        attributes = get_attributes(span)
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            for message in json.loads(attributes.get(name, "[]")):
                assert {"role", "parts"} <= message.keys()
                assert name != "gen_ai.output.messages" or message["finish_reason"]
                for part in message["parts"]:
                    seen.add(part["type"])
                    assert part.keys() >= REQUIRED.get(part["type"], set())
    assert seen >= {"text", "reasoning", "tool_call", "tool_call_response", "blob"}


def test_phoenix_finds_openinference_attributes(spans: list[dict[str, Any]]) -> None:
    kinds = {one.value for one in OpenInferenceSpanKindValues}
    for span in spans:
        attributes = get_attributes(span)
        assert attributes[SpanAttributes.OPENINFERENCE_SPAN_KIND] in kinds
        assert attributes[SpanAttributes.SESSION_ID] == "s-1"
    first, tool, *_ = map(get_attributes, spans)
    prefix = f"{SpanAttributes.LLM_OUTPUT_MESSAGES}.0"
    assert first[f"{prefix}.{MessageAttributes.MESSAGE_ROLE}"] == "assistant"
    assert first[f"{prefix}.{MessageAttributes.MESSAGE_CONTENT}"] == "I look."
    call = f"{prefix}.{MessageAttributes.MESSAGE_TOOL_CALLS}.0"
    assert first[f"{call}.{ToolCallAttributes.TOOL_CALL_ID}"] == "c1"
    assert first[f"{call}.{ToolCallAttributes.TOOL_CALL_FUNCTION_NAME}"] == "Bash"
    assert (
        first[f"{call}.{ToolCallAttributes.TOOL_CALL_FUNCTION_ARGUMENTS_JSON}"]
        == '{"command": "sensors"}'
    )
    assert first[SpanAttributes.LLM_MODEL_NAME] == "gpt-5"
    assert tool[SpanAttributes.TOOL_NAME] == "Bash"
    assert tool[SpanAttributes.INPUT_VALUE] == '{"command": "sensors"}'
    assert tool[SpanAttributes.OUTPUT_VALUE] == "command not found"
    last = get_attributes(spans[5])
    content = f"{SpanAttributes.LLM_INPUT_MESSAGES}.0.{MessageAttributes.MESSAGE_CONTENTS}.1"
    image = f"{MessageContentAttributes.MESSAGE_CONTENT_IMAGE}.{ImageAttributes.IMAGE_URL}"
    assert last[f"{content}.{image}"] == "data:image/png;base64,AAAA"
    assert last[SpanAttributes.LLM_TOKEN_COUNT_PROMPT] == 115
    assert last[SpanAttributes.LLM_TOKEN_COUNT_PROMPT_DETAILS_CACHE_READ] == 100
    assert last[SpanAttributes.LLM_COST_TOTAL] == 0.25


def test_langfuse_finds_its_fields(spans: list[dict[str, Any]]) -> None:
    def read_field(span: dict[str, Any], field: str) -> Any:
        attributes = get_attributes(span)
        return next((attributes[name] for name in LANGFUSE[field] if name in attributes), None)

    assert {read_field(span, "session") for span in spans} == {"s-1"}
    assert {read_field(span, "user") for span in spans} == {"ada"}
    assert {read_field(span, "type") for span in spans} == {"generation", "tool", "agent"}
    assert {read_field(span, "type") for span in spans} <= LANGFUSE_TYPES
    assert read_field(spans[0], "model") == "gpt-5"
    assert read_field(spans[4], "name") == "Tea"
    assert json.loads(read_field(spans[5], "cost")) == {"total": 0.25}


def test_langfuse_knows_the_type_of_a_span_by_each_convention(spans: list[dict[str, Any]]) -> None:
    for span in spans:
        attributes = get_attributes(span)
        types = {known[attributes[name]] for name, known in LANGFUSE_TYPE_OF.items()}
        assert len(types) == 1, span["name"]


def test_langfuse_counts_every_token_once(spans: list[dict[str, Any]]) -> None:
    attributes = get_attributes(spans[5])
    rest = {
        total: attributes[total] - sum(attributes[name] for name in included)
        for total, included in LANGFUSE_INCLUDED.items()
    }
    tokens = SESSION.tokens
    assert rest == {
        "gen_ai.usage.input_tokens": tokens.input,
        "gen_ai.usage.output_tokens": tokens.output - tokens.reasoning,
    }
