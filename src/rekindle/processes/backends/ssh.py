"""Hosts behind SSH. Keys, users and ports come from where `ssh` has them, and hosts must be known."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncssh

from rekindle.errors import PlaceUnreachable

from .base import CHUNK

CONNECT_SECONDS, ALIVE_SECONDS = 10.0, 15.0


class SshLine:
    """One connection to a host, made when it is needed and again when it was lost."""

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
        command, given = _command(script, arguments, env)
        try:
            done = await self._run(command, given)
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from error
        out = done.stdout
        return out.decode("utf-8", "replace") if isinstance(out, bytes) else str(out or "")

    async def _run(self, command: str, given: bytes) -> asyncssh.SSHCompletedProcess:
        connection = await self._connected()
        try:
            return await connection.run(command, input=given, encoding=None)
        except asyncssh.ChannelOpenError:
            # The connection was lost before; nothing has run yet, so it may be tried on another.
            connection.abort()
            self._connection = None
            return await (await self._connected()).run(command, input=given, encoding=None)

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        command, _ = _command(script, arguments, None)
        connection = await self._connected()
        try:
            process = await connection.create_process(
                command, stdin=asyncssh.DEVNULL, encoding=None
            )
            try:
                yield self._pieces(process)
            finally:
                process.close()  # its end is not waited for: the shell there notices in its time
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from error

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()
            self._connection = None

    async def _pieces(self, process: asyncssh.SSHClientProcess[bytes]) -> AsyncIterator[bytes]:
        while piece := await process.stdout.read(CHUNK):
            yield piece

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                try:
                    self._connection = await asyncssh.connect(
                        self._host,
                        connect_timeout=CONNECT_SECONDS,
                        keepalive_interval=ALIVE_SECONDS,
                        **self._options,
                    )
                except (asyncssh.Error, OSError, TimeoutError) as error:
                    raise self._lost(error) from error
            return self._connection

    def _lost(self, error: Exception) -> PlaceUnreachable:
        return PlaceUnreachable(f"ssh:{self._target}: {error or type(error).__name__}")


def _command(
    script: str, arguments: tuple[str, ...], env: Mapping[str, str] | None
) -> tuple[str, bytes]:
    """A command line for the login shell, and the environment, which no list of processes shows."""
    given = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
    whole = f'eval "$(cat)"\n{script}' if given else script
    return shlex.join(("sh", "-c", whole, "rekindle", *arguments)), given.encode()
