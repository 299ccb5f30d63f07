"""The last 200 KB that a process wrote, in a file mapped into memory.

The pages belong to the kernel's cache of the file: they are no private memory of this program, and
they survive its death at any moment without a system call. The file is as large as what can be seen
and one chunk more, so that a write never touches bytes that can be seen: if the program dies in the
middle of one, the count in the header still tells the truth.

Bytes that were taken out of a pipe are nowhere else. So before they are taken, the header says how
many will be, and their place is marked; who opens the ring after a crash sees whether they came.
"""

from __future__ import annotations

import array
import errno
import fcntl
import mmap
import os
import struct
import termios
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Self

from rekindle.processes.backends.base import CHUNK
from rekindle.processes.types import RING

_MAGIC = b"REKRING2"
_OLDER = b"REKRING1"  # the same, but the places of its readers are written otherwise
_HEAD = 4096
_SIZES = struct.Struct("<8sQ")  # magic, bytes that can be seen
_COUNT = struct.Struct("<QQ")  # bytes ever written; bytes that are being read right now
_COUNT_AT = 16
_MARK_AT = 32
_MARK = 8
_ASKS_AT = _MARK_AT + _MARK
# Name, position, when it looked last; where that look began, and the number of its question.
_READER = struct.Struct("<16sQQQQ")
_READERS_AT = 256
_READERS = (_HEAD - _READERS_AT) // _READER.size


class Span(NamedTuple):
    """Bytes `start` to `end` of all that was written; `dropped` before them are gone."""

    data: bytes
    start: int
    end: int
    dropped: int = 0


class Ring:
    """An open ring. Only one program writes to it; others may read."""

    def __init__(self, map: mmap.mmap, capacity: int) -> None:
        self._map = map
        self._view = memoryview(map)
        self.capacity = capacity
        self._size = capacity + CHUNK
        self._waiting = array.array("i", [0])
        self._total, _ = _COUNT.unpack_from(map, _COUNT_AT)
        self._mark = b""
        self._stamp = 0
        self.heard: Callable[[], None] = nobody  # called when something was written

    @classmethod
    def create(cls, path: Path, capacity: int = RING) -> Ring:
        """A new file. Its space is taken at once: a full disk is told here, and never later."""
        size = _HEAD + capacity + CHUNK
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _reserve(file, size)
            map = mmap.mmap(file, size)
        finally:
            os.close(file)
        _SIZES.pack_into(map, 0, _MAGIC, capacity)
        map[_MARK_AT : _MARK_AT + _MARK] = os.urandom(_MARK)
        ring = cls(map, capacity)
        ring._mark = map[_MARK_AT : _MARK_AT + _MARK]
        ring.seen("", 0)  # who gives no name has a place from the start
        return ring

    @classmethod
    def open(cls, path: Path, *, writing: bool = False, beside: bool = False) -> Self:
        """An existing file; `writing` puts right what a crash left. ValueError if it is no ring.

        `beside` another program that writes, only the places of readers may be changed.
        """
        mode = os.O_RDWR if writing or beside else os.O_RDONLY
        file = os.open(path, mode | os.O_CLOEXEC)
        try:
            size = os.fstat(file).st_size
            if size < _HEAD:
                raise ValueError(f"{path} is not an output ring")
            access = mmap.ACCESS_WRITE if writing or beside else mmap.ACCESS_READ
            map = mmap.mmap(file, size, access=access)
        finally:
            os.close(file)
        magic, capacity = _SIZES.unpack_from(map, 0)
        if magic == _OLDER and writing:  # readers see again what they saw, rather than miss some
            map[_ASKS_AT:_HEAD] = bytes(_HEAD - _ASKS_AT)
            _SIZES.pack_into(map, 0, _MAGIC, capacity)
            magic = _MAGIC
        if magic != _MAGIC or size != _HEAD + capacity + CHUNK:
            map.close()
            raise ValueError(f"{path} is not an output ring")
        ring = cls(map, capacity)
        ring._mark = map[_MARK_AT : _MARK_AT + _MARK]
        if writing:
            ring._recover()
        return ring

    def _recover(self) -> None:
        total, expected = _COUNT.unpack_from(self._map, _COUNT_AT)
        if expected and expected <= self._size - total % self._size:
            at = _HEAD + total % self._size
            edge = min(_MARK, expected)
            first = self._map[at : at + edge]
            last = self._map[at + expected - edge : at + expected]
            if first != self._mark[:edge] or last != self._mark[:edge]:
                total += expected
        self._set(total)

    def _set(self, total: int) -> None:
        self._total = total
        _COUNT.pack_into(self._map, _COUNT_AT, total, 0)

    @property
    def total(self) -> int:
        """Bytes that were ever written, also by another program that writes."""
        return self._total

    @property
    def dropped(self) -> int:
        """Bytes that are no longer kept."""
        return max(0, self._total - self.capacity)

    def refresh(self) -> None:
        """Look how far another program has written."""
        self._total, _ = _COUNT.unpack_from(self._map, _COUNT_AT)

    # -- writing

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add what the process wrote."""
        rest = memoryview(data)
        while len(rest):
            at = self._total % self._size
            step = min(len(rest), CHUNK, self._size - at)
            self._view[_HEAD + at : _HEAD + at + step] = rest[:step]
            self._set(self._total + step)
            rest = rest[step:]
        self.heard()

    def fill(self, file: int) -> int:
        """Read once from a pipe or terminal, straight into the ring; 0 at its end.

        BlockingIOError if there is nothing now.
        """
        at = self._total % self._size
        most = min(CHUNK, self._size - at)
        try:
            fcntl.ioctl(file, termios.FIONREAD, self._waiting)
        except OSError:
            self._waiting[0] = 0
        expected = min(self._waiting[0], most)
        if expected:
            self._expect(at, expected)
            most = expected
        start = _HEAD + at
        try:
            got = os.readv(file, [self._view[start : start + most]])
        except OSError as error:
            self._set(self._total)
            if error.errno == errno.EIO:  # a terminal that nobody has open any more
                return 0
            raise
        self._set(self._total + got)
        if got:
            self.heard()
        return got

    def _expect(self, at: int, expected: int) -> None:
        edge = min(_MARK, expected)
        start = _HEAD + at
        end = start + expected
        self._view[start : start + edge] = self._mark[:edge]
        self._view[end - edge : end] = self._mark[:edge]
        _COUNT.pack_into(self._map, _COUNT_AT, self._total, expected)

    # -- reading

    def read(self, since: int = 0, limit: int | None = None) -> Span:
        """Bytes behind `since`, at most `limit` of them."""
        first = max(0, self._total - self.capacity)
        since = min(max(0, since), self._total)
        start = max(since, first)
        end = self._total if limit is None else min(self._total, start + limit)
        at = start % self._size
        step = min(end - start, self._size - at)
        data = bytes(self._view[_HEAD + at : _HEAD + at + step])
        if step < end - start:
            data += self._view[_HEAD : _HEAD + end - start - step]
        return Span(data, start, end, start - since)

    # -- what another program that looks at the files must know

    @property
    def asks(self) -> bool:
        """Whether the record on disk is not the truth now, so that one must ask who keeps it."""
        return self._map[_ASKS_AT] != 0

    @asks.setter
    def asks(self, value: bool) -> None:
        self._map[_ASKS_AT] = value

    # -- where each reader is, kept with the output

    def knows(self, reader: str) -> bool:
        return self._slot(_key(reader)) is not None

    def position(self, reader: str, asked: int = 0) -> int:
        """How far this reader has seen: without what the same question, `asked`, was told before.

        Who asks it again has not heard the answer.
        """
        found = self._slot(_key(reader))
        if found is None:
            return 0
        _, position, _, before, number = _READER.unpack_from(self._map, found)
        return before if asked and asked == number else position

    def seen(self, reader: str, position: int, before: int = 0, asked: int = 0) -> None:
        """This reader has seen everything before `position`. The oldest reader makes room."""
        key = _key(reader)
        slots = [_READERS_AT + i * _READER.size for i in range(_READERS)]
        found = self._slot(key)
        if not self._stamp:
            self._stamp = max(_READER.unpack_from(self._map, slot)[2] for slot in slots)
        if found is None:
            found = min(slots, key=lambda slot: _READER.unpack_from(self._map, slot)[2])
        self._stamp += 1
        _READER.pack_into(self._map, found, key, position, self._stamp, before, asked)

    def _slot(self, key: bytes) -> int | None:
        at = self._map.find(key, _READERS_AT, _HEAD)
        while at >= 0 and (at - _READERS_AT) % _READER.size:
            at = self._map.find(key, at + 1, _HEAD)
        return at if at >= 0 else None

    def close(self) -> None:
        self._view.release()
        self._map.close()


def nobody() -> None:
    """Hears that something was written."""


def _key(reader: str) -> bytes:
    return blake2b(reader.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _reserve(file: int, size: int) -> None:
    """Take the space on disk now: a page that cannot be written later would end the program."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        for _ in range(0, size, _HEAD):
            os.write(file, bytes(_HEAD))
        os.ftruncate(file, size)
