"""What has been sent to a collector: a journal that survives a crash at any point.

Before a request, the cursors that its sessions will have are written as a plan; after it, that the plan
is done. A plan that is not done is sent again, exactly as it was, because the ids and the content of its
spans follow from the cursors: nothing is lost, and nothing counts twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from rekindle.errors import CollectorError
from rekindle.json_fields import as_object
from rekindle.types import Tokens, Usage

from .spans import SpanCursor

_MAX_DONE_LINES = 10_000  # before the journal is written anew


class SendProgress:
    """The cursors of the sessions that a collector has received; one process at a time."""

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._path = folder / f"{name}.jsonl"
        self._lock = _lock_file(folder / f"{name}.lock", address)
        self.cursors: dict[str, SpanCursor] = {}
        self.plan: dict[str, SpanCursor] = {}  # not known to have arrived
        self._lines = 0
        try:
            self._load()
            self._rewrite(address)
        except BaseException:
            os.close(self._lock)
            raise
        self._address = address

    def write_plan(self, plan: Mapping[str, SpanCursor]) -> None:
        """Durably record the contents of the next request."""
        self.plan = dict(plan)
        self._append({"plan": _dump_cursors(plan)})

    def finish_plan(self) -> None:
        """Write that the request has arrived."""
        self.cursors |= self.plan
        self.plan = {}
        self._append({"done": True})
        if self._lines > _MAX_DONE_LINES:
            self._rewrite(self._address)

    def close(self) -> None:
        """Close the journal and let another process use it."""
        os.close(self._file)
        os.close(self._lock)

    def __enter__(self) -> SendProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in data.splitlines():
            try:
                record = as_object(json.loads(line))
            except ValueError:
                continue  # the end of a write that was interrupted
            self.cursors |= _parse_cursors(record.get("cursors"))
            if "plan" in record:
                self.plan = _parse_cursors(record["plan"])
            elif record.get("done"):
                self.cursors |= self.plan
                self.plan = {}

    def _rewrite(self, address: str) -> None:
        """Replace the journal by one line with all cursors, and the plan that is open."""
        lines: list[Mapping[str, Any]] = [
            {"collector": address, "cursors": _dump_cursors(self.cursors)}
        ]
        if self.plan:
            lines.append({"plan": _dump_cursors(self.plan)})
        partial = self._path.with_suffix(".part")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, "".join(json.dumps(line) + "\n" for line in lines).encode())
            os.fsync(fd)
            os.replace(partial, self._path)
        except BaseException:
            os.close(fd)
            raise
        if self._lines:
            os.close(self._file)
        self._file, self._lines = fd, 1

    def _append(self, record: Mapping[str, Any]) -> None:
        _write_all(self._file, json.dumps(record).encode() + b"\n")
        os.fsync(self._file)
        self._lines += 1


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _lock_file(path: Path, address: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise CollectorError(f"Another process is sending to {address}.") from None
    return fd


def _dump_cursors(cursors: Mapping[str, SpanCursor]) -> dict[str, list[Any]]:
    return {
        id: [one.position, one.turn, one.is_closed, list(one.usage.tokens), str(one.usage.cost)]
        for id, one in cursors.items()
    }


def _parse_cursors(value: object) -> dict[str, SpanCursor]:
    found: dict[str, SpanCursor] = {}
    for id, fields in as_object(value).items():
        try:
            position, turn, is_closed, tokens, cost = fields
            usage = Usage(Tokens(*map(int, tokens)), Decimal(cost))
            found[id] = SpanCursor(int(position), int(turn), bool(is_closed), usage)
        except (ValueError, TypeError, InvalidOperation):
            continue  # damaged: the session is sent again, with the same ids
    return found
