"""Whatever a file holds, a reader does not raise, and it does not lose the good lines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.transcripts import FORMATS, Damage, detect
from rekindle.types import Message, checked

from .conftest import Claude, call, said

KEYS = st.sampled_from(
    """
    type message content role id uuid sessionId payload text timestamp tool_calls call_id
    name input output arguments tool_use_id is_error usage isSidechain agentId parentUuid
    summary leafUuid toolUseResult duration info total_token_usage source messages function
    compactMetadata subtype metadata result thinking model
    """.split()  # noqa: SIM905
)
WORDS = st.sampled_from(
    """
    user assistant system tool summary response_item event_msg session_meta compacted
    message tool_use tool_result text thinking image function_call function_call_output
    reasoning token_count exec_command_end mcp_tool_call_end web_search_call turn_context
    compact_boundary REDACTED 2026-01-01T00:00:00Z
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
GOOD: dict[str, list[dict[str, Any]]] = {
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
    "openai-chat": [{"role": "user", "content": f"good {n}"} for n in range(3)],
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), bad=st.lists(VALUES | st.binary(max_size=60), min_size=4, max_size=4))
def test_hostile_lines_never_raise_and_good_lines_survive(data: st.DataObject, bad: Any) -> None:
    format = data.draw(st.sampled_from(FORMATS))
    lines: list[bytes] = []
    for n in range(4):
        value = bad[n]
        line = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines.append(line.replace(b"\n", b" "))
        if n < 3:
            lines.append(json.dumps(GOOD[format.name][n]).encode())
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostile")
        path.write_bytes(b"\n".join(lines))
        assert detect(path) in (*FORMATS, None)
        for event in format.read(path):
            if isinstance(event, Message):
                texts.append(checked(event).text)
                assert event.platform_message_id
            elif isinstance(event, Damage):
                assert 1 <= event.line <= len(lines)
    for n in range(3):
        assert any(f"good {n}" in text for text in texts)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.sampled_from(FORMATS))
def test_garbage_gives_damage_and_nothing_else(data: bytes, format: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "garbage")
        path.write_bytes(data)
        assert all(isinstance(event, Damage) for event in format.read(path))


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(min_value=0, max_value=400), format=st.sampled_from(FORMATS))
def test_a_file_cut_anywhere_gives_every_whole_line(cut: int, format: Any) -> None:
    lines = [json.dumps(line).encode() + b"\n" for line in GOOD[format.name]]
    whole = b"".join(lines)
    kept = whole[: max(0, len(whole) - cut)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cut")
        path.write_bytes(kept)
        told = [event for event in format.read(path) if isinstance(event, Message)]
    assert len(told) >= kept.count(b"\n")
