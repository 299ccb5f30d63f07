"""The last 200 KB of a process's output, in a memory-mapped file.

The pages belong to the kernel's page cache: they are not private memory of this program, and
survive its death at any moment without a system call. The file has room for one chunk more than the
visible bytes, so a write never overwrites visible bytes: if the program dies during a write, the
count in the header is still correct.

Bytes read from a pipe exist nowhere else. Before reading them, the header records how many are
expected and their destination is marked; whoever opens the ring buffer after a crash can tell
whether they arrived.
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

from rekindle.processes.backends.base import CHUNK_SIZE
from rekindle.processes.types import RING_SIZE

_MAGIC = b"REKRING2"
_OLD_MAGIC = b"REKRING1"  # same layout except for the reader slots
_HEADER_SIZE = 4096
_HEADER = struct.Struct("<8sQ")  # magic, visible bytes
_COUNT = struct.Struct("<QQ")  # total bytes written; bytes being read right now
_COUNT_AT = 16
_MARK_AT = 32
_MARK_SIZE = 8
_STALE_AT = _MARK_AT + _MARK_SIZE
# Name hash, position, last use; position before the last request, and its id.
_READER = struct.Struct("<16sQQQQ")
_READERS_AT = 256
_READERS = (_HEADER_SIZE - _READERS_AT) // _READER.size


class ByteRange(NamedTuple):
    """Bytes `start` to `end` of the output; `dropped` bytes before them are no longer kept."""

    data: bytes
    start: int
    end: int
    dropped: int = 0


class RingBuffer:
    """An open ring buffer. Only one program writes to it; others may read."""

    def __init__(self, map: mmap.mmap, capacity: int) -> None:
        self._map = map
        self._view = memoryview(map)
        self.capacity = capacity
        self._size = capacity + CHUNK_SIZE
        self._available = array.array("i", [0])
        self._total, _ = _COUNT.unpack_from(map, _COUNT_AT)
        self._mark = b""
        self._last_use = 0
        self.on_write: Callable[[], None] = ignore_writes  # called after a write

    @classmethod
    def create(cls, path: Path, capacity: int = RING_SIZE) -> RingBuffer:
        """Create a new file and allocate its space, so that a full disk fails here and not later."""
        size = _HEADER_SIZE + capacity + CHUNK_SIZE
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _reserve_space(file, size)
            map = mmap.mmap(file, size)
        finally:
            os.close(file)
        _HEADER.pack_into(map, 0, _MAGIC, capacity)
        map[_MARK_AT : _MARK_AT + _MARK_SIZE] = os.urandom(_MARK_SIZE)
        ring = cls(map, capacity)
        ring._mark = map[_MARK_AT : _MARK_AT + _MARK_SIZE]
        ring.set_position("", 0)  # the unnamed reader always has a slot
        return ring

    @classmethod
    def open(cls, path: Path, *, writing: bool = False, shared: bool = False) -> Self:
        """Open an existing file; raise ValueError if it is not a ring buffer.

        `writing` repairs it after a crash. With `shared`, another program is writing, and only
        reader positions may be changed.
        """
        mode = os.O_RDWR if writing or shared else os.O_RDONLY
        file = os.open(path, mode | os.O_CLOEXEC)
        try:
            size = os.fstat(file).st_size
            if size < _HEADER_SIZE:
                raise ValueError(f"{path} is not an output ring buffer")
            access = mmap.ACCESS_WRITE if writing or shared else mmap.ACCESS_READ
            map = mmap.mmap(file, size, access=access)
        finally:
            os.close(file)
        magic, capacity = _HEADER.unpack_from(map, 0)
        if magic == _OLD_MAGIC and writing:  # readers repeat output rather than miss some
            map[_STALE_AT:_HEADER_SIZE] = bytes(_HEADER_SIZE - _STALE_AT)
            _HEADER.pack_into(map, 0, _MAGIC, capacity)
            magic = _MAGIC
        if magic != _MAGIC or size != _HEADER_SIZE + capacity + CHUNK_SIZE:
            map.close()
            raise ValueError(f"{path} is not an output ring buffer")
        ring = cls(map, capacity)
        ring._mark = map[_MARK_AT : _MARK_AT + _MARK_SIZE]
        if writing:
            ring._recover()
        return ring

    def _recover(self) -> None:
        total, expected = _COUNT.unpack_from(self._map, _COUNT_AT)
        if expected and expected <= self._size - total % self._size:
            at = _HEADER_SIZE + total % self._size
            edge = min(_MARK_SIZE, expected)
            first = self._map[at : at + edge]
            last = self._map[at + expected - edge : at + expected]
            if first != self._mark[:edge] or last != self._mark[:edge]:
                total += expected
        self._set_total(total)

    def _set_total(self, total: int) -> None:
        self._total = total
        _COUNT.pack_into(self._map, _COUNT_AT, total, 0)

    @property
    def total(self) -> int:
        """Total bytes ever written, including those of another writer."""
        return self._total

    @property
    def dropped(self) -> int:
        """The number of bytes no longer kept."""
        return max(0, self._total - self.capacity)

    def refresh(self) -> None:
        """Update the total from the file, which another program is writing."""
        self._total, _ = _COUNT.unpack_from(self._map, _COUNT_AT)

    # -- writing

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Append output."""
        rest = memoryview(data)
        while len(rest):
            at = self._total % self._size
            step = min(len(rest), CHUNK_SIZE, self._size - at)
            self._view[_HEADER_SIZE + at : _HEADER_SIZE + at + step] = rest[:step]
            self._set_total(self._total + step)
            rest = rest[step:]
        self.on_write()

    def read_from(self, file: int) -> int:
        """Read once from a pipe or terminal directly into the buffer; return 0 at its end.

        Raise BlockingIOError if nothing is available.
        """
        at = self._total % self._size
        limit = min(CHUNK_SIZE, self._size - at)
        try:
            fcntl.ioctl(file, termios.FIONREAD, self._available)
        except OSError:
            self._available[0] = 0
        expected = min(self._available[0], limit)
        if expected:
            self._mark_expected(at, expected)
            limit = expected
        start = _HEADER_SIZE + at
        try:
            got = os.readv(file, [self._view[start : start + limit]])
        except OSError as error:
            self._set_total(self._total)
            if error.errno == errno.EIO:  # a terminal whose other side is closed
                return 0
            raise
        self._set_total(self._total + got)
        if got:
            self.on_write()
        return got

    def _mark_expected(self, at: int, expected: int) -> None:
        edge = min(_MARK_SIZE, expected)
        start = _HEADER_SIZE + at
        end = start + expected
        self._view[start : start + edge] = self._mark[:edge]
        self._view[end - edge : end] = self._mark[:edge]
        _COUNT.pack_into(self._map, _COUNT_AT, self._total, expected)

    # -- reading

    def read(self, since: int = 0, limit: int | None = None) -> ByteRange:
        """Return at most `limit` bytes after `since`."""
        first = max(0, self._total - self.capacity)
        since = min(max(0, since), self._total)
        start = max(since, first)
        end = self._total if limit is None else min(self._total, start + limit)
        at = start % self._size
        step = min(end - start, self._size - at)
        data = bytes(self._view[_HEADER_SIZE + at : _HEADER_SIZE + at + step])
        if step < end - start:
            data += self._view[_HEADER_SIZE : _HEADER_SIZE + end - start - step]
        return ByteRange(data, start, end, start - since)

    # -- state for programs that read the files directly

    @property
    def is_record_stale(self) -> bool:
        """Whether the record on disk is out of date, so that readers must ask the supervisor."""
        return self._map[_STALE_AT] != 0

    @is_record_stale.setter
    def is_record_stale(self, value: bool) -> None:
        self._map[_STALE_AT] = value

    # -- reader positions, stored with the output

    def has_reader(self, reader: str) -> bool:
        return self._find_slot(_hash_reader(reader)) is not None

    def get_position(self, reader: str, request_id: int = 0) -> int:
        """Return the reader's position, or its previous one if the same `request_id` is repeated.

        A repeated request means that its answer was lost.
        """
        found = self._find_slot(_hash_reader(reader))
        if found is None:
            return 0
        _, position, _, before, last_request_id = _READER.unpack_from(self._map, found)
        return before if request_id and request_id == last_request_id else position

    def set_position(
        self, reader: str, position: int, before: int = 0, request_id: int = 0
    ) -> None:
        """Store the reader's position, replacing the least recently used reader if necessary."""
        key = _hash_reader(reader)
        slots = [_READERS_AT + i * _READER.size for i in range(_READERS)]
        found = self._find_slot(key)
        if not self._last_use:
            self._last_use = max(_READER.unpack_from(self._map, slot)[2] for slot in slots)
        if found is None:
            found = min(slots, key=lambda slot: _READER.unpack_from(self._map, slot)[2])
        self._last_use += 1
        _READER.pack_into(self._map, found, key, position, self._last_use, before, request_id)

    def _find_slot(self, key: bytes) -> int | None:
        at = self._map.find(key, _READERS_AT, _HEADER_SIZE)
        while at >= 0 and (at - _READERS_AT) % _READER.size:
            at = self._map.find(key, at + 1, _HEADER_SIZE)
        return at if at >= 0 else None

    def close(self) -> None:
        self._view.release()
        self._map.close()


def ignore_writes() -> None:
    """Ignore a write: the default listener."""


def _hash_reader(reader: str) -> bytes:
    return blake2b(reader.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _reserve_space(file: int, size: int) -> None:
    """Allocate disk space now: writing to an unbacked page later would kill the program."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        for _ in range(0, size, _HEADER_SIZE):
            os.write(file, bytes(_HEADER_SIZE))
        os.ftruncate(file, size)
