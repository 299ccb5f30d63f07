"""The pages about background processes, with a real supervisor, and the feeds behind them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from rekindle.errors import NotFound
from rekindle.processes.operations import Processes
from rekindle.processes.types import OutputChunk, Process
from rekindle.store import Store
from rekindle.web.processes.feed import MAX_EVENTS, OutputFeed
from rekindle.web.processes.listing import format_span
from rekindle.web.processes.output_views import LogView, OutputView, ScreenView
from tests.unit.web.conftest import WebClient, build_client
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def web(store: Store, tmp_path: Path) -> Iterator[WebClient]:
    """A client whose requests share an event loop, as in a server; what it starts is killed."""
    client = build_client(store, tmp_path)
    with client:
        client.open_link()
        yield client
        running = client.get("/processes?show=running").text
        for id in re.findall(r'href="/processes/(\w+)"', running):
            client.submit(f"/processes/{id}/kill")


def start(web: WebClient, command: str, **fields: str) -> str:
    """Start a process with the form; return its id."""
    answer = web.submit("/processes", command=command, **fields)
    assert answer.status_code == 200, answer.text
    return answer.url.path.rpartition("/")[2]


def wait_for_text(web: WebClient, path: str, text: str) -> str:
    """Load a page until it contains a text."""
    wait_until(lambda: text in web.get(path).text)
    return web.get(path).text


# -- pages


def test_an_empty_list_starts_no_supervisor(client: WebClient, tmp_path: Path) -> None:
    answer = client.get("/processes")
    assert "No background processes" in answer.text
    assert not (tmp_path / "processes").exists()


def test_a_process_is_started_listed_and_shown(web: WebClient) -> None:
    id = start(web, "sh -c \"printf '\\033[31mred\\033[0m <b>\\nlast line\\n'\"", name="colors")
    page = wait_for_text(web, f"/processes/{id}", "exited 0")
    assert '<div><span class="a-red">red</span> &lt;b&gt;</div><div>last line</div>' in page
    listed = web.get("/processes").text
    assert f'href="/processes/{id}">colors</a>' in listed
    assert "last line" in listed
    fragment = web.get("/processes", headers={"x-fragment": "processlist"}).text
    assert "colors" in fragment
    assert "<html" not in fragment
    assert web.get("/processes/colors").status_code == 200
    assert "Nothing is running" in web.get("/processes?show=running").text


def test_input_signals_and_restart(web: WebClient, tmp_path: Path) -> None:
    script = tmp_path / "talk.py"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGHUP, lambda *_: print('got it', flush=True))\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin: print(f'({line.strip()})', flush=True)\n"
    )
    id = start(web, f"{sys.executable} {script}")
    wait_for_text(web, f"/processes/{id}", "ready")
    web.submit(f"/processes/{id}/input", line="<hello>")
    wait_for_text(web, f"/processes/{id}", "(&lt;hello&gt;)")
    web.submit(f"/processes/{id}/kill", signal="HUP")
    wait_for_text(web, f"/processes/{id}", "got it")
    again = web.submit(f"/processes/{id}/restart").url.path.rpartition("/")[2]
    assert again != id
    assert "killed" in web.get(f"/processes/{id}").text
    wait_for_text(web, f"/processes/{again}", "ready")
    web.submit(f"/processes/{again}/input", close="1")
    wait_for_text(web, f"/processes/{again}", "exited 0")


def test_keys_arrive_once_and_in_order(web: WebClient) -> None:
    id = start(web, "cat", terminal="1")
    for number, keys in ((1, "a"), (2, "b"), (2, "b"), (1, "a"), (3, "c\r")):
        web.submit(f"/processes/{id}/keys", keyboard="k", number=str(number), keys=keys)
    web.submit(f"/processes/{id}/keys", keyboard="another", number="1", keys="d\r")
    # The echo of the terminal, and that of cat.
    wait_until(lambda: web.get(f"/processes/{id}").text.count("<div>d</div>") == 2)
    assert web.get(f"/processes/{id}").text.count("<div>abc</div>") == 2
    assert web.submit(f"/processes/{id}/size", rows="30", columns="90").json() == {}


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/processes", {"command": ""}, 400),
        ("/processes", {"command": "'open"}, 400),
        ("/processes", {"command": "true", "after": "nobody"}, 404),
        ("/processes/nobody/kill", {}, 404),
        ("/processes/nobody/keys", {"number": "x"}, 404),
    ],
)
def test_mistakes_are_explained(
    client: WebClient, path: str, fields: dict[str, str], status: int
) -> None:
    answer = client.submit(path, **fields)
    assert answer.status_code == status
    assert "went wrong" not in answer.text
    assert client.get("/processes/nobody").status_code == 404
    assert client.get("/processes?page=x").status_code == 400
    assert client.get("/processes/nobody/log").status_code == 404


def test_nothing_can_be_changed_in_read_only_mode(store: Store, tmp_path: Path) -> None:
    client = build_client(store, tmp_path, readonly=True)
    client.open_link()
    assert "Start a process" not in client.get("/processes").text
    assert client.submit("/processes", command="true").status_code == 403
    assert not (tmp_path / "processes").exists()


# -- feeds


class ScriptedProcesses:
    """Processes whose output the test gives in pieces; `ended` ends the process."""

    def __init__(self) -> None:
        self.output = b""
        self.dropped = 0  # bytes at the start that are no longer kept
        self.ended = False
        self.attached = 0

    def attach(self, id: str, *, since: int = 0) -> AsyncGenerator[OutputChunk, None]:
        self.attached += 1
        return self._attach(since)

    async def _attach(self, since: int) -> AsyncGenerator[OutputChunk, None]:
        if self.output == b"gone":
            raise NotFound("process not found")
        while True:
            start = max(since, self.dropped)
            data = self.output[start : start + 65536]
            if data:
                yield OutputChunk(data, start + len(data), start - since)
                since = start + len(data)
            elif self.ended:
                return
            else:
                await asyncio.sleep(0.001)


def make_feed(
    scripted: ScriptedProcesses, view: OutputView, max_pending: int = 65536
) -> OutputFeed:
    process = Process("p1", "running", None, "x", "me", "local", 1, 0.0, bytes=len(scripted.output))
    return OutputFeed(
        cast(Processes, scripted), process, view, since=0, pause=0.001, max_pending=max_pending
    )


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), PATIENCE)

    asyncio.run(limited())


def read_events(text: str) -> list[tuple[str, Any]]:
    """Parse server-sent events."""
    found: list[tuple[str, Any]] = []
    for event in text.split("\n\n"):
        if event.startswith("event: "):
            name, data = event.split("\n", 1)
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_viewer_gets_what_there_is_then_changes_then_the_end() -> None:
    async def watch() -> None:
        scripted = ScriptedProcesses()
        scripted.output = b"one\ntw"
        feed = make_feed(scripted, LogView())
        async with aclosing(feed.stream_events()) as events:
            first = read_events(await anext(events))
            assert [event["html"] for _, event in first] == ["<div>one</div>", "tw"]
            scripted.output += b"o\n"
            later = read_events(await anext(events))
            assert (later[0][1]["how"], later[0][1]["html"]) == ("append", "<div>two</div>")
            scripted.ended = True
            assert read_events([event async for event in events][-1])[0][0] == "end"

    run(watch)


def test_viewers_share_one_reader_and_latecomers_see_the_same() -> None:
    async def watch() -> None:
        scripted = ScriptedProcesses()
        scripted.output = b"one\n"
        feed = make_feed(scripted, LogView())
        viewers = [feed.stream_events() for _ in range(50)]
        texts = await asyncio.gather(*(anext(viewer) for viewer in viewers))
        assert {read_events(text)[0][1]["html"] for text in texts} == {"<div>one</div>"}
        scripted.output += b"two\n"
        await asyncio.gather(*(anext(viewer) for viewer in viewers))
        late = read_events(await anext(feed.stream_events()))
        assert late[0][1]["html"] == "<div>one</div><div>two</div>"
        assert scripted.attached == 1

    run(watch)


def test_a_flood_is_skipped_not_kept() -> None:
    async def watch() -> None:
        scripted = ScriptedProcesses()
        feed = make_feed(scripted, LogView(), max_pending=5000)
        scripted.output = b"x" * 79 + b"\n"
        async with aclosing(feed.stream_events()) as events:
            await anext(events)
            scripted.output += (b"y" * 79 + b"\n") * 20_000
            scripted.dropped = 1_000_000
            scripted.output += b"the end\n"
            scripted.ended = True
            text = "".join([event async for event in events])
        assert "some output is left out" in text
        assert "the end" in text
        assert len(text) < 200_000

    run(watch)


def test_a_slow_viewer_starts_over_instead_of_falling_behind() -> None:
    async def watch() -> None:
        scripted = ScriptedProcesses()
        feed = make_feed(scripted, LogView())
        async with aclosing(feed.stream_events()) as events:
            await anext(events)
            for number in range(MAX_EVENTS + 2):
                feed.view.add_output(b"line %d\n" % number)
                feed.publish()
            again = read_events(await anext(events))[0][1]
            assert again["how"] == "replace"
            assert f"line {MAX_EVENTS + 1}" in again["html"]

    run(watch)


def test_a_terminal_sends_rows_that_change() -> None:
    async def watch() -> None:
        scripted = ScriptedProcesses()
        scripted.output = b"$ "
        feed = make_feed(scripted, ScreenView())
        async with aclosing(feed.stream_events()) as events:
            name, screen = read_events(await anext(events))[0]
            assert (name, len(screen["changed"])) == ("screen", 24)
            scripted.output += b"\x1b[31mls\x1b[0m"
            changed = read_events(await anext(events))[0][1]["changed"]
            assert changed == {"0": '$ <span class="a-red">ls</span><span class="cursor"> </span>'}

    run(watch)


def test_a_process_that_is_gone_ends_the_events() -> None:
    async def watch() -> None:
        scripted = ScriptedProcesses()
        scripted.output = b"gone"
        text = "".join([event async for event in make_feed(scripted, LogView()).stream_events()])
        assert read_events(text)[-1] == ("end", {"error": "process not found"})

    run(watch)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (3.21, "3.2 s"), (59, "59 s"), (61, "1 min 1 s"), (7300, "2 h 1 min"),
     (180_000, "2 d 2 h")],
)  # fmt: skip
def test_how_long_it_took(seconds: float, text: str) -> None:
    assert format_span(seconds) == text
