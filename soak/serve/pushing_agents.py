"""Agents that push messages to a server over HTTP, many in one process.

    python -m soak.serve.pushing_agents URL FILE FIRST COUNT INTERVAL SECONDS SEED

The API key is in REKINDLE_API_KEY. An agent sends a message, retries until it is acknowledged, and sends
the next one at its time. FILE gets the acknowledged positions and the times.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from array import array
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

ATTEMPT_SECONDS = 30.0
PAUSE_SECONDS = 0.2  # before a failed request is sent again
GIVE_UP_SECONDS = 120.0
TEXT = "the build of the parser failed again because the fixture of the login test was missing " * 5


class Agents:
    """The acknowledgements and failures of all agents of a process."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.key = parts.hostname or "", parts.port or 80, key
        self.requests = array("d")  # seconds of each request that was answered with 200
        self.pushes = array("d")  # seconds from the first attempt to the acknowledgement
        self.starts = array("d")  # when each push began
        self.positions: dict[str, list[int]] = {}
        self.failures: dict[str, int] = {}
        self.errors: list[str] = []

    def count_failure(self, what: str) -> None:
        self.failures[what] = self.failures.get(what, 0) + 1


class Agent:
    """One agent with its session and its connection."""

    def __init__(self, number: int, agents: Agents) -> None:
        self.name = f"agent-{number}"
        self._agents = agents
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, rng: random.Random, interval: float, end: float) -> None:
        """Push messages until the time is up."""
        await asyncio.sleep(rng.random() * interval)
        positions = self._agents.positions[self.name] = []
        while time.monotonic() < end:
            begun = time.monotonic()
            found = await self._push(len(positions))
            if found is None:
                self._agents.errors.append(f"{self.name}: no acknowledgement of {len(positions)}")
                return
            now = time.monotonic()
            positions.append(found)
            self._agents.pushes.append(now - begun)
            self._agents.starts.append(begun)
            wait = interval * rng.uniform(0.5, 1.5) - (now - begun)
            await asyncio.sleep(max(0.0, min(wait, end - now)))
        self._close()

    async def _push(self, number: int) -> int | None:
        path = "/v1/sessions" if number == 0 else f"/v1/sessions/{self.name}/messages"
        message = {"role": "user", "id": f"{self.name}-{number}", "content": f"{number} {TEXT}"}
        body: dict[str, Any] = {"messages": [message]}
        if number == 0:
            body |= {"id": self.name, "source": "soak"}
        data = msgspec.json.encode(body)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    status, answer = await self._request(path, data)
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self._close()
                self._agents.count_failure(type(error).__name__)
            else:
                if status == 200:
                    self._agents.requests.append(time.monotonic() - begun)
                    return int(msgspec.json.decode(answer)["positions"][0])
                self._agents.count_failure(f"status {status}")
            await asyncio.sleep(PAUSE_SECONDS)
        return None

    async def _request(self, path: str, data: bytes) -> tuple[int, bytes]:
        agents = self._agents
        if self._streams is None:
            self._streams = await asyncio.open_connection(agents.host, agents.port)
        reader, writer = self._streams
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: {agents.host}:{agents.port}\r\n"
            f"authorization: Bearer {agents.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        body = await reader.readexactly(length)
        if b"connection: close" in head:
            self._close()
        return int(head.split(b" ", 2)[1]), body

    def _close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


async def run_agents(words: list[str]) -> None:
    url, file, first, count, interval, seconds, seed = words
    agents = Agents(url, os.environ["REKINDLE_API_KEY"])
    end = time.monotonic() + float(seconds)
    await asyncio.gather(
        *(
            Agent(number, agents).run(random.Random(f"{seed}/{number}"), float(interval), end)
            for number in range(int(first), int(first) + int(count))
        )
    )
    Path(file).write_text(
        json.dumps(
            {
                "requests": list(agents.requests),
                "pushes": list(agents.pushes),
                "positions": agents.positions,
                "failures": agents.failures,
                "errors": agents.errors,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(run_agents(sys.argv[1:]))
