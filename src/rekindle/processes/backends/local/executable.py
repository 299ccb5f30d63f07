"""Check a program before it is started, to give a clear reason if it cannot run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rekindle.errors import InvalidInput, ProcessStartFailed

_SHEBANG = b"#!"
_MAX_SHEBANG = 256


def validate_command(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """Raise InvalidInput for a command that no backend can run."""
    if not argv or not argv[0]:
        raise InvalidInput("command: nothing to run")
    for field, text in (*(("command", word) for word in argv), ("folder", cwd)):
        if "\0" in text:
            raise InvalidInput(f"{field}: must not contain NUL")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidInput(f"environment: invalid variable {name!r:.60}")


def resolve_executable(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    """Return the path of the program.

    Raise ProcessStartFailed if the program, its interpreter or its folder is missing.
    """
    folder = cwd or "/"
    if not os.path.isdir(folder):
        problem = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise ProcessStartFailed(f"{argv[0]}: the folder {folder} {problem}")
    if not os.access(folder, os.X_OK):
        raise ProcessStartFailed(
            f"{argv[0]}: the folder {folder} cannot be entered: permission denied"
        )
    path = _find_executable(argv[0], folder, env)
    interpreter = _read_interpreter(path)
    if interpreter and not os.path.exists(os.path.join(folder, interpreter)):
        raise ProcessStartFailed(f"{argv[0]}: its interpreter {interpreter} does not exist")
    return path


def _find_executable(name: str, folder: str, env: Mapping[str, str]) -> str:
    if "/" in name:
        path = os.path.join(folder, name)
        if reason := _explain_unusable(path):
            raise ProcessStartFailed(f"{name}: {reason}")
        return path
    search_path = env.get("PATH", os.defpath)
    refused = ""
    for entry in search_path.split(":"):
        path = os.path.join(folder, entry, name)
        reason = _explain_unusable(path)
        if not reason:
            return path
        if os.path.isfile(path):
            refused = f"{path} {reason}"
    raise ProcessStartFailed(
        f"{name}: {refused or 'command not found in PATH'}{_advise_shell(name)}"
    )


def _advise_shell(name: str) -> str:
    """Say how to run a whole command line, if a name looks like one."""
    is_line = any(char in name for char in " ;|&<>")
    return ". To run a command line, use: sh -c '…'" if is_line else ""


def _explain_unusable(path: str) -> str:
    if not os.path.exists(path):
        return "no such program"
    if os.path.isdir(path):
        return "is a folder, not a program"
    return "" if os.access(path, os.X_OK) else "is not executable"


def _read_interpreter(path: str) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(_MAX_SHEBANG)
    except OSError:
        return ""  # executable but not readable
    if not head.startswith(_SHEBANG):
        return ""
    words = head[2:].split(b"\n", 1)[0].split()
    return os.fsdecode(words[0]) if words else ""
