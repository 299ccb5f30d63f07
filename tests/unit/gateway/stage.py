"""A gateway on a stage: the chat server, the scripted model, a store, and people who speak."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rekindle import Message, Store
from rekindle.agent.model.client import Endpoint, Model, RetryPolicy
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.gateway.access.gate import Gate
from rekindle.gateway.access.rules import AccessRules
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.gateway import Gateway, GatewayOptions
from rekindle.gateway.memory.tool import create_memory_tool
from rekindle.gateway.outbox_sender import SendRetryPolicy
from rekindle.processes.operations import Processes
from rekindle.store.store_executor import StoreExecutor
from rekindle.testing import ChatServer, MemoryPlatform, ScriptedModel
from rekindle.types import KeyRule, Overridable, Role, Route, Source
from tests.new_store import open_new_store
from tests.waiting import until

ADA = Source("memory", "ada", user_id="1", user_name="Ada")
BOB = Source("memory", "bob", user_id="2", user_name="Bob")
ADA_KEY, BOB_KEY = "agent:main:memory:dm:ada", "agent:main:memory:dm:bob"
EVERYONE = AccessRules({("memory", "*"): "owner"})
SHARED = Overridable(KeyRule(direct="shared"))
FAST = GatewayOptions(
    edit_seconds=0.02,
    poll_seconds=0.05,
    grace_seconds=5.0,
    retry_policy=SendRetryPolicy(4, 0.02, 0.1),
    flush_poll_seconds=0.05,
)


async def _pause(_: ToolContext, arguments: Mapping[str, Any]) -> str:
    await asyncio.sleep(arguments["seconds"])
    return "rested"


PAUSE = Tool("pause", "test", "Wait.", build_schema("seconds", seconds={"type": "number"}), _pause)

TOOLS = (PAUSE, create_memory_tool())


def office_of(desk: StoreExecutor, model: Model, folder: Path, **more: Any) -> GatewayContext:
    def tools_for(route: Route, role: Role) -> ToolContext:
        owner = get_owner(route)
        return ToolContext(route.session, folder, owner, store=desk.store, approval="refuse")

    homes = desk.store.routes.list_homes
    gate = Gate(desk.store.people, EVERYONE, desk.store.links)
    given = {"instance": "one", "key_rules": SHARED, "lease": 5.0, "homes": homes, "gate": gate}
    given |= more
    return GatewayContext(desk, model, ToolRegistry(TOOLS).select(), tools_for, **given)


class Stage:
    """People and what they see, with one or more gateways that come and go."""

    def __init__(
        self, store: Store, server: ChatServer, model: ScriptedModel, folder: Path
    ) -> None:
        self.store, self.server, self.model, self.folder = store, server, model, folder

    @asynccontextmanager
    async def gateway(
        self,
        *,
        habits: GatewayOptions = FAST,
        platform: Mapping[str, Any] | None = None,
        kill: bool = False,
        processes: Processes | None = None,
        **office: Any,
    ) -> AsyncIterator[Gateway]:
        """A gateway that runs; `kill` ends it as a crash does, without any farewell."""
        desk = StoreExecutor(self.store)
        model = Model(Endpoint(self.model.url, "scripted"), retry_policy=RetryPolicy(3, 0.01, 0.02))
        gateway = Gateway(
            office_of(desk, model, self.folder, **office),
            [MemoryPlatform(self.server.address, retry_seconds=0.02, **(platform or {}))],
            options=habits,
            processes=processes,
        )
        running = asyncio.create_task(gateway.run())
        try:
            yield gateway
        finally:
            if kill:
                await end_everything(running)
            else:
                gateway.stop()
                await running
            await model.close()
            desk.close()

    def texts(self, chat: str = "ada") -> list[str]:
        return [shown.text for shown in self.server.list_sent(chat)]

    async def reads(self, *texts: str, chat: str = "ada") -> list[str]:
        """Wait until the chat shows as many messages as are given, each containing its text."""
        await until(lambda: len(self.texts(chat)) >= len(texts), lambda: self.texts(chat))
        await until(
            lambda: all(part in text for part, text in zip(texts, self.texts(chat), strict=False)),
            lambda: self.texts(chat),
        )
        return self.texts(chat)

    def conversation(self, key: str = ADA_KEY) -> list[str]:
        """What is stored in the session where a conversation is now."""
        route = self.store.routes.get(key)
        return [said(message) for message in self.store.messages(route.session)]


def said(message: Message) -> str:
    return message.text or ",".join(call.name for call in message.tool_calls)


async def end_everything(running: asyncio.Task[None]) -> None:
    """End the tasks of a gateway without its farewell, so that nothing is given back."""
    ours = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in ours:
        if task is not running:
            task.cancel()
    await asyncio.gather(*(task for task in ours if task is not running), return_exceptions=True)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def stage(
    target: str | Path, folder: Path, script: Mapping[str, Any] | None = None, **server: Any
) -> AsyncIterator[Stage]:
    with (
        open_new_store(target) as store,
        ChatServer(**{"redeliver_seconds": 0.3, **server}) as chats,
        ScriptedModel(script) as model,
    ):
        yield Stage(store, chats, model, folder)
