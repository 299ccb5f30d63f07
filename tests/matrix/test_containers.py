"""The Compose file of deploy/matrix, started with Podman, with images built from Debian packages."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from tests import servers
from tests.waiting import wait_until

from .synapse import ApiError, call, install_synapse

SOURCE = Path(__file__).parents[2] / "deploy" / "matrix"
COMPOSE = "podman-compose==1.6.0"
BUILD_SECONDS = 900
# Without systemd nobody runs the health checks by the clock, so the tests run them.
CONFIG = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Containers:
    """A copy of the folder with images of our own, in a storage that other tests do not see."""

    def __init__(self, folder: Path) -> None:
        self._check_programs()
        cache = Path(platformdirs.user_cache_dir("rekindle-tests", appauthor=False)) / "containers"
        cache.mkdir(parents=True, exist_ok=True)
        self.folder, self.project = folder / "matrix", f"rekindle-test-{os.getpid()}"
        shutil.copytree(SOURCE, self.folder, ignore=shutil.ignore_patterns("private", ".env"))
        config, program = folder / "containers.conf", folder / "bin" / "podman"
        config.write_text(CONFIG)
        program.parent.mkdir()
        storage = f"--root {cache}/root --runroot {cache}/run"
        program.write_text(f'#!/bin/sh\nexec /usr/bin/podman {storage} "$@"\n')
        program.chmod(0o755)
        self._env = {
            **os.environ,
            "CONTAINERS_CONF": str(config),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(cache / "compose"),
            "BUILD": str(cache / "build"),
        }
        self.port, federation = _find_port(), _find_port()
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._build(cache)
        done = self.run("sh", "prepare.sh", "example.org")
        assert done.returncode == 0, done.stderr
        with (self.folder / ".env").open("a") as env:
            env.write(
                "MATRIX_SYNAPSE_IMAGE=localhost/rekindle-synapse:bookworm\n"
                "MATRIX_POSTGRES_IMAGE=localhost/rekindle-postgres:bookworm\n"
                f"MATRIX_CLIENT_PORT={self.port}\nMATRIX_FEDERATION_PORT={federation}\n"
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, *words: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            words, cwd=self.folder, env=self._env, input=data or b"", capture_output=True
        )

    def compose(self, *words: str, data: bytes | None = None) -> bytes:
        """Run what the README runs with `docker compose`."""
        command = (sys.executable, "-m", "podman_compose", "-p", self.project, *words)
        done = self.run(*command, data=data)
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-2000:])
        return done.stdout

    def start(self, service: str) -> None:
        """Start a service and wait until its own check calls it healthy."""
        self.compose("up", "--detach", "--no-deps", service)
        name = f"{self.project}_{service}_1"
        wait_until(lambda: self.run("podman", "healthcheck", "run", name).returncode == 0)

    def remove(self) -> None:
        self.compose("down", "--volumes")

    def _check_programs(self) -> None:
        for program in ("podman", "runc", "mmdebstrap"):
            if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
                raise servers.Missing(f"there is no {program}")
        if os.geteuid() != 0:
            raise servers.Missing("only root can build the images")

    def _build(self, cache: Path) -> None:
        uv = str(install_synapse().parent / "uv")
        if not (cache / "compose" / "podman_compose.py").exists():
            self._run_or_miss(uv, "pip", "install", "-q", "--python", sys.executable,
                              "--target", str(cache / "compose"), COMPOSE)  # fmt: skip
        stamp, recipe = cache / "stamp", _compute_hash(self.folder / "images")
        exists = self.run("podman", "image", "exists", "localhost/rekindle-postgres:bookworm")
        if exists.returncode == 0 and stamp.exists() and stamp.read_text() == recipe:
            return
        self._env["PIP"] = f"{uv} pip install"
        self._run_or_miss("sh", "images/build.sh")
        stamp.write_text(recipe)

    def _run_or_miss(self, *words: str) -> None:
        done = subprocess.run(
            words, cwd=self.folder, env=self._env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=BUILD_SECONDS,
        )  # fmt: skip
        if done.returncode:
            raise servers.Missing(f"{' '.join(words[:3])}: {done.stderr[-800:]}")


def _compute_hash(folder: Path) -> str:
    contents = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
    return hashlib.sha256(contents).hexdigest()


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    try:
        made = Containers(tmp_path)
    except servers.Missing as reason:
        warnings.warn(f"CONTAINERS OF MATRIX ARE NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))
    yield made
    made.remove()


def log_in(url: str) -> str:
    identifier = {"type": "m.id.user", "user": "ada"}
    body = {"type": "m.login.password", "identifier": identifier, "password": "secret"}
    return call(url, "POST", "/_matrix/client/v3/login", body)["access_token"]


@pytest.mark.timeout(BUILD_SECONDS + 300)
def test_the_compose_file_starts_and_a_backup_restores_into_an_empty_machine(
    containers: Containers,
) -> None:
    containers.start("postgres")
    containers.start("synapse")
    register = (
        "exec",
        "-T",
        "synapse",
        "register_new_matrix_user",
        "-c",
        "/config/homeserver.yaml",
    )
    containers.compose(*register, "-u", "ada", "-p", "secret", "--no-admin")
    token = log_in(containers.url)
    room = call(containers.url, "POST", "/_matrix/client/v3/createRoom", {"name": "kept"}, token)
    with pytest.raises(ApiError):  # registration is closed
        call(containers.url, "POST", "/_matrix/client/v3/register", {})

    dump = ("exec", "-T", "postgres", "pg_dump", "--username", "synapse")
    saved = containers.compose(*dump, "--format", "custom", "synapse")
    containers.remove()
    containers.start("postgres")
    restore = ("exec", "-T", "postgres", "pg_restore", "--username", "synapse")
    containers.compose(*restore, "--dbname", "synapse", "--no-owner", data=saved)
    containers.start("synapse")
    path = f"/_matrix/client/v3/rooms/{room['room_id']}/state/m.room.name"
    assert call(containers.url, "GET", path, token=token) == {"name": "kept"}
