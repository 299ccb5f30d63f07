"""The Python environment of Synapse: built next to the current one, which it then replaces."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

from rekindle.errors import HomeServerError

from .layout import ServerFiles, read_json, write_private_file

# psycopg2 itself has to be compiled.
_PACKAGES = ("psycopg2-binary>=2.9",)
_SYNAPSE = "matrix-synapse"
_OLDEST = "1.150"  # what the configuration was written for
_MARK = "rekindle.json"
_LIST_PACKAGES = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
)


class SynapseEnvironment(NamedTuple):
    """A complete environment."""

    folder: Path
    packages: dict[str, str]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def version(self) -> str:
        return self.packages.get(_SYNAPSE, "unknown")


def find_environment(files: ServerFiles) -> SynapseEnvironment | None:
    """Return the current environment, if it is complete."""
    target = Path(os.path.realpath(files.environment))
    return read_environment(target) if files.environment.is_symlink() else None


def read_environment(folder: Path) -> SynapseEnvironment | None:
    """Return the environment in a folder, if it is complete."""
    packages: Any = read_json(folder / _MARK)
    if not isinstance(packages, dict):
        return None
    names = cast("dict[object, object]", packages)
    return SynapseEnvironment(folder, {str(name): str(one) for name, one in names.items()})


def build_environment(files: ServerFiles, version: str = "") -> SynapseEnvironment:
    """Install Synapse into a new environment, which is not used yet."""
    remove_unused_environments(files)
    files.environments.mkdir(exist_ok=True, mode=0o700)
    folder = files.environments / secrets.token_hex(6)
    wanted = f"{_SYNAPSE}=={version}" if version else f"{_SYNAPSE}>={_OLDEST}"
    uv = shutil.which("uv")  # much faster
    if uv:
        _run_installer([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        words = [uv, "pip", "install", "--quiet", "--python"]
        words.append(str(folder / "bin" / "python"))
    else:
        _run_installer([sys.executable, "-m", "venv", str(folder)])
        words = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        words += ["--disable-pip-version-check", "--no-input", "--prefer-binary"]
        words.append("--no-compile")  # the first start does it, for what it needs
    # Compiling Synapse needs a Rust compiler and an hour.
    _run_installer([*words, "--only-binary", _SYNAPSE, wanted, *_PACKAGES])
    listed = _run_installer([str(folder / "bin" / "python"), "-c", _LIST_PACKAGES])
    # Last, so that an environment with it is complete.
    write_private_file(folder / _MARK, json.dumps(json.loads(listed), indent=1) + "\n")
    built = read_environment(folder)
    if built is None:
        raise HomeServerError(f"{folder}: the environment is incomplete.")
    return built


def use_environment(files: ServerFiles, environment: SynapseEnvironment) -> None:
    """Make this the environment that Synapse starts with."""
    link = files.folder / f".environment.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(files.environments.name, environment.folder.name))
    link.replace(files.environment)


def remove_unused_environments(files: ServerFiles) -> None:
    """Remove all environments but the current one, such as those of interrupted runs."""
    current = os.path.realpath(files.environment)
    if files.environments.is_dir():
        for folder in files.environments.iterdir():
            if str(folder.resolve()) != current:
                shutil.rmtree(folder, ignore_errors=True)


def _run_installer(words: list[str]) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise HomeServerError(f"{words[0]} cannot be started: {error.strerror}.") from None
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        problems = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        reason = " ".join(" ".join(problems[:3]).split()) or f"exit code {done.returncode}"
        hint = ""
        if "ensurepip" in reason or "python3-venv" in reason:
            hint = " Install the package python3-venv."
        raise HomeServerError(f"Synapse cannot be installed: {reason:.500}.{hint}")
    return done.stdout
