"""Virtual environments for Rekindle and its peers, created here, with compiled bytecode."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from bench.peers import OURS, ROSTER

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / "bench" / ".envs"
PATIENCE_S = 900


class InstallError(Exception):
    """A package could not be installed; the message is the reason."""


def get_python(env: str) -> Path:
    return ENVS / env / ("Scripts" if os.name == "nt" else "bin") / "python"


def get_command(env: str, name: str) -> Path:
    return get_python(env).with_name(name)


def _run_installer(*args: str | Path) -> None:
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
        raise InstallError(" ".join(lines[-3:]).replace(str(ROOT), ".")[-300:] or "install failed")


def install_packages(env: str, *packages: str | Path, again: tuple[str, ...] = ()) -> None:
    fresh = not get_python(env).exists()
    if shutil.which("uv"):
        if fresh:
            _run_installer("uv", "venv", "-q", "--python", sys.executable, ENVS / env)
        renew = [f"--reinstall-package={name}" for name in again]
        target = f"--python={get_python(env)}"
        _run_installer(
            "uv", "pip", "install", "-q", "--compile-bytecode", target, *renew, *packages
        )
    else:
        if fresh:
            _run_installer(sys.executable, "-m", "venv", ENVS / env)
        renew = ["--force-reinstall", "--no-deps"] if again and not fresh else []
        _run_installer(get_python(env), "-m", "pip", "install", "-q", *renew, *packages)


def prepare_environment(name: str) -> Path:
    """Return the Python of a store's environment; install the environment if it is missing.

    Rekindle is reinstalled each time, so that the current checkout is measured.
    """
    entry = ROSTER[name]
    stamp = ENVS / entry.env / "bench-packages"
    wanted = "\n".join(entry.packages)
    if entry.env == OURS:
        needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        install_packages(
            OURS, *needs
        )  # by itself, so that the floors run beside a broken checkout too
        install_packages(OURS, ROOT, again=("rekindle",))
    elif not stamp.exists() or stamp.read_text() != wanted:
        install_packages(entry.env, *entry.packages)
        stamp.write_text(wanted)
    return get_python(entry.env)


def read_version(name: str) -> str:
    """Return the installed version of a store's first package."""
    entry = ROSTER[name]
    package = (entry.packages or ("rekindle",))[0].split("==")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([get_python(entry.env), "-c", code], capture_output=True, text=True)
    return done.stdout.strip()
