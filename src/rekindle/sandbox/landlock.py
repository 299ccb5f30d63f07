"""Build the command line of the launcher that confines a command with Landlock and seccomp."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from .file_view import FileView

PROBE = "probe"
# Devices that programs expect. Files of /proc that tell nothing about other processes.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_KERNEL_FILES = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems", "/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs"),
)
_MAX_DEPTH = 40


def build_launcher(python: str) -> tuple[str, ...]:
    """Return the command that runs the launcher, without site packages and settings."""
    # Imported, not run by its path: only an import uses compiled bytecode.
    folder = str(Path(__file__).parent)
    code = f"import sys; sys.path.append({folder!r}); import landlock_launcher as it; it.main()"
    return python, "-I", "-S", "-c", code


def build_command(
    launcher: Sequence[str], view: FileView, temporary: str, scratch: str = ""
) -> list[str]:
    """Return the words that precede the confined command."""
    hidden = set(view.list_paths("hide"))
    above = {one[:at] for one in hidden for at, char in enumerate(one) if char == "/"}
    readable = list(_KERNEL_FILES)
    for path in view.list_paths("read"):
        readable += _exclude_hidden(os.path.realpath(path), hidden, above)
    writable = [*view.list_paths("write"), temporary, *([scratch] if scratch else [])]
    read = sorted(set(readable))
    write = [os.path.realpath(path) for path in writable]
    kinds = (read, write, _DEVICES)
    counts = [str(len(paths)) for paths in kinds]
    paths = [path for kind in kinds for path in kind]
    return [*launcher, "1" if view.network else "0", *counts, *paths, "--"]


def _exclude_hidden(path: str, hidden: set[str], above: set[str], depth: int = 0) -> Iterable[str]:
    """Yield what covers a path without the hidden ones below it: Landlock cannot subtract.

    `above` holds the folders above the hidden paths.
    """
    if path in hidden or depth > _MAX_DEPTH:
        return
    if path.rstrip("/") not in above:
        yield path
        return
    try:
        with os.scandir(path) as found:
            children = [entry.path for entry in found if not entry.is_symlink()]
    except OSError:
        return
    for child in children:
        yield from _exclude_hidden(child, hidden, above, depth + 1)
