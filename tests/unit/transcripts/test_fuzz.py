"""A short and repeatable part of `python -m soak fuzz`, and that it finds what it looks for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from soak.fuzz import fuzzing
from soak.fuzz.damage import damage_file
from soak.fuzz.specimens import Specimen, make_specimens

from rekindle.transcripts import FORMATS, SessionStarted, TranscriptEvent, detect_format
from rekindle.types import Message, Session
from tests.new_store import open_new_store

pytestmark = pytest.mark.slow

SEED = 20261
SPECIMENS = make_specimens(SEED)


@pytest.fixture(autouse=True)
def new_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "open_store", open_new_store)


@pytest.mark.parametrize("format", [format.name for format in FORMATS])
def test_no_damage_makes_a_reader_crash_hang_or_lose_good_lines(format: str) -> None:
    report = fuzzing.run(SPECIMENS, SEED, formats=[format], cases=range(25))
    assert report.by_format == {format: 25}
    assert list(report.findings.values()) == []


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_a_specimen_is_a_sound_file_of_its_format(specimen: Specimen, tmp_path: Path) -> None:
    path = tmp_path / "specimen"
    path.write_bytes(specimen.data)
    format = detect_format(path)
    assert format is not None
    assert format.name == specimen.format
    texts = [event.text for event in format.read(path) if isinstance(event, Message)]
    assert sum("text" in text for text in texts) >= 4


def test_a_seed_repeats_the_damage() -> None:
    once, again = (damage_file(random.Random("x"), SPECIMENS[0].data, b"other") for _ in range(2))
    assert once == again
    assert once.data != once.base


def raises(path: Path) -> Iterator[TranscriptEvent]:
    yield SessionStarted(Session("s"))
    if b"\xff" in path.read_bytes():
        raise KeyError("x")


def hangs(path: Path) -> Iterator[TranscriptEvent]:
    while b"\0" in path.read_bytes():
        pass
    yield SessionStarted(Session("s"))


def is_unsound(path: Path) -> Iterator[TranscriptEvent]:
    yield SessionStarted(Session("s"))
    yield Message(role="user", content="x", meta={"n": float("nan")}, platform_message_id="x")


def has_no_id(path: Path) -> Iterator[TranscriptEvent]:
    yield SessionStarted(Session("s"))
    yield Message(role="user", content="x")


def is_eager(path: Path) -> Iterator[TranscriptEvent]:
    yield Message(role="user", content="x", platform_message_id="x")


def gives_up(path: Path) -> Iterator[TranscriptEvent]:
    """Whatever the file says, until the first line that is not JSON."""
    import json

    yield SessionStarted(Session("s"))
    for number, line in enumerate(path.read_bytes().split(b"\n")):
        try:
            value = json.loads(line)
            text = str(value["message"]["content"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        yield Message(role="user", content=text, platform_message_id=str(number))


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (raises, "claude-code raises KeyError in test_fuzz.py"),
        (hangs, "claude-code takes too long"),
        (is_unsound, "claude-code gives an unsound message: message.meta"),
        (has_no_id, "claude-code gives a message without an id"),
        (is_eager, "claude-code gives a message before it opens a session"),
        (gives_up, "claude-code loses a line that was not touched"),
    ],
)
def test_a_reader_that_breaks_a_promise_is_found(
    read: Any, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = type(FORMATS[0]).read

    def instead(self: Any, path: Path) -> Iterator[TranscriptEvent]:
        return read(path) if self.name == "claude-code" else real(self, path)

    monkeypatch.setattr(type(FORMATS[0]), "read", instead)
    monkeypatch.setattr(fuzzing, "FOUND", tmp_path / "found")
    monkeypatch.setattr(fuzzing, "_SECONDS", 0.05)
    monkeypatch.setattr(fuzzing, "_known", {})
    lines = b"".join(
        b'{"sessionId": "s", "message": {"content": "a line of its own, number %d"}}\n' % number
        for number in range(6)
    )
    report = fuzzing.run(
        [Specimen("claude-code", "lines", lines)], 1, formats=["claude-code"], cases=range(60)
    )
    found = [one for one in report.findings.values() if one.problem.startswith(problem)]
    assert found, [one.problem for one in report.findings.values()]
    assert found[0].file.exists()
