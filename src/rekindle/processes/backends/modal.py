"""Run scripts in Modal sandboxes.

Tested against a stub of the SDK: the real service needs an account.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rekindle.errors import BackendUnreachable


class ModalTransport:
    """Runs scripts in an existing sandbox; `sdk` is the `modal` module."""

    def __init__(self, sandbox: str, sdk: Any = None) -> None:
        if sdk is None:
            import modal as sdk  # pyright: ignore[reportMissingImports]
        self._id = sandbox
        self._sdk: Any = sdk
        self._sandbox: Any = None

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        out = bytearray()
        async for piece in self._exec(script, arguments, env):
            out += piece
        return out.decode("utf-8", "replace")

    @asynccontextmanager
    async def stream(self, script: str, *arguments: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        pieces = self._exec(script, arguments, None)
        try:
            yield pieces
        finally:
            await pieces.aclose()

    async def close(self) -> None:
        self._sandbox = None

    async def _exec(
        self, script: str, arguments: tuple[str, ...], env: Mapping[str, str] | None
    ) -> AsyncGenerator[bytes]:
        secrets = [self._sdk.Secret.from_dict(dict(env))] if env else []
        try:
            if self._sandbox is None:
                self._sandbox = await self._sdk.Sandbox.from_id.aio(self._id)
            process = await self._sandbox.exec.aio(
                *("sh", "-c", script, "rekindle", *arguments), secrets=secrets, text=False
            )
            async for piece in process.stdout:
                yield piece
            await process.wait.aio()
        except (self._sdk.exception.Error, OSError) as error:
            raise BackendUnreachable(f"modal:{self._id}: {error}") from error
