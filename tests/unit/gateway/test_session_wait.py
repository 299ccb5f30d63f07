"""A gateway whose session another program holds: it waits, tells the user, and goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rekindle.gateway.turns.session_wait import COPY_NOTICE
from rekindle.store.conversations.session_leases import LeaseHolder
from tests.unit.gateway.stage import ADA, ADA_KEY, Stage, stage
from tests.waiting import until

pytestmark = pytest.mark.slow

TERMINAL = LeaseHolder("chat-elsewhere", "terminal", "another-host", 1)


async def begin(on: Stage) -> str:
    """A conversation of one turn; return its session."""
    on.server.post_message(ADA, "one")
    await on.reads("You said: one")
    await until(lambda: on.store.inbox.get_counts() == (0, 0, 0, 0))
    return on.store.routes.get(ADA_KEY).session


def test_the_session_of_a_turn_is_free_when_it_has_ended(tmp_path: Path) -> None:
    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path) as on, on.gateway():
            session = await begin(on)
            await until(lambda: on.store.session_leases.find(session) is None)

    asyncio.run(play())


def test_a_turn_waits_for_the_session_and_goes_on_in_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path) as on, on.gateway(session_wait=600.0):
            session = await begin(on)
            held = on.store.session_leases.acquire(session, TERMINAL, 250)
            on.server.post_message(ADA, "two")
            await on.reads("You said: one", "open in another program")
            assert on.conversation() == ["one", "You said: one"], "nothing was written meanwhile"
            on.store.session_leases.release(held)
            await on.reads("You said: one", "open in another program", "You said: two")
            assert on.store.routes.get(ADA_KEY).session == session
            await until(lambda: len(on.conversation()) == 4)

    asyncio.run(play())


def test_after_the_wait_a_turn_goes_on_in_a_copy(tmp_path: Path) -> None:
    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path) as on, on.gateway(session_wait=0.1):
            session = await begin(on)
            on.store.session_leases.acquire(session, TERMINAL, 250)
            on.server.post_message(ADA, "two")
            await on.reads("You said: one", "open in another", COPY_NOTICE, "You said: two")
            await until(lambda: len(on.conversation()) == 4)
            copy = on.store.routes.get(ADA_KEY).session
            assert on.store.session(copy).parent == session
            assert len(on.store.messages(session)) == 2
            on.server.post_message(ADA, "/back")
            await until(lambda: "That conversation is open" in on.texts()[-1], on.texts)

    asyncio.run(play())


def test_commands_that_change_a_held_session_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path) as on, on.gateway():
            session = await begin(on)
            held = on.store.session_leases.acquire(session, TERMINAL, 250)
            for command in ("/undo", "/redo", "/retry", "/compress"):
                count = len(on.texts())
                on.server.post_message(ADA, command)
                await until(lambda count=count: len(on.texts()) > count)
                assert "open in another terminal (process 1 on another-host" in on.texts()[-1]
            on.store.session_leases.release(held)
            count = len(on.texts())
            on.server.post_message(ADA, "/undo")
            await until(lambda: len(on.texts()) > count)
            assert "Removed 2 messages" in on.texts()[-1]
            on.server.post_message(ADA, "/redo")
            await until(lambda: "Restored 2 messages" in on.texts()[-1])

    asyncio.run(play())


def test_a_turn_that_lost_its_session_does_not_write_into_that_of_another(tmp_path: Path) -> None:
    steps = [{"calls": [{"name": "pause", "arguments": {"seconds": 0.1}}]}, {"text": "rested"}]
    script = {"turns": [{"user": "rest", "steps": steps}]}

    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path, script) as on, on.gateway(session_wait=600.0):
            session = await begin(on)
            with on.model.hold_requests():
                on.server.post_message(ADA, "rest")
                await until(lambda: on.store.session_leases.find(session) is not None)
                lease = on.store.session_leases.find(session)
                assert lease is not None
                taken = on.store.session_leases.acquire(
                    session, TERMINAL, 250, replaces=lease.fence
                )
                assert taken.name == TERMINAL.name
            await until(lambda: any("open in another program" in text for text in on.texts()))
            assert len(on.store.messages(session)) == 3, "no call and no answer"
            on.store.session_leases.release(taken)
            await until(lambda: "rested" in on.texts()[-1], on.texts)

    asyncio.run(play())
