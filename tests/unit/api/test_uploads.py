"""Pushed transcripts on the server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rekindle.api.serving.uploads import TranscriptUploads
from rekindle.errors import InvalidInput, WrongOffset

NAME = "a" * 64


def test_chunks_follow_each_other_and_survive_a_new_server(tmp_path: Path) -> None:
    uploads = TranscriptUploads(tmp_path)
    assert uploads.get_state("t", NAME).size == 0
    uploads.append_chunk("t", NAME, b"one ", offset=0, restart=False)
    with pytest.raises(WrongOffset, match="has 4 bytes"):
        uploads.append_chunk("t", NAME, b"one ", offset=0, restart=False)
    state = TranscriptUploads(tmp_path).append_chunk("t", NAME, b"two", offset=4, restart=False)
    assert state.size == 7
    assert state.sha256 == hashlib.sha256(b"one two").hexdigest()
    # The first server sees what the other one wrote.
    assert uploads.get_state("t", NAME) == state
    assert uploads.get_state("other", NAME).size == 0


def test_a_restart_throws_away_what_was_there(tmp_path: Path) -> None:
    uploads = TranscriptUploads(tmp_path)
    uploads.append_chunk("t", NAME, b"old and long", offset=0, restart=False)
    state = uploads.append_chunk("t", NAME, b"new", offset=0, restart=True)
    assert state.sha256 == hashlib.sha256(b"new").hexdigest()
    assert [path.read_bytes() for path in tmp_path.rglob("content")] == [b"new"]


@pytest.mark.parametrize("name", ["", "..", "../" * 20, "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_a_name_is_a_hash_and_nothing_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="64 hexadecimal"):
        TranscriptUploads(tmp_path / "in").get_state("t", name)
    assert [*tmp_path.iterdir()] == []


def test_what_a_tenant_pushed_is_deleted_with_it(tmp_path: Path) -> None:
    uploads = TranscriptUploads(tmp_path)
    for tenant in ("t", "other"):
        uploads.append_chunk(tenant, NAME, b"words", offset=0, restart=False)
    uploads.delete_all("t")
    again = TranscriptUploads(tmp_path)
    assert [again.get_state(one, NAME).size for one in ("t", "other")] == [0, 5]
