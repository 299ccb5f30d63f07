"""Record what went wrong in hooks, for `rekindle doctor`: an agent never sees it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import RekindleError
from rekindle.files import write_new_file
from rekindle.json_fields import as_number, as_object, get_text

from .client import MAX_TROUBLES_BYTES, TROUBLES
from .command import HOOKS_FOLDER

KEPT_TROUBLES = 100
MAX_REASON_CHARS = 300


class HookTrouble(NamedTuple):
    """Something that went wrong in a hook: when, in which (`codex start`), and what."""

    time: float
    hook: str
    reason: str


def describe_error(error: Exception) -> str:
    """Describe an error; an unexpected one with its type."""
    if isinstance(error, RekindleError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def record_trouble(home: Path, hook: str, reason: str) -> None:
    """Record a trouble; ignore errors while doing so."""
    text = " ".join(reason.split())[:MAX_REASON_CHARS]
    line = json.dumps({"time": round(time.time(), 3), "hook": hook, "reason": text}) + "\n"
    file = home / HOOKS_FOLDER / TROUBLES
    try:
        if file.exists() and file.stat().st_size > MAX_TROUBLES_BYTES // 2:
            _drop_old_troubles(file)
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(number, "ab") as opened:
            opened.write(line.encode("utf-8", "replace"))
    except OSError:
        pass


def _drop_old_troubles(file: Path) -> None:
    kept = file.read_bytes().splitlines(keepends=True)[-KEPT_TROUBLES:]
    write_new_file(file, b"".join(kept), durable=False)


def read_troubles(home: Path) -> list[HookTrouble]:
    """Return the latest troubles of a home's hooks, oldest first."""
    try:
        lines = (home / HOOKS_FOLDER / TROUBLES).read_bytes().splitlines()
    except OSError:
        return []
    found: list[HookTrouble] = []
    for line in lines[-KEPT_TROUBLES:]:
        try:
            fields = as_object(json.loads(line))
        except (ValueError, RecursionError):
            continue
        time, reason = as_number(fields.get("time")), get_text(fields, "reason")
        if time is not None and reason:
            found.append(HookTrouble(time, get_text(fields, "hook") or "", reason))
    return found


def clear_troubles(home: Path) -> None:
    """Forget the troubles of a home's hooks."""
    (home / HOOKS_FOLDER / TROUBLES).unlink(missing_ok=True)
