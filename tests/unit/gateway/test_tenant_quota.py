"""The gateway of a tenant: its turns count against the quota."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rekindle import Message
from rekindle.tenants import Quota, Tenants, open_tenants
from rekindle.testing import ChatServer, ScriptedModel
from tests.unit.gateway.stage import ADA, BOB, Stage
from tests.waiting import until

CALL = {"calls": [{"name": "pause", "arguments": {"seconds": 0}}]}


def play(folder: Path, quota: Quota, script: dict[str, Any], scene: Any) -> None:
    async def run() -> None:
        with open_tenants(folder / "server.db") as tenants:
            tenants.add("acme")
            tenants.set_quota("acme", quota)
            with (
                tenants.open_store("acme") as store,
                ChatServer(redeliver_seconds=0.3) as chats,
                ScriptedModel(script) as model,
            ):
                await scene(Stage(store, chats, model, folder), tenants)

    asyncio.run(run())


def test_a_turn_counts_and_the_next_one_is_refused_when_the_quota_is_used_up(
    tmp_path: Path,
) -> None:
    async def scene(on: Stage, tenants: Tenants) -> None:
        async with on.gateway():
            on.server.post_message(ADA, "one")
            await on.reads("one")
            await until(lambda: tenants.get_usage("acme")[0] == 2)
            on.server.post_message(ADA, "two")  # begins with the last message that is left
            await on.reads("one", "two")
            await until(lambda: tenants.get_usage("acme")[0] == 4)
            requests = len(on.model.requests)
            on.server.post_message(ADA, "three")
            on.server.post_message(BOB, "four")
            await on.reads("one", "two", "quota of 3 messages per day is used up")
            await on.reads("quota of 3 messages per day", chat="bob")
        assert len(on.model.requests) == requests
        assert tenants.get_usage("acme")[0] == on.store.stats().messages == 4

    play(tmp_path, Quota(messages_per_day=3), {}, scene)


def test_every_message_of_a_turn_counts_once_and_a_begun_turn_ends_after_a_crash(
    tmp_path: Path,
) -> None:
    async def scene(on: Stage, tenants: Tenants) -> None:
        async with on.gateway(kill=True):
            on.server.post_message(ADA, "go")
            await until(lambda: len(on.model.requests) == 2)  # the call's result is stored
        async with on.gateway():
            await on.reads("done")
            await until(lambda: on.conversation() == ["go", "pause", "rested", "done"])
        # What was counted right before the kill, and not stored, stays counted.
        assert tenants.get_usage("acme")[0] in (4, 5)

    script = {"otherwise": [CALL, {"text": "done"}]}
    play(tmp_path, Quota(messages_per_day=1), script, scene)


def test_a_session_too_many_is_refused_and_nothing_of_it_is_counted(tmp_path: Path) -> None:
    async def scene(on: Stage, tenants: Tenants) -> None:
        on.store.append(on.store.begin(id="first"), Message("user", "hello"))
        async with on.gateway():
            on.server.post_message(ADA, "one")
            await on.reads("quota of 1 sessions is used up")
        assert tenants.get_usage("acme")[0] == on.store.stats().messages == 1

    play(tmp_path, Quota(sessions=1, messages_per_day=100), {}, scene)
