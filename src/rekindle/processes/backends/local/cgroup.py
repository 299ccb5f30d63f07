"""A control group per process, where this program can create one (version 2, delegated or root).

A process cannot leave its group, whatever it forks, and the kernel can kill the whole group at
once. Where no group can be created, `tree.py` finds the processes by other means.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_MOUNTS = "/proc/self/mountinfo"


def find_parent_group() -> str | None:
    """Return the folder in which groups can be created, or None."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next((line.strip()[3:] for line in file if line.startswith("0::")), None)
        with open(_MOUNTS) as file:
            mount = _find_mount(file)
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


def _find_mount(lines: Iterable[str]) -> str | None:
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return before.split()[4]
    return None


def create_group(parent: str, id: str) -> str:
    """Create a group and return its path; return "" if it cannot be created."""
    path = f"{parent}/rekindle-{id}"
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except OSError:
        return ""
    return path


def list_members(path: str) -> list[int]:
    """List the process ids in the group and its subgroups."""
    pids: list[int] = []
    for folder, _, _ in os.walk(path):
        try:
            with open(f"{folder}/cgroup.procs") as file:
                pids.extend(int(line) for line in file)
        except OSError:
            continue
    return pids


def kill_group(path: str) -> bool:
    """Kill everything in the group; return False if the kernel does not support it."""
    try:
        with open(f"{path}/cgroup.kill", "w") as file:
            file.write("1")
    except OSError:
        return False
    return True


def remove_group(path: str) -> bool:
    """Remove an empty group and its subgroups; return False if processes are left in it."""
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def leave_group() -> None:
    """Move this program out of a process's group, because it outlives the process."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next((line.strip()[3:] for line in file if line.startswith("0::")), "")
        head, sep, _ = own.partition("/rekindle-")
        if not sep:
            return
        with open(_MOUNTS) as file:
            mount = _find_mount(file)
        with open(f"{mount}{head}/cgroup.procs", "w") as file:
            file.write("0")
    except OSError:
        return
