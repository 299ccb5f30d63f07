"""What agents write while the server runs is imported, unless nothing may be changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.cli.store_access import set_refresh
from rekindle.cli.web.serve import _build_freshness  # pyright: ignore[reportPrivateUsage]
from rekindle.config import load_config
from rekindle.config.address import Address
from rekindle.store import Store, open_store
from rekindle.store.store_executor import StoreExecutor
from rekindle.web import freshness
from rekindle.web.access import AccessKeys, build_origin
from rekindle.web.app import build_app
from rekindle.web.changes import ChangeFeed
from rekindle.web.context import WebContext
from rekindle.web.freshness import FreshnessOptions, SessionFreshness
from rekindle.web.guard import GuardOptions
from tests.unit.web.conftest import get_renderer

WAIT_SECONDS = 60
ID = "0708a5fa-06bd-4274-b1fe-513c7202217e"


def write_line(file: Path, number: int, text: str) -> None:
    line = {
        "type": "user",
        "uuid": f"11111111-1111-4111-8111-{number:012}",
        "parentUuid": f"11111111-1111-4111-8111-{number - 1:012}" if number else None,
        "sessionId": ID,
        "cwd": "/src/app",
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "message": {"role": "user", "content": text},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


def build_options(tmp_path: Path) -> FreshnessOptions:
    return FreshnessOptions(
        home=tmp_path,
        user_home=tmp_path,
        env={"HOME": str(tmp_path)},
        open_writer=lambda: open_store(tmp_path / "sessions.db"),
    )


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("is_reported", [True, False])
def test_what_an_agent_writes_is_imported(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reported: bool
) -> None:
    monkeypatch.setattr(freshness, "POLL_SECONDS", 0.05)
    if not is_reported:  # as where `watchfiles` is not installed

        def refuse(*_: object) -> bool:
            return False

        monkeypatch.setattr(freshness, "_start_watcher", refuse)
    file = tmp_path / ".claude" / "projects" / "-src-app" / f"{ID}.jsonl"

    def count_messages() -> int:
        return sum(one.message_count for one in store.recent())

    async def work() -> None:
        feed = ChangeFeed(StoreExecutor(store, threads=2))
        task = asyncio.create_task(SessionFreshness(store, build_options(tmp_path), feed).run())
        write_line(file, 0, "build me a boat")
        await wait_until(lambda: count_messages() == 1)
        write_line(file, 1, "and paint it")
        await wait_until(lambda: count_messages() == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())


def test_an_error_does_not_end_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(freshness, "POLL_SECONDS", 0.05)
    write_line(tmp_path / ".claude" / "projects" / "-src-app" / f"{ID}.jsonl", 0, "hello")
    attempts: list[int] = []

    def open_writer() -> Store:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("the disk is full")
        return open_store(tmp_path / "sessions.db")

    async def work() -> None:
        options = build_options(tmp_path)._replace(open_writer=open_writer)
        monkeypatch.setattr(freshness, "RESCAN_SECONDS", 0.05)
        feed = ChangeFeed(StoreExecutor(store, threads=2))
        task = asyncio.create_task(SessionFreshness(store, options, feed).run())
        await wait_until(lambda: bool(store.recent()))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    assert "the disk is full" in caplog.text


def test_a_read_only_server_imports_nothing(store: Store, tmp_path: Path) -> None:
    config = load_config({"REKINDLE_HOME": str(tmp_path)})
    keys = AccessKeys(tmp_path / "web", "name")
    for readonly in (True, False):
        context = WebContext(config, StoreExecutor(store, threads=1), get_renderer(), readonly)
        options = GuardOptions(keys, build_origin(Address("127.0.0.1", 1)), readonly)
        app = build_app(context, options, build_options(tmp_path))
        inner = app._app  # pyright: ignore[reportPrivateUsage]
        assert (inner.state.freshness is None) is readonly  # pyright: ignore


def test_the_setting_is_respected(tmp_path: Path) -> None:
    set_refresh(True)  # another test may have run a command with --no-refresh in this process
    env = {"REKINDLE_HOME": str(tmp_path)}
    assert _build_freshness(load_config(env)) is not None
    assert _build_freshness(load_config({**env, "REKINDLE_STORE_REFRESH": "never"})) is None
