"""The world of the example platform: a real IRC server, and people with plain clients."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import PlatformError
from rekindle.platforms import Feature, Platform
from rekindle.types import Source
from tests.contract.platform_world import Upload
from tests.ports import find_port
from tests.waiting import PATIENCE, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "irc" / "rekindle_irc.py"
BOT = "spark"
SERVER = """[Global]
Name = irc.test
Info = test
Listen = 127.0.0.1
Ports = {port}
{more}
[Limits]
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
"""


class IrcServer:
    """A server that can be stopped and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("ngircd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            warnings.warn("THE EXAMPLE PLUGIN IS NOT TESTED: there is no ngircd", stacklevel=1)
            pytest.skip("there is no ngircd")
        self._program, self._folder = program, folder
        self.port = find_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, more: str = "") -> None:
        config = self._folder / "ngircd.conf"
        config.write_text(SERVER.format(port=self.port, more=more))
        self._process = subprocess.Popen(
            [self._program, "--nodaemon", "--config", str(config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._is_open)

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _is_open(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class IrcPerson:
    """A plain client, whose thread reads what comes."""

    def __init__(self, port: int, nick: str) -> None:
        self.nick, self.lines = nick, list[str]()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.write(f"NICK {nick}")
        self.write("USER person 0 * :Person")
        wait_until(lambda: any(" 001 " in line for line in self.lines))
        self.write("JOIN #ops")
        wait_until(lambda: any(" 366 " in line for line in self.lines))

    def write(self, line: str) -> None:
        self._socket.sendall(f"{line}\r\n".encode())

    def list_texts(self, target: str) -> list[str]:
        """Return what the bot wrote to a person or channel."""
        found = [line for line in [*self.lines] if line.startswith(f":{BOT}")]
        mark = f" PRIVMSG {target} :"
        return [line.partition(mark)[2] for line in found if mark in line]

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> None:
        with self._socket.makefile("r", encoding="utf-8", newline="\r\n") as file:
            try:
                for line in file:
                    self.lines.append(line.rstrip("\r\n"))
                    if line.startswith("PING"):
                        self.write(f"PONG {line[5:]}")
            except OSError:
                pass  # closed


class Irc:
    can_edit = False
    lacks: frozenset[Feature] = frozenset(
        ("files", "threads", "quotes", "edits", "deletions", "replay", "ids")
    )

    limits_rate = False

    def __init__(self, server: IrcServer) -> None:
        self.server = server
        self.ada, self.bob = IrcPerson(server.port, "Ada"), IrcPerson(server.port, "Bob")
        self.chat = Source("irc", "Ada", user_id="Ada", user_name="Ada")

    def connect(self) -> Platform:
        settings = {"server": f"127.0.0.1:{self.server.port}", "tls": "false", "nick": BOT,
                    "password": "", "channels": "#ops"}  # fmt: skip
        return load_example().IrcPlatform(settings, retry_seconds=0.02)

    def is_ready(self) -> bool:
        """Whether the bot is in the channel: it was there before Ada, or has come since."""
        is_there = False
        for line in [*self.ada.lines]:
            if " 353 " in line:  # who is there
                is_there = BOT in line.rpartition(":")[2].replace("@", "").split()
            elif line.startswith(f":{BOT}!") and " PRIVMSG " not in line:
                is_there = " JOIN " in line
        return is_there

    def say(self, text: str) -> str:
        self.ada.write(f"PRIVMSG {BOT} :{text}")
        return ""

    def seen(self) -> list[str]:
        return self.ada.list_texts("Ada")

    def disconnect(self) -> None:
        self.server.stop()
        self.ada.close()
        self.bob.close()
        self.server.start()
        self.ada, self.bob = (IrcPerson(self.server.port, nick) for nick in ("Ada", "Bob"))

    def refuse(self, error: PlatformError | None) -> None:
        """A server says nothing about what it does not pass on."""

    def revoke(self) -> None:
        self.server.stop()
        self.server.start("Password = another")

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        self.bob.write(f"PRIVMSG #ops :{BOT}: {text}" if mentions else f"PRIVMSG #ops :{text}")
        return ""

    def say_as_bot(self, text: str) -> None:
        self.ada.write(f"NOTICE {BOT} :{text}")  # what programs are to write, as nobody answers it

    def reply(self, text: str, to: str) -> None:
        self.say(text)

    def edit(self, id: str, text: str) -> None:
        """What is sent stays."""

    def delete(self, id: str) -> None:
        """What is sent stays."""

    def send_file(self, file: Upload) -> None:
        self.ada.write(f"PRIVMSG {BOT} :\x01DCC SEND {file.name} 2130706433 1 9\x01")

    def repeat(self, id: str) -> None:
        """A server passes on what it gets, once."""

    def say_swapped(self, first: str, second: str) -> None:
        self.say(second)
        self.say(first)

    def limit_uploads(self, max_bytes: int) -> None:
        """There are none."""

    def seen_files(self) -> list[bytes]:
        return []

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        return self.bob.list_texts("#ops")


@contextmanager
def irc() -> Iterator[Irc]:
    with tempfile.TemporaryDirectory() as folder:
        server = IrcServer(Path(folder))
        server.start()
        world = Irc(server)
        try:
            yield world
        finally:
            world.ada.close()
            world.bob.close()
            server.stop()


def load_example() -> Any:
    """Return the module of the example, which is not installed here."""
    if (known := sys.modules.get("rekindle_irc")) is not None:
        return known
    spec = importlib.util.spec_from_file_location("rekindle_irc", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rekindle_irc"] = module
    spec.loader.exec_module(module)
    return module
