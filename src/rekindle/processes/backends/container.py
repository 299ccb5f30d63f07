"""Run scripts in a running container through the Docker API of Docker or Podman."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import aiodocker
import aiohttp
from aiodocker.containers import DockerContainer
from aiodocker.execs import Exec

from rekindle.errors import BackendUnreachable

FIRST_CHECK, LAST_CHECK = 1.0, 30.0  # seconds of silence before asking whether a script still runs


class ContainerTransport:
    """Runs scripts in a container. `url` is the Docker service; the default is DOCKER_HOST."""

    def __init__(self, container: str, url: str | None = None) -> None:
        self._container = container
        self._url = url
        self._docker: aiodocker.Docker | None = None

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        out = bytearray()
        async with self._exec(script, arguments, env) as chunks:
            async for chunk in chunks:
                out += chunk
        return out.decode("utf-8", "replace")

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._exec(script, arguments, None) as chunks:
            yield chunks

    async def close(self) -> None:
        if self._docker is not None:
            await self._docker.close()
            self._docker = None

    def _connect(self) -> aiodocker.Docker:
        try:
            return aiodocker.Docker(url=self._url)
        except (AssertionError, ValueError) as error:  # no socket, or not a URL
            reason = str(error) or "no Docker or Podman service found; start it or set DOCKER_HOST"
            raise BackendUnreachable(f"container:{self._container}: {reason}") from error

    @asynccontextmanager
    async def _exec(
        self, script: str, arguments: tuple[str, ...], env: Mapping[str, str] | None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        if self._docker is None:
            self._docker = self._connect()
        try:
            container = DockerContainer(self._docker, id=self._container)
            run = await container.exec(
                ["sh", "-c", script, "rekindle", *arguments],
                environment=dict(env) if env else None,
            )
            async with aclosing(_iter_stdout(run)) as chunks:
                yield chunks
        except aiodocker.DockerError as error:
            reason = f"container:{self._container}: {error.message}"
            raise BackendUnreachable(reason) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BackendUnreachable(f"container:{self._container}: {error}") from error


async def _iter_stdout(run: Exec) -> AsyncGenerator[bytes]:
    """Start the script and yield its output.

    Podman sometimes keeps the connection open after the script has ended, so ask it after a while
    of silence.
    """
    silence, is_running = FIRST_CHECK, True
    async with run.start(detach=False) as stream:
        reading = asyncio.ensure_future(stream.read_out())
        try:
            while True:
                if not (await asyncio.wait({reading}, timeout=silence))[0]:
                    if not is_running:
                        return
                    is_running = (await run.inspect())["Running"]
                    silence = min(silence * 2, LAST_CHECK) if is_running else FIRST_CHECK
                    continue
                if (message := reading.result()) is None:
                    return
                reading = asyncio.ensure_future(stream.read_out())
                if message.stream == 1:
                    yield message.data
        finally:
            reading.cancel()
