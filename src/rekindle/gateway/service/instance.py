"""The name of a gateway among those that share a store, kept for its next life.

A gateway that was killed and started again has the same name, so it takes up at once what it left:
the leases are its own. The lock on the file tells that it lives; the system lets go of it when the
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

MOST = 64


class Runner(NamedTuple):
    """A gateway that lives: its name, and where it tells about itself."""

    name: str
    file: Path

    def tell(self, facts: Mapping[str, object]) -> None:
        """Leave a note for `gateway status`."""
        note = self.file.with_suffix(".json")
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps(dict(facts)))
        draft.replace(note)


@contextmanager
def enter(home: Path) -> Generator[Runner]:
    """Take the first name in this home that no other living gateway has."""
    folder = home / "gateway"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(1, MOST + 1):
        path = folder / f"{number}.runner"
        held = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            continue
        try:
            yield Runner(_name(held), path)
            path.with_suffix(".json").unlink(missing_ok=True)
        finally:
            os.close(held)
        return
    raise InvalidInput(f"{MOST} gateways run in {home} already")


def living(home: Path) -> list[dict[str, object]]:
    """What the gateways that live in this home tell about themselves."""
    return [note for path in _files(home) if _is_held(path) and (note := _note(path))]


def _files(home: Path) -> list[Path]:
    return sorted((home / "gateway").glob("*.runner"), key=lambda path: int(path.stem))


def _is_held(path: Path) -> bool:
    try:
        found = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(found)
    return False


def _note(path: Path) -> dict[str, object]:
    try:
        note: dict[str, object] = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}
    return note


def _name(held: int) -> str:
    """The name in the file; a new file gets one that no other machine has."""
    known = os.pread(held, 200, 0).decode("utf-8", "replace").strip()
    if re.fullmatch(r"[\w.-]+", known):
        return known
    machine = re.sub(r"[^A-Za-z0-9_.]+", "_", platform.node())[:40] or "here"
    name = f"gateway-{machine}-{os.urandom(6).hex()}"
    os.ftruncate(held, 0)
    os.pwrite(held, name.encode(), 0)
    os.fsync(held)
    return name
