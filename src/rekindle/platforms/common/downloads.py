"""Download a file, no larger than allowed."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from rekindle.errors import PlatformError

_SECONDS = 120.0


async def fetch_file(url: str, max_bytes: int, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a file; raise PlatformError if there is more than `max_bytes`."""
    content = bytearray()
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        # No redirects: the headers may hold a token, and it must not reach another host.
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise PlatformError(
                    f"cannot download the file: HTTP status {answer.status}",
                    permanent=answer.status < 500 and answer.status != 429,
                )
            async for chunk in answer.content.iter_chunked(1 << 16):
                content.extend(chunk)
                if len(content) > max_bytes:
                    raise PlatformError(
                        f"the file is larger than {max_bytes} bytes", permanent=True
                    )
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise PlatformError(f"cannot download the file: {type(error).__name__}") from None
    return bytes(content)
