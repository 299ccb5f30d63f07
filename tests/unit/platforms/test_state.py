from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import PlatformMessage
from rekindle.platforms.common.pending import PendingMessages, Positions
from rekindle.platforms.common.sending import SendJournal
from rekindle.platforms.common.state_file import StateFile
from rekindle.types import Message, Source


def test_values_survive_and_the_last_one_counts(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "a.jsonl")
    file.put("k", "1")
    file.put("k", 'ü\n"')
    file.put("j", "2")
    again = StateFile(tmp_path / "a.jsonl")
    assert again.list_items() == [("k", 'ü\n"'), ("j", "2")]
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600


def test_damaged_lines_are_skipped_and_swallow_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    StateFile(path).put("k", "1")
    path.write_bytes(path.read_bytes() + b'[1]\n{"x":2}\n\xff\xfe\n["cut", "of')
    file = StateFile(path)
    assert file.find("k") == "1"
    file.put("next", "2")
    assert StateFile(path).list_items() == [("k", "1"), ("next", "2")]


def test_two_writers_see_each_other_and_old_keys_are_forgotten(tmp_path: Path) -> None:
    one, two = (StateFile(tmp_path / "a.jsonl", max_keys=3) for _ in range(2))
    for number in range(40):
        (one if number % 2 else two).put(str(number), "x")
    assert [key for key, _ in one.list_items()] == ["37", "38", "39"]
    assert one.list_items() == two.list_items()
    assert (tmp_path / "a.jsonl").read_bytes().count(b"\n") < 20


def test_a_position_passes_nothing_that_waits(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "p.jsonl")
    positions = Positions(file)
    for id in ("7", "9", "10"):
        positions.begin("c", id)
    positions.finish("c", "10")
    assert not positions.is_known("c")
    positions.finish("c", "7")
    assert file.find("c") == "7"
    positions.finish("c", "9")
    assert file.find("c") == "10"
    positions.begin("c", "8")
    positions.finish("c", "8")
    assert file.find("c") == "10", "it never goes back"
    assert positions.is_past("c", "9")
    assert not positions.is_past("c", "11")


def test_an_unknown_outcome_is_looked_up_before_it_is_sent_again(tmp_path: Path) -> None:
    sent: list[str] = []

    async def send() -> str:
        sent.append("x")
        if len(sent) == 1:
            raise PlatformError("lost")
        return f"id{len(sent)}"

    async def find() -> str | None:
        return "found"

    async def act() -> None:
        with pytest.raises(PlatformError):
            await SendJournal(tmp_path).send_once("n", send, find)
        assert await SendJournal(tmp_path).send_once("n", send, find) == "found"
        assert await SendJournal(tmp_path).send_once("n", send) == "found"
        assert await SendJournal(tmp_path).send_once("m", send, find) == "id2"

    asyncio.run(act())


def test_a_message_that_comes_twice_waits_once_with_both_tokens() -> None:
    incoming = PlatformMessage(Source("x", "c"), Message("user", "a", platform_message_id="1"))
    edited = incoming._replace(change="edited")

    async def act() -> None:
        pending: PendingMessages[int] = PendingMessages()
        assert pending.add(incoming, 1)
        assert not pending.add(incoming, 2)
        assert pending.add(edited, 3)
        assert pending.take(incoming) == [1, 2]
        assert pending.take(edited) == [3]
        await pending.wait_until_empty()

    asyncio.run(act())
