"""A damaged line costs that line alone, in every format that has an entry per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from soak.fuzz.specimens import make_specimens

from rekindle.transcripts import UnreadableEntry, detect_format
from rekindle.types import Message
from tests.cases import check_each
from tests.unit.transcripts.test_hostile import BY_LINE, GOOD

LINE_FORMATS = [format for format in BY_LINE if format.name != "aider"]  # Markdown
JUNK = {
    "open list": b"[",
    "open object": b"{",
    "open lists": b"[[",
    "open list of objects": b"[{",
    "open text": b'"',
    "key": b'{"a":',
    "open value": b'{"a": "',
    "element of a list": b'[{"a": 1},',
    "open messages": b'{"messages": [',
    "closed list": b"]",
    "closed object": b"}",
    "NUL bytes": b"\0" * 600,
    "not UTF-8": b"\xff\xfe\x80",
    "words": b"Killed",
    "longer than the head": b'{"a": "' + b"x" * 70_000,
}


def read_with_junk(
    format: Any, folder: Path, good: list[Any], junk: list[bytes], at: int
) -> tuple[list[str], list[int]]:
    """Read the good lines with junk between them: the texts, and the lines reported as damaged."""
    lines = [json.dumps(one).encode() for one in good]
    path = folder / "damaged"
    path.write_bytes(b"\n".join([*lines[:at], *junk, *lines[at:]]) + b"\n")
    events = [*format.read(path)]
    texts = [event.text for event in events if isinstance(event, Message)]
    return texts, [event.line for event in events if isinstance(event, UnreadableEntry)]


def assert_good_lines_are_read(texts: list[str], count: int = 3) -> None:
    for number in range(count):
        assert any(f"good {number}" in text for text in texts)


@check_each("junk", JUNK.values(), ids=JUNK)
@check_each("format", LINE_FORMATS, ids=lambda format: format.name)
def test_a_damaged_line_costs_that_line_alone(format: Any, junk: bytes, tmp_path: Path) -> None:
    for at in range(4):
        texts, damaged = read_with_junk(format, tmp_path, GOOD[format.name], [junk], at)
        assert_good_lines_are_read(texts)
        assert damaged == [at + 1]


@pytest.mark.parametrize("format", LINE_FORMATS, ids=lambda format: format.name)
def test_one_good_line_is_found_behind_many_damaged_ones(format: Any, tmp_path: Path) -> None:
    for junk in ([b"["], [b"{"], [b"[", b"{", b'"'], [b"["] * 60, [b"{"] * 60):
        texts, damaged = read_with_junk(format, tmp_path, GOOD[format.name][:1], junk, 0)
        assert_good_lines_are_read(texts, 1)
        assert damaged == [*range(1, len(junk) + 1)]


def lengthen(value: Any) -> Any:
    """The same entry with more text than detection reads of a file."""
    if isinstance(value, dict):
        return {key: lengthen(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [lengthen(inner) for inner in value]
    is_text = isinstance(value, str) and value.startswith("good ")
    return "x" * 70_000 + value if is_text else value


@pytest.mark.parametrize("format", LINE_FORMATS, ids=lambda format: format.name)
def test_damage_between_lines_longer_than_the_head_costs_that_line_alone(
    format: Any, tmp_path: Path
) -> None:
    good = [lengthen(one) for one in GOOD[format.name]]
    for junk in (b"[", b"{", b'{"a":', b"\0\0\0"):
        for at in (0, 1, 3):
            texts, damaged = read_with_junk(format, tmp_path, good, [junk], at)
            assert_good_lines_are_read(texts)
            assert damaged == [at + 1]


def test_an_indented_document_with_lines_behind_it_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "two files in one"
    chat = {"sessionId": "s", "projectHash": "h", "messages": GOOD["gemini"]}
    lines = "\n".join(map(json.dumps, GOOD["codex"]))
    path.write_text(f"{json.dumps(chat, indent=2)}\n{lines}\n")
    format = detect_format(path)
    assert format is not None
    assert_good_lines_are_read(
        [event.text for event in format.read(path) if isinstance(event, Message)]
    )


def is_line_specimen(data: bytes) -> bool:
    lines = data.splitlines()
    return len(lines) > 1 and all(line.startswith(b"{") and line.endswith(b"}") for line in lines)


def put_documents_on_lines(data: bytes) -> bytes:
    value = json.loads(data)
    documents = value if isinstance(value, list) else [value]
    return "\n".join(map(json.dumps, documents)).encode()


LINE_SPECIMENS = [specimen for specimen in make_specimens(1) if is_line_specimen(specimen.data)] + [
    specimen._replace(data=put_documents_on_lines(specimen.data))
    for specimen in make_specimens(1)
    if specimen.format in ("atif", "tau-bench", "tau2", "openhands")
]


@check_each("junk", JUNK.values(), ids=JUNK)
@check_each("specimen", LINE_SPECIMENS, ids=lambda specimen: specimen.format)
def test_a_damaged_line_does_not_hide_the_format_of_the_others(
    specimen: Any, junk: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "damaged"
    lines = specimen.data.split(b"\n")
    for at in {0, len(lines) // 2, len(lines)}:
        path.write_bytes(b"\n".join([*lines[:at], junk, *lines[at:]]))
        format = detect_format(path)
        assert format is not None
        assert format.name == specimen.format
