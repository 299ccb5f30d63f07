"""Where a server of ours listens, and the names under which clients reach it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from rekindle.errors import InvalidInput

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        ip = self._parse_ip()
        return self.host == "localhost" if ip is None else ip.is_loopback

    @property
    def is_wildcard(self) -> bool:
        ip = self._parse_ip()
        return ip is not None and ip.is_unspecified

    def _parse_ip(self) -> IPv4Address | IPv6Address | None:
        try:
            return ip_address(self.host)
        except ValueError:  # a name
            return None

    def list_names(self) -> list[str]:
        """Return the values of the Host header that a client of this address sends."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        names = {own, *(_LOOPBACK_NAMES if self.is_loopback else ())}
        return sorted(f"{name.lower()}:{self.port}" for name in names)


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `:PORT` or `[IPv6]:PORT`; the default host is 127.0.0.1."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        raise InvalidInput(f"{text!r:.60}: expected HOST:PORT, such as 127.0.0.1:8321")
    address = Address(host, int(port))
    if address.is_wildcard:
        raise InvalidInput(f"{host}: expected the one address or name that clients use")
    return address
