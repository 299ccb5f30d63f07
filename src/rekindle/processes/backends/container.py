"""Run scripts in a running container through the Docker API of Docker or Podman."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiodocker
import aiohttp
from aiodocker.containers import DockerContainer
from aiodocker.stream import Stream

from rekindle.errors import BackendUnreachable


class ContainerTransport:
    """Runs scripts in a container. `url` is the Docker service; the default is DOCKER_HOST."""

    def __init__(self, container: str, url: str | None = None) -> None:
        self._container = container
        self._url = url
        self._docker: aiodocker.Docker | None = None

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        out = bytearray()
        async with self._exec(script, arguments, env) as stream:
            while message := await stream.read_out():
                if message.stream == 1:
                    out += message.data
        return out.decode("utf-8", "replace")

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._exec(script, arguments, None) as stream:
            yield _iter_stdout(stream)

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
    ) -> AsyncGenerator[Stream]:
        if self._docker is None:
            self._docker = self._connect()
        try:
            container = DockerContainer(self._docker, id=self._container)
            run = await container.exec(
                ["sh", "-c", script, "rekindle", *arguments],
                environment=dict(env) if env else None,
            )
            async with run.start(detach=False) as stream:
                yield stream
        except aiodocker.DockerError as error:
            reason = f"container:{self._container}: {error.message}"
            raise BackendUnreachable(reason) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BackendUnreachable(f"container:{self._container}: {error}") from error


async def _iter_stdout(stream: Stream) -> AsyncIterator[bytes]:
    while message := await stream.read_out():
        if message.stream == 1:
            yield message.data
