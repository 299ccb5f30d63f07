from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.errors import InvalidInput
from rekindle.transcripts import detect_format, read_transcript
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.discovery import SAMPLE
from tests.unit.transcripts.conftest import Claude, Write, messages, said


def name_of(path: Path) -> str | None:
    format = detect_format(path)
    return format.name if format else None


def test_the_format_is_known_by_content_and_not_by_name(write: Write) -> None:
    assert name_of(write(Claude().prompt("x"), name="gemini.json")) == "claude-code"
    meta = {"timestamp": "", "type": "session_meta", "payload": {"id": "x"}}
    assert name_of(write(meta, name="claude.jsonl")) == "codex"
    assert name_of(write({"role": "user", "content": "x"}, name="codex")) == "openai-chat"


def test_comments_blank_lines_and_a_byte_order_mark_do_not_hide_a_format(write: Write) -> None:
    line = json.dumps(Claude().prompt("x")).encode()
    assert name_of(write("// Source: a gist", "// second", "", line)) == "claude-code"
    assert name_of(write(b"\xef\xbb\xbf" + line)) == "claude-code"


def test_a_first_line_longer_than_the_head_is_still_known(write: Write) -> None:
    long = "x" * 200_000
    assert name_of(write(Claude().answer("m", said(long)))) == "claude-code"
    assert name_of(write({"role": "system", "content": long})) == "openai-chat"
    meta = {"timestamp": "", "type": "session_meta", "payload": {"base": long}}
    assert name_of(write(meta)) == "codex"


@pytest.mark.parametrize(
    "data",
    [b"", b"   \n\n", b"MIT License", b"{}", b"[]", b'{"a": 1}\n', b"\0\1\2", b'{"role": "user"}'],
)
def test_other_files_are_not_transcripts(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(data)
    assert detect_format(path) is None
    with pytest.raises(InvalidInput, match="not a supported transcript"):
        read_transcript(path)


def test_the_sample_is_in_formats_we_read() -> None:
    names = {path.name: name_of(path) for path in SAMPLE.iterdir()}
    assert set(names.values()) == {"claude-code", "codex", "openai-chat"}


def test_a_document_that_is_laid_out_stays_one_with_an_object_on_a_line(write: Write) -> None:
    run = {"task_id": 0, "reward": 1.0, "info": {}, "traj": [{"role": "user", "content": "x"}] * 9}
    laid_out = json.dumps([run], indent=2).split("\n")
    cut = [*laid_out[:25], "{}", *laid_out[25:-3]]
    assert not FileHead("\n".join(cut).encode()).has_document_per_line
    assert FileHead(b'{"a": 1}\n{"b": 2}\nnot JSON\n').has_document_per_line
    assert FileHead(b'[\n{"a": 1},\n{"b": 2}\n]').has_document_per_line is False
    assert len(messages(read_transcript(write("\n".join(cut))))) == 8
