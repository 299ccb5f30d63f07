"""What holds of the owners, limits and reports of background processes, wherever they run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rekindle.errors import InvalidInput, NotFound, TooManyProcesses
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.types import ProcessEvent, Watch
from tests.processes import OWNER, QUICK, Kept, output_of, runs, sh
from tests.waiting import PATIENCE, until

# -- owners and limits


@runs
async def test_no_action_reaches_the_process_of_another_owner(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        assert await processes.list(owner="eve") == []
        id, eve = one.id, "eve"
        for act in (
            processes.poll(id, owner=eve),
            processes.read_log(id, owner=eve),
            processes.wait(id, 1, owner=eve),
            processes.kill(id, owner=eve),
            processes.signal(id, 15, owner=eve),
            processes.write(id, "x", owner=eve),
            processes.submit(id, "x", owner=eve),
            processes.close_stdin(id, owner=eve),
            processes.resize(id, TerminalSize(), owner=eve),
            processes.watch(id, Watch("end"), owner=eve),
            processes.unwatch(id, 1, owner=eve),
            anext(processes.attach(id, owner=eve)),
        ):
            with pytest.raises(NotFound):
                await act
        assert (await processes.poll(id, owner=OWNER)).process.state == "running"


@runs
async def test_secrets_are_not_in_the_list(kept: Kept) -> None:
    async with kept() as processes:
        secret = "ghp_" + "a8Kd93jfLqP0xZr7Tn2vWm5sBy1cE4uG6hQo"
        await processes.start(
            ["sh", "-c", "sleep 30", f"--token={secret}"], owner=OWNER, env={"KEY": secret}
        )
        assert secret not in repr(await processes.list())


@runs
async def test_an_owner_has_only_so_many_processes(kept: Kept) -> None:
    async with kept(QUICK._replace(per_owner=2)) as processes:
        both = await asyncio.gather(sh(processes, "sleep 30"), sh(processes, "sleep 30"))
        with pytest.raises(TooManyProcesses):
            await sh(processes, "sleep 30")
        await sh(processes, "sleep 30", owner="grace")
        await processes.kill(both[0].id)
        assert (await sh(processes, "true")).state in ("running", "exited")


@runs
async def test_closing_an_owner_ends_all_of_its_processes_and_no_others(kept: Kept) -> None:
    async with kept() as processes:
        mine = [await sh(processes, "sleep 30") for _ in range(3)]
        other = await sh(processes, "sleep 30", owner="grace")
        assert await processes.count_live(OWNER) == 3
        assert await processes.kill_all(OWNER) == 3
        assert await processes.count_live(OWNER) == 0
        assert [p.pid for p in mine if p.pid and kept.alive(p.pid)] == []
        assert (await processes.poll(other.id)).process.state == "running"


@runs
async def test_a_finished_process_is_forgotten_some_time_after_its_end(
    kept: Kept, tmp_path: Path
) -> None:
    async with kept(QUICK._replace(finished=0.4)) as processes:
        long = await sh(processes, "sleep 30")
        short = await sh(processes, "true")
        await processes.wait(short.id, PATIENCE)

        async def gone() -> bool:
            return short.id not in [p.id for p in await processes.list()]

        await until(gone)
        assert [p.id for p in await processes.list()] == [long.id]
        await until(lambda: not (tmp_path / "home" / "processes" / short.id).exists())


# -- watching


@runs
async def test_an_end_is_reported_until_it_is_acknowledged(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "echo done; exit 4", watches=[Watch("end", note="to the chat")])
        events = await processes.fetch_events(owner=OWNER, wait=20)
        assert [(e.kind, e.process.id, e.process.exit_code) for e in events] == [("end", one.id, 4)]
        assert (events[0].text, events[0].note) == ("done\n", "to the chat")
        assert await processes.fetch_events(owner=OWNER) == events
        assert await processes.fetch_events(owner="eve") == []
        await processes.ack_events([events[0].number], owner="eve")
        assert await processes.fetch_events(owner=OWNER) == events
        await processes.ack_events([events[0].number], owner=OWNER)
        assert await processes.fetch_events(owner=OWNER) == []


@runs
async def test_a_pattern_is_found_across_pieces_and_reported_once(kept: Kept) -> None:
    async with kept() as processes:
        script = "printf 'a REA'; read x; printf 'DY now'; read x; echo ' then'; read x"
        one = await sh(processes, script, watches=[Watch("pattern", pattern="READY")])
        await output_of(processes, one.id, "REA")
        assert await processes.fetch_events(wait=0.2) == []
        await processes.submit(one.id, "")
        (event,) = await processes.fetch_events(wait=20)
        assert (event.kind, event.text) == ("pattern", "a READY now")
        await processes.ack_events([event.number])
        await processes.submit(one.id, "")
        await output_of(processes, one.id, "then")
        assert await processes.fetch_events(wait=0.5) == []


@runs
async def test_reports_that_come_too_fast_are_held_back_and_counted(kept: Kept) -> None:
    async with kept(QUICK._replace(gap=1.0)) as processes:
        script = "echo hit 1; read x; for i in 2 3 4 5 6; do echo hit $i; sleep 0.05; done; read x"
        one = await sh(processes, script, watches=[Watch("pattern", pattern="hit")])
        first = await processes.fetch_events(wait=20)
        await processes.submit(one.id, "")
        await processes.ack_events([e.number for e in first])
        second = await processes.fetch_events(wait=20)
        assert [e.text for e in first + second] == ["hit 1", "hit 6"]
        assert sum(e.suppressed for e in second) == 4


@runs
async def test_a_report_comes_at_every_interval(kept: Kept) -> None:
    async with kept() as processes:
        script = "echo one; read x; echo two; sleep 30"
        one = await sh(processes, script, watches=[Watch("interval", seconds=1)])

        async def reported(word: str) -> list[ProcessEvent]:
            """The reports until one tells of the word; a busy machine may be late to say it."""
            events: list[ProcessEvent] = []
            while word not in "".join(e.text for e in events):
                events += await processes.fetch_events(wait=20)
                await processes.ack_events([e.number for e in events])
            return events

        first = await reported("one")
        await processes.submit(one.id, "")
        second = await reported("two")
        assert "".join(e.text for e in first + second) == "one\ntwo\n"
        assert {e.kind for e in first + second} == {"interval"}
        await processes.unwatch(one.id, first[0].watch)
        await processes.ack_events([e.number for e in await processes.fetch_events(wait=0)])
        assert await processes.fetch_events(wait=1.3) == []


@runs
async def test_a_pattern_that_would_take_for_ever_is_given_up(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, f"echo {'a' * 60}; sleep 30")
        await output_of(processes, one.id, "aaa")
        await processes.watch(one.id, Watch("pattern", pattern="(a+)+$x"))
        await processes.watch(one.id, Watch("end"))
        await sh(processes, "true")
        await processes.kill(one.id)
        kinds = {e.kind for e in await processes.fetch_events(wait=20)}
        assert kinds <= {"end", "stopped"}


@runs
async def test_watches_that_mean_nothing_are_refused(kept: Kept) -> None:
    async with kept() as processes:
        one = await sh(processes, "sleep 30")
        for watch in (Watch("pattern", pattern="("), Watch("pattern"), Watch("interval")):
            with pytest.raises(InvalidInput):
                await processes.watch(one.id, watch)
