"""The real transcripts give the numbers that their page of sources states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rekindle.transcripts import (
    FORMATS,
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.transcripts.detect import FileHead
from rekindle.types import Message

FOLDERS = {
    "claude__entireio__cli": "claude-code",
    "claude__moredip__session-share": "claude-code",
    "claude__obra__episodic-memory": "claude-code",
    "codex__entireio__git-sync": "codex",
    "copilot__EntityProcess__agentv": "copilot",
    "opencode__dayhaysoos__nimbus": "opencode",
    "pi__badlogic__pi-mono": "pi",
    "gemini__entireio__cli": "gemini",
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
        format = detect_format(path)
        assert format is not None, path
        assert format.name == FOLDERS[folder]
        for event in read_transcript(path):
            assert not isinstance(event, UnreadableEntry), event
            if isinstance(event, SessionStarted):
                session = event.session.id
                sessions.add(session)
            elif isinstance(event, Message):
                count += 1
                told[session, event.platform_message_id] = event
            elif isinstance(event, SessionUpdated):
                assert event.session.started
                assert event.session.tokens.output
    # The page counts a call when it was answered: ten calls of these files never were, four of
    # Claude Code and Codex, and six of pi.
    answered = sum(1 for message in told.values() if message.role == "tool")
    assert (len(sessions), count, answered) == stated(corpus, folder)
    assert len(told) == count, "ids of messages are unique in their session"
    calls = {call.id for message in told.values() for call in message.tool_calls}
    results = {message.tool_call_id for message in told.values() if message.role == "tool"}
    assert results <= calls


@pytest.mark.parametrize(
    "folder",
    [name for name in FOLDERS if name.startswith(("copilot", "opencode", "pi", "gemini"))],
)
def test_the_labels_give_the_share_of_errors_that_the_sources_page_states(
    corpus: Path, folder: str
) -> None:
    told = [
        event.meta or {}
        for path in sorted((corpus / folder).rglob("*.json*"))
        for event in read_transcript(path)
        if isinstance(event, Message) and event.role == "tool"
    ]
    labelled = [meta for meta in told if isinstance(meta.get("is_error"), bool)]
    failed = [meta for meta in labelled if meta["is_error"] or meta.get("exit_code")]
    page = (corpus / "SOURCES.md").read_text()
    number, share = re.findall(rf"\| {folder} \|.*\| (\d+) \(([\d.]+)\) \|", page)[0]
    assert len(labelled) == int(number)
    assert 100 * len(failed) / len(labelled) == pytest.approx(float(share), abs=0.05)


# Folders in which other files lie too, or of which the page counts something else, with the
# messages and results that are told beyond its numbers.
RUNS = {
    # Nine commands that submit were never answered: the message after them is the submission.
    "mini__gruckion__mini-swe-agent": ("mini-swe-agent", 0, 0),
    # The page counts two messages per step; the prompt of each run is one more.
    "swe-agent__SWE-agent__SWE-agent": ("swe-agent", 16, 0),
    # The page leaves out the prompts and actions that have no `source` (28), and two errors that
    # answer calls which were never written down.
    "openhands__All-Hands-AI__OpenHands": ("openhands", 30, 2),
}


def told_in(folder: Path, name: str) -> dict[tuple[str, str | None], Message]:
    told: dict[tuple[str, str | None], Message] = {}
    for path in sorted(folder.rglob("*")):
        format = detect_format(path)
        if format is None:
            assert path.name.startswith("LICENSE") or path.name.endswith(".report.json"), path
            continue
        assert format.name == name
        for event in format.read(path):
            assert not isinstance(event, UnreadableEntry), event
            if isinstance(event, SessionStarted):
                session = event.session.id
            elif isinstance(event, Message):
                assert (session, event.platform_message_id) not in told
                told[session, event.platform_message_id] = event
    return told


@pytest.mark.parametrize("folder", RUNS)
def test_runs_of_benchmarks_give_what_the_sources_page_states_and_what_it_leaves_out(
    corpus: Path, folder: str
) -> None:
    name, messages, results = RUNS[folder]
    told = told_in(corpus / folder, name)
    answered = sum(1 for message in told.values() if message.role == "tool")
    counted = (len({session for session, _ in told}), len(told) - messages, answered - results)
    assert counted == stated(corpus, folder)
    calls = {call.id for message in told.values() for call in message.tool_calls}
    orphans = [m for m in told.values() if m.role == "tool" and m.tool_call_id not in calls]
    assert len(orphans) == results


@pytest.mark.parametrize("folder", [name for name in RUNS if not name.startswith("swe-agent")])
def test_the_labels_of_runs_give_the_share_of_errors_that_the_sources_page_states(
    corpus: Path, folder: str
) -> None:
    told = [m.meta or {} for m in told_in(corpus / folder, RUNS[folder][0]).values()]
    labelled = [meta for meta in told if "is_error" in meta or "exit_code" in meta]
    failed = [meta for meta in labelled if meta.get("is_error") or meta.get("exit_code")]
    page = (corpus / "SOURCES.md").read_text()
    number, share = re.findall(rf"\| {folder} \|.*\| (\d+) \(([\d.]+)\) \|", page)[0]
    assert len(labelled) == int(number)
    assert 100 * len(failed) / len(labelled) == pytest.approx(float(share), abs=0.05)


# Folders of which the page counts something else: sessions, messages and results beyond its numbers.
OTHERS = {
    "tau__sierra-research__tau-bench": ("tau-bench", 0, 0, 0),
    "tau2__yoheinakajima__activegraph-tau2-bench": ("tau2", 0, 0, 0),
    "atif__laude-institute__harbor-via-Xelron": ("atif", 0, 0, 0),
    # The page leaves out the packed log, with ten samples of two messages each.
    "inspect__UKGovernmentBEIS__inspect_ai": ("inspect", 10, 20, 0),
    "trail__patronus-ai__trail-benchmark": ("otel", 0, 0, 0),
    # The page counts files and lines of prompts: those 54 lines are 18 prompts, one in each of the
    # 18 chats in these files, and there are 78 answers.
    "aider__Aider-AI__aider-swe-bench": ("aider", 15, 42, 0),
}


def told_by(folder: Path) -> dict[tuple[str, str | None], Message]:
    """The messages of all transcripts in a folder, by session and id."""
    told: dict[tuple[str, str | None], Message] = {}
    for path in sorted(folder.rglob("*")):
        format = detect_format(path) if path.is_file() else None
        assert format is None or format.name == OTHERS[folder.name][0]
        for event in format.read(path) if format else ():
            assert not isinstance(event, UnreadableEntry), event
            if isinstance(event, SessionStarted):
                session = event.session.id
            elif isinstance(event, Message):
                assert (session, event.platform_message_id) not in told
                told[session, event.platform_message_id] = event
    return told


@pytest.mark.parametrize("folder", OTHERS)
def test_other_transcripts_give_what_the_sources_page_states_and_what_it_leaves_out(
    corpus: Path, folder: str
) -> None:
    told = told_by(corpus / folder)
    results = [message.meta or {} for message in told.values() if message.role == "tool"]
    counted = (len({session for session, _ in told}), len(told), len(results))
    _, *beyond = OTHERS[folder]
    assert counted == tuple(map(sum, zip(stated(corpus, folder), beyond, strict=True)))
    labels = [meta["is_error"] for meta in results if "is_error" in meta]
    page = (corpus / "SOURCES.md").read_text()
    cell = re.findall(rf"\| {folder} (?:\|[^|]*){{5}}\| (\d+) \(([\d.]+)\)", page)
    number, share = cell[0] if cell else ("0", "0")
    assert len(labels) == int(number)
    assert 100 * sum(labels) / max(1, len(labels)) == pytest.approx(float(share), abs=0.05)


def test_trials_say_what_they_were_worth(corpus: Path) -> None:
    worth = {
        OTHERS[folder][0]: [
            message.meta["reward"]
            for message in told_by(corpus / folder).values()
            if message.meta and "reward" in message.meta
        ]
        for folder in OTHERS
    }
    assert (worth["tau-bench"].count(1.0), len(worth["tau-bench"])) == (84, 200)
    assert (worth["tau2"].count(1.0), len(worth["tau2"])) == (10, 19)
    assert sorted(worth["inspect"]) == [0.0, 1.0]


def test_runs_say_whether_they_solved_their_task(corpus: Path) -> None:
    marks: dict[str, list[Any]] = {}
    for folder in ("mini__gruckion__mini-swe-agent", "openhands__All-Hands-AI__OpenHands"):
        told = told_in(corpus / folder, RUNS[folder][0]).values()
        marks[folder[:4]] = [m.meta["resolved"] for m in told if m.meta and "resolved" in m.meta]
    assert (sum(marks["mini"]), len(marks["mini"])) == (4, 9)
    assert marks["open"] == [True, True]


def test_every_result_of_claude_code_says_whether_it_failed(corpus: Path) -> None:
    for path in sorted((corpus / "claude__entireio__cli").glob("*.jsonl")):
        for event in read_transcript(path):
            if isinstance(event, Message) and event.role == "tool":
                assert isinstance((event.meta or {})["is_error"], bool)


def test_no_file_is_taken_for_two_formats(corpus: Path) -> None:
    owners = {**FOLDERS, **{name: one[0] for name, one in (*RUNS.items(), *OTHERS.items())}}
    for path in sorted(corpus.rglob("*")):
        if not path.is_file():
            continue
        head = FileHead.read(path)
        # The last format is the least particular, and is asked when no other was right.
        asked = [format for format in FORMATS[:-1] if format.binary or not head.is_binary]
        taken = [format.name for format in asked if format.can_read(head)]
        owner = owners.get(path.relative_to(corpus).parts[0])
        assert taken in ([], [owner]), path
