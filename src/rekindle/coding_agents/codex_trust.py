"""Ask Codex which of our hooks its user has trusted.

Trust is the user's review of code that will run. It is read here and never written.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from rekindle.hooks.command import is_hook_command
from rekindle.json_fields import JsonObject, as_object, as_objects, get_text

ANSWER_SECONDS = 10.0
_MAX_ANSWER_BYTES = 10_000_000


class HookTrust(NamedTuple):
    """A hook of Rekindle as Codex knows it."""

    event: str
    is_trusted: bool
    is_enabled: bool


def read_codex_trust(program: str, folder: Path, env: Mapping[str, str]) -> list[HookTrust] | None:
    """Return our hooks as Codex knows them in a folder; None if it does not answer."""
    try:
        process = subprocess.Popen(
            [program, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            cwd="/",  # not in a repository: nothing of it may run
        )
    except OSError:
        return None
    with process:
        try:
            return _ask_for_hooks(process, folder)
        except (OSError, ValueError):
            return None
        finally:
            process.kill()


def _ask_for_hooks(process: subprocess.Popen[bytes], folder: Path) -> list[HookTrust] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    info = {"clientInfo": {"name": "rekindle", "version": "1"}}
    requests = (("initialize", info), ("hooks/list", {"cwds": [str(folder)]}))
    deadline = time.monotonic() + ANSWER_SECONDS
    lines = _AnswerReader(process.stdout, deadline)
    answer: JsonObject | None = None
    for number, (method, params) in enumerate(requests):
        line = json.dumps({"id": number, "method": method, "params": params}) + "\n"
        process.stdin.write(line.encode())
        process.stdin.flush()
        answer = lines.read_answer(number)
        if answer is None:
            return None
    return None if answer is None else _parse_hooks(answer)


def _parse_hooks(answer: JsonObject) -> list[HookTrust] | None:
    result: dict[str, Any] = as_object(answer.get("result"))
    if "data" not in result:
        return None
    return [
        HookTrust(
            get_text(hook, "eventName") or "?",
            get_text(hook, "trustStatus") == "trusted" or hook.get("isManaged") is True,
            hook.get("enabled") is not False,
        )
        for folder in as_objects(result["data"])
        for hook in as_objects(folder.get("hooks"))
        if is_hook_command(get_text(hook, "command") or "", "codex")
    ]


class _AnswerReader:
    """Reads answers from a pipe until a deadline."""

    def __init__(self, pipe: IO[bytes], deadline: float) -> None:
        self._fd = pipe.fileno()
        self._deadline = deadline
        self._buffer = b""

    def read_answer(self, number: int) -> JsonObject | None:
        """Return the answer to a request; None if there is none in time."""
        while (line := self._read_line()) is not None:
            fields = as_object(json.loads(line))
            if fields.get("id") == number:
                return fields
        return None

    def _read_line(self) -> bytes | None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                rest = self._deadline - time.monotonic()
                if rest <= 0 or len(self._buffer) > _MAX_ANSWER_BYTES or not selector.select(rest):
                    return None
                data = os.read(self._fd, 65536)
                if not data:
                    return None
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
