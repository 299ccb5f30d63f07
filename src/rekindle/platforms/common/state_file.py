"""What a platform must remember: values by key, in a file that survives a kill at any moment."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

_MAX_GROWTH = 4  # the file is rewritten when it has this many times the lines it needs


class StateFile:
    """Values by key. Every change is a line that is appended; the last one of a key counts.

    The oldest keys are forgotten once there are more than `max_keys`. Several processes may use one
    file: each sees what the others wrote before it. With `syncs`, a value also survives a power cut.
    """

    def __init__(self, path: Path, *, max_keys: int = 2000, syncs: bool = False) -> None:
        self._path = path
        self._syncs = syncs
        self._max_keys = max_keys
        self._values: dict[str, str] = {}
        self._lines = 0
        self._version: tuple[int, int] | None = None  # inode and size when it was read

    def find(self, key: str) -> str | None:
        """Return the value of a key, if it is known."""
        self._refresh()
        return self._values.get(key)

    def list_items(self) -> list[tuple[str, str]]:
        """Return all keys with their values, the least recently changed first."""
        self._refresh()
        return [*self._values.items()]

    def put(self, key: str, value: str) -> None:
        """Remember a value, in the file before this returns."""
        with self._lock():
            self._refresh()
            descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            with open(descriptor, "ab") as file:
                # A line that a crash cut off must not swallow this one.
                prefix = b"\n" if file.tell() and not self._has_final_newline() else b""
                file.write(prefix + _encode_line(key, value))
                file.flush()
                if self._syncs:
                    os.fsync(file.fileno())
                self._remember(key, value)
                self._version = _get_version(file.fileno())
            if self._lines > _MAX_GROWTH * self._max_keys:
                self._rewrite()

    def _remember(self, key: str, value: str) -> None:
        self._lines += 1
        self._values.pop(key, None)
        self._values[key] = value
        while len(self._values) > self._max_keys:
            del self._values[next(iter(self._values))]

    def _refresh(self) -> None:
        try:
            with open(self._path, "rb") as file:
                version = _get_version(file.fileno())
                if version == self._version:
                    return
                content = file.read()
        except FileNotFoundError:
            content, version = b"", None
        self._values, self._lines, self._version = {}, 0, version
        for line in content.splitlines():
            if (entry := _decode_line(line)) is not None:
                self._remember(*entry)

    def _has_final_newline(self) -> bool:
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _rewrite(self) -> None:
        draft = self._path.with_suffix(".draft")
        with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(_encode_line(key, value) for key, value in self._values.items())
            file.flush()
            os.fsync(file.fileno())
            self._version, self._lines = _get_version(file.fileno()), len(self._values)
        draft.replace(self._path)

    @contextmanager
    def _lock(self) -> Generator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _get_version(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_ino, status.st_size


def _encode_line(key: str, value: str) -> bytes:
    return json.dumps([key, value]).encode() + b"\n"


def _decode_line(line: bytes) -> tuple[str, str] | None:
    """Return the key and value of a line, None if it is damaged."""
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, list) or len(cast(list[Any], entry)) != 2:
        return None
    key, value = cast(list[Any], entry)
    return (key, value) if isinstance(key, str) and isinstance(value, str) else None
