"""Real places for processes: an sshd and a container; stand-ins where there is no other way."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.ports import find_port
from tests.servers import Missing
from tests.waiting import PATIENCE

_PODMAN = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Sshd:
    """An sshd of our own, with a home that knows its key and has one to get in."""

    def __init__(self) -> None:
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise Missing("there is no sshd: install the Debian package openssh-server")
        self._program = program
        self.home = Path(tempfile.mkdtemp(prefix="rekindle-ssh-"))
        self.port = find_port()
        self._folder = self.home / ".ssh"
        self._folder.mkdir(mode=0o700)
        for name in ("host", "id_ed25519"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._folder / name],
                check=True,
            )
        key = (self._folder / "host.pub").read_text()
        (self._folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        (self._folder / "conf").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self._folder}/host\n"
            f"AuthorizedKeysFile {self._folder}/id_ed25519.pub\nUsePAM no\nStrictModes no\n"
            f"PidFile {self._folder}/pid\nMaxStartups 100\nMaxSessions 100\n"
            # Not the home of who runs the tests: what its shell does first may take its time.
            f"SetEnv HOME={self.home}\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.start()

    @property
    def target(self) -> str:
        import getpass

        return f"{getpass.getuser()}@127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """What a client of another home needs."""
        return {
            "client_keys": [str(self._folder / "id_ed25519")],
            "known_hosts": str(self._folder / "known_hosts"),
            "config": None,
        }

    def start(self) -> None:
        self._server = subprocess.Popen(
            [self._program, "-D", "-e", "-f", self._folder / "conf"], stderr=subprocess.DEVNULL
        )
        _until(lambda: _answers(self.port))

    def cut(self) -> None:
        """End every connection, as a broken network does."""
        server = self._server.pid
        for child in Path(f"/proc/{server}/task/{server}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def remove(self) -> None:
        self.cut()
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Podman:
    """A container made of busybox, and the service that speaks the Docker API."""

    def __init__(self) -> None:
        for program in ("podman", "runc", "busybox", "script"):
            if shutil.which(program) is None:
                raise Missing(
                    f"there is no {program}: `python3 bootstrap.py setup --programs` installs it"
                    " as root on Debian"
                )
        self.folder = Path(tempfile.mkdtemp(prefix="rekindle-pod-"))
        (self.folder / "containers.conf").write_text(_PODMAN)
        self._env = {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}
        image = self.folder / "image"
        _fill(image)
        tar = self.folder / "image.tar"
        subprocess.run(["tar", "-C", image, "-cf", tar, "."], check=True)
        self._run("import", str(tar), "rekindle-test")
        self.name = f"rekindle-{os.getpid()}"
        self._run("run", "-d", "--name", self.name, "--network", "none", "localhost/rekindle-test",
                  "/bin/sleep", "100000")  # fmt: skip
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/service.sock"

    @cached_property
    def proc(self) -> Path:
        """What the container has under /proc, seen from here."""
        pid = self._run("inspect", "--format", "{{.State.Pid}}", self.name).strip()
        return Path(f"/proc/{pid}/root/proc")

    def start(self) -> None:
        self._service = subprocess.Popen(
            [*self._command, "system", "service", "--time", "0", self.url],
            env=self._env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _until((self.folder / "service.sock").is_socket)

    def cut(self) -> None:
        """End the service, and every connection with it."""
        self._service.kill()
        self._service.wait()
        (self.folder / "service.sock").unlink(missing_ok=True)

    def sweep(self) -> None:
        """End the monitors of past commands: each stays for minutes, for every scan of /proc to read."""
        own = os.fsencode(self.folder)
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes()
                is_monitor = own in words and b"--exec-process-spec" in words
                if is_monitor and not (process / "task" / process.name / "children").read_text():
                    os.kill(int(process.name), signal.SIGKILL)

    @property
    def _command(self) -> list[str]:
        root, run = self.folder / "root", self.folder / "run"
        return ["podman", "--root", str(root), "--runroot", str(run), "--storage-driver", "vfs"]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], env=self._env, capture_output=True, text=True
        )
        if done.returncode:
            raise Missing(f"podman {arguments[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def remove(self) -> None:
        self.cut()
        self.sweep()
        self._run("rm", "-f", "-t", "0", self.name)
        shutil.rmtree(self.folder, ignore_errors=True)


def _fill(image: Path) -> None:
    """The files of a container: busybox, and `script` with the libraries it asks for."""
    for folder in ("bin", "tmp", "dev", "proc", "etc", "usr/bin"):
        (image / folder).mkdir(parents=True)
    (image / "tmp").chmod(0o1777)
    shutil.copy(shutil.which("busybox") or "", image / "bin" / "busybox")
    names = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True)
    for name in names.stdout.split():
        if name != "busybox":
            (image / "bin" / name).symlink_to("busybox")
    program = shutil.which("script") or ""
    shutil.copy(program, image / "usr" / "bin" / "script")
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for library in (word for word in needed.split() if word.startswith("/")):
        target = image / library.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def apptainer_shim(folder: Path) -> Path:
    """A program called apptainer that takes the same words and enters no container at all.

    Apptainer itself cannot be had where the tests run. This shows that the words are right.
    """
    program = folder / "apptainer"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" = exec ] && [ "$2" = instance://box ] || { echo "no instance $2" >&2; exit 255; }\n'
        "shift 2\n"
        'for name in $(env | sed -n "s/^APPTAINERENV_\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p"); do\n'
        '    eval "export $name=\\"\\$APPTAINERENV_$name\\"; unset APPTAINERENV_$name"\n'
        "done\n"
        'exec "$@"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


class ModalStandIn:
    """What Rekindle uses of Modal's SDK, with this machine as the sandbox."""

    def __init__(self) -> None:
        class Error(Exception):
            pass

        self.exception = SimpleNamespace(Error=Error)
        self.Secret = SimpleNamespace(from_dict=dict)

        async def from_id(id: str) -> Any:
            if id != "sb-box":
                raise Error(f"no sandbox {id}")
            return SimpleNamespace(exec=SimpleNamespace(aio=_modal_exec))

        self.Sandbox = SimpleNamespace(from_id=SimpleNamespace(aio=from_id))


async def _modal_exec(*argv: str, secrets: list[Mapping[str, str]], text: bool) -> Any:
    assert not text
    env = {**os.environ, **{name: value for one in secrets for name, value in one.items()}}
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL, env=env
    )

    async def pieces() -> AsyncIterator[bytes]:
        assert process.stdout is not None
        try:
            while piece := await process.stdout.read(65536):
                yield piece
        finally:
            cast(Any, process)._transport.close()

    return SimpleNamespace(stdout=pieces(), wait=SimpleNamespace(aio=process.wait))


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _until(is_so: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise Missing("a server did not start in time")
        time.sleep(0.02)
