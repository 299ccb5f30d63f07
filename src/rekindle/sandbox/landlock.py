"""Build the command line of the launcher that confines a command with Landlock and seccomp."""

from __future__ import annotations

import json
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
    return python, "-I", "-S", str(Path(__file__).with_name("landlock_launcher.py"))


def build_command(
    launcher: Sequence[str], view: FileView, temporary: str, scratch: str = ""
) -> list[str]:
    """Return the words that precede the confined command."""
    hidden = set(view.list_paths("hide"))
    readable = list(_KERNEL_FILES)
    for path in view.list_paths("read"):
        readable += _exclude_hidden(os.path.realpath(path), hidden)
    writable = [*view.list_paths("write"), temporary, *([scratch] if scratch else [])]
    policy = {
        "read": sorted(set(readable)),
        "write": [os.path.realpath(path) for path in writable],
        "devices": _DEVICES,
        "network": view.network,
    }
    return [*launcher, json.dumps(policy), "--"]


def _exclude_hidden(path: str, hidden: set[str], depth: int = 0) -> Iterable[str]:
    """Yield what covers a path without the hidden ones below it: Landlock cannot subtract."""
    if path in hidden or depth > _MAX_DEPTH:
        return
    inside = f"{path.rstrip('/')}/"
    if not any(one.startswith(inside) for one in hidden):
        yield path
        return
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        child = os.path.join(path, name)
        if not os.path.islink(child):
            yield from _exclude_hidden(child, hidden, depth + 1)
