"""Send once: recognize a repeated nonce, and check the length before anything is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from rekindle.errors import PlatformError

from .state_file import StateFile

_UNKNOWN = ""  # begun, and the outcome was never learned
_REFUSED = "-"  # nothing was sent: the platform said so


class SendJournal:
    """The message ids of what was sent, by nonce, on disk.

    A send that is repeated after it succeeded is recognized, also after a restart. If the connection
    or this program is lost between the platform's acceptance and the line on disk, the outcome is
    unknown: `find_sent` may then ask the platform, else the text is sent again.
    """

    def __init__(self, folder: Path) -> None:
        self._file = StateFile(folder / "sent.jsonl", syncs=True)

    async def send_once(
        self,
        nonce: str,
        send: Callable[[], Awaitable[str]],
        find_sent: Callable[[], Awaitable[str | None]] | None = None,
    ) -> str:
        """Send under a nonce, and return the id; the same nonce again sends nothing."""
        known = self._file.find(nonce)
        if known and known != _REFUSED:
            return known
        found = await find_sent() if known == _UNKNOWN and find_sent is not None else None
        if found is None:
            found = await self._send_first(nonce, known, send)
        self._file.put(nonce, found)
        return found

    def record_sent(self, nonce: str, message_id: str) -> None:
        """Record what a report of the platform says about a send whose answer did not come."""
        if self._file.find(nonce) == _UNKNOWN:
            self._file.put(nonce, message_id)

    async def _send_first(
        self, nonce: str, known: str | None, send: Callable[[], Awaitable[str]]
    ) -> str:
        if known != _UNKNOWN:
            self._file.put(nonce, _UNKNOWN)
        try:
            return await send()
        except PlatformError as error:
            if error.permanent or error.retry_after is not None:
                self._file.put(nonce, _REFUSED)
            raise


def check_file(file: Path) -> None:
    """Raise PlatformError if a file cannot be read: to try again would not help."""
    try:
        file.open("rb").close()
    except OSError as error:
        raise PlatformError(
            f"{file.name} cannot be read: {error.strerror}", permanent=True
        ) from None


def check_length(name: str, size: int, limit: int) -> None:
    """Raise PlatformError if a text is too long for one message."""
    if size > limit:
        raise PlatformError(
            f"{name}: the text has {size} characters, and a message at most {limit}", permanent=True
        )
