"""Finding and ending all that a process started.

A process is known by its id and the moment it started, in this boot of the machine and in this
namespace: an id that was given to another one since is never touched. What belongs to a tree:

    the descendants of its root   the root adopts what forks twice (it is a subreaper, local.py)
    its OS session                as long as the root lives, so that the number is still its own
    the mark in the environment   also when it left both
    its control group             where there is one (cgroup.py)
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import cache
from typing import NamedTuple

from rekindle.errors import ProcessError
from rekindle.processes.backends.base import GRACE, MARK

from . import cgroup

_MARKED = f"{MARK}=".encode()
_STRIKE = 2.0  # seconds of one hunt without a rest
_PATIENCE = 10.0  # seconds until it is said that something cannot be ended
_ROUNDS = 100  # lists of one count; on a busy machine there is always somebody new
_DEAD = "ZX"


class Root(NamedTuple):
    """The process that everything of a tree descends from: the shim."""

    id: str
    pid: int
    started: int  # in clock ticks since boot
    group: str = ""


class Seen(NamedTuple):
    """A process as it was seen."""

    ppid: int
    session: int
    started: int
    state: str
    mark: str = ""

    @property
    def dead(self) -> bool:
        return self.state in _DEAD


@cache
def boot() -> str:
    """Names this boot of the machine and the namespace in which process ids count."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def look(pid: int) -> Seen | None:
    """One process; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    fields = line[line.rindex(b")") + 2 :].split()
    return Seen(int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode())


def lives(pid: int, started: int) -> bool:
    """Whether this very process runs still."""
    seen = look(pid)
    return seen is not None and seen.started == started and not seen.dead


def send(pid: int, started: int, *numbers: int) -> None:
    """Send signals to this very process, if it runs still."""
    try:
        handle = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return
    try:
        if lives(pid, started):
            for number in numbers:
                signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)


class Census:
    """All processes of the machine, counted once for everyone who asks at the same time."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[int, str]] = {}
        self._next: asyncio.Future[dict[int, Seen]] | None = None
        self._turn = asyncio.Lock()

    async def take(self) -> dict[int, Seen]:
        """Everything that ran at some moment after this call."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._count())
        return await asyncio.shield(self._next)

    async def _count(self) -> dict[int, Seen]:
        async with self._turn:
            self._next = None  # who asks from here on may have started something since
            return await asyncio.to_thread(self._scan)

    def _scan(self) -> dict[int, Seen]:
        """Look at every process. What forked and ended before its turn came has left a child that the
        list does not have: so the list is made again, until there is nobody on it that is not known.
        """
        found: dict[int, Seen] = {}
        marks: dict[int, tuple[int, str]] = {}
        passed: set[int] = set()
        for _ in range(_ROUNDS):
            fresh = {int(name) for name in os.listdir("/proc") if name.isdigit()} - passed
            if not fresh:
                break
            for pid in fresh:
                seen = look(pid)
                known = self._marks.get(pid)
                if seen and (known is None or known[0] != seen.started):
                    known = _mark(pid, seen.started)
                if seen and known:
                    marks[pid] = known
                    found[pid] = seen._replace(mark=known[1])
                elif seen:
                    found[pid] = seen
            passed |= fresh
        self._marks = marks
        return found


def _mark(pid: int, started: int) -> tuple[int, str] | None:
    """The id in its environment, "" without one; None if that cannot be said yet."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read()
    except OSError:
        return None
    if not words:
        return None
    for word in words.split(b"\0"):
        if word.startswith(_MARKED):
            return started, word[len(_MARKED) :].decode("ascii", "replace")
    return started, ""


class Members(NamedTuple):
    """What belongs to a tree without its root: what lives, with its start, and what is dead."""

    alive: dict[int, int]
    dead: frozenset[int]
    held: bool = False  # the root is there: what is orphaned comes to it


def members(
    root: Root, seen: dict[int, Seen], known: dict[int, int], spared: frozenset[int] = frozenset()
) -> Members:
    """What belongs to the tree. `known` was found before: its children belong to it too.

    `spared` do not, with all below them: a supervisor that was first needed inside the tree.
    """
    top = seen.get(root.pid)
    rooted = top is not None and top.started == root.started and not top.dead
    belongs = {pid for pid, at in known.items() if pid in seen and seen[pid].started == at}
    belongs.update(pid for pid, one in seen.items() if one.mark == root.id)
    if rooted:
        belongs.add(root.pid)
        belongs.update(pid for pid, one in seen.items() if one.session == root.pid)
    for pid in cgroup.members(root.group) if root.group else ():
        if pid not in seen and (one := look(pid)):  # it was started since
            seen[pid] = one
        belongs.add(pid)
    children: dict[int, list[int]] = {}
    for pid, one in seen.items():
        children.setdefault(one.ppid, []).append(pid)
    belongs &= seen.keys() - spared
    todo = list(belongs)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in belongs and child not in spared:
                belongs.add(child)
                todo.append(child)
    belongs.discard(root.pid)
    alive = {pid: seen[pid].started for pid in belongs if not seen[pid].dead}
    return Members(alive, frozenset(belongs - alive.keys()), rooted)


async def end(
    root: Root,
    census: Census,
    grace: float = GRACE,
    *,
    hangup: bool = False,
    spared: frozenset[int] = frozenset(),
) -> None:
    """End the whole tree; `hangup` tells programs at a terminal that it is gone.

    The root is held until everything else is gone: as long as it is there, what is orphaned comes
    back to it. ProcessError if something cannot be ended, which only the kernel can cause.
    """
    polite = (signal.SIGTERM, signal.SIGHUP) if hangup else (signal.SIGTERM,)
    send(root.pid, root.started, signal.SIGSTOP)
    hunt = _Hunt(root, census, spared)
    try:
        await hunt.until_gone((*polite, signal.SIGCONT), grace)
        await hunt.strike(_PATIENCE)
    finally:
        send(root.pid, root.started, signal.SIGCONT)
    # What escaped through a gap of the counts while the root was going, or goes on to do so.
    last = time.monotonic() + _PATIENCE
    await hunt.strike(_PATIENCE)
    while alive := await hunt.alive():
        if time.monotonic() > last:
            pids = ", ".join(map(str, alive))
            raise ProcessError(
                f"process {root.id}: the kernel does not end {pids}; try again later"
            )
        await hunt.strike(_PATIENCE)
    await _released(root)
    if root.group:
        await asyncio.to_thread(cgroup.remove, root.group)


class _Hunt:
    """Looking for what lives of a tree, again and again, until nothing does."""

    def __init__(self, root: Root, census: Census, spared: frozenset[int]) -> None:
        self._root = root
        self._census = census
        self._spared = spared
        self._known: dict[int, int] = {}

    async def alive(self) -> dict[int, int]:
        """What lives. A count takes time, and what forks meanwhile may not be in it: nothing lives
        when two counts find nothing alive and nobody newly dead. A control group tells at once.
        """
        found = await self._look()
        sure = 2 if self._root.group else 0
        while not found.alive and sure < 2:
            again = await self._look()
            # Only a root keeps the dead; without one a second look tells little: take a third.
            sure += 2 if again.held and again.dead <= found.dead else 1
            found = again
        return found.alive

    async def _look(self) -> Members:
        seen = await self._census.take()
        found = members(self._root, seen, self._known, self._spared)
        self._known.update(found.alive)
        return found

    async def until_gone(self, signals: tuple[int, ...], seconds: float) -> None:
        """Signal everything that is found, once each, and wait until it is gone."""
        end, pause, told = time.monotonic() + seconds, 0.005, set[int]()
        while (alive := await self.alive()) and time.monotonic() <= end:
            for pid, started in alive.items():
                if pid not in told:
                    told.add(pid)
                    send(pid, started, *signals)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.1)

    async def strike(self, seconds: float) -> None:
        """End everything by force, until nothing is found."""
        end = time.monotonic() + seconds
        while (alive := await self.alive()) and time.monotonic() <= end:
            await asyncio.to_thread(_strike, self._root, alive, self._spared)
            # What forks faster than it is found is left to the kernel, which ends the root too.
            if self._root.group and await self.alive():
                cgroup.end(self._root.group)
            await asyncio.sleep(0.005)


def _strike(root: Root, known: dict[int, int], spared: frozenset[int]) -> None:
    """Kill what is known and all below it, each as soon as it is seen.

    A program that forks and ends, over and over, is faster than a whole count. What it leaves is
    below the root, below something that was just killed, or marked. Strangers are looked at once, and
    so are the dead: while the root is held nobody takes them away, and there may be thousands.
    """
    struck = dict(known)
    passed = {os.getpid(), root.pid, *spared}
    held = lives(root.pid, root.started)
    idle, end = 0, time.monotonic() + _STRIKE
    while idle < 3 and time.monotonic() < end:
        time.sleep(0.004 * (idle > 0))  # a look is quick, and what was just forked takes a moment
        idle += 1
        for name in reversed(os.listdir("/proc")):  # the newest first: only they go on
            if not name.isdigit() or (pid := int(name)) in passed:
                continue
            seen = look(pid)
            if seen is None or seen.dead:
                passed.add(pid)
                continue
            below = (held and seen.ppid == root.pid) or _was(seen.ppid, struck)
            if below or struck.get(pid) == seen.started or _mark(pid, 0) == (0, root.id):
                struck[pid] = seen.started
                send(pid, seen.started, signal.SIGKILL)
                idle = 0
            else:
                passed.add(pid)


def _was(pid: int, struck: dict[int, int]) -> bool:
    """Whether it is one of those, and not another process that has its id since."""
    if pid not in struck:
        return False
    seen = look(pid)
    return seen is None or seen.started == struck[pid]


async def _released(root: Root) -> None:
    """Wait for the root to note the exit code and go; end it if it hangs."""
    for wait in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5):
        if not lives(root.pid, root.started):
            return
        await asyncio.sleep(wait)
    send(root.pid, root.started, signal.SIGKILL)
    for _ in range(100):
        if not lives(root.pid, root.started):
            return
        await asyncio.sleep(0.02)
