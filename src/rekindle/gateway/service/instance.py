"""The name of a gateway instance among those that share a store, kept across restarts.

A gateway that is killed and restarted keeps its name, so it resumes its work at once: the leases
are its own. The lock on its file shows that it is running; the system releases the lock when the
process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.files import write_new_file

MAX_INSTANCES = 64


class GatewayInstance(NamedTuple):
    """A running gateway: its name and its lock file."""

    name: str
    file: Path

    def write_status(self, status: Mapping[str, object]) -> None:
        """Write the status file that `gateway status` reads."""
        path = self.file.with_suffix(".json")
        write_new_file(path, json.dumps(dict(status)), durable=False)


@contextmanager
def claim_instance(home: Path) -> Generator[GatewayInstance]:
    """Claim the first name in this home that no running gateway holds."""
    folder = home / "gateway"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(1, MAX_INSTANCES + 1):
        path = folder / f"{number}.instance"
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            continue
        try:
            yield GatewayInstance(_load_or_create_name(fd), path)
            path.with_suffix(".json").unlink(missing_ok=True)
        finally:
            os.close(fd)
        return
    raise InvalidInput(f"too many gateways in {home}: at most {MAX_INSTANCES} can run")


def list_running_instances(home: Path) -> list[dict[str, object]]:
    """Return the status of each gateway running in this home."""
    return [
        status
        for path in _list_lock_files(home)
        if _is_locked(path) and (status := _read_status(path))
    ]


def _list_lock_files(home: Path) -> list[Path]:
    return sorted((home / "gateway").glob("*.instance"), key=lambda path: int(path.stem))


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _read_status(path: Path) -> dict[str, object]:
    try:
        status: dict[str, object] = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}
    return status


def _load_or_create_name(fd: int) -> str:
    """Return the name in the file; write a globally unique one to a new file."""
    known = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
    if re.fullmatch(r"[\w.-]+", known):
        return known
    machine = re.sub(r"[^A-Za-z0-9_.]+", "_", platform.node())[:40] or "here"
    name = f"gateway-{machine}-{os.urandom(6).hex()}"
    os.ftruncate(fd, 0)
    os.pwrite(fd, name.encode(), 0)
    os.fsync(fd)
    return name
