"""Sandboxes that a command of this machine enters, such as `apptainer exec instance://name`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from signal import SIGKILL
from typing import Any, TypeAlias, cast

from rekindle.errors import PlaceUnreachable

from .base import CHUNK

Carry: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]


class CommandLine:
    """Enters a place with a command. `carry` turns an environment into what takes it along."""

    def __init__(self, name: str, prefix: Sequence[str], carry: Carry) -> None:
        self._name = name
        self._prefix = tuple(prefix)
        self._carry = carry

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        process = await self._start(script, arguments, env, asyncio.subprocess.PIPE)
        try:
            out, told = await process.communicate()
        except asyncio.CancelledError:
            _end(process)
            raise
        if process.returncode:
            why = told.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no reason given"]
            raise PlaceUnreachable(f"{self._name}: {why[0]}")
        return out.decode("utf-8", "replace")

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        process = await self._start(script, arguments, None, asyncio.subprocess.DEVNULL)
        try:
            yield _pieces(process)
        finally:
            _end(process)
            await process.wait()
            # What the script had started may hold the pipe still; nobody reads on.
            cast(Any, process)._transport.close()

    async def close(self) -> None:
        """Nothing is held."""

    async def _start(
        self, script: str, arguments: Sequence[str], env: Mapping[str, str] | None, errors: int
    ) -> asyncio.subprocess.Process:
        if shutil.which(self._prefix[0]) is None:
            raise PlaceUnreachable(f"{self._name}: there is no program {self._prefix[0]} here")
        return await asyncio.create_subprocess_exec(
            *self._prefix,
            *("sh", "-c", script, "rekindle", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **self._carry(env or {})},
        )


def apptainer(instance: str, program: str = "apptainer") -> CommandLine:
    """A running instance of Apptainer, or of Singularity, as it was called."""

    def carry(env: Mapping[str, str]) -> dict[str, str]:
        return {f"{program.upper()}ENV_{name}": value for name, value in env.items()}

    return CommandLine(f"{program}:{instance}", (program, "exec", f"instance://{instance}"), carry)


def _end(process: asyncio.subprocess.Process) -> None:
    # Not `process.kill()`: it would take the exit status away from the loop that waits for it.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, SIGKILL)


async def _pieces(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    while piece := await process.stdout.read(CHUNK):
        yield piece
