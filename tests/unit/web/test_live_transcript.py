"""The live events of a session's page: new messages, undone ones, and viewers who come and go."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.config import load_config
from rekindle.store import Filter, Store
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Message
from rekindle.web.changes import ChangeFeed
from rekindle.web.context import WebContext
from rekindle.web.transcript.entries import EntryRenderer, MessageRange, PageChange
from rekindle.web.transcript.live import LiveTranscripts
from tests.unit.web.conftest import build_client, get_renderer
from tests.unit.web.test_transcript import call, fill, result
from tests.waiting import PATIENCE


class Viewer:
    """Somebody who looks at a session: applies events as a browser does."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.shown: dict[str, str] = {}
        self.order: list[str] = []
        self.sent: list[bytes] = []
        self.is_connected = self.is_told_to_reload = False

    def receive(self, data: bytes) -> None:
        self.is_connected = True
        for event in data.decode().split("\n\n"):
            if not event.startswith("id: "):
                continue
            head, _, body = event.partition("\ndata: ")
            self.position = int(head.removeprefix("id: "))
            self.sent.append(data)
            for change in json.loads(body):
                self.apply(change)

    def apply(self, change: dict[str, str]) -> None:
        if change["how"] == "reload":
            self.is_told_to_reload = True
        if change["how"] not in ("append", "swap"):
            return
        entries = re.split(r'(?=<div class="entry" id=")', change["html"])[1:]
        for entry in entries:
            id = re.findall(r'id="(m\d+)"', entry)[0]
            assert (id in self.order) == (change["how"] == "swap"), f"{id} twice or never"
            self.order += [] if id in self.order else [id]
            self.shown[id] = entry


class Audience:
    """Live transcripts of a store, and their viewers."""

    def __init__(self, store: Store, home: Path, poll_seconds: float = 0.01) -> None:
        executor = StoreExecutor(store, threads=2)
        config = load_config({"REKINDLE_HOME": str(home)})
        context = WebContext(config, executor, get_renderer(), False)
        self.feed = ChangeFeed(executor, poll_seconds)
        self.live = LiveTranscripts(context, self.feed)
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, viewer: Viewer) -> asyncio.Task[None]:
        async def watch() -> None:
            async for data in self.live.follow("s-1", viewer.position):
                viewer.receive(data)

        self.tasks.append(asyncio.create_task(watch()))
        return self.tasks[-1]

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.feed.notify()
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def test_new_messages_are_rendered_once_for_all_viewers(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, Message("user", "start"))
    rendered: list[int] = []
    original = EntryRenderer.render_changes

    def count(self: EntryRenderer, found: MessageRange) -> list[PageChange]:
        rendered.append(found.until - found.after)
        return original(self, found)

    monkeypatch.setattr(EntryRenderer, "render_changes", count)

    async def run() -> None:
        audience = Audience(store, tmp_path)
        viewers = [Viewer(0) for _ in range(50)]
        for viewer in viewers:
            audience.add(viewer)
        await audience.wait(lambda: all(one.is_connected for one in viewers))
        for n in range(1, 21):
            store.append("s-1", Message("assistant", f"word{n}."))
            await audience.wait(lambda n=n: all(one.position == n for one in viewers))
        assert sum(rendered) == 20
        assert {tuple(one.order) for one in viewers} == {tuple(f"m{n}" for n in range(1, 21))}
        assert len({b"".join(one.sent) for one in viewers}) == 1
        await audience.close()

    asyncio.run(run())


def test_a_call_is_shown_at_once_and_again_with_its_result(store: Store, tmp_path: Path) -> None:
    fill(store, Message("user", "start"))

    async def run() -> None:
        audience, viewer = Audience(store, tmp_path), Viewer(0)
        audience.add(viewer)
        store.append("s-1", call("a", command="make"))
        await audience.wait(lambda: "m1" in viewer.shown)
        assert "no result" in viewer.shown["m1"]
        store.append("s-1", result("a", "it-failed", failed=True), Message("assistant", "Oh."))
        await audience.wait(lambda: viewer.position == 3)
        assert "it-failed" in viewer.shown["m1"]
        assert "call failed" in viewer.shown["m1"]
        assert viewer.order == ["m1", "m3"]
        await audience.close()

    asyncio.run(run())


def test_who_reconnects_misses_nothing_and_gets_nothing_twice(store: Store, tmp_path: Path) -> None:
    fill(store, Message("user", "start"))

    async def run() -> None:
        audience, viewer = Audience(store, tmp_path), Viewer(0)
        for n in range(1, 40, 3):
            task = audience.add(viewer)
            store.append("s-1", call(f"c{n}", command="make"))
            await audience.wait(lambda n=n: viewer.position >= n)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            store.append("s-1", result(f"c{n}", f"result{n}."), Message("assistant", "and on"))
        audience.add(viewer)
        await audience.wait(lambda: viewer.position == 39)
        assert viewer.order == [f"m{n}" for n in range(1, 40) if n % 3 != 2]
        for n in range(1, 40, 3):
            assert f"result{n}." in viewer.shown[f"m{n}"]
        await audience.close()

    asyncio.run(run())


def test_who_comes_late_or_after_an_undo_loads_the_page_again(store: Store, tmp_path: Path) -> None:
    fill(store, *[Message("user", "x")] * 2_000)

    async def run() -> None:
        audience, late, current = Audience(store, tmp_path), Viewer(-1), Viewer(1_999)
        audience.add(late)
        audience.add(current)
        await audience.wait(lambda: late.is_told_to_reload)
        assert not current.is_told_to_reload
        store.undo("s-1")
        await audience.wait(lambda: current.is_told_to_reload)
        await audience.close()

    asyncio.run(run())


def test_an_undo_before_the_stream_begins_is_told(store: Store, tmp_path: Path) -> None:
    fill(store, *[Message("user", "x")] * 3)
    store.undo("s-1")

    async def run() -> None:
        audience, viewer = Audience(store, tmp_path), Viewer(2)
        audience.add(viewer)
        await audience.wait(lambda: viewer.is_told_to_reload)
        await audience.close()

    asyncio.run(run())


def test_an_answer_in_place_of_another_is_told(store: Store, tmp_path: Path) -> None:
    fill(store, Message("user", "why?"), Message("assistant", "no idea"))

    async def run() -> None:
        audience, viewer = Audience(store, tmp_path), Viewer(1)
        audience.add(viewer)
        await audience.wait(lambda: viewer.is_connected)
        store.retry("s-1")
        store.append("s-1", Message("assistant", "because"))  # as many messages as before
        await audience.wait(lambda: viewer.is_told_to_reload)
        await audience.close()

    asyncio.run(run())


def test_what_is_redone_is_shown_again(store: Store, tmp_path: Path) -> None:
    fill(store, *[Message("user", f"word{n}.") for n in range(3)])

    async def run() -> None:
        audience, old, new = Audience(store, tmp_path), Viewer(2), Viewer(1)
        audience.add(old)
        await audience.wait(lambda: old.is_connected)
        store.undo("s-1")
        await audience.wait(lambda: old.is_told_to_reload)
        audience.add(new)  # the page that was loaded then
        await audience.wait(lambda: new.is_connected)
        store.redo("s-1")
        await audience.wait(lambda: new.order == ["m2"])
        assert not new.is_told_to_reload
        await audience.close()

    asyncio.run(run())


def test_a_page_loaded_after_an_undo_is_not_told_of_it(store: Store, tmp_path: Path) -> None:
    fill(store, *[Message("user", f"word{n}.") for n in range(3)])

    async def run() -> None:
        audience, old, new = Audience(store, tmp_path, poll_seconds=PATIENCE), Viewer(2), Viewer(1)
        audience.add(old)
        await audience.wait(lambda: old.is_connected)
        store.undo("s-1")
        audience.add(new)
        while not new.is_connected:  # the stream has not looked since
            await asyncio.sleep(0.001)
        await audience.wait(lambda: old.is_told_to_reload)
        store.append("s-1", Message("user", "word3."))
        await audience.wait(lambda: new.order == ["m3"])
        assert not new.is_told_to_reload
        await audience.close()

    asyncio.run(run())


def test_a_page_newer_than_the_stream_gets_nothing_twice(store: Store, tmp_path: Path) -> None:
    fill(store, Message("user", "start"))

    async def run() -> None:
        audience, first, second = Audience(store, tmp_path), Viewer(0), Viewer(2)
        audience.add(first)
        await audience.wait(lambda: first.is_connected)
        store.append("s-1", *[Message("assistant", f"word{n}.") for n in range(1, 5)])
        audience.add(second)  # its page already has two of them, of which the stream knows none
        await audience.wait(lambda: first.position == second.position == 4)
        assert (first.order, second.order) == (["m1", "m2", "m3", "m4"], ["m3", "m4"])
        store.append("s-1", Message("assistant", "word5."))
        await audience.wait(lambda: first.position == second.position == 5)
        assert second.order == ["m3", "m4", "m5"]
        await audience.close()

    asyncio.run(run())


def test_the_stream_ends_with_the_session(store: Store, tmp_path: Path) -> None:
    fill(store, Message("user", "start"))

    async def run() -> None:
        audience, viewer = Audience(store, tmp_path), Viewer(0)
        task = audience.add(viewer)
        store.append("s-1", Message("assistant", "one"))
        await audience.wait(lambda: viewer.position == 1)
        store.end("s-1", "done")
        assert store.prune(Filter(archived=None))
        await audience.wait(task.done)
        assert task.exception() is None

    asyncio.run(run())


def test_strangers_see_no_events(store: Store, tmp_path: Path) -> None:
    fill(store, Message("user", "one"))
    stranger = build_client(store, tmp_path)
    for path in ("events", "next?kind=error", "messages/0", "messages/0/text"):
        assert stranger.get(f"/sessions/s-1/{path}").status_code == 401
