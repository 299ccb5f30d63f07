"""A proxy before a homeserver, which can refuse what is sent and cut connections."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import aiohttp
from aiohttp import web

from rekindle.errors import PlatformError

_HOP_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}


class FaultProxy:
    """Passes requests on. `refusal` answers whatever would send a message."""

    def __init__(self, target: str) -> None:
        self.refusal: PlatformError | None = None
        self.url = ""
        self.requests: list[tuple[str, str]] = []
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._transports: set[asyncio.BaseTransport] = set()
        self.positions: list[str] = []  # that were synced from
        self._is_rewinding = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def disconnect(self) -> None:
        """Cut all connections."""

        def cut() -> None:
            for transport in list(self._transports):
                if isinstance(transport, asyncio.Transport):
                    transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def rewind(self) -> None:
        """Give everything since the first position again, once."""
        self._is_rewinding = True
        self.disconnect()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    async def _serve(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=100 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def _pass_on(self, request: web.Request) -> web.Response:
        from yarl import URL

        path = request.raw_path
        self.requests.append((request.method, path))
        if "/sync?" in path:
            path = self._choose_position(path)
        if self.refusal is not None and "/send/" in path:
            return _refuse(self.refusal)
        transport = request.transport
        if transport is not None:
            self._transports.add(transport)
        headers = {n: v for n, v in request.headers.items() if n.lower() not in _HOP_HEADERS}
        try:
            async with self._session.request(
                request.method, URL(self._target + path, encoded=True), headers=headers,
                data=await request.read(),
            ) as answer:  # fmt: skip
                body = await answer.read()
                kept = {n: v for n, v in answer.headers.items() if n.lower() not in _HOP_HEADERS}
                return web.Response(status=answer.status, body=body, headers=kept)
        except aiohttp.ClientError:
            return web.json_response({"error": "the server is away"}, status=502)
        finally:
            if transport is not None:
                self._transports.discard(transport)

    def _choose_position(self, path: str) -> str:
        since = parse_qs(urlsplit(path).query).get("since", [""])[0]
        if not since:
            return path
        self.positions.append(since)
        if not self._is_rewinding:
            return path
        self._is_rewinding = False
        return path.replace(f"since={quote(since)}", f"since={quote(self.positions[0])}")


def _refuse(error: PlatformError) -> web.Response:
    answer: dict[str, Any] = {"errcode": "M_FORBIDDEN", "error": str(error)}
    status = 403 if error.permanent else 503
    if error.retry_after is not None:
        answer |= {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": int(error.retry_after * 1000)}
        status = 429
    return web.json_response(answer, status=status)
