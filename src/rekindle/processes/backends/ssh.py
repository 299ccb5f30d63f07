"""Run scripts on SSH hosts.

Keys, users and ports come from the `ssh` configuration; hosts must be known.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncssh

from rekindle.errors import BackendUnreachable

from .base import CHUNK_SIZE

CONNECT_SECONDS, KEEPALIVE_SECONDS = 10.0, 15.0


class SshTransport:
    """A connection to a host, opened on first use and reopened when lost."""

    def __init__(self, target: str, **options: object) -> None:
        user, _, host = target.rpartition("@")
        host, _, port = host.partition(":")
        self._target = target
        self._host = host
        self._options = {
            **({"username": user} if user else {}),
            **({"port": int(port)} if port else {}),
            **options,
        }
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        command, stdin = _build_command(script, arguments, env)
        try:
            completed = await self._run(command, stdin)
        except (asyncssh.Error, OSError) as error:
            raise self._to_unreachable(error) from error
        out = completed.stdout
        return out.decode("utf-8", "replace") if isinstance(out, bytes) else str(out or "")

    async def _run(self, command: str, stdin: bytes) -> asyncssh.SSHCompletedProcess:
        connection = await self._ensure_connected()
        try:
            return await connection.run(command, input=stdin, encoding=None)
        except asyncssh.ChannelOpenError:
            # The connection was already lost and nothing has run: retry on a new one.
            connection.abort()
            self._connection = None
            return await (await self._ensure_connected()).run(command, input=stdin, encoding=None)

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        command, _ = _build_command(script, arguments, None)
        connection = await self._ensure_connected()
        try:
            process = await connection.create_process(
                command, stdin=asyncssh.DEVNULL, encoding=None
            )
            try:
                yield self._iter_stdout(process)
            finally:
                process.close()  # do not wait: the remote shell will notice
        except (asyncssh.Error, OSError) as error:
            raise self._to_unreachable(error) from error

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()
            self._connection = None

    async def _iter_stdout(self, process: asyncssh.SSHClientProcess[bytes]) -> AsyncIterator[bytes]:
        while piece := await process.stdout.read(CHUNK_SIZE):
            yield piece

    async def _ensure_connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                try:
                    self._connection = await asyncssh.connect(
                        self._host,
                        connect_timeout=CONNECT_SECONDS,
                        keepalive_interval=KEEPALIVE_SECONDS,
                        **self._options,
                    )
                except (asyncssh.Error, OSError, TimeoutError) as error:
                    raise self._to_unreachable(error) from error
            return self._connection

    def _to_unreachable(self, error: Exception) -> BackendUnreachable:
        return BackendUnreachable(f"ssh:{self._target}: {error or type(error).__name__}")


def _build_command(
    script: str, arguments: tuple[str, ...], env: Mapping[str, str] | None
) -> tuple[str, bytes]:
    """Return a command line for the login shell, and the exports to feed to its stdin.

    The environment goes through stdin so that process listings do not show it.
    """
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items()
    )
    full_script = f'eval "$(cat)"\n{script}' if exports else script
    return shlex.join(("sh", "-c", full_script, "rekindle", *arguments)), exports.encode()
