from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rekindle.processes.backends.base import CHUNK_SIZE
from rekindle.processes.state.ring_buffer import RingBuffer

CAPACITY = 1000
COUNT_AT = 16
pieces = st.binary(min_size=0, max_size=3000) | st.integers(0, 3 * CHUNK_SIZE).map(
    lambda size: bytes(i % 251 for i in range(size))
)


class RingLikeBytes(RuleBasedStateMachine):
    """A ring beside a plain string of bytes that holds everything ever written."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ring"
        self.ring = RingBuffer.create(self.path, CAPACITY)
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.all = b""
        self.readers: dict[str, int] = {}

    @rule(data=pieces)
    def append(self, data: bytes) -> None:
        self.ring.append(data)
        self.all += data

    @rule(data=st.binary(min_size=1, max_size=60_000))
    def fill(self, data: bytes) -> None:
        os.write(self.write, data)
        got = 0
        while got < len(data):
            got += self.ring.read_from(self.read)
        self.all += data
        with pytest.raises(BlockingIOError):
            self.ring.read_from(self.read)

    @rule(reader=st.sampled_from("abc"), back=st.integers(0, 2000))
    def look(self, reader: str, back: int) -> None:
        position = max(0, len(self.all) - back)
        self.ring.set_position(reader, position)
        self.readers[reader] = position

    @rule()
    def killed_and_opened_again(self) -> None:
        self.ring.close()
        self.ring = RingBuffer.open(self.path, writing=True)

    @rule(data=st.binary(min_size=16, max_size=5000), came=st.booleans())
    def killed_while_reading(self, data: bytes, came: bool) -> None:
        """The program dies after it said what it will read; the bytes have come, or they have not."""
        ring, at = self.ring, self.ring.total % (CAPACITY + CHUNK_SIZE)
        data = data[: CAPACITY + CHUNK_SIZE - at]
        if len(data) < 16:
            return
        ring._mark_expected(at, len(data))  # pyright: ignore[reportPrivateUsage]
        if came:
            ring._view[4096 + at : 4096 + at + len(data)] = data  # pyright: ignore[reportPrivateUsage]
            self.all += data
        self.killed_and_opened_again()

    @invariant()
    def the_end_is_kept_and_the_rest_is_counted(self) -> None:
        if not hasattr(self, "all"):
            return
        kept = self.all[-CAPACITY:]
        span = self.ring.read()
        assert span.data == kept
        assert (span.end, span.dropped) == (len(self.all), len(self.all) - len(kept))
        assert self.ring.total == len(self.all)
        for back, limit in ((1, None), (700, 10), (5000, 300)):
            since = max(0, len(self.all) - back)
            part = self.ring.read(since, limit)
            assert part.data == self.all[part.start : part.end]
            assert part.start == max(since, len(self.all) - CAPACITY)
            assert part.dropped == part.start - since
        for reader, position in self.readers.items():
            assert self.ring.get_position(reader) == position

    def teardown(self) -> None:
        if hasattr(self, "ring"):
            self.ring.close()
            os.close(self.read)
            os.close(self.write)
            self.folder.cleanup()


TestRingLikeBytes = RingLikeBytes.TestCase
TestRingLikeBytes.settings = settings(stateful_step_count=25)


@given(st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=300))
def test_the_last_hundred_readers_are_remembered(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring = RingBuffer.create(Path(folder) / "ring", CAPACITY)
        for number, name in enumerate(names):
            ring.set_position(name, number + 1)
        for number, name in list(enumerate(names))[-100:]:
            assert ring.get_position(name) == number + 1
        ring.close()


def test_another_program_sees_what_is_written(tmp_path: Path) -> None:
    ring = RingBuffer.create(tmp_path / "ring")
    other = RingBuffer.open(tmp_path / "ring")
    ring.append(b"hello")
    other.refresh()
    assert other.read().data == b"hello"


def test_a_count_that_makes_no_sense_is_not_believed(tmp_path: Path) -> None:
    ring = RingBuffer.create(tmp_path / "ring", CAPACITY)
    ring.append(b"hello")
    ring.close()
    data = bytearray((tmp_path / "ring").read_bytes())
    struct.pack_into("<QQ", data, COUNT_AT, 5, 1 << 60)
    (tmp_path / "ring").write_bytes(data)
    assert RingBuffer.open(tmp_path / "ring", writing=True).read().data == b"hello"


@pytest.mark.parametrize("damage", [b"", b"short", bytes(10_000)])
def test_a_file_that_is_no_ring_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "ring").write_bytes(damage)
    with pytest.raises(ValueError, match="not an output ring"):
        RingBuffer.open(tmp_path / "ring", writing=True)


def test_the_end_of_a_pipe_is_told(tmp_path: Path) -> None:
    ring = RingBuffer.create(tmp_path / "ring")
    read, write = os.pipe()
    os.write(write, b"last")
    os.close(write)
    assert (ring.read_from(read), ring.read_from(read)) == (4, 0)
    assert ring.read().data == b"last"
    os.close(read)


def test_an_answer_that_was_lost_is_given_again_to_who_asks_the_same(tmp_path: Path) -> None:
    ring = RingBuffer.create(tmp_path / "ring", 1000)
    ring.append(b"one ")
    assert ring.get_position("x", request_id=7) == 0
    ring.set_position("x", 4, before=0, request_id=7)
    ring.append(b"two")
    after = RingBuffer.open(tmp_path / "ring", writing=True)  # by the next program
    assert after.read(after.get_position("x", request_id=7)).data == b"one two"
    assert after.read(after.get_position("x", request_id=8)).data == b"two"
    assert after.read(after.get_position("x")).data == b"two"


def test_a_ring_of_the_version_before_keeps_its_output(tmp_path: Path) -> None:
    ring = RingBuffer.create(tmp_path / "ring", 1000)
    ring.append(b"what it said")
    ring.close()
    data = bytearray((tmp_path / "ring").read_bytes())
    data[:8] = b"REKRING1"
    (tmp_path / "ring").write_bytes(data)
    again = RingBuffer.open(tmp_path / "ring", writing=True)
    assert bytes(again.read(again.get_position("")).data) == b"what it said"
    again.close()
    RingBuffer.open(tmp_path / "ring").close()
