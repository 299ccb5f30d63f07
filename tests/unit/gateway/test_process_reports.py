"""Background processes and conversations: reports that reach the chat once, and no reset meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message
from rekindle.errors import SupervisorUnavailable
from rekindle.gateway.process_reports import (
    build_report_address,
    make_busy_check,
    render_report,
    report_to_message,
)
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.types import Process, ProcessEvent, Watch
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Overridable, ResetPolicy
from tests.processes import QUICK, embedded, runs
from tests.unit.gateway.stage import ADA, ADA_KEY, BOB, SHARED, Stage, stage
from tests.unit.gateway.test_gateway import age
from tests.waiting import until

pytestmark = pytest.mark.slow

SCRIPT = {
    "turns": [
        {
            "user": "rest",
            "steps": [
                {"calls": [{"name": "pause", "arguments": {"seconds": 0.6}}]},
                {"text": "rested"},
            ],
        }
    ]
}


class Forgetful(ProcessRegistry):
    """Loses every acknowledgement, as if the program died before it."""

    lost = True

    async def ack_events(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        if self.lost:
            raise SupervisorUnavailable("killed")
        await super().ack_events(numbers, owner=owner)


async def report_of(
    processes: ProcessRegistry, on: Stage, command: str, source: Any = ADA
) -> Process:
    """A process that reports its end to a chat."""
    session = on.store.routes.get(ADA_KEY).session
    watch = Watch("end", note=build_report_address(source))
    return await processes.start(
        ("sh", "-c", command), owner=ADA_KEY, watches=[watch], session=session
    )


@runs
async def test_the_end_of_a_process_is_told_in_its_chat_and_stands_in_its_session(
    tmp_path: Path,
) -> None:
    async with (
        embedded(tmp_path / "p") as processes,
        stage(tmp_path / "s.db", tmp_path) as on,
        on.gateway(processes=processes),
    ):
        on.server.post_message(ADA, "hello")
        await on.reads("hello")
        await until(lambda: len(on.conversation()) == 2)
        one = await report_of(processes, on, "echo done; exit 3")
        _, told = await on.reads("hello", "exited with 3")
        assert f"Background process {one.id} (echo done; exit 3)" in told
        assert "```\ndone\n```" in told
        assert on.texts("bob") == []
        note = on.store.messages(on.store.routes.get(ADA_KEY).session)[-1]
        assert (note.role, note.text) == ("assistant", told)
        assert note.meta is not None
        assert note.meta["process"] == one.id
        await until(lambda: _none(processes))
        on.server.post_message(ADA, "and now?")
        await on.reads("hello", "exited with 3", "and now?")
        heard = on.model.requests[-1].messages
        assert any("exited with 3" in said.text for said in heard)


async def _none(processes: ProcessRegistry) -> bool:
    return await processes.fetch_events() == []


@runs
async def test_a_report_is_told_once_though_nobody_remembers_that_it_was(tmp_path: Path) -> None:
    processes = await Forgetful.open(tmp_path / "p", limits=QUICK)
    assert isinstance(processes, Forgetful)
    async with stage(tmp_path / "s.db", tmp_path) as on:
        async with on.gateway(processes=processes):
            on.server.post_message(ADA, "hello")
            await on.reads("hello")
            await report_of(processes, on, "true")
            await on.reads("hello", "exited with 0")
        assert len(await processes.fetch_events()) == 1
        processes.lost = False
        async with on.gateway(processes=processes):
            await until(lambda: _none(processes))
            on.server.post_message(ADA, "what else?")
            await on.reads("hello", "exited with 0", "what else?")
            assert len(on.texts()) == 3
            assert sum("exited with" in said for said in on.conversation()) == 1
    await processes.aclose()


@pytest.mark.parametrize("busy_mode", ["queue", "steer", "interrupt"])
@runs
async def test_a_report_during_a_turn_comes_after_its_answer(
    tmp_path: Path, busy_mode: str
) -> None:
    async with (
        embedded(tmp_path / "p") as processes,
        stage(tmp_path / "s.db", tmp_path, SCRIPT) as on,
        on.gateway(processes=processes, busy_mode=busy_mode),
    ):
        on.server.post_message(ADA, "rest")
        await until(lambda: on.store.inbox.get_counts().running == 1)
        await report_of(processes, on, "true")
        await on.reads("rested", "exited with 0")
        assert [text for text in on.conversation() if text != "pause"][-2:] == on.texts()


@runs
async def test_a_command_that_stops_a_turn_takes_no_report_away(tmp_path: Path) -> None:
    async with (
        embedded(tmp_path / "p") as processes,
        stage(tmp_path / "s.db", tmp_path, SCRIPT) as on,
        on.gateway(processes=processes),
    ):
        on.server.post_message(ADA, "rest")
        await until(lambda: on.store.inbox.get_counts().running == 1)
        await report_of(processes, on, "true")
        await until(lambda: on.store.inbox.get_counts().waiting == 1)
        on.server.post_message(ADA, "/new")
        await until(lambda: sum("exited with 0" in text for text in on.texts()) == 1)
        fresh = on.store.routes.get(ADA_KEY).session
        with pytest.raises(Exception, match="no session"):
            on.store.messages(fresh)  # a new conversation does not begin with an old report


@runs
async def test_reports_for_other_programs_are_left_alone(tmp_path: Path) -> None:
    async with (
        embedded(tmp_path / "p") as processes,
        stage(tmp_path / "s.db", tmp_path) as on,
    ):
        end = Watch("end", note="a session at a terminal")
        await processes.start(("true",), owner="ada", watches=[end])
        await until(lambda: _some(processes))
        async with on.gateway(processes=processes):
            on.server.post_message(ADA, "hello")
            await on.reads("hello")
            await report_of(processes, on, "true", BOB)
            await on.reads("exited with 0", chat="bob")
        (left,) = await processes.fetch_events()
        assert left.note == "a session at a terminal"


async def _some(processes: ProcessRegistry) -> bool:
    return await processes.fetch_events() != []


@runs
async def test_a_conversation_is_not_reset_while_a_process_of_it_runs(tmp_path: Path) -> None:
    idle = Overridable(ResetPolicy(mode="idle", idle_minutes=1))
    async with (
        embedded(tmp_path / "p") as processes,
        stage(tmp_path / "s.db", tmp_path) as on,
    ):
        busy = make_busy_check(processes, StoreExecutor(on.store))
        given: dict[str, Any] = {"policies": idle, "key_rules": SHARED, "is_busy": busy}
        async with on.gateway(**given):
            on.server.post_message(ADA, "one")
            await on.reads("one")
            await until(lambda: len(on.conversation()) == 2)
            first = on.store.routes.get(ADA_KEY).session
            child = on.store.compress(first, Message("user", "summed up"))
            on.store.routes.follow(ADA_KEY, first, child.id)
            one = await processes.start(("sleep", "300"), owner=ADA_KEY, session=first)
            _age(on)
            on.server.post_message(ADA, "two")
            await on.reads("one", "two")
            assert on.store.routes.get(ADA_KEY).session == child.id
            on.server.post_message(ADA, "/status")
            await on.reads("one", "two", "paused while background processes run")
            await processes.kill(one.id)
            _age(on)
            on.server.post_message(ADA, "three")
            await until(
                lambda: on.store.routes.get(ADA_KEY).session != child.id,
                shown=lambda: (on.texts(), on.store.routes.get(ADA_KEY)),
            )
            await until(lambda: any("three" in text for text in on.texts()))


def _age(on: Stage) -> None:
    """Nothing was said in the conversation for a long time."""
    age(on.store, ADA_KEY, 3600)


@runs
async def test_a_session_counts_as_busy_when_nobody_can_tell(tmp_path: Path) -> None:
    class Away(ProcessRegistry):
        async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
            raise SupervisorUnavailable("not there")

    processes = await Away.open(tmp_path / "p")
    async with stage(tmp_path / "s.db", tmp_path) as on:
        assert await make_busy_check(processes, StoreExecutor(on.store))("ada", "s")
    await processes.aclose()


def test_reports_say_what_happened_in_plain_words() -> None:
    one = Process("pabc", "exited", 0, "sh -c 'make  test'", "ada", "local", 1, 100.0, 700.0)
    end = ProcessEvent(1, one, "end", 1, "", 700.0)
    assert render_report(end) == "Background process pabc (make test) exited with 0 after 10 min."
    killed = end._replace(process=one._replace(state="killed", exit_code=137))
    assert render_report(killed).endswith("was killed after 10 min.")
    lost = end._replace(process=one._replace(state="lost", exit_code=None, reason="gone"))
    assert render_report(lost).endswith("is lost: gone.")
    going = end._replace(kind="interval", process=one._replace(state="running"), at=160.0)
    assert render_report(going).endswith("has been running for 60 s. No new output.")
    line = end._replace(kind="pattern", text="ready ```", suppressed=2)
    assert render_report(line).endswith(
        "(2 more since the last report). Matching line:\n```\nready '''\n```"
    )
    assert len(render_report(end._replace(text="x" * 50_000))) < 1200
    assert report_to_message(end).platform_message_id == "process:pabc:1"
