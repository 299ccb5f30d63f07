from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rekindle.transcripts import read
from rekindle.types import Message

from .conftest import Claude, said

LONG = 'some "text"\n' * 400
COUNT = 3000


def claude(n: int) -> dict[str, Any]:
    return Claude("s").answer(f"m{n}", said(LONG), uuid=f"u{n}")


def codex(n: int) -> dict[str, Any]:
    said = {"type": "message", "role": "user", "content": [{"text": LONG}]}
    return {"type": "response_item", "payload": said}


def chat(n: int) -> dict[str, Any]:
    return {"role": "user", "content": LONG}


@pytest.mark.parametrize("line", [claude, codex, chat])
def test_a_long_file_costs_the_memory_of_a_few_messages(tmp_path: Path, line: Any) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(line(n)) + "\n" for n in range(COUNT))
    assert peak(path) < 3_000_000 < path.stat().st_size / 4


def test_one_long_document_costs_the_memory_of_a_few_messages(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    with path.open("w") as file:
        file.write('{"model": "m",\n"messages": [\n')
        file.write(",\n".join(json.dumps(chat(n)) for n in range(COUNT)))
        file.write("\n]}")
    assert peak(path) < 8_000_000 < path.stat().st_size


def peak(path: Path) -> int:
    tracemalloc.start()
    try:
        assert sum(1 for event in read(path) if isinstance(event, Message)) == COUNT
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
