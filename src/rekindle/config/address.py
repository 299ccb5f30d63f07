"""Where a server of ours listens, and the names under which clients reach it."""

from __future__ import annotations

import socket
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

    @property
    def url_host(self) -> str:
        """The host as URLs contain it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def list_names(self) -> list[str]:
        """Return the values of the Host header that a client of this address sends."""
        names = {self.url_host, *(_LOOPBACK_NAMES if self.is_loopback else ())}
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


def listen_at(address: Address, backlog: int = 128) -> socket.socket:
    """Return a socket that listens; port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With the protocol's number: only then asyncio sends small answers without waiting for more.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise InvalidInput(f"{address.host}:{address.port}: {error.strerror or error}") from None
    return listener
