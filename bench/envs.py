"""Virtual environments for the contestants, made by the bench itself, with compiled bytecode."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from .contestants import OURS, ROSTER

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / "bench" / ".envs"
PATIENCE_S = 900


class NotInstalled(Exception):
    """A contestant could not be installed; the message is the reason."""


def python(env: str) -> Path:
    return ENVS / env / ("Scripts" if os.name == "nt" else "bin") / "python"


def command(env: str, name: str) -> Path:
    return python(env).with_name(name)


def _run(*args: str | Path) -> None:
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [str(arg) for arg in args],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotInstalled(" ".join(lines[-3:]).replace(str(ROOT), ".")[-300:] or "install failed")


def install(env: str, *packages: str | Path, again: tuple[str, ...] = ()) -> None:
    fresh = not python(env).exists()
    if shutil.which("uv"):
        if fresh:
            _run("uv", "venv", "-q", "--python", sys.executable, ENVS / env)
        renew = [f"--reinstall-package={name}" for name in again]
        target = f"--python={python(env)}"
        _run("uv", "pip", "install", "-q", "--compile-bytecode", target, *renew, *packages)
    else:
        if fresh:
            _run(sys.executable, "-m", "venv", ENVS / env)
        renew = ["--force-reinstall", "--no-deps"] if again and not fresh else []
        _run(python(env), "-m", "pip", "install", "-q", *renew, *packages)


def prepare(name: str) -> Path:
    """The Python of a contestant's environment, installed when it is not there yet.

    Rekindle is installed anew each time, so that what is measured is the checkout as it stands.
    """
    entry = ROSTER[name]
    stamp = ENVS / entry.env / "bench-packages"
    wanted = "\n".join(entry.packages)
    if entry.env == OURS:
        needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        install(OURS, *needs)  # by itself, so that the floors run beside a broken checkout too
        install(OURS, ROOT, again=("rekindle",))
    elif not stamp.exists() or stamp.read_text() != wanted:
        install(entry.env, *entry.packages)
        stamp.write_text(wanted)
    return python(entry.env)


def version(name: str) -> str:
    """The installed version of a contestant's first package, as its environment tells it."""
    entry = ROSTER[name]
    package = (entry.packages or ("rekindle",))[0].split("==")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python(entry.env), "-c", code], capture_output=True, text=True)
    return done.stdout.strip()
