"""Before a session expires, the agent has one chance to save what it should remember."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, open_store
from rekindle.types import Overridable, ResetPolicy, Source
from tests.unit.gateway.stage import ADA, ADA_KEY, BOB, BOB_KEY, FAST, Stage, stage
from tests.waiting import until

pytestmark = pytest.mark.slow

HOURLY = Overridable(ResetPolicy("idle", idle_minutes=60))
SAVE = {"name": "memory", "arguments": {"action": "add", "text": "lives in Turin"}}
SCRIPT: dict[str, Any] = {
    "turns": [{"user": "about to end", "steps": [{"calls": [SAVE]}, {"text": "NOTHING"}]}]
}
SOON = 3600 - 200  # seconds since the last message


def prepare(db: Path, key: str, source: Source, age: float, *messages: Message) -> str:
    """Store a conversation whose last message is `age` seconds old; return its session."""
    said = messages or (Message("user", "I live in Turin"), Message("assistant", "Nice."))
    with open_store(db, clock=lambda: time.time() - age) as store:
        route = store.routes.open(key, source)
        store.append(store.begin(id=route.session, source="memory", owner=key), *said)
    return route.session


def facts(on: Stage, key: str = ADA_KEY) -> list[str]:
    return [fact.text for fact in on.store.memory.list(key)]


def test_a_session_that_expires_soon_is_flushed_once(tmp_path: Path) -> None:
    db = tmp_path / "sessions.db"

    async def play() -> None:
        async with stage(db, tmp_path, SCRIPT) as on:
            session = prepare(db, ADA_KEY, ADA, SOON)
            before = on.store.routes.get(ADA_KEY)
            async with on.gateway(policies=HOURLY):
                await until(lambda: facts(on) == ["lives in Turin"])
                await until(lambda: len(on.model.requests) == 2)
                await until(lambda: on.store.inbox.get_lease_holder(ADA_KEY) is None)
                prepare(db, BOB_KEY, BOB, SOON)  # a later round, in which Ada's turn is not again
                await until(lambda: facts(on, BOB_KEY) == ["lives in Turin"])
                await until(lambda: len(on.model.requests) == 4)
            first = on.model.requests[0]
            assert [tool["function"]["name"] for tool in first.body["tools"]] == ["memory"]
            assert on.conversation() == ["I live in Turin", "Nice."]
            after = on.store.routes.get(ADA_KEY)
            assert (after.session, after.updated) == (session, before.updated)
            assert after.tokens.total > before.tokens.total
            assert on.texts() == []

    asyncio.run(play())


@pytest.mark.parametrize(
    ("age", "message"),
    [
        (600, Message("user", "I live in Turin")),
        (3600 * 3, Message("user", "I live in Turin")),
        (SOON, Message("assistant", "the build is done")),
        (SOON, Message("user", "do it", meta={"run": {}})),
    ],
)
def test_other_sessions_are_left_alone(tmp_path: Path, age: float, message: Message) -> None:
    db = tmp_path / "sessions.db"

    async def play() -> None:
        async with stage(db, tmp_path, SCRIPT) as on:
            prepare(db, ADA_KEY, ADA, age, message)
            async with on.gateway(policies=HOURLY):
                prepare(db, BOB_KEY, BOB, SOON)
                await until(lambda: facts(on, BOB_KEY) == ["lives in Turin"])
                await until(lambda: len(on.model.requests) == 2)
            assert facts(on) == []

    asyncio.run(play())


def test_nothing_is_flushed_if_it_is_switched_off(tmp_path: Path) -> None:
    db = tmp_path / "sessions.db"

    async def play() -> None:
        async with stage(db, tmp_path, SCRIPT) as on:
            prepare(db, ADA_KEY, ADA, SOON)
            habits = FAST._replace(flushes_memory=False)
            async with on.gateway(policies=HOURLY, habits=habits):
                on.server.post_message(BOB, "hello")
                await on.reads("You said: hello", chat="bob")
            assert len(on.model.requests) == 1
            assert not on.store.memory.is_flushed(on.store.routes.get(ADA_KEY).session)

    asyncio.run(play())


def test_a_message_ends_the_flush_and_is_answered(tmp_path: Path) -> None:
    db = tmp_path / "sessions.db"

    async def play() -> None:
        async with stage(db, tmp_path, SCRIPT) as on:
            prepare(db, ADA_KEY, ADA, SOON)
            async with on.gateway(policies=HOURLY):
                with on.model.hold_requests():
                    await until(lambda: len(on.model.requests) == 1)
                    on.server.post_message(ADA, "hello again")
                    await until(lambda: len(on.model.requests) == 2)
                await on.reads("You said: hello again")
                await until(lambda: len(on.conversation()) == 4)
            assert facts(on) == []
            assert len(on.model.requests) == 2

    asyncio.run(play())


def test_a_gateway_that_was_killed_in_the_midst_of_it_does_not_flush_again(tmp_path: Path) -> None:
    db = tmp_path / "sessions.db"

    async def play() -> None:
        async with stage(db, tmp_path, SCRIPT) as on:
            prepare(db, ADA_KEY, ADA, SOON)
            with on.model.hold_requests():
                async with on.gateway(policies=HOURLY, kill=True):
                    await until(lambda: len(on.model.requests) == 1)
            async with on.gateway(policies=HOURLY):
                prepare(db, BOB_KEY, BOB, SOON)
                await until(lambda: facts(on, BOB_KEY) == ["lives in Turin"])
                on.server.post_message(ADA, "hello")
                await on.reads("You said: hello")
            assert facts(on) == []

    asyncio.run(play())
