"""Run child processes that never outlive their call, including everything they start."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .truncate import HeadTailBuffer, strip_control_characters

GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL
_DRAIN_SECONDS = 0.3  # for remaining output after the exit; a background child may hold the pipe
_CHUNK_BYTES = 65_536
_CALL_VARIABLE = "REKINDLE_CALL"  # environment variable that marks processes which left the group


class ChildResult(NamedTuple):
    """A child's output and exit code; `exit_code` follows the shell convention, 128 + signal."""

    output: str
    exit_code: int
    timed_out: bool = False
    left_running: bool = False  # it left background children, which were terminated


async def run_child(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    seconds: float,
    characters: int,
    pass_fds: Sequence[int] = (),
    settle_seconds: float = 0.0,
) -> ChildResult:
    """Run a program without input in its own process group, merging stdout and stderr.

    On a timeout or cancellation, terminate everything that it started. In a sandbox, one
    process holds the output until all have ended; `settle_seconds` is the time to wait for that.
    """
    call_id = secrets.token_hex(8)
    read_fd, write_fd = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env={**environment, _CALL_VARIABLE: call_id},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_fd,
            stderr=write_fd,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    output = _PipeReader(read_fd, characters)
    try:
        return await _wait_for_exit(child, output, call_id, seconds, settle_seconds)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.ensure_future(_terminate_child(child, call_id)))
        raise
    finally:
        output.close()


async def _wait_for_exit(
    child: asyncio.subprocess.Process,
    output: _PipeReader,
    call_id: str,
    seconds: float,
    settle_seconds: float,
) -> ChildResult:
    timed_out = False
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        timed_out = True
        code = await _terminate_child(child, call_id)
    is_over = not timed_out and settle_seconds and await output.wait_for_end(settle_seconds)
    left_running = not timed_out and not is_over and _signal_group(child.pid, signal.SIGTERM)
    await output.wait_for_end(_DRAIN_SECONDS)
    if left_running:
        _signal_group(child.pid, signal.SIGKILL)
    code = code if code >= 0 else 128 - code
    return ChildResult(strip_control_characters(output.get_text()), code, timed_out, left_running)


class _PipeReader:
    """A reader of a pipe that keeps a bounded amount of output.

    Not asyncio's own pipe: with that, a child counts as running until nobody holds the pipe.
    """

    def __init__(self, pipe: int, characters: int) -> None:
        self._pipe = pipe
        self._buffer = HeadTailBuffer(characters)
        self._loop = asyncio.get_running_loop()
        self.finished = asyncio.Event()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._buffer.feed(data)
        else:
            self._loop.remove_reader(self._pipe)
            self.finished.set()

    async def wait_for_end(self, seconds: float) -> bool:
        """Wait until nobody holds the pipe; return whether that is so."""
        try:
            async with asyncio.timeout(seconds):
                await self.finished.wait()
        except TimeoutError:
            return False
        return True

    def get_text(self) -> str:
        return self._buffer.get_text()

    def close(self) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)


async def _terminate_child(child: asyncio.subprocess.Process, call_id: str) -> int:
    """Terminate the child's group and all marked processes: first SIGTERM, then SIGKILL."""
    strays = await asyncio.to_thread(_find_marked_processes, call_id)
    for send in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(child.pid, send)
        for pid in strays:
            _signal_process(pid, send)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await child.wait()
        except TimeoutError:
            continue
        strays = await asyncio.to_thread(_find_marked_processes, call_id)
        if not strays and not _signal_group(child.pid, 0):
            break
    # Processes started while the others were being terminated.
    for _ in range(5):
        _signal_group(child.pid, signal.SIGKILL)
        strays = await asyncio.to_thread(_find_marked_processes, call_id)
        if not strays:
            break
        for pid in strays:
            _signal_process(pid, signal.SIGKILL)
    return child.returncode if child.returncode is not None else -signal.SIGKILL


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether it exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal_process(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _find_marked_processes(call_id: str) -> list[int]:
    """Return the processes that carry the call's mark, in any group (none without /proc)."""
    wanted = f"{_CALL_VARIABLE}={call_id}".encode()
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
        except OSError:  # exited, or owned by another user
            continue
    return found
