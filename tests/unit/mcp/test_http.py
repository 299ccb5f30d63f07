"""Which requests over HTTP are answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rekindle.config.address import Address, parse_address
from rekindle.errors import InvalidInput

HERE = Address("127.0.0.1", 8321)
TOKEN = "the-token"
RIGHT = {"host": "127.0.0.1:8321", "authorization": f"Bearer {TOKEN}"}


def check_request(headers: Mapping[str, str], address: Address, token: str) -> Any:
    from rekindle.mcp.http import check_request  # loads the library, which every worker would

    return check_request(headers, address, token)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8321", HERE),
        (":8321", HERE),
        ("[::1]:1", Address("::1", 1)),
        ("build-host:0", Address("build-host", 0)),
    ],
)
def test_addresses_are_parsed(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:", "localhost:x", "localhost:99999", "0.0.0.0:1", "[::]:1"]
)
def test_wrong_addresses_and_wildcards_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        parse_address(text)


def test_only_addresses_of_this_machine_are_loopback() -> None:
    assert [Address(host, 1).is_loopback for host in ("localhost", "127.0.0.9", "::1")] == [
        True
    ] * 3
    assert [Address(host, 1).is_loopback for host in ("192.0.2.1", "localhost.example")] == [
        False
    ] * 2


def test_a_request_with_the_token_is_answered() -> None:
    assert check_request(RIGHT, HERE, TOKEN) is None
    assert check_request({**RIGHT, "host": "LocalHost:8321"}, HERE, TOKEN) is None
    assert check_request({**RIGHT, "origin": "http://localhost:8321"}, HERE, TOKEN) is None


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"host": ""}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"host": "127.0.0.1:8321.evil.example"}, 421),
        ({"host": "evil.example:8321"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://127.0.0.1:8321"}, 403),
        ({"origin": "null"}, 403),
        ({"authorization": ""}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": "Bearer the-tokem"}, 401),
        ({"authorization": "Bearer ütf"}, 401),
    ],
)
def test_other_requests_are_refused(changes: dict[str, str], status: int) -> None:
    refusal = check_request({**RIGHT, **changes}, HERE, TOKEN)
    assert refusal is not None
    assert refusal.status == status


def test_without_a_token_nobody_is_let_in() -> None:
    refusal = check_request({**RIGHT, "authorization": "Bearer "}, HERE, "")
    assert refusal is not None


def test_another_address_is_known_by_its_own_name_only() -> None:
    there = Address("192.0.2.1", 80)
    assert check_request({**RIGHT, "host": "192.0.2.1:80"}, there, TOKEN) is None
    assert check_request({**RIGHT, "host": "localhost:80"}, there, TOKEN) is not None
