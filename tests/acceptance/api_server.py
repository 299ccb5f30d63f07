"""A `rekindle serve` of a test's own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

from rekindle.api.client import ApiClient
from tests import command
from tests.acceptance.test_cli import Rekindle
from tests.waiting import PATIENCE, wait_until


class ApiServer:
    """A server in a home; it can be killed and started again on its port."""

    def __init__(self, home: Path, *words: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.rekindle = Rekindle(home)
        self.log = home / "log"
        self._said = home / "said"
        self._words = words
        self.key = self.rekindle("serve", "add-key", "test").strip()
        self.url = "http://127.0.0.1:0"
        self.process = self.start()

    def start(self) -> subprocess.Popen[Any]:
        """Start the server on a free port, or on the one that it had."""
        self._said.unlink(missing_ok=True)
        words = ["serve", "--listen", self.url.removeprefix("http://"), "--rate", "0", *self._words]
        with self._said.open("wb") as said, self.log.open("ab") as log:
            self.process = command.start(
                words, env=self.rekindle.env, cwd=self.rekindle.home, stdout=said, stderr=log
            )
        wait_until(lambda: b"\n" in self._said.read_bytes() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        self.url = self._said.read_text().strip()
        return self.process

    def kill(self) -> None:
        """End the server as a crash does."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """End the server as an operator does."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def client(self, key: str | None = None, **options: Any) -> ApiClient:
        """A client with the server's own key, or another one."""
        return ApiClient(self.url, self.key if key is None else key, **options)
