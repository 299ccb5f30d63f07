"""What is loaded before anything is done: every command waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

LOADED = "import sys, {program}; print(*sys.modules)"
HEAVY = {
    "aiodocker",
    "aiohttp",
    "asyncssh",
    "mcp",
    "openai",
    "prompt_toolkit",
    "psycopg",
    "rekindle.learning.verdicts.judged_sessions",
    "rekindle.judging.judge",
    "rekindle.redaction.redactor",
}


@pytest.mark.parametrize(
    ("program", "needs"),
    [
        ("rekindle", set[str]()),
        ("rekindle.cli.app", set[str]()),
        ("rekindle.gateway.service.service", set[str]()),
        ("rekindle.cli.chat.session", set[str]()),
        (
            "rekindle.learning.verdicts.judged_sessions",
            {"rekindle.learning.verdicts.judged_sessions", "rekindle.judging.judge"},
        ),
    ],
)
def test_only_what_is_needed_is_loaded(program: str, needs: set[str]) -> None:
    command = [sys.executable, "-c", LOADED.format(program=program)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert HEAVY & set(said.split()) == needs


def test_the_picker_paints_before_it_loads_what_is_slow() -> None:
    program = LOADED.format(program="rekindle.cli.picker.launch, rekindle.store")
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    slow = {"asyncio", "prompt_toolkit", "rich", "rich.cells", "typer", "rekindle.analytics"}
    assert not slow & set(said.split())
