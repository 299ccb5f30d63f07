"""Rates, keys and bodies."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import pytest

from rekindle.api.serving.bodies import ApiRefusal, BodyReader, expand_body
from rekindle.api.serving.keys import KeyCache, RateLimiter
from rekindle.tenants import Access

ACCESS = Access(tenant="t", key_id="k", member=None, scopes=frozenset({"read"}))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_allowed_and_then_so_many_per_second() -> None:
    clock = Clock()
    limiter = RateLimiter(2.0, 4.0, clock)
    assert [limiter.take_request("a") for _ in range(4)] == [0.0] * 4
    assert limiter.take_request("a") == pytest.approx(0.5)
    assert limiter.take_request("b") == 0.0
    clock.now = 0.5
    assert limiter.take_request("a") == 0.0
    assert limiter.take_request("a") > 0


def test_a_rate_of_zero_is_no_limit() -> None:
    limiter = RateLimiter(0.0, 0.0)
    assert not any(limiter.take_request("a") for _ in range(1000))


class Keys:
    def __init__(self) -> None:
        self.calls = 0
        self.valid = {"good"}

    def authenticate(self, token: str) -> Access | None:
        self.calls += 1
        return ACCESS if token in self.valid else None


def test_a_key_is_looked_up_again_after_a_few_seconds() -> None:
    clock, keys = Clock(), Keys()
    cache = KeyCache(keys, clock)

    async def check() -> None:
        assert await cache.find_access("good", "a") == ACCESS
        assert await cache.find_access("good", "a") == ACCESS
        assert keys.calls == 1
        keys.valid.clear()
        clock.now = 6.0
        assert await cache.find_access("good", "a") is None

    asyncio.run(check())


def test_guessing_keys_is_slowed_down_and_known_ones_go_on() -> None:
    clock, keys = Clock(), Keys()
    cache = KeyCache(keys, clock)

    async def check() -> None:
        await cache.find_access("good", "a")
        for number in range(100):
            assert await cache.find_access(f"wrong {number}", "a") is None
        calls = keys.calls
        with pytest.raises(ApiRefusal) as refused:
            await cache.find_access("one more", "a")
        assert refused.value.status == 429
        assert keys.calls == calls
        assert await cache.find_access("wrong", "another address") is None
        clock.now = 5.5  # the good one has to be asked about again
        with suppress(ApiRefusal):
            for number in range(100):
                await cache.find_access(f"worse {number}", "a")
        assert await cache.find_access("good", "a") == ACCESS

    asyncio.run(check())


def make_receive(*parts: bytes) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    left = [*parts]

    async def receive() -> MutableMapping[str, Any]:
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def test_a_body_is_read_up_to_its_limit_and_its_memory_given_back() -> None:
    reader = BodyReader(max_waiting=100)

    async def check() -> None:
        body, reserved = await reader.read_body(make_receive(b"ab", b"cd"), {}, 4)
        assert body == b"abcd"
        with pytest.raises(ApiRefusal, match="at most 4 bytes"):
            await reader.read_body(make_receive(b"ab", b"cde"), {}, 4)
        with pytest.raises(ApiRefusal, match="busy"):
            await reader.read_body(make_receive(b"x" * 97), {}, 1000)
        reader.release(reserved)
        _, reserved = await reader.read_body(make_receive(b"x" * 97), {}, 1000)
        reader.release(reserved)

    asyncio.run(check())


def test_a_gzip_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    with pytest.raises(ApiRefusal) as refused:
        expand_body(bomb, 1_000)
    assert refused.value.status == 413
    assert expand_body(gzip.compress(b"ok"), 2) == b"ok"
    for wrong in (b"", b"\x1f\x8b", gzip.compress(b"ok")[:-1], gzip.compress(b"ok") + b"more"):
        with pytest.raises(ApiRefusal) as refused:
            expand_body(wrong, 1_000)
        assert refused.value.status == 400
