"""What can be known about a program before it is started, so that the reason is said well."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rekindle.errors import InvalidInput, NotStarted

_SCRIPT = b"#!"
_LONGEST = 256


def valid(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """Refuse what no place can take."""
    if not argv or not argv[0]:
        raise InvalidInput("command: nothing to run")
    for what, text in (*(("command", word) for word in argv), ("folder", cwd)):
        if "\0" in text:
            raise InvalidInput(f"{what}: a NUL cannot be part of it")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidInput(f"environment: {name!r:.60} cannot be set")


def check(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    """Where the program is; NotStarted if it, its interpreter or its folder are not there."""
    folder = cwd or "/"
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise NotStarted(f"{argv[0]}: the folder {folder} {what}")
    if not os.access(folder, os.X_OK):
        raise NotStarted(f"{argv[0]}: the folder {folder} may not be entered")
    path = _found(argv[0], folder, env)
    interpreter = _interpreter(path)
    if interpreter and not os.path.exists(os.path.join(folder, interpreter)):
        raise NotStarted(f"{argv[0]}: its interpreter {interpreter} does not exist")
    return path


def _found(name: str, folder: str, env: Mapping[str, str]) -> str:
    if "/" in name:
        path = os.path.join(folder, name)
        if why := _unfit(path):
            raise NotStarted(f"{name}: {why}")
        return path
    searched = env.get("PATH", os.defpath)
    refused = ""
    for place in searched.split(":"):
        path = os.path.join(folder, place, name)
        why = _unfit(path)
        if not why:
            return path
        if os.path.isfile(path):
            refused = f"{path} {why}"
    raise NotStarted(f"{name}: {refused or 'there is no program of that name in the PATH'}")


def _unfit(path: str) -> str:
    if not os.path.exists(path):
        return "there is no such program"
    if os.path.isdir(path):
        return "is a folder, not a program"
    return "" if os.access(path, os.X_OK) else "may not be executed"


def _interpreter(path: str) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(_LONGEST)
    except OSError:
        return ""  # may be executed but not read
    if not head.startswith(_SCRIPT):
        return ""
    words = head[2:].split(b"\n", 1)[0].split()
    return os.fsdecode(words[0]) if words else ""
