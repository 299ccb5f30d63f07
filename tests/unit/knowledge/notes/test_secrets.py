"""No value that was planted in a session is in what learning keeps of it."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path

import msgspec
import pytest

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.observations import observe_session
from rekindle.knowledge.notes.playbook import build_playbook
from rekindle.types import ToolCall

MISSED = Path(__file__).resolve().parents[4].parent / "shared" / "attacks" / "secrets-missed.txt"
_VALUE = re.compile(r"[A-Za-z0-9+/=_.~-]{8,}")


def read_planted() -> list[str]:
    if not MISSED.exists():
        warnings.warn(f"PLANTED SECRETS ARE NOT TESTED: {MISSED} is missing", stacklevel=1)
        pytest.skip("no list of planted secrets")
    lines = [line.rsplit(" | ", 1)[-1] for line in MISSED.read_text().splitlines() if " | " in line]
    return [ast.literal_eval(line) for line in lines if line[:1] in "'\""]


def find_values(text: str) -> set[str]:
    """Return the words of a text that look like values: with digits, or with odd capitals."""
    found = {word.strip(".=-_/") for word in _VALUE.findall(text)}
    return {
        word
        for word in found
        if re.search(r"\d.*[A-Za-z].*\d|[a-z][A-Z].*\d|[A-Za-z]\d{3,}", word) and len(word) >= 10
    }


def bash(command: str, result: str, *, failed: bool = False) -> ObservedCall:
    return ObservedCall(ToolCall("1", "Bash", {"command": command}), result, failed, "", 0)


def test_planted_values_are_in_no_observation_and_no_playbook() -> None:
    planted = read_planted()
    assert len(planted) > 100
    leaks: list[str] = []
    for text in planted:
        calls = [
            bash(text, text, failed=True),
            bash(f"{text} --again", text),
            bash(f"make test {text}", text, failed=True),
            bash(f"make test TOKEN={text}", text),
            bash(f"cat <<X > a.env\n{text}\nX\nmake test", text),
            ObservedCall(ToolCall("2", "Read", {"file_path": f"/p/{text}"}), text, False, "", 0),
        ]
        seen = observe_session("s", 1.0, "/p", text, calls, text)
        kept = msgspec.msgpack.encode(seen) + msgspec.msgpack.encode(build_playbook([seen] * 3))
        leaks += [value for value in find_values(text) if value.encode() in kept]
    assert leaks == []
