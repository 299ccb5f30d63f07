"""What is told when something inside fails: nothing of it to users, all of it to the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import HARMLESS_ABILITIES, Tool, ToolContext, build_schema
from rekindle.errors import ModelError, ModelOverloaded, StoreUnavailable
from rekindle.gateway.monitoring.error_texts import (
    INTERNAL_ERROR,
    describe_for_operator,
    describe_for_user,
)
from rekindle.types import ToolCall
from tests.unit.gateway.stage import ADA, stage
from tests.waiting import until

DETAIL = "cannot open /srv/data/sessions.db with password=hunter2secret"


def raise_error(_: ToolContext, arguments: Mapping[str, Any]) -> str:
    raise StoreUnavailable(DETAIL)


def test_an_internal_error_is_not_shown_and_the_operator_sees_it(tmp_path: Path) -> None:
    def break_down(*_: object) -> ToolContext:
        raise RuntimeError(DETAIL)

    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path) as on, on.gateway() as gateway:
            worker_context = gateway._worker_context  # pyright: ignore[reportPrivateUsage]
            broken = worker_context.gateway_context._replace(build_tool_context=break_down)
            gateway._worker_context = worker_context._replace(gateway_context=broken)  # pyright: ignore[reportPrivateUsage]
            on.server.post_message(ADA, "hello")
            await until(lambda: on.texts() == [INTERNAL_ERROR], on.texts)
            await until(lambda: on.store.gateway_errors.list())
            error = on.store.gateway_errors.list()[0]
            assert (error.kind, error.key) == ("RuntimeError", "agent:main:memory:dm:ada")
            assert "/srv/data" in error.cause

    asyncio.run(play())


def test_a_store_that_fails_for_a_while_is_not_mentioned_and_the_message_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with stage(tmp_path / "s.db", tmp_path) as on:
            failures = iter(range(2))
            start = on.store.inbox.start_turn

            def fail_twice(*given: Any) -> Any:
                if next(failures, None) is not None:
                    raise StoreUnavailable(DETAIL)
                return start(*given)

            monkeypatch.setattr(on.store.inbox, "start_turn", fail_twice)
            async with on.gateway():
                on.server.post_message(ADA, "hello")
                await until(lambda: on.texts() == ["You said: hello"], on.texts)
                await until(lambda: on.store.gateway_errors.list())
                assert on.store.gateway_errors.list()[0].kind == "StoreUnavailable"

    asyncio.run(play())


@pytest.mark.parametrize("is_owner", [True, False])
def test_why_a_tool_failed_is_told_to_the_model_of_an_owner_only(
    is_owner: bool, tmp_path: Path
) -> None:
    tool = Tool("search", "test", "Search.", build_schema(), raise_error)
    context = ToolContext("s", tmp_path)
    if not is_owner:
        context = context._replace(abilities=HARMLESS_ABILITIES)
    toolbox = ToolRegistry([tool]).select()
    result = asyncio.run(toolbox.run(ToolCall("1", "search", "{}"), context))
    assert result.is_error
    assert ("/srv/data" in result.content) == is_owner


def test_texts_say_when_to_try_again_and_hide_the_key() -> None:
    busy = ModelOverloaded("scripted at http://x: HTTP 429 (secret body)", 600)
    assert describe_for_user(busy).endswith("send /retry in about 10 minutes.")
    assert "in a few minutes" in describe_for_user(ModelOverloaded("x"))
    assert "in about 2 hours" in describe_for_user(ModelOverloaded("x", 7000))
    assert describe_for_user(ModelError("/etc/x")).startswith("I could not answer. ")
    told = describe_for_operator(ModelError("bad key pass-word-1 in\nline"), "pass-word-1")
    assert told == "ModelError: bad key <secret> in line"
    assert len(describe_for_operator(ValueError("x" * 5000))) < 1100
