"""Child processes that never outlive their call: run, read, ended with all that they started."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .truncate import HeadTail, plain

GRACE_SECONDS = 1.0  # from the polite request to end until the one that cannot be refused
_DRAIN_SECONDS = (
    0.3  # for the last output after the end; a child in the background may hold the pipe
)
_CHUNK = 65_536
_MARK = "REKINDLE_CALL"  # by which a process is known that left the group


class Ended(NamedTuple):
    """How a child ended, and what it wrote; `exit_code` as a shell counts it: 128 + signal."""

    output: str
    exit_code: int
    timed_out: bool = False
    left_running: bool = False  # it had children in the background, which were ended


async def run(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    seconds: float,
    characters: int,
    pass_fds: Sequence[int] = (),
) -> Ended:
    """Run a program without input in a group of its own, stdout and stderr as one text.

    When the time is over or the call is cancelled, everything that it started is ended.
    """
    mark = secrets.token_hex(8)
    reading, writing = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env={**environment, _MARK: mark},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    output = _Output(reading, characters)
    try:
        return await _watched(child, output, mark, seconds)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.ensure_future(_end(child, mark)))
        raise
    finally:
        output.close()


async def _watched(
    child: asyncio.subprocess.Process, output: _Output, mark: str, seconds: float
) -> Ended:
    timed_out = False
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        timed_out = True
        code = await _end(child, mark)
    left_running = not timed_out and _signal_group(child.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            await output.finished.wait()
    except TimeoutError:
        pass
    if left_running:
        _signal_group(child.pid, signal.SIGKILL)
    code = code if code >= 0 else 128 - code
    return Ended(plain(output.text()), code, timed_out, left_running)


class _Output:
    """What comes through a pipe, read whenever there is something, kept within bounds.

    Not asyncio's own pipe: with that one, a child counts as running until nobody holds the pipe.
    """

    def __init__(self, pipe: int, characters: int) -> None:
        self._pipe = pipe
        self._kept = HeadTail(characters)
        self._loop = asyncio.get_running_loop()
        self.finished = asyncio.Event()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._kept.feed(data)
        else:
            self._loop.remove_reader(self._pipe)
            self.finished.set()

    def text(self) -> str:
        return self._kept.text()

    def close(self) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)


async def _end(child: asyncio.subprocess.Process, mark: str) -> int:
    """End the child's group and all who carry its mark: politely, then by force."""
    strays = await asyncio.to_thread(_marked, mark)
    for send in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(child.pid, send)
        for pid in strays:
            _signal(pid, send)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await child.wait()
        except TimeoutError:
            continue
        strays = await asyncio.to_thread(_marked, mark)
        if not strays and not _signal_group(child.pid, 0):
            break
    # What was started while the others were ended.
    for _ in range(5):
        _signal_group(child.pid, signal.SIGKILL)
        strays = await asyncio.to_thread(_marked, mark)
        if not strays:
            break
        for pid in strays:
            _signal(pid, signal.SIGKILL)
    return child.returncode if child.returncode is not None else -signal.SIGKILL


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a group; was there anybody?"""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _marked(mark: str) -> list[int]:
    """Processes that carry the mark of a call, wherever they went (none where /proc is missing)."""
    wanted = f"{_MARK}={mark}".encode()
    found: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return found
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read():
                    found.append(pid)
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found
