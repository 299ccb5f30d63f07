"""The real transcripts give the numbers that their page of sources states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rekindle.transcripts import Damage, Learned, Opened, detect, read
from rekindle.types import Message

FOLDERS = {
    "claude__entireio__cli": "claude-code",
    "claude__moredip__session-share": "claude-code",
    "claude__obra__episodic-memory": "claude-code",
    "codex__entireio__git-sync": "codex",
}


def stated(corpus: Path, folder: str) -> tuple[int, int, int]:
    """Sessions, messages and calls from the row of the folder in SOURCES.md."""
    row = next(
        line for line in (corpus / "SOURCES.md").read_text().splitlines() if f"| {folder} |" in line
    )
    cells = [cell.strip() for cell in row.split("|")]
    return tuple(int(re.match(r"\d+", cells[n])[0]) for n in (4, 5, 6))  # type: ignore[index,return-value]


@pytest.mark.parametrize("folder", FOLDERS)
def test_sessions_messages_and_calls_are_those_of_the_sources_page(
    corpus: Path, folder: str
) -> None:
    sessions: set[str] = set()
    told: dict[tuple[str, str | None], Message] = {}
    count = 0
    for path in sorted((corpus / folder).rglob("*.json*")):
        format = detect(path)
        assert format is not None, path
        assert format.name == FOLDERS[folder]
        for event in read(path):
            assert not isinstance(event, Damage), event
            if isinstance(event, Opened):
                session = event.session.id
                sessions.add(session)
            elif isinstance(event, Message):
                count += 1
                told[session, event.platform_message_id] = event
            elif isinstance(event, Learned):
                assert event.session.started
                assert event.session.tokens.output
    # The page counts a call when it was answered: four calls of these files never were.
    answered = sum(1 for message in told.values() if message.role == "tool")
    assert (len(sessions), count, answered) == stated(corpus, folder)
    assert len(told) == count, "ids of messages are unique in their session"
    calls = {call.id for message in told.values() for call in message.tool_calls}
    results = {message.tool_call_id for message in told.values() if message.role == "tool"}
    assert results <= calls


def test_every_result_of_claude_code_says_whether_it_failed(corpus: Path) -> None:
    for path in sorted((corpus / "claude__entireio__cli").glob("*.jsonl")):
        for event in read(path):
            if isinstance(event, Message) and event.role == "tool":
                assert isinstance((event.meta or {})["is_error"], bool)


def test_formats_that_are_not_read_yet_are_not_mistaken_for_others(corpus: Path) -> None:
    others = (
        "copilot",
        "opencode",
        "pi",
        "gemini",
        "openhands",
        "tau",
        "trail",
        "atif",
        "swe-agent",
    )
    for folder in corpus.iterdir():
        if folder.name.startswith(others):
            taken = [path for path in folder.rglob("*") if path.is_file() and detect(path)]
            assert taken == []
