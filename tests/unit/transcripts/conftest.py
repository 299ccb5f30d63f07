from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write values as JSON lines; text is written as it is."""

    def write(*lines: Any, name: str = "session.jsonl", append: bool = False) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if append else "wb") as file:
            for line in lines:
                file.write(line if isinstance(line, bytes) else _encoded(line))
                file.write(b"\n")
        return path

    return write


def _encoded(line: Any) -> bytes:
    return (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)).encode()


@pytest.fixture
def corpus() -> Path:
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus of real transcripts is not at {CORPUS}")
    return CORPUS


class Claude:
    """Writes lines as Claude Code does."""

    def __init__(self, session: str = "c0ffee00-0000-4000-8000-000000000001") -> None:
        self.session = session
        self.count = 0

    def line(self, type: str, message: Any, **more: Any) -> dict[str, Any]:
        self.count += 1
        return {
            "type": type,
            "sessionId": self.session,
            "uuid": f"{self.session}-line-{self.count}",
            "parentUuid": None,
            "isSidechain": False,
            "cwd": "/work",
            "gitBranch": "main",
            "timestamp": f"2026-03-01T10:00:{self.count % 60:02}.500Z",
            "message": message,
            **more,
        }

    def prompt(self, text: Any, **more: Any) -> dict[str, Any]:
        return self.line("user", {"role": "user", "content": text}, **more)

    def answer(self, id: str, *blocks: Any, output: int = 10, **more: Any) -> dict[str, Any]:
        usage = {"input_tokens": 3, "output_tokens": output, "cache_read_input_tokens": 100}
        message = {"id": id, "role": "assistant", "model": "claude-x", "content": list(blocks)}
        return self.line("assistant", {**message, "usage": usage}, **more)

    def result(self, call: str, text: Any, *, error: bool | None = None, **more: Any) -> Any:
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        if error is not None:
            block["is_error"] = error
        return self.line("user", {"role": "user", "content": [block]}, **more)


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "x"}


def call(id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def messages(events: Iterable[Any]) -> list[Any]:
    from rekindle.types import Message

    return [event for event in events if isinstance(event, Message)]
