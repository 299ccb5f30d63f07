"""The gateway on every network: what people do there reaches the model, and its answers reach them.

Where a network lacks something, the conversation goes on without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle import Store
from rekindle.agent.model.client import Endpoint, Model, RetryPolicy
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ToolContext
from rekindle.errors import PlatformError
from rekindle.gateway import gateway as gateway_module
from rekindle.gateway.access.gate import Gate
from rekindle.gateway.access.rules import AccessRules
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.gateway import Gateway, GatewayOptions
from rekindle.gateway.outbox_sender import SendRetryPolicy
from rekindle.gateway.process_reports import build_report_address
from rekindle.gateway.receiving.files import FileRules
from rekindle.gateway.receiving.message import ReceiveRules
from rekindle.gateway.sending.file_tool import ROUTE_KEY_NOTE, create_file_tool
from rekindle.gateway.service.health import collect_health
from rekindle.platforms import Platform
from rekindle.store.store_executor import StoreExecutor
from rekindle.testing import ScriptedModel
from rekindle.types import KeyRule, Overridable, Role, Route
from tests.contract.irc_world import irc
from tests.contract.network_worlds import NETWORKS
from tests.contract.platform_world import Upload, World, memory
from tests.new_store import open_new_store
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.networks

ANSWER = "Once upon a time there was an answer that took its time."
CODE = "Before.\n\n```python\n" + "print('a line of code')\n" * 900 + "```\n\nAfter."
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
MAX_BYTES = 5000
SCRIPT = {
    "turns": [
        {"user": "tell", "steps": [{"text": ANSWER, "chunk": 4}]},
        {"user": "show code", "steps": [{"text": CODE, "chunk": 4000}]},
        {
            "user": "send it",
            "steps": [
                {"calls": [{"name": "send_file", "arguments": {"path": "out.bin"}}]},
                {"text": "I tried."},
            ],
        },
    ]
}


@pytest.fixture(params=[memory, *NETWORKS, irc], ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with request.param() as made:
        yield made


class Scene:
    """A store, a model and a workspace, with gateways that come and go."""

    def __init__(self, world: World, store: Store, model: ScriptedModel, folder: Path) -> None:
        self.world, self.store, self.model, self.folder = world, store, model, folder

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[Gateway]:
        """A gateway that listens, and lets everyone talk."""
        executor, platform = StoreExecutor(self.store), self.world.connect()
        model = Model(Endpoint(self.model.url, "scripted"), retry_policy=RetryPolicy(3, 0.01, 0.02))
        gateway = Gateway(
            self._build_context(executor, model, platform),
            [platform],
            options=GatewayOptions(
                edit_seconds=0.02,
                poll_seconds=0.05,
                grace_seconds=5.0,
                retry_policy=SendRetryPolicy(4, 0.02, 0.1),
                receive_rules=ReceiveRules(files=FileRules(self.folder, MAX_BYTES, True)),
            ),
        )
        running = asyncio.create_task(gateway.run())
        try:
            await wait_until_ready(self.world)
            yield gateway
        finally:
            gateway.stop()
            await running
            await model.close()
            executor.close()

    def _build_context(
        self, executor: StoreExecutor, model: Model, platform: Platform
    ) -> GatewayContext:
        def build_tool_context(route: Route, role: Role) -> ToolContext:
            return ToolContext(
                route.session, self.folder, get_owner(route), (self.folder,), "never",
                store=self.store, address=build_report_address(route.origin),
                notes={ROUTE_KEY_NOTE: route.key},
            )  # fmt: skip

        excluded = [platform.name] if "files" in platform.lacks else []
        tools = ToolRegistry([create_file_tool(self.folder.parent / "sent", excluded)])
        rules = AccessRules({(platform.name, "*"): "owner"})
        return GatewayContext(
            executor, model, tools.select(), build_tool_context, "one",
            key_rules=Overridable(KeyRule(direct="shared")), lease=5.0,
            gate=Gate(self.store.people, rules, self.store.links),
        )  # fmt: skip

    async def sees(self, *texts: str) -> None:
        """Wait until the direct chat shows these texts and no others."""
        await until(lambda: self.world.seen() == [*texts], self.world.seen)

    def get_prompts(self) -> list[str]:
        """Return the last message of each request, as the model is shown it."""
        return [_join_text(one.body["messages"][-1]["content"]) for one in self.model.requests]


def _join_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", part["type"]) for part in content)


async def wait_until_ready(world: World) -> None:
    """Wait for the bot where nobody keeps what is said before it comes."""
    if "replay" in world.lacks:
        await until(lambda: getattr(world, "is_ready")())  # noqa: B009


async def wait_until_gone(world: World) -> None:
    """Wait until the bot has left, likewise: else it seems to be there when the next one comes."""
    if "replay" in world.lacks:
        await until(lambda: not getattr(world, "is_ready")())  # noqa: B009


def play(world: World, folder: Path, act: Callable[[Scene], Awaitable[None]]) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "out.bin").write_bytes(PNG)

    async def run() -> None:
        with open_new_store(folder / "sessions.db") as store, ScriptedModel(SCRIPT) as model:
            scene = Scene(world, store, model, folder / "work")
            await asyncio.wait_for(act(scene), 2 * PATIENCE)  # `until` says more, and sooner

    asyncio.run(run())


def test_files_reach_the_workspace_and_images_the_model(world: World, tmp_path: Path) -> None:
    files = [
        Upload("report.csv", "text/csv", b"a,b\n", "the figures"),
        Upload("photo.png", "image/png", PNG, "what is this?"),
        Upload("large.csv", "text/csv", b"x" * (MAX_BYTES + 1), "all of it"),
    ]

    async def act(scene: Scene) -> None:
        async with scene.gateway():
            for number, file in enumerate(files):
                world.send_file(file)
                if "files" not in world.lacks:
                    await until(lambda n=number: len(scene.model.requests) > n)
            world.say("after")
            await until(lambda: world.seen()[-1:] == ["You said: after"], world.seen)
            if "files" in world.lacks:
                assert scene.get_prompts() == ["after"]
                return
            report, photo, large, _ = scene.get_prompts()
            assert report.startswith("[File report.csv: 4 bytes, saved as attachments/")
            assert report.endswith("the figures")
            assert photo.endswith("what is this?\nimage_url")
            assert large.startswith("[File large.csv: not received: ")
            assert large.endswith("]\nall of it")
            saved = [path.read_bytes() for path in (scene.folder / "attachments").iterdir()]
            assert sorted(saved) == sorted((b"a,b\n", PNG))

    play(world, tmp_path, act)


def test_the_model_can_send_a_file_where_the_network_takes_files(
    world: World, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            world.say("send it")
            await scene.sees("I tried.")
            if "files" not in world.lacks:
                await until(lambda: world.seen_files() == [PNG], lambda: len(world.seen_files()))
            tools = [
                one["function"]["name"] for one in scene.model.requests[0].body.get("tools", ())
            ]
            if "files" in world.lacks:
                assert "send_file" not in tools
                return
            world.limit_uploads(2_000_000)
            (scene.folder / "out.bin").write_bytes(b"x" * 3_000_000)
            world.say("send it")
            # An answer that is still being written has other words.
            await until(
                lambda: len(world.seen()) == 3 and world.seen().count("I tried.") == 2, world.seen
            )
            (notice,) = [text for text in world.seen() if text != "I tried."]
            assert notice.startswith("[File out.bin: not sent: ")
            assert world.seen_files() == [PNG]

    play(world, tmp_path, act)


def test_a_waiting_message_is_answered_as_it_was_edited_and_not_if_it_was_deleted(
    world: World, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway() as gateway:
            with scene.model.hold_requests():
                world.say("first")
                await until(lambda: scene.model.requests)
                edited, deleted = world.say("teh second"), world.say("never mind")
                await until(lambda: gateway.accepted_count == 3)
                world.edit(edited, "the second")
                world.delete(deleted)
                world.say("last")
                await until(lambda: gateway.accepted_count == 4)
            expected = ["first", "teh second" if "edits" in world.lacks else "the second"]
            expected += ["never mind"] if "deletions" in world.lacks else []
            await scene.sees(*(f"You said: {text}" for text in (*expected, "last")))

    play(world, tmp_path, act)


def test_the_model_is_shown_what_a_message_replies_to(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            to = world.say("the statement")
            await scene.sees("You said: the statement")
            world.reply("why?", to)
            await until(lambda: len(world.seen()) == 2, world.seen)
            quote = "" if "quotes" in world.lacks else '[In reply to "the statement"]\n'
            assert scene.get_prompts()[-1] == f"{quote}why?"

    play(world, tmp_path, act)


def test_in_a_group_a_mention_is_answered_with_the_name_of_who_spoke(
    world: World, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            world.say_in_group("among us")
            world.say_in_group("what do you think?", mentions=True)
            if "groups" in world.lacks:
                world.say("in private")
                await scene.sees("You said: in private")
                assert scene.get_prompts() == ["in private"]
                return
            await until(world.seen_in_group)
            (prompt,) = scene.get_prompts()
            assert prompt.startswith('["Bob", id ')
            assert prompt.endswith("what do you think?")
            assert "among us" not in str(scene.model.requests[0].body)
            await until(lambda: "what do you think?" in world.seen_in_group()[0])
            assert (len(world.seen_in_group()), world.seen()) == (1, [])

    play(world, tmp_path, act)


def test_what_is_asked_in_a_thread_is_answered_there(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            if "threads" in world.lacks:
                world.say("aside")
                await scene.sees("You said: aside")
                return
            world.say_in_group("aside", mentions=True, thread=True)
            await until(lambda: "aside" in "".join(world.seen_in_group(thread=True)))
            assert (len(world.seen_in_group(thread=True)), world.seen_in_group()) == (1, [])

    play(world, tmp_path, act)


def test_a_bot_is_not_answered(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            world.say_as_bot("beep")
            world.say("hello")
            await scene.sees("You said: hello")
            world.say_as_bot("You said: hello")
            world.say("again")
            await scene.sees("You said: hello", "You said: again")
            assert scene.get_prompts() == ["hello", "again"]

    play(world, tmp_path, act)


def test_what_the_network_gives_twice_is_answered_once(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            id = world.say("hello")
            await scene.sees("You said: hello")
            world.repeat(id)
            world.say("next")
            await scene.sees("You said: hello", "You said: next")
            if "ids" in world.lacks:  # the same words twice are two messages
                world.say("next")
                await scene.sees("You said: hello", "You said: next", "You said: next")

    play(world, tmp_path, act)


def test_what_was_said_during_an_outage_is_answered_once_and_in_order(
    world: World, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            world.say("one")
            await scene.sees("You said: one")
        await wait_until_gone(world)
        world.say("two")
        world.say("three")
        expected = ["one"] if "replay" in world.lacks else ["one", "two", "three"]
        async with scene.gateway():
            world.say("four")
            await scene.sees(*(f"You said: {text}" for text in (*expected, "four")))

    play(world, tmp_path, act)


def test_an_answer_that_a_stop_waits_for_is_shown_once(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway() as gateway:
            with scene.model.hold_requests():
                world.say("hello")
                await until(lambda: scene.model.requests)
                gateway.stop()
                await until(lambda: not any(gateway.listening.values()))
        await wait_until_gone(world)
        async with scene.gateway():
            world.say("next")
            await scene.sees("You said: hello", "You said: next")

    play(world, tmp_path, act)


def test_an_answer_survives_a_lost_connection_and_is_shown_once(
    world: World, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            with scene.model.hold_requests():
                world.say("hello")
                await until(lambda: scene.model.requests)
                world.disconnect()
                await wait_until_ready(world)
            await scene.sees("You said: hello")
            world.say("next")
            await scene.sees("You said: hello", "You said: next")

    play(world, tmp_path, act)


def test_a_rate_limit_is_waited_for(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway() as gateway:
            world.refuse(PlatformError("slow down", retry_after=1.0))
            world.say("hello")
            if world.limits_rate:
                # Without the wait, the few attempts would be used up by now, and the answer lost.
                await until(lambda: "retried" in gateway.context.metrics.render([]))
            world.refuse(None)
            await scene.sees("You said: hello")
            assert 'result="failed"' not in gateway.context.metrics.render([])

    play(world, tmp_path, act)


def test_a_long_answer_comes_in_parts_and_its_code_stays_code(world: World, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway():
            world.say("show code")

            def is_complete() -> bool:
                shown = world.seen()
                is_final = not any(part.endswith("…") for part in shown)
                return is_final and "After." in "".join(shown[-1:])

            await until(is_complete, lambda: world.seen()[-1:])
            shown = world.seen()
            assert "\n".join(shown).count("print('a line of code')") == 900
            if world.chat.platform in ("slack", "discord", "whatsapp", "matrix", "memory"):
                assert all(part.count("```") in (0, 2) for part in shown), "no fence is left open"

    play(world, tmp_path, act)


def test_an_answer_grows_by_edits_where_they_exist_and_is_one_message(
    world: World, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        async with scene.gateway() as gateway:
            (platform,) = gateway.platforms.values()
            with scene.model.hold_requests(max_chunks=4):
                world.say("tell")
                await until(lambda: scene.model.requests)
                if platform.can_edit:
                    await until(lambda: "".join(world.seen()).endswith("…"), world.seen)
                else:
                    assert world.seen() == []
            await scene.sees(ANSWER)

    play(world, tmp_path, act)


def test_a_revoked_access_is_said_once_and_shown(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "_USELESS_RETRY_SECONDS", 0.05)
    attempts: list[bool] = []

    async def act(scene: Scene) -> None:
        async with scene.gateway() as gateway:
            (platform,) = gateway.platforms.values()
            monkeypatch.setattr(platform, "listen", count_calls(platform.listen, attempts))
            world.say("hello")
            await scene.sees("You said: hello")
            world.revoke()
            await until(lambda: gateway.failures)
            assert (await collect_health(gateway))["status"] == "platform"
            await until(lambda: len(attempts) >= 2)  # it is tried again, after that pause
            assert [*gateway.failures] == [platform.name]

    with caplog.at_level(logging.ERROR, logger="rekindle.gateway.gateway"):
        play(world, tmp_path, act)
    (record,) = [one for one in caplog.records if one.name == "rekindle.gateway.gateway"]
    assert record.exc_info is None
    assert record.getMessage().startswith(f"{world.chat.platform}: ")
    assert "\n" not in record.getMessage()


def count_calls(function: Callable[[], Any], calls: list[bool]) -> Callable[[], Any]:
    def call() -> Any:
        calls.append(True)
        return function()

    return call
