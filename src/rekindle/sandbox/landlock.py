"""Build the command line of the launcher that confines a command with Landlock and seccomp.

The launcher does what its words say, one kernel call after the other. There are two of it, because every
command waits for its start: Perl, which most systems have, starts in a fifth of Python's time.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .call_filter import MACHINES, compile_filter
from .file_view import FileView

# Devices that programs expect. Files of /proc that tell nothing about other processes.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_KERNEL_FILES = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems", "/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs"),
)
_MAX_DEPTH = 40

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK, _IOCTL = 1 << 6, 1 << 11, 1 << 15
_ALL_FILE_RIGHTS = (1 << 16) - 1  # up to version 5
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _ALL_FILE_RIGHTS & ~(_MAKE_CHAR | _MAKE_BLOCK)
_USE_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
# The numbers of prctl, capset, openat, close and seccomp.
_CALLS = {"x86_64": "157,126,257,3,317", "aarch64": "167,91,56,57,277"}


def list_launchers() -> list[tuple[str, ...]]:
    """Return the commands that run a launcher, the fastest first."""
    perl = shutil.which("perl", path="/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin")
    script = str(Path(__file__).with_name("landlock_launcher.pl"))
    return [*([(perl, "-f", script)] if perl else []), build_python_launcher()]


def build_python_launcher() -> tuple[str, ...]:
    """Return the command that runs the launcher in Python, without site packages and settings."""
    # Imported, not run by its path: only an import uses compiled bytecode.
    folder = str(Path(__file__).parent)
    code = f"import sys; sys.path.append({folder!r}); import landlock_launcher as it; it.main()"
    return sys.executable, "-I", "-S", "-c", code


def choose_launcher(found: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """Return the launcher for a command with this environment.

    Perl obeys variables that begin with its name, and it would do so before it is confined.
    """
    if any(name.startswith("PERL") for name in environment):
        return build_python_launcher()
    return found


def build_probe(launcher: Sequence[str]) -> list[str]:
    """Return a command that succeeds if the launcher can confine itself here."""
    return [*launcher, *_build_policy([("/usr", _READ)], network=False), "--"]


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
    rules = [(path, _READ) for path in sorted(set(readable))]
    rules += [(os.path.realpath(path), _WRITE) for path in writable]
    rules += [(path, _USE_DEVICE) for path in _DEVICES]
    return [*launcher, *_build_policy(rules, network=view.network), "--"]


def _build_policy(rules: Sequence[tuple[str, int]], *, network: bool) -> list[str]:
    """Return a policy as the launchers read it.

    CALLS ATTRIBUTES FILTER COUNT, then COUNT times RIGHTS PATH. Attributes and filter are the bytes that
    the kernel takes, in hexadecimal.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        return ["", "", "", machine]  # which every launcher refuses
    tcp = 0 if network else _BIND_TCP | _CONNECT_TCP
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS
    attributes = struct.pack("QQQ", _ALL_FILE_RIGHTS, tcp, scopes)
    calls = compile_filter(machine, network=network)
    words = [_CALLS[machine], attributes.hex(), calls.hex(), str(len(rules))]
    return words + [word for path, rights in rules for word in (str(rights), path)]


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
