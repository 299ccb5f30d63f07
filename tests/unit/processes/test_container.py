from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rekindle.errors import BackendUnreachable
from rekindle.processes.backends import container
from rekindle.processes.backends.container import ContainerTransport
from tests.processes import runs

aiodocker = pytest.importorskip("aiodocker")


@pytest.mark.parametrize(
    ("host", "said"),
    [(None, "no Docker or Podman service"), ("nonsense", "Missing protocol scheme")],
)
def test_a_service_that_is_not_there_is_told_plainly(
    host: str | None, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(aiodocker.docker, "_sock_search_paths", [])

    async def run() -> str:
        transport = ContainerTransport("box", host)
        try:
            return await transport.run("true")
        finally:
            await transport.close()

    with pytest.raises(BackendUnreachable, match=f"container:box: .*{said}"):
        asyncio.run(run())


class ForgetfulService:
    """Answers as Podman does, but never closes the connection of a script that has ended."""

    def __init__(self, answers_before_the_end: int) -> None:
        self.inspected = 0
        self._running = answers_before_the_end

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer_one(head.decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer_one(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for line in head.lower().splitlines():
            if line.startswith("content-length:"):
                await reader.readexactly(int(line.partition(":")[2]))
        path = head.split()[1]
        if path.endswith("/start"):
            writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
            writer.write(b"\x01\0\0\0\0\0\0\x05hello\x02\0\0\0\0\0\0\x05noise")
            return
        body: dict[str, object] = {"Id": "abc", "ApiVersion": "1.41"}
        if path.endswith("/json"):
            self.inspected += 1
            body = {
                "Running": self.inspected <= self._running,
                "ProcessConfig": {"tty": False},
            }
        data = json.dumps(body).encode()
        writer.write(
            b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
        )


@pytest.mark.parametrize("answers_before_the_end", [0, 3])
def test_a_connection_left_open_does_not_hold_up_a_script(
    answers_before_the_end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "FIRST_CHECK", 0.02)

    @runs
    async def run() -> None:
        service = ForgetfulService(answers_before_the_end)
        server = await asyncio.start_server(service.answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = ContainerTransport("box", f"http://127.0.0.1:{port}")
        try:
            assert await transport.run("echo hello") == "hello"
            assert service.inspected == answers_before_the_end + 1
        finally:
            await transport.close()
            server.close()

    run()
