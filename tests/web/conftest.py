"""The real command in the real browser: `rekindle web`, and Chromium through playwright."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import command
from tests.waiting import PATIENCE

VIEWPORTS = {
    "desktop": {"width": 1280, "height": 860},
    "phone": {"width": 390, "height": 844},
}


WAIT = PATIENCE * 1000


class PatientBrowser:
    """The browser, whose pages wait for as long as a busy machine may need."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def new_context(self, **options: Any) -> Any:
        context = self._browser.new_context(**options)
        context.set_default_timeout(WAIT)
        return context


def wait_beside(page: Any, condition: Callable[[], object]) -> None:
    """Wait for something outside the page, while the page goes on."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:.0f} s")
        page.wait_for_timeout(50)


class WebServer:
    """A running `rekindle web` with a home of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.env = {
            **{name: text for name, text in os.environ.items() if not name.startswith("REKINDLE_")},
            "HOME": str(home),
            "REKINDLE_HOME": str(home / ".rekindle"),
        }
        self._process = command.start(
            ["web", "--listen", "127.0.0.1:0", "--no-open", *options],
            env=self.env,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(home / "web.log").open("wb"),
        )
        assert self._process.stdout is not None
        self.link = self._process.stdout.readline().decode().strip()
        assert self.link, (home / "web.log").read_text()
        self.url = self.link.partition("/open")[0]
        self.pid = self._process.pid

    @property
    def store(self) -> Path:
        return self.home / ".rekindle" / "sessions.db"

    def create_link(self) -> str:
        """Return another link that works once."""
        address = self.url.removeprefix("http://")
        words = ["web", "link", "--listen", address]
        done = command.run(words, env=self.env, cwd=self.home, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    def read_log(self) -> str:
        """Return what the server wrote to stderr."""
        return (self.home / "web.log").read_text()

    def stop(self) -> None:
        """Stop the server by its process id."""
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.wait(PATIENCE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    """A server with an empty store; write to it with `open_store(server.store)`."""
    running = WebServer(tmp_path / "home")
    yield running
    running.stop()
    assert "Traceback" not in running.read_log()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; a test that needs it is skipped loudly without it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=WAIT
        )
        yield PatientBrowser(browser)
        browser.close()


@pytest.fixture
def page(chromium: Any, server: WebServer) -> Iterator[Any]:
    """A desktop page that has opened the server's link; errors of scripts fail the test."""
    context = chromium.new_context(viewport=VIEWPORTS["desktop"])
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda line: problems.append(line.text) if line.type == "error" else None,
    )
    opened.goto(server.link)
    opened.wait_for_url(f"{server.url}/")
    yield opened
    context.close()
    assert problems == []
