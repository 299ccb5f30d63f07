"""Sessions as Claude Code and Codex write them, for tests that import them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A call of a tool: its arguments, its result, and whether it worked."""

    tool: str
    arguments: dict[str, str]
    result: str = "ok"
    works: bool = True


class Told(NamedTuple):
    """A session to write: where it works, what its user says first and last, and what it does."""

    id: str
    folder: str
    asked: str
    steps: Sequence[Step]
    then: str = ""
    remote: str = ""
    branch: str = "main"
    day: int = 1


def run(command: str, result: str = "ok", *, works: bool = True) -> Step:
    """Return a step that runs a command."""
    return Step("Bash", {"command": command}, result, works)


def read(path: str, result: str = "text") -> Step:
    """Return a step that reads a file."""
    return Step("Read", {"file_path": path}, result)


def write_claude(folder: Path, told: Told) -> None:
    """Write a session as Claude Code does."""
    _write_lines(folder / f"{told.id}.jsonl", _iter_claude(told))


def _iter_claude(told: Told) -> Iterator[dict[str, Any]]:
    common = {
        "sessionId": told.id,
        "cwd": told.folder,
        "timestamp": f"2026-02-{told.day:02}T10:00:00Z",
        "gitBranch": told.branch,
    }

    def say(role: str, uuid: str, content: object) -> dict[str, Any]:
        message = {"role": role, "content": content}
        return {**common, "type": role, "uuid": f"{told.id}-{uuid}", "message": message}

    yield say("user", "u", told.asked)
    for number, step in enumerate(told.steps):
        call = f"toolu_{told.id}-{number}"
        used = {"type": "tool_use", "id": call, "name": step.tool, "input": step.arguments}
        yield say("assistant", f"{number}a", [used])
        text = step.result if step.works else f"Exit code 1\n{step.result}"
        result = {"type": "tool_result", "tool_use_id": call, "content": text}
        yield say("user", f"{number}r", [{**result, "is_error": not step.works}])
    yield say("assistant", "z", [{"type": "text", "text": "Done."}])
    if told.then:
        yield say("user", "then", told.then)


def write_codex(folder: Path, told: Told) -> None:
    """Write a session as Codex does; every step runs a command."""
    _write_lines(folder / f"rollout-{told.id}.jsonl", _iter_codex(told))


def _iter_codex(told: Told) -> Iterator[dict[str, Any]]:
    time = f"2026-02-{told.day:02}T10:00:00.000Z"

    def add(kind: str, **payload: object) -> dict[str, Any]:
        return {"timestamp": time, "type": kind, "payload": payload}

    def say(text: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text}]
        return add("response_item", type="message", role="user", content=content)

    git = {"branch": told.branch, **({"repository_url": told.remote} if told.remote else {})}
    yield add("session_meta", id=told.id, timestamp=time, cwd=told.folder, git=git)
    yield say(told.asked)
    for number, step in enumerate(told.steps):
        command = step.arguments.get("command") or f"cat {step.arguments['file_path']}"
        arguments = json.dumps({"cmd": command, "workdir": told.folder})
        id = f"call_{told.id}{number:04}"
        yield add(
            "response_item",
            type="function_call",
            name="exec_command",
            arguments=arguments,
            call_id=id,
        )
        output = f"Process exited with code {int(not step.works)}\nOutput:\n{step.result}"
        yield add("response_item", type="function_call_output", call_id=id, output=output)
    if told.then:
        yield say(told.then)


def _write_lines(file: Path, lines: Iterator[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
