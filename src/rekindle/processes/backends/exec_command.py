"""Run scripts in sandboxes entered by a local command such as `apptainer exec instance://name`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from signal import SIGKILL
from typing import Any, TypeAlias, cast

from rekindle.errors import BackendUnreachable

from .base import CHUNK_SIZE

EnvEncoder: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]


class CommandTransport:
    """Enters a sandbox with a command. `encode_env` maps variables to ones the command passes on."""

    def __init__(self, name: str, prefix: Sequence[str], encode_env: EnvEncoder) -> None:
        self._name = name
        self._prefix = tuple(prefix)
        self._encode_env = encode_env

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        process = await self._start(script, arguments, env, asyncio.subprocess.PIPE)
        try:
            out, stderr = await process.communicate()
        except asyncio.CancelledError:
            _kill_process(process)
            raise
        if process.returncode:
            reason = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [
                "no reason given"
            ]
            raise BackendUnreachable(f"{self._name}: {reason[0]}")
        return out.decode("utf-8", "replace")

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        process = await self._start(script, arguments, None, asyncio.subprocess.DEVNULL)
        try:
            yield _iter_stdout(process)
        finally:
            _kill_process(process)
            await process.wait()
            # Children of the script may still hold the pipe open; stop reading.
            cast(Any, process)._transport.close()

    async def close(self) -> None:
        """Do nothing: no resources are held."""

    async def _start(
        self, script: str, arguments: Sequence[str], env: Mapping[str, str] | None, stderr: int
    ) -> asyncio.subprocess.Process:
        if shutil.which(self._prefix[0]) is None:
            raise BackendUnreachable(f"{self._name}: {self._prefix[0]} is not installed")
        return await asyncio.create_subprocess_exec(
            *self._prefix,
            *("sh", "-c", script, "rekindle", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **self._encode_env(env or {})},
        )


def create_apptainer_transport(instance: str, program: str = "apptainer") -> CommandTransport:
    """Create a transport for a running Apptainer (formerly Singularity) instance."""

    def encode_env(env: Mapping[str, str]) -> dict[str, str]:
        return {f"{program.upper()}ENV_{name}": value for name, value in env.items()}

    return CommandTransport(
        f"{program}:{instance}", (program, "exec", f"instance://{instance}"), encode_env
    )


def _kill_process(process: asyncio.subprocess.Process) -> None:
    # Not `process.kill()`: it would reap the exit status that the event loop waits for.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, SIGKILL)


async def _iter_stdout(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    while piece := await process.stdout.read(CHUNK_SIZE):
        yield piece
