"""Find and kill everything that a process started.

A process is identified by its pid and start time, in this boot of the machine and this pid
namespace: a reused pid is never touched. A tree consists of:

    the descendants of its root   the root adopts double forks (it is a subreaper, spawner.py)
    its OS session                while the root lives, so that the session id is still its own
    the environment mark          also for processes that left both
    its control group             if there is one (cgroup.py)
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import cache
from typing import NamedTuple

from rekindle.errors import ProcessError
from rekindle.processes.backends.base import GRACE_SECONDS, PROCESS_ID_VARIABLE

from . import cgroup

_MARK_PREFIX = f"{PROCESS_ID_VARIABLE}=".encode()
_KILL_PASS_SECONDS = 2.0  # seconds of one kill pass
_KILL_TIMEOUT = 10.0  # seconds until a process counts as unkillable
_MAX_LISTINGS = 100  # listings per scan; a busy machine always has new processes
_DEAD_STATES = "ZX"


class TreeRoot(NamedTuple):
    """The process that everything in a tree descends from: the shim."""

    id: str
    pid: int
    started: int  # in clock ticks since boot
    group: str = ""


class ProcInfo(NamedTuple):
    """A process as listed in /proc."""

    ppid: int
    session: int
    started: int
    state: str
    mark: str = ""

    @property
    def dead(self) -> bool:
        return self.state in _DEAD_STATES


@cache
def get_boot_id() -> str:
    """Return an id of this boot of the machine and of the pid namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def read_process(pid: int) -> ProcInfo | None:
    """Read one process from /proc; return None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    fields = line[line.rindex(b")") + 2 :].split()
    return ProcInfo(int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode())


def is_alive(pid: int, started: int) -> bool:
    """Return whether this very process is still running."""
    info = read_process(pid)
    return info is not None and info.started == started and not info.dead


def send_signals(pid: int, started: int, *numbers: int) -> None:
    """Send signals to this very process, if it is still running."""
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return
    try:
        if is_alive(pid, started):
            for number in numbers:
                signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(pidfd)


class ProcessTable:
    """All processes of the machine, scanned once for all concurrent callers."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[int, str]] = {}
        self._pending_scan: asyncio.Future[dict[int, ProcInfo]] | None = None
        self._scan_lock = asyncio.Lock()

    async def scan(self) -> dict[int, ProcInfo]:
        """Return everything that was running at some moment after this call."""
        if self._pending_scan is None:
            self._pending_scan = asyncio.ensure_future(self._scan_exclusively())
        return await asyncio.shield(self._pending_scan)

    async def _scan_exclusively(self) -> dict[int, ProcInfo]:
        async with self._scan_lock:
            self._pending_scan = None  # later callers need a new scan
            return await asyncio.to_thread(self._scan_proc)

    def _scan_proc(self) -> dict[int, ProcInfo]:
        """Read every process.

        A process that forked and exited before it was read leaves a child that the listing lacks,
        so list again until no unknown process appears.
        """
        found: dict[int, ProcInfo] = {}
        marks: dict[int, tuple[int, str]] = {}
        visited: set[int] = set()
        for _ in range(_MAX_LISTINGS):
            new_pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} - visited
            if not new_pids:
                break
            for pid in new_pids:
                info = read_process(pid)
                known = self._marks.get(pid)
                if info and (known is None or known[0] != info.started):
                    known = _read_mark(pid, info.started)
                if info and known:
                    marks[pid] = known
                    found[pid] = info._replace(mark=known[1])
                elif info:
                    found[pid] = info
            visited |= new_pids
        self._marks = marks
        return found


def _read_mark(pid: int, started: int) -> tuple[int, str] | None:
    """Return the start time and the id in its environment ("" without one); None if unreadable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read()
    except OSError:
        return None
    if not words:
        return None
    for word in words.split(b"\0"):
        if word.startswith(_MARK_PREFIX):
            return started, word[len(_MARK_PREFIX) :].decode("ascii", "replace")
    return started, ""


class TreeMembers(NamedTuple):
    """The members of a tree without its root: the live ones with their start times, and the dead."""

    alive: dict[int, int]
    dead: frozenset[int]
    has_root: bool = False  # the root exists, so orphans are reparented to it


def find_members(
    root: TreeRoot,
    table: dict[int, ProcInfo],
    known: dict[int, int],
    spared: frozenset[int] = frozenset(),
) -> TreeMembers:
    """Find the members of the tree. The children of `known`, found earlier, belong to it too.

    Processes in `spared` and their descendants do not: a supervisor may have been started inside
    the tree.
    """
    root_info = table.get(root.pid)
    has_root = root_info is not None and root_info.started == root.started and not root_info.dead
    belongs = {pid for pid, at in known.items() if pid in table and table[pid].started == at}
    belongs.update(pid for pid, one in table.items() if one.mark == root.id)
    if has_root:
        belongs.add(root.pid)
        belongs.update(pid for pid, one in table.items() if one.session == root.pid)
    for pid in cgroup.list_members(root.group) if root.group else ():
        if pid not in table and (one := read_process(pid)):  # started after the scan
            table[pid] = one
        belongs.add(pid)
    children: dict[int, list[int]] = {}
    for pid, one in table.items():
        children.setdefault(one.ppid, []).append(pid)
    belongs &= table.keys() - spared
    todo = list(belongs)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in belongs and child not in spared:
                belongs.add(child)
                todo.append(child)
    belongs.discard(root.pid)
    alive = {pid: table[pid].started for pid in belongs if not table[pid].dead}
    return TreeMembers(alive, frozenset(belongs - alive.keys()), has_root)


async def kill_tree(
    root: TreeRoot,
    process_table: ProcessTable,
    grace: float = GRACE_SECONDS,
    *,
    hangup: bool = False,
    spared: frozenset[int] = frozenset(),
) -> None:
    """Kill the whole tree; `hangup` also sends SIGHUP, for programs on a terminal.

    The root stays stopped until everything else is gone: while it exists, orphans are reparented to
    it. Raise ProcessError if a process cannot be killed, which only the kernel can cause.
    """
    term_signals = (signal.SIGTERM, signal.SIGHUP) if hangup else (signal.SIGTERM,)
    send_signals(root.pid, root.started, signal.SIGSTOP)
    killer = _TreeKiller(root, process_table, spared)
    try:
        await killer.signal_until_gone((*term_signals, signal.SIGCONT), grace)
        await killer.kill_until_gone(_KILL_TIMEOUT)
    finally:
        send_signals(root.pid, root.started, signal.SIGCONT)
    # Kill what escaped between two scans while the root was exiting.
    deadline = time.monotonic() + _KILL_TIMEOUT
    await killer.kill_until_gone(_KILL_TIMEOUT)
    while alive := await killer.find_alive():
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, alive))
            raise ProcessError(f"process {root.id}: cannot kill {pids}; try again later")
        await killer.kill_until_gone(_KILL_TIMEOUT)
    await _wait_for_root(root)
    if root.group:
        await asyncio.to_thread(cgroup.remove_group, root.group)


class _TreeKiller:
    """Searches a tree for live members repeatedly, until there are none."""

    def __init__(self, root: TreeRoot, process_table: ProcessTable, spared: frozenset[int]) -> None:
        self._root = root
        self._process_table = process_table
        self._spared = spared
        self._known: dict[int, int] = {}

    async def find_alive(self) -> dict[int, int]:
        """Return the live members.

        A scan takes time and may miss concurrent forks, so nothing counts as alive only after two
        scans without live members and without new dead ones. With a control group, one scan is
        enough.
        """
        found = await self._find_members()
        confirmations = 2 if self._root.group else 0
        while not found.alive and confirmations < 2:
            again = await self._find_members()
            # Only the root retains the dead; without it, scan a third time.
            confirmations += 2 if again.has_root and again.dead <= found.dead else 1
            found = again
        return found.alive

    async def _find_members(self) -> TreeMembers:
        table = await self._process_table.scan()
        found = find_members(self._root, table, self._known, self._spared)
        self._known.update(found.alive)
        return found

    async def signal_until_gone(self, signals: tuple[int, ...], seconds: float) -> None:
        """Signal each member once and wait until all are gone."""
        deadline, pause, signalled = time.monotonic() + seconds, 0.005, set[int]()
        while (alive := await self.find_alive()) and time.monotonic() <= deadline:
            for pid, started in alive.items():
                if pid not in signalled:
                    signalled.add(pid)
                    send_signals(pid, started, *signals)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.1)

    async def kill_until_gone(self, seconds: float) -> None:
        """Send SIGKILL until no member is found."""
        deadline = time.monotonic() + seconds
        while (alive := await self.find_alive()) and time.monotonic() <= deadline:
            await asyncio.to_thread(_kill_descendants, self._root, alive, self._spared)
            # Leave what forks too fast to the kernel, which kills the root too.
            if self._root.group and await self.find_alive():
                cgroup.kill_group(self._root.group)
            await asyncio.sleep(0.005)


def _kill_descendants(root: TreeRoot, known: dict[int, int], spared: frozenset[int]) -> None:
    """Kill the known members and all their descendants, each as soon as it is seen.

    A program that forks and exits in a loop is faster than a full scan. Its children are below the
    root, below a process that was just killed, or marked. Unrelated and dead processes are read
    only once: while the root is stopped nobody reaps the dead, and there may be thousands.
    """
    killed = dict(known)
    visited = {os.getpid(), root.pid, *spared}
    has_root = is_alive(root.pid, root.started)
    idle, deadline = 0, time.monotonic() + _KILL_PASS_SECONDS
    while idle < 3 and time.monotonic() < deadline:
        time.sleep(0.004 * (idle > 0))  # give recent forks a moment to appear
        idle += 1
        for name in reversed(os.listdir("/proc")):  # newest first: only they keep forking
            if not name.isdigit() or (pid := int(name)) in visited:
                continue
            info = read_process(pid)
            if info is None or info.dead:
                visited.add(pid)
                continue
            below = (has_root and info.ppid == root.pid) or _is_killed(info.ppid, killed)
            if below or killed.get(pid) == info.started or _read_mark(pid, 0) == (0, root.id):
                killed[pid] = info.started
                send_signals(pid, info.started, signal.SIGKILL)
                idle = 0
            else:
                visited.add(pid)


def _is_killed(pid: int, killed: dict[int, int]) -> bool:
    """Return whether the pid belongs to a killed process and was not reused."""
    if pid not in killed:
        return False
    info = read_process(pid)
    return info is None or info.started == killed[pid]


async def _wait_for_root(root: TreeRoot) -> None:
    """Wait for the root to record the exit code and exit; kill it if it hangs."""
    for wait in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5):
        if not is_alive(root.pid, root.started):
            return
        await asyncio.sleep(wait)
    send_signals(root.pid, root.started, signal.SIGKILL)
    for _ in range(100):
        if not is_alive(root.pid, root.started):
            return
        await asyncio.sleep(0.02)
