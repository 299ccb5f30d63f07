"""A control group for each process, where this program may make one (version 2, delegated or root).

What is in a group cannot leave it, whatever it forks, and the kernel ends all of it at once. Where
none can be made, `tree.py` finds the processes by other marks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_MOUNTS = "/proc/self/mountinfo"


def parent() -> str | None:
    """The folder in which groups can be made, or None."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next((line.strip()[3:] for line in file if line.startswith("0::")), None)
        with open(_MOUNTS) as file:
            mount = _mount(file)
    except OSError:
        return None
    if own is None or mount is None:
        return None
    path = os.path.normpath(f"{mount}/{own}")
    probe = f"{path}/rekindle-probe-{os.getpid()}"
    try:
        os.mkdir(probe)
        usable = os.access(f"{probe}/cgroup.procs", os.W_OK) and os.access(
            f"{path}/cgroup.procs", os.W_OK
        )
        os.rmdir(probe)
    except OSError:
        return None
    return path if usable else None


def _mount(lines: Iterable[str]) -> str | None:
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return before.split()[4]
    return None


def make(parent: str, id: str) -> str:
    """A new group; "" if it cannot be made."""
    path = f"{parent}/rekindle-{id}"
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except OSError:
        return ""
    return path


def members(path: str) -> list[int]:
    """Who is in the group, with the groups that were made inside it."""
    found: list[int] = []
    for folder, _, _ in os.walk(path):
        try:
            with open(f"{folder}/cgroup.procs") as file:
                found.extend(int(line) for line in file)
        except OSError:
            continue
    return found


def end(path: str) -> bool:
    """Let the kernel end everything in the group; False if it cannot."""
    try:
        with open(f"{path}/cgroup.kill", "w") as file:
            file.write("1")
    except OSError:
        return False
    return True


def remove(path: str) -> bool:
    """Remove an empty group and those inside it; False if something is left in it."""
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def leave() -> None:
    """Go up, out of the group of a process: this program outlives it."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next((line.strip()[3:] for line in file if line.startswith("0::")), "")
        head, sep, _ = own.partition("/rekindle-")
        if not sep:
            return
        with open(_MOUNTS) as file:
            mount = _mount(file)
        with open(f"{mount}{head}/cgroup.procs", "w") as file:
            file.write("0")
    except OSError:
        return
