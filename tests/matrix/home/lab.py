"""A home for a Matrix server, the command in it, and a small client."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import platformdirs

from tests import command, servers
from tests.ports import find_port

NAME = "rekindle.test"
_SECONDS = 600.0


def install_uv() -> Path:
    """Return the folder of uv, installed from PyPI once per machine; raise Missing if that fails."""
    if found := shutil.which("uv"):
        return Path(found).parent
    folder = Path(platformdirs.user_cache_dir("rekindle-tests", appauthor=False)) / "uv"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = folder / "bin" / "uv"
        if not program.exists():
            words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "uv"]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode or not program.exists():
                raise servers.Missing(f"uv cannot be installed: {done.stderr[-500:]}")
        # Nothing else that lies beside it may come onto the path.
        tools = folder / "tools"
        tools.mkdir(exist_ok=True)
        if not (tools / "uv").is_symlink():
            (tools / "uv").symlink_to(program)
    return tools


def find_free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(find_port())
    return list(ports)


class MatrixLab:
    """A machine: the command in a home that PostgreSQL's user can enter."""

    def __init__(self, uv: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rekindle-matrix-"))
        self.folder.chmod(0o711)
        self.home = self.folder / "rekindle"
        self.home.mkdir(mode=0o711)
        self.port, self.federation_port, self.postgres_port = find_free_ports(3)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("REKINDLE_")}
        self.env = {
            **kept,
            "HOME": str(self.folder),
            "REKINDLE_HOME": str(self.home),
            "PATH": f"{uv}{os.pathsep}{os.environ['PATH']}",
            # The environments are linked from one cache, whatever HOME is.
            "UV_CACHE_DIR": os.environ.get(
                "UV_CACHE_DIR",
                str(Path(platformdirs.user_cache_dir("rekindle-tests")) / "uv-cache"),
            ),
            "UV_PYTHON_DOWNLOADS": "never",
            "COLUMNS": "100",
        }
        # With systemd on the machine, the tests would write units of the user who runs them.
        self.add_tool("systemctl", "echo Failed to connect to bus >&2; exit 1")

    def __enter__(self) -> MatrixLab:
        return self

    def __exit__(self, *_: object) -> None:
        if (self.home / "matrix").exists():
            self.run("matrix", "teardown", "--yes-delete-everything")
        shutil.rmtree(self.folder, ignore_errors=True)

    def add_tool(self, name: str, script: str) -> None:
        """Put a program before those of the machine."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        tool = tools / name
        tool.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        if not self.env["PATH"].startswith(f"{tools}{os.pathsep}"):
            self.env["PATH"] = f"{tools}{os.pathsep}{self.env['PATH']}"

    @property
    def port_options(self) -> tuple[str, ...]:
        return (
            f"--client-port={self.port}",
            f"--federation-port={self.federation_port}",
            f"--postgres-port={self.postgres_port}",
        )

    def set_up(self, *words: str) -> str:
        return self("matrix", "setup", NAME, *self.port_options, *words)

    def run(
        self, *words: object, code: int | None = 0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        done = command.run(
            words,
            env=self.env,
            cwd=self.folder,
            input=stdin.encode(),
            capture_output=True,
            timeout=_SECONDS,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert code is None or done.returncode == code, (out[-2000:], err[-2000:])
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def __call__(self, *words: object, code: int = 0, stdin: str = "") -> str:
        return self.run(*words, code=code, stdin=stdin).stdout

    def refusal(self, *words: object, code: int = 2) -> str:
        return self.run(*words, code=code).stderr

    def kill_at(self, lines: Collection[str], *words: object) -> str | None:
        """Run the command and kill it with -9 when it says one of the lines; return which."""
        child = command.start(
            words,
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert child.stderr is not None
        found: str | None = None
        for said in child.stderr:
            assert b"Traceback" not in said
            found = next((line for line in lines if line.encode() in said), None)
            if found is not None:
                child.kill()
                break
        child.stderr.close()
        child.wait(_SECONDS)
        return found

    def status(self, code: int = 0) -> Any:
        return json.loads(self("matrix", "status", "--json", code=code))

    @property
    def secrets(self) -> dict[str, str]:
        return json.loads((self.home / "matrix" / "secrets.json").read_text())

    @property
    def bot_settings(self) -> dict[str, str]:
        return tomllib.loads((self.home / "platforms" / "matrix.toml").read_text())

    def log_in(self, user: str, password: str) -> MatrixClient:
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user},
            "password": password,
        }
        while True:
            status, answer = MatrixClient(self.port).request(
                "POST", "/_matrix/client/v3/login", body
            )
            if status != 429:
                break
            time.sleep(answer["retry_after_ms"] / 1000)  # another test was on the limits
        assert status == 200, answer
        return MatrixClient(self.port, answer["access_token"])

    def connect_bot(self) -> MatrixClient:
        return MatrixClient(self.port, self.bot_settings["access_token"])


class MatrixClient:
    """The few requests that tests need."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port, self.token = port, token

    def request(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = body if isinstance(body, bytes) or body is None else json.dumps(body)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(data)
        except ValueError:
            return response.status, data

    def _require(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.request(method, path, body)
        assert status == 200, (method, path, status, answer)
        return answer

    def get(self, path: str) -> Any:
        return self._require("GET", path)

    def post(self, path: str, body: object) -> Any:
        return self._require("POST", path, body)

    def whoami(self) -> dict[str, str]:
        return self.get("/_matrix/client/v3/account/whoami")

    def create_room(self, *invited: str) -> str:
        body = {"preset": "private_chat", "invite": list(invited), "is_direct": True}
        return self.post("/_matrix/client/v3/createRoom", body)["room_id"]

    def join(self, room: str) -> None:
        self.post(f"/_matrix/client/v3/join/{quote(room)}", {})

    def send(self, room: str, text: str) -> str:
        path = f"/_matrix/client/v3/rooms/{quote(room)}/send/m.room.message/{uuid.uuid4()}"
        return self._require("PUT", path, {"msgtype": "m.text", "body": text})["event_id"]

    def read(self, room: str) -> list[tuple[str, str]]:
        """Return who wrote what, the oldest first."""
        path = f"/_matrix/client/v3/rooms/{quote(room)}/messages?dir=f&limit=100"
        return [
            (event["sender"], event["content"]["body"])
            for event in self.get(path)["chunk"]
            if event["type"] == "m.room.message"
        ]

    def upload(self, data: bytes) -> str:
        status, answer = self.request("POST", "/_matrix/media/v3/upload", data)
        assert status == 200, answer
        return answer["content_uri"].removeprefix("mxc://")

    def download(self, media: str) -> Any:
        return self.request("GET", f"/_matrix/client/v1/media/download/{media}")[1]
