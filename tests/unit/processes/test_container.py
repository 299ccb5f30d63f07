from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rekindle.errors import BackendUnreachable
from rekindle.processes.backends.container import ContainerTransport

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
