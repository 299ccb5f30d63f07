"""Who may see the page: one-time links, a signed cookie, and checks against other web sites.

A link holds a token that works once. The cookie that it is exchanged for is signed with a key in the
home, so that it outlives a restart of the server; deleting the key signs everybody out.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rekindle.config.address import Address
from rekindle.errors import InvalidInput

COOKIE_SECONDS = 30 * 86400
LINK_SECONDS = 600
MAX_LINKS = 20
_KEY_BYTES = 32


class Origin(NamedTuple):
    """The address that a browser shows for our pages."""

    scheme: str
    names: tuple[str, ...]  # accepted values of the Host header

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def accepts_host(self, host: str) -> bool:
        """Return whether a Host header names us: a web site can point its own name at this machine."""
        return host.lower() in self.names

    def accepts_origin(self, origin: str) -> bool:
        """Return whether an Origin header is ours."""
        return origin.lower() in [f"{self.scheme}://{name}" for name in self.names]


def build_origin(address: Address, public_url: str | None = None) -> Origin:
    """Return the origin of a server at an address, or behind a proxy at a public URL."""
    if public_url is not None:
        return parse_public_url(public_url)
    own, *others = sorted(address.list_names(), key=lambda name: not name.startswith(address.host))
    return Origin("http", (own, *others))


def parse_public_url(text: str) -> Origin:
    """Parse the URL under which a reverse proxy serves us."""
    scheme, mark, host = text.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not mark or not host or "/" in host or "@" in host:
        raise InvalidInput(
            f"{text!r:.80}: expected a URL without a path, such as https://name.example"
        )
    return Origin(scheme, (host.lower(),))


class Visitor(NamedTuple):
    """Somebody who has opened a link: the id in the cookie, and the token for their forms."""

    id: str
    form_token: str


class AccessKeys:
    """The signing key, and the links that have not been opened yet, in a folder of the home."""

    def __init__(
        self, folder: Path, cookie_name: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self.cookie_name = cookie_name
        self._clock = clock
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = self._load_key()

    def _load_key(self) -> bytes:
        path = self._folder / "key"
        draft = self._folder / f"key.{secrets.token_hex(8)}"
        draft.write_bytes(secrets.token_bytes(_KEY_BYTES))
        os.chmod(draft, 0o600)
        try:
            os.link(draft, path)  # fails if another server was first; then its key is used
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise InvalidInput(f"{path}: damaged; remove it, and everybody has to open a new link")
        return key

    # -- links

    def create_link_token(self) -> str:
        """Return a token that can be exchanged for a cookie once, within ten minutes."""
        links = self._folder / "links"
        links.mkdir(exist_ok=True, mode=0o700)
        files = sorted(links.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) - MAX_LINKS + 1)]:
            file.unlink(missing_ok=True)
        token = secrets.token_urlsafe(24)
        path = links / _hash_token(token)
        path.touch(mode=0o600)
        os.utime(path, (self._clock(), self._clock()))
        return token

    def use_link_token(self, token: str) -> bool:
        """Return whether a token is valid, and make it invalid."""
        path = self._folder / "links" / _hash_token(token)
        try:
            age = self._clock() - path.stat().st_mtime
            path.unlink()  # of two requests with the same token, one fails here
        except OSError:
            return False
        return abs(age) <= LINK_SECONDS

    # -- cookies

    def create_cookie(self) -> str:
        """Return the value of a new visitor's cookie."""
        body = f"{secrets.token_urlsafe(18)}.{int(self._clock()) + COOKIE_SECONDS}"
        return f"{body}.{self._sign('cookie', body)}"

    def read_cookie(self, value: str) -> Visitor | None:
        """Return the visitor that a cookie names, None if it is not ours or too old."""
        body, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("cookie", body).encode()):
            return None
        visitor, _, expiry = body.partition(".")
        if int(expiry) < self._clock():
            return None
        return Visitor(visitor, self._sign("form", visitor))

    def _sign(self, purpose: str, text: str) -> str:
        message = f"{purpose}:{text}".encode("utf-8", "surrogateescape")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
