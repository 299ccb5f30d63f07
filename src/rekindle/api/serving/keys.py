"""Authenticate requests by API keys, with their scopes and rate limits."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from rekindle.errors import InvalidInput
from rekindle.files import write_new_file
from rekindle.tenants import Access, Scope, parse_scopes

from .bodies import ApiRefusal

KEY_PREFIX = "rks_"  # a key of a tenant begins with rk_
KEY_FILE = "api-keys.json"
LOCAL_TENANT = ""  # no tenant has this name
CACHE_SECONDS = 5.0  # how long a key that was withdrawn may go on
MAX_CACHED_KEYS = 10_000
MAX_TOKEN_CHARS = 200
_MAX_FAILURES = 100  # wrong keys of an address at once; a second gives back ten
_FAILURES_PER_SECOND = 10.0


class KeyAuthenticator(Protocol):
    """Knows the API keys."""

    def authenticate(self, token: str) -> Access | None:
        """Return what a key allows; None if it is unknown or no longer valid."""
        ...


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the file keeps it: its hash, never the key itself."""

    id: str
    name: str
    sha256: str
    scopes: list[str]
    created: float


class KeyFile:
    """The API keys of a server without tenants, in a file that only its user can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None
        self._keys: dict[str, StoredKey] = {}

    def authenticate(self, token: str) -> Access | None:
        """Return what a key allows; a change of the file is seen at once."""
        self._load_changes()
        key = self._keys.get(_hash_token(token))
        if key is None:
            return None
        return Access(
            tenant=LOCAL_TENANT, key_id=key.id, member=None, scopes=parse_scopes(key.scopes)
        )

    def list_keys(self) -> list[StoredKey]:
        """Return all keys, the oldest first."""
        self._load_changes()
        return sorted(self._keys.values(), key=lambda key: key.created)

    def create_key(self, name: str, scopes: frozenset[Scope]) -> str:
        """Add a key and return it; it cannot be shown again."""
        token = KEY_PREFIX + secrets.token_urlsafe(32)
        key = StoredKey(
            id=secrets.token_hex(4),
            name=name,
            sha256=_hash_token(token),
            scopes=sorted(scopes),
            created=time.time(),
        )
        self._save([*self.list_keys(), key])
        return token

    def delete_key(self, id: str) -> StoredKey:
        """Remove a key."""
        keys = self.list_keys()
        found = next((key for key in keys if key.id == id), None)
        if found is None:
            raise InvalidInput(f"No API key {id!r:.40}. List keys with `rekindle serve list-keys`.")
        self._save([key for key in keys if key.id != id])
        return found

    def _load_changes(self) -> None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            self._stamp, self._keys = None, {}
            return
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        if stamp == self._stamp:
            return
        if status.st_mode & 0o077:
            raise InvalidInput(f"{self._path}: others can read it; run: chmod 600 {self._path}")
        try:
            keys = msgspec.json.decode(self._path.read_bytes(), type=list[StoredKey])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self._path}: {error}") from None
        self._keys, self._stamp = {key.sha256: key for key in keys}, stamp

    def _save(self, keys: list[StoredKey]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_new_file(self._path, msgspec.json.format(msgspec.json.encode(keys), indent=1))


def _hash_token(token: str) -> str:
    # A key has 256 random bits: it needs no slow hash.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class _CachedAccess(NamedTuple):
    access: Access
    until: float


class KeyCache:
    """Authenticates keys, each at most every few seconds; wrong ones only so often."""

    def __init__(self, keys: KeyAuthenticator, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._cached: dict[bytes, _CachedAccess] = {}
        self._salt = os.urandom(16)
        self._failures = RateLimiter(_FAILURES_PER_SECOND, _MAX_FAILURES, clock)

    async def find_access(self, token: str, address: str) -> Access | None:
        """Return what a key allows, or None; refuse an address that sent too many wrong ones."""
        if not token or len(token) > MAX_TOKEN_CHARS:
            return None
        # Not the key itself: it would stand in every dump of this process's memory.
        digest = hmac.digest(self._salt, token.encode("utf-8", "surrogateescape"), "sha256")
        found = self._cached.get(digest)
        if found is not None and found.until > self._clock():
            return found.access
        # A key that was right is asked about in any case: nobody can lock it out.
        if found is None and (wait := self._failures.get_wait(address)) > 0:
            raise ApiRefusal(
                429, "wrong_keys", "Too many wrong keys from this address.", retry_after=wait
            )
        access = await asyncio.to_thread(self._keys.authenticate, token)
        if access is None:
            self._cached.pop(digest, None)
            self._failures.take_request(address)
            return None
        if len(self._cached) >= MAX_CACHED_KEYS:
            self._cached.clear()
        self._cached[digest] = _CachedAccess(access, self._clock() + CACHE_SECONDS)
        return access


class RateLimiter:
    """Limits requests per name to a rate per second, with bursts of several seconds' worth."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # requests left, and when

    def take_request(self, name: str) -> float:
        """Count a request; return 0, or the seconds to wait before it may be sent."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        left = self._compute_left(name, now)
        if left < 1.0:
            return (1.0 - left) / self._rate
        if len(self._buckets) >= MAX_CACHED_KEYS and name not in self._buckets:
            self._drop_full(now)
        self._buckets[name] = left - 1.0, now
        return 0.0

    def get_wait(self, name: str) -> float:
        """Return the seconds to wait, without counting a request."""
        left = self._compute_left(name, self._clock())
        return 0.0 if self._rate <= 0 or left >= 1.0 else (1.0 - left) / self._rate

    def _compute_left(self, name: str, now: float) -> float:
        left, then = self._buckets.get(name, (self._burst, now))
        return min(self._burst, left + (now - then) * self._rate)

    def _drop_full(self, now: float) -> None:
        """Forget those who have not sent anything for a while."""
        self._buckets = {
            name: bucket
            for name, bucket in self._buckets.items()
            if self._compute_left(name, now) < self._burst
        }
