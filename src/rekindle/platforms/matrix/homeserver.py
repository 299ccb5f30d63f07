"""Requests to a homeserver, and what its errors mean."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp

from rekindle.errors import PlatformError

REQUEST_SECONDS = 60.0
CLIENT_API = "/_matrix/client/v3"
_CHUNK_BYTES = 64 * 1024
_TOKEN_ERRORS = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")
_MAX_ERROR_CHARS = 300
_PAUSE_SECONDS = 5.0  # where the homeserver limits the rate without saying for how long


def build_path(*parts: str) -> str:
    """Build a path of the client API; the parts are escaped."""
    return "/".join((CLIENT_API, *(quote(part, safe="") for part in parts)))


def make_transaction_id(nonce: str) -> str:
    """Make the transaction id of a nonce: the server ignores a second send with the same id."""
    return f"rekindle-{sha256(nonce.encode()).hexdigest()[:40]}"


class HomeserverClient:
    """A homeserver, spoken to with an access token. Nothing is retried here.

    `log_in_again` is called when the token is not accepted; it returns whether there is a new one.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.token = ""
        self.log_in_again: Callable[[], Awaitable[bool]] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        *,
        seconds: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        """Send a request and return the JSON object that answers it; raise PlatformError."""
        data = None if body is None else json.dumps(body).encode()
        return await self.upload(
            method, path, data, query, media_type="application/json", seconds=seconds
        )

    async def upload(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None = None,
        *,
        media_type: str,
        seconds: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        """Send a request with any bytes and return the JSON object that answers it."""
        headers = {"Content-Type": media_type} if data is not None else {}
        while True:
            used = self.token
            async with self._open(method, path, data, query, headers, seconds) as response:
                answer = _parse_object(await response.read())
                if response.status < 300:
                    return answer
                if answer.get("errcode") not in _TOKEN_ERRORS or path.endswith("/login"):
                    raise build_error(response.status, answer)
            if self.token == used and not (self.log_in_again and await self.log_in_again()):
                raise build_error(401, answer)

    async def download(self, path: str, max_bytes: int) -> bytes:
        """Return a file of the media repository; raise PlatformError if it is too large."""
        async with self._open("GET", path, None, None, {}, 10 * REQUEST_SECONDS) as response:
            if response.status >= 300:
                raise build_error(response.status, _parse_object(await response.read()))
            content = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                content += chunk
                if len(content) > max_bytes:
                    raise PlatformError(
                        f"the file is larger than {max_bytes} bytes", permanent=True
                    )
            return bytes(content)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(trust_env=True)
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = dict(headers)
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(
                method, _keep_escapes(url), data=data, headers=sent, timeout=timeout
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise PlatformError(f"{self.url} cannot be reached: {reason:.300}") from error


def build_error(status: int, answer: Mapping[str, Any]) -> PlatformError:
    """Build the error that an answer stands for."""
    code = str(answer.get("errcode", ""))
    text = str(answer.get("error") or code or f"HTTP status {status}")[:_MAX_ERROR_CHARS]
    if code in _TOKEN_ERRORS:
        return PlatformError(
            f"the homeserver does not accept the access token ({text}): log in again for a new one,"
            " and enter it with `rekindle gateway setup matrix`",
            permanent=True,
        )
    if code == "M_USER_DEACTIVATED":
        return PlatformError(f"the bot's account is deactivated: {text}", permanent=True)
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        pause: Any = answer.get("retry_after_ms")
        return PlatformError(
            f"the homeserver limits the rate: {text}",
            retry_after=pause / 1000 if isinstance(pause, (int, float)) else _PAUSE_SECONDS,
        )
    suffix = f" ({code})" if code and code not in text else ""
    return PlatformError(f"{text}{suffix}", permanent=400 <= status < 500 and status != 408)


def _keep_escapes(url: str) -> Any:
    """Return a URL that is sent as it is: ids contain escaped slashes and colons."""
    from yarl import URL

    return URL(url, encoded=True)


def _parse_object(content: bytes) -> dict[str, Any]:
    try:
        answer: Any = json.loads(content)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}  # pyright: ignore[reportUnknownVariableType]
