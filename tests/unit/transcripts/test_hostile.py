"""Whatever a file holds, a reader does not raise, and it does not lose the good lines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rekindle.transcripts import FORMATS, UnreadableEntry, detect_format
from rekindle.types import Message, validate_message
from tests.unit.transcripts.conftest import Claude, call, said

KEYS = st.sampled_from(
    """
    type message content role id uuid sessionId payload text timestamp tool_calls call_id
    name input output arguments tool_use_id is_error usage isSidechain agentId parentUuid
    summary leafUuid toolUseResult duration info total_token_usage source messages function
    compactMetadata subtype metadata result thinking model
    data toolCallId toolRequests success error parts state status callID tool sessionID
    projectID parentID parentId toolName isError exitCode toolCalls args functionCall
    functionResponse response projectHash $set $rewindTo time tokens cost
    action observation extras cause kind thought history trajectory extra actions returncode
    tool_call_metadata model_response choices llm_message tool_call llm_response_id active
    session_id session_key exit_code
    task_id traj reward reward_info simulations tasks requestor trial tool_messages raw_data usage
    steps observation results source_call_id subagent_trajectory_ref subagent_trajectories
    final_metrics schema_version message samples eval epoch scores value model_usage tool_error
    resourceSpans scopeSpans spans child_spans attributes span_attributes events spanId traceId
    span_id trace_id key stringValue kvlistValue gen_ai.operation.name gen_ai.input.messages
    gen_ai.output.messages gen_ai.tool.call.id output.value llm.input_messages.0.message.role
    """.split()  # noqa: SIM905
)
WORDS = st.sampled_from(
    """
    user assistant system tool summary response_item event_msg session_meta compacted
    message tool_use tool_result text thinking image function_call function_call_output
    reasoning token_count exec_command_end mcp_tool_call_end web_search_call turn_context
    compact_boundary REDACTED 2026-01-01T00:00:00Z
    session.start user.message assistant.message tool.execution_start tool.execution_complete
    session.shutdown session session_info toolCall toolResult bashExecution step-start
    step-finish completed gemini model success cancelled
    chat execute_tool invoke_agent LLM TOOL gen_ai.choice gen_ai.user.message tool-call Error
    tool_call tool_call_response ATIF-v1.8
    run error agent environment exit ActionEvent ObservationEvent MessageEvent
    """.split()  # noqa: SIM905
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=20)
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=8)
    ),
    max_leaves=25,
)
CLAUDE = Claude("good")
GOOD: dict[str, list[Any]] = {
    "claude-code": [
        CLAUDE.prompt("good 0"),
        CLAUDE.answer("good-1", said("good 1"), call("good-c")),
        CLAUDE.result("good-c", "good 2"),
    ],
    "codex": [
        {
            "type": "response_item",
            "payload": {"type": "message", "role": role, "content": [{"text": f"good {n}"}]},
        }
        for n, role in enumerate(["user", "assistant", "user"])
    ],
    "copilot": [
        {"type": "user.message", "data": {"content": "good 0"}, "id": "good-0"},
        {"type": "assistant.message", "data": {"messageId": "good-1", "content": "good 1"}},
        {"type": "user.message", "data": {"content": "good 2"}, "id": "good-2"},
    ],
    "opencode": [
        {
            "info": {"id": f"msg_good_{n}", "sessionID": "ses_good", "role": role},
            "parts": [{"type": "text", "text": f"good {n}"}],
        }
        for n, role in enumerate(["user", "assistant", "user"])
    ],
    "pi": [
        {"type": "message", "message": {"role": role, "content": [said(f"good {n}")]}}
        for n, role in enumerate(["user", "assistant", "toolResult"])
    ],
    "gemini": [
        {"id": f"good-{n}", "type": type, "content": f"good {n}"}
        for n, type in enumerate(["user", "gemini", "user"])
    ],
    "hermes": [{"role": "user", "content": f"good {n}"} for n in range(3)],
    "mini-swe-agent": [{"role": "user", "content": f"good {n}"} for n in range(3)],
    "swe-agent": [{"action": "", "observation": "", "response": f"good {n}"} for n in range(3)],
    "openhands": [
        {"id": f"good-{n}", "timestamp": "", "source": source, "action": "message"}
        | {"args": {"content": f"good {n}"}}
        for n, source in enumerate(["user", "agent", "user"])
    ],
    "tau-bench": [
        {"task_id": n, "reward": 0, "traj": [{"role": "user", "content": f"good {n}"}]}
        for n in range(3)
    ],
    "tau2": [
        {"id": f"good-{n}", "task_id": n, "messages": [{"role": "user", "content": f"good {n}"}]}
        for n in range(3)
    ],
    "atif": [
        {
            "schema_version": "ATIF-v1.8",
            "trajectory_id": f"good-{n}",
            "steps": [{"step_id": 1, "source": "user", "message": f"good {n}"}],
        }
        for n in range(3)
    ],
    "inspect": [
        {"id": f"good-{n}", "epoch": 1, "messages": [{"role": "user", "content": f"good {n}"}]}
        for n in range(3)
    ],
    "otel": [
        {
            "trace_id": f"good-{n}",
            "span_id": f"good-{n}",
            "attributes": {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": [{"role": "user", "content": f"good {n}"}],
            },
        }
        for n in range(3)
    ],
    "aider": ["#### good 0  ", "good 1", "#### good 2  "],
    "openai-chat": [{"role": "user", "content": f"good {n}"} for n in range(3)],
}


def written(line: Any) -> str:
    """A line of a file: text as it is, in formats that are no JSON."""
    return line if isinstance(line, str) else json.dumps(line)


# Some formats have documents alone; the others are found, or can be, one message per line.
ONLY_DOCUMENTS = {"mini-swe-agent", "swe-agent"}
BY_LINE = [format for format in FORMATS if format.name not in ONLY_DOCUMENTS]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), bad=st.lists(VALUES | st.binary(max_size=60), min_size=4, max_size=4))
def test_hostile_lines_never_raise_and_good_lines_survive(data: st.DataObject, bad: Any) -> None:
    format = data.draw(st.sampled_from(BY_LINE))
    lines: list[bytes] = []
    for n in range(4):
        value = bad[n]
        line = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines.append(line.replace(b"\n", b" "))
        if n < 3:
            lines.append(written(GOOD[format.name][n]).encode())
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostile")
        path.write_bytes(b"\n".join(lines))
        assert detect_format(path) in (*FORMATS, None)
        for event in format.read(path):
            if isinstance(event, Message):
                texts.append(validate_message(event).text)
                assert event.platform_message_id
            elif isinstance(event, UnreadableEntry):
                assert 1 <= event.line <= len(lines)
    for n in range(3):
        assert any(f"good {n}" in text for text in texts)


# Formats that keep a session in one document: what stands in front of its messages, and behind.
DOCUMENTS = {
    "opencode": ('{"info": {"id": "ses_good", "projectID": "p"}, "messages": [', "]}"),
    "gemini": ('{"sessionId": "good", "projectHash": "h", "messages": [', "]}"),
    "mini-swe-agent": ('{"info": {"mini_version": "1"}, "messages": [', "]}"),
    "swe-agent": ('{"environment": "x", "trajectory": [', '], "history": [], "info": {}}'),
    "openhands": ("[", "]"),
    "tau-bench": ("[", "]"),
    "tau2": ('{"info": {"agent_info": {}}, "tasks": [], "simulations": [', "]}"),
    "atif": ('{"schema_version": "ATIF-v1.8", "steps": [], "subagent_trajectories": [', "]}"),
    "inspect": ('{"version": 2, "eval": {"task": "x", "run_id": "r"}, "samples": [', "]}"),
    "otel": ('{"resourceSpans": [{"scopeSpans": [{"spans": [', "]}]}]}"),
}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(DOCUMENTS)), st.lists(VALUES, min_size=4, max_size=4))
def test_hostile_elements_of_a_document_never_raise_and_good_ones_survive(
    name: str, bad: list[Any]
) -> None:
    mixed = [bad[0], *(item for pair in zip(GOOD[name], bad[1:], strict=True) for item in pair)]
    begin, end = DOCUMENTS[name]
    format = next(format for format in FORMATS if format.name == name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostile")
        path.write_text(begin + "\n" + ",\n".join(map(json.dumps, mixed)) + "\n" + end)
        told = [event for event in format.read(path) if isinstance(event, Message)]
    texts = [validate_message(message).text for message in told]
    assert all(message.platform_message_id for message in told)
    for n in range(3):
        assert any(f"good {n}" in text for text in texts)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.sampled_from(FORMATS))
def test_garbage_gives_damage_and_nothing_else(data: bytes, format: Any) -> None:
    assume(b"#### " not in data)  # to Aider's format that is a prompt
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "garbage")
        path.write_bytes(data)
        assert all(isinstance(event, UnreadableEntry) for event in format.read(path))


@given(cut=st.integers(min_value=0, max_value=400), format=st.sampled_from(BY_LINE))
def test_a_file_cut_anywhere_gives_every_whole_line(cut: int, format: Any) -> None:
    lines = [written(line).encode() + b"\n" for line in GOOD[format.name]]
    whole = b"".join(lines)
    kept = whole[: max(0, len(whole) - cut)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cut")
        path.write_bytes(kept)
        told = [event for event in format.read(path) if isinstance(event, Message)]
    assert len(told) >= kept.count(b"\n")
