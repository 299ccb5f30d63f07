"""The example plugin: installed with pip, set up with the command, against a real IRC server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rekindle.testing import ScriptedModel
from tests import command
from tests.ports import find_port
from tests.waiting import PATIENCE, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "irc"
SERVER = """[Global]
Name = irc.test
Info = test
Listen = 127.0.0.1
Ports = {port}
[Limits]
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
"""


class Person:
    """A plain IRC client."""

    def __init__(self, port: int, nick: str) -> None:
        self.nick, self.lines = nick, list[str]()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._file = self._socket.makefile("rb")
        self.write(f"NICK {nick}")
        self.write("USER person 0 * :Person")
        self.expect(" 001 ")

    def write(self, line: str) -> None:
        self._socket.sendall(f"{line}\r\n".encode())

    def expect(self, part: str) -> str:
        while True:
            line = self._file.readline().decode().rstrip("\r\n")
            assert line, f"the server closed the connection before {part!r}: {self.lines}"
            self.lines.append(line)
            if line.startswith("PING"):
                self.write(f"PONG {line[5:]}")
            if part in line:
                return line


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed example, as pip installs it."""
    folder, copy = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("irc") / "irc"
    shutil.copytree(EXAMPLE, copy)
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, *words, "--target", str(folder), str(copy)], check=True)
    return folder


@contextmanager
def run_server(folder: Path, port: int) -> Iterator[None]:
    program = shutil.which("ngircd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        warnings.warn("THE EXAMPLE PLUGIN IS NOT TESTED: there is no ngircd", stacklevel=1)
        pytest.skip("there is no ngircd")
    config = folder / "ngircd.conf"
    config.write_text(SERVER.format(port=port))
    process = subprocess.Popen(
        [program, "--nodaemon", "--config", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _is_open(port))
        yield
    finally:
        process.kill()
        process.wait()


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.networks
def test_a_platform_in_one_file_is_installed_set_up_and_talks(plugin: Path, tmp_path: Path) -> None:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
    env = {**kept, "REKINDLE_HOME": str(tmp_path / "home")}
    port, long_answer = find_port(), "word " * 300
    turn = {"user": "long", "steps": [{"text": long_answer}]}

    def run(*words: str, code: int = 0, real: bool = False) -> str:
        done = command.run(
            words,
            env=env,
            plugins=plugin,
            real=real,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    setup = ["gateway", "setup", "irc", "--set", f"server=127.0.0.1:{port}", "--set", "tls=false"]
    setup += ["--set", "channels=#ops"]
    assert "nick is missing; pass --set nick=VALUE" in run(*setup, code=2)
    setup += ["--set", "nick=spark"]
    assert "cannot be reached" in run(*setup, code=1)
    assert not (tmp_path / "home" / "config.toml").exists()
    with run_server(tmp_path, port), ScriptedModel({"turns": [turn]}) as model:
        said = run(*setup)
        assert "Signed in to IRC as spark." in said
        settings = tmp_path / "home" / "platforms" / "irc.toml"
        assert settings.stat().st_mode & 0o777 == 0o600
        assert run("config", real=True).count("irc") >= 1
        ada, eve = Person(port, "ada"), Person(port, "eve")
        ada.write("WHOIS ada")
        user = ada.expect(" 311 ").split()
        run("gateway", "allow", f"irc:ada!{user[4]}@{user[5]}", "--role", "owner")
        env |= {"OPENAI_BASE_URL": model.url, "REKINDLE_MODEL": "scripted"}
        log = (tmp_path / "gateway.log").open("wb")
        gateway = command.start(["gateway", "run"], env=env, plugins=plugin, stderr=log)
        try:
            for person in (ada, eve):
                person.write("JOIN #ops")
            ada.write("NAMES #ops")
            while "spark" not in ada.expect(" 353 "):
                ada.write("NAMES #ops")
            ada.write("PRIVMSG spark :hello")
            assert ada.expect("PRIVMSG ada").endswith(":You said: hello")
            ada.write("PRIVMSG #ops :not for you")
            eve.write("PRIVMSG #ops :spark: obey me")
            ada.write("PRIVMSG #ops :spark: in the group")
            while not (line := ada.expect("PRIVMSG #ops")).startswith(":spark!"):
                assert "obey me" in line  # of eve, whom nobody answers
            assert "in the group" in line
            ada.write("PRIVMSG spark :long")
            words = 0
            while words < 300:
                words += ada.expect("PRIVMSG ada").count("word")
            eve.write("PRIVMSG spark :let me in")
            eve.expect("rekindle gateway pair")
            assert not any("obey" in line for line in ada.lines if "spark!" in line)
        finally:
            gateway.kill()
            gateway.wait()
            log.close()
