from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.types import Message, Tokens, ToolCall
from tests.unit.transcripts.conftest import messages

EVAL = {
    "run_id": "r",
    "task_id": "t",
    "created": "2026-03-01T10:00:00+00:00",
    "task": "x",
    "model": "openai/m-1",
}
MESSAGES = [
    {"id": "m0", "role": "system", "content": "Be kind."},
    {
        "id": "m1",
        "role": "user",
        "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "image": "data:image/png;x"},
        ],
    },
    {
        "id": "m2",
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Looking."}],
        "tool_calls": [
            {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}},
            {"id": "c2", "function": "python", "arguments": {}, "parse_error": "bad JSON"},
        ],
    },
    {"id": "m3", "role": "tool", "tool_call_id": "c1", "function": "bash", "content": "a.txt"},
    {
        "id": "m4",
        "role": "tool",
        "tool_call_id": "c2",
        "function": "python",
        "content": "",
        "error": {"type": "timeout", "message": "Command timed out."},
    },
    {"id": "m5", "role": "assistant", "content": "a.txt"},
]
USAGE = {"openai/m-1": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12,
                        "input_tokens_cache_read": 4}}  # fmt: skip


def sample(id: Any = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "epoch": 1,
        "input": "see",
        "messages": MESSAGES,
        "output": {"choices": [{"message": {"role": "assistant", "content": "a.txt"}}]},
        "scores": {"match": {"value": "C", "answer": "a.txt"}},
        "events": [{"event": "model", "input": [{"role": "user", "content": "not again"}]}],
        "model_usage": USAGE,
        "completed_at": "2026-03-01T10:01:00+00:00",
        **more,
    }


def as_json(folder: Path, *samples: Any) -> Path:
    path = folder / "log.json"
    log = {"version": 2, "status": "success", "eval": EVAL, "error": {"message": "of the log"}}
    path.write_text(json.dumps({**log, "samples": list(samples)}, indent=1))
    return path


def as_zip(folder: Path, *samples: Any, packing: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": EVAL}))
        for one in samples:
            archive.writestr(f"samples/{one['id']}_epoch_1.json", json.dumps(one))
        archive.writestr("header.json", json.dumps({"version": 2, "eval": EVAL}))
    return path


def test_both_containers_give_the_same_sessions(tmp_path: Path) -> None:
    plain, packed = (
        as_json(tmp_path, sample(1), sample("b")),
        as_zip(tmp_path, sample(1), sample("b")),
    )
    for path in (plain, packed):
        format = detect_format(path)
        assert format is not None
        assert format.name == "inspect"
    one, other = list(read_transcript(plain)), list(read_transcript(packed))
    assert one == other
    assert not [e for e in one if isinstance(e, UnreadableEntry)]
    assert [e.session.id for e in one if isinstance(e, SessionStarted)] == ["1-1@r-t", "b-1@r-t"]


def test_a_sample_is_read_without_its_system_prompt(tmp_path: Path) -> None:
    told = messages(read_transcript(as_json(tmp_path, sample())))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [m.platform_message_id for m in told] == ["m1", "m2", "m3", "m4", "m5"]
    assert told[0].content[1] == {"type": "image_url", "image_url": {"url": "data:image/png;x"}}
    assert (told[1].content, told[1].reasoning) == ("Looking.", "hm")
    assert told[1].tool_calls[0] == ToolCall("c1", "bash", {"cmd": "ls"})
    assert told[1].meta == {"parse_error": "bad JSON"}


def test_the_error_of_a_tool_message_is_the_label(tmp_path: Path) -> None:
    told = messages(read_transcript(as_json(tmp_path, sample())))
    assert told[2].meta == {"is_error": False}
    assert told[3].meta == {
        "is_error": True,
        "error": {"type": "timeout", "message": "Command timed out."},
        "status": "timeout",
    }
    assert (told[3].tool_call_id, told[3].name) == ("c2", "python")
    assert told[3].content == "Command timed out."
    old = {"role": "tool", "tool_call_id": "c1", "content": "", "tool_error": "it broke"}
    told = messages(read_transcript(as_json(tmp_path, sample(messages=[old]))))
    assert (told[0].meta or {})["is_error"] is True


def test_a_refused_call_says_so(tmp_path: Path) -> None:
    error = {"type": "approval", "message": "not approved"}
    refused = {**MESSAGES[3], "error": error}
    told = messages(read_transcript(as_json(tmp_path, sample(messages=[refused], scores={}))))
    assert told[0].meta == {
        "is_error": True, "refused": True, "status": "approval", "error": error,
    }  # fmt: skip


def test_scores_tokens_and_times_are_taken(tmp_path: Path) -> None:
    events = list(read_transcript(as_json(tmp_path, sample(), sample(2, limit={"type": "token"}))))
    last = messages(events)[4]
    assert last.meta == {"scores": {"match": "C"}, "reward": 1.0}
    first, second = (e.session for e in events if isinstance(e, SessionUpdated))
    assert first.tokens == Tokens(input=6, output=2, cache_read=4)
    assert (first.model, first.started) == ("openai/m-1", 1772359200.0)
    assert (first.ended, first.end_reason) == (1772359260.0, None)
    assert second.end_reason == "token"


def test_a_way_of_packing_that_is_not_known_is_damage_that_says_what_to_do(tmp_path: Path) -> None:
    path = as_zip(tmp_path, sample(1), sample(2), packing=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    # The method stands in the directory at the end; here the first sample's becomes zstd.
    entry = data.index(b"samples/1_", data.index(b"PK\x01\x02")) - 46
    local = data.index(b"samples/1_") - 30
    data[entry + 10 : entry + 12] = data[local + 8 : local + 10] = (93).to_bytes(2, "little")
    path.write_bytes(data)
    events = list(read_transcript(path))
    damage = [e for e in events if isinstance(e, UnreadableEntry)]
    assert len(damage) == 1
    assert "samples/1_epoch_1.json" in damage[0].file
    assert "zstd" in damage[0].what
    assert "inspect log convert" in damage[0].what
    assert [e.session.id for e in events if isinstance(e, SessionStarted)] == ["2-1@r-t"]


def test_a_broken_member_costs_no_other(tmp_path: Path) -> None:
    path = as_zip(tmp_path, sample(1), sample(2))
    data = bytearray(path.read_bytes())
    start = data.index(b"samples/1_") + 60
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    events = list(read_transcript(path))
    assert [e for e in events if isinstance(e, UnreadableEntry)]
    assert "2-1@r-t" in [e.session.id for e in events if isinstance(e, SessionStarted)]
    path.write_bytes(data[:500])
    assert [type(e) for e in read_transcript(path)] == [UnreadableEntry]


@pytest.mark.slow
def test_a_long_sample_in_a_zip_costs_the_memory_of_a_few_messages(tmp_path: Path) -> None:
    long = [{"role": "user", "content": f"{n}" * 800} for n in range(10_000)]
    path = as_zip(tmp_path, sample(1, messages=long))
    tracemalloc.start()
    try:
        count = sum(isinstance(event, Message) for event in read_transcript(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < 6_000_000
