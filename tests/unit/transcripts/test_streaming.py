from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rekindle.transcripts import read_transcript
from rekindle.types import Message
from tests.unit.transcripts.conftest import Claude, said

pytestmark = pytest.mark.slow

LONG = 'some "text"\n' * 1600
COUNT = 750


def claude(n: int) -> dict[str, Any]:
    return Claude("s").answer(f"m{n}", said(LONG), uuid=f"u{n}")


def codex(n: int) -> dict[str, Any]:
    said = {"type": "message", "role": "user", "content": [{"text": LONG}]}
    return {"type": "response_item", "payload": said}


def chat(n: int) -> dict[str, Any]:
    return {"role": "user", "content": LONG}


def copilot(n: int) -> dict[str, Any]:
    return {"type": "user.message", "id": f"e{n}", "data": {"content": LONG}}


def pi(n: int) -> dict[str, Any]:
    said = {"role": "user", "content": LONG, "timestamp": 1_772_359_200_000 + n}
    return {"type": "message", "timestamp": "", "message": said}


def gemini(n: int) -> dict[str, Any]:
    return {"id": f"m{n}", "type": "user", "content": LONG}


def opencode(n: int) -> dict[str, Any]:
    info = {"id": f"msg_{n}", "sessionID": "ses_1", "role": "user"}
    return {"info": info, "parts": [{"type": "text", "text": LONG}]}


def turn(n: int) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": LONG}]}


def step(n: int) -> dict[str, Any]:
    return {"action": "", "observation": "", "response": LONG}


def openhands(n: int) -> dict[str, Any]:
    said = {"action": "message", "args": {"content": LONG}}
    return {"id": n, "timestamp": "", "source": "user", **said}


def trajectory_step(n: int) -> dict[str, Any]:
    return {"step_id": n, "source": "user", "message": LONG}


def span(n: int) -> dict[str, Any]:
    about = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": [chat(n)]}
    return {"traceId": f"t{n}", "spanId": f"s{n}", "attributes": about}


@pytest.mark.parametrize("line", [claude, codex, copilot, opencode, pi, gemini, openhands, chat])
def test_a_long_file_costs_the_memory_of_a_few_messages(tmp_path: Path, line: Any) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(line(n)) + "\n" for n in range(COUNT))
    assert peak(path, COUNT) < 3_000_000 < path.stat().st_size / 4


@pytest.mark.parametrize(
    ("line", "begin", "end"),
    [
        (chat, '{"model": "m",\n"messages": [\n', "\n]}"),
        (opencode, '{"info": {"id": "ses_1"},\n"messages": [\n', "\n]}"),
        (gemini, '{"sessionId": "s", "projectHash": "h",\n"messages": [\n', "\n]}"),
        (turn, "[", "]"),
        (chat, '{"info": {"mini_version": "2"},\n"messages": [\n', "\n]}"),
        (step, '{"trajectory": [\n', '\n], "history": [], "info": {}}'),
        (openhands, "[", "]"),
        (chat, '[{"task_id": 1, "reward": 0,\n"traj": [\n', '\n], "trial": 0}]'),
        (chat, '{"info": {},\n"simulations": [{"id": "s", "messages": [\n', "\n]}]}"),
        (trajectory_step, '{"schema_version": "ATIF-v1.8",\n"steps": [\n', "\n]}"),
        (
            chat,
            '{"eval": {"task": "t", "model": "m", "run_id": "r"},\n"samples": [{"messages": [',
            "]}]}",
        ),
        (span, '{"resourceSpans": [{"scopeSpans": [{"spans": [\n', "\n]}]}]}"),
        (chat, '[{"messages": [', "]}]"),
    ],
)
def test_one_long_document_costs_the_memory_of_a_few_messages(
    tmp_path: Path, line: Any, begin: str, end: str
) -> None:
    path = tmp_path / "long.json"
    with path.open("w") as file:
        file.write(begin)
        file.write(",\n".join(json.dumps(line(n)) for n in range(COUNT // 2)))
        file.write(end)
    assert peak(path, COUNT // 2) < 8_000_000 < path.stat().st_size


def peak(path: Path, count: int) -> int:
    tracemalloc.start()
    try:
        assert sum(1 for event in read_transcript(path) if isinstance(event, Message)) == count
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
