"""The real agents, installed from npm: once per machine, in the user's cache folder."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from tests import servers

# Not every version is published for every machine.
_OPENCODE = "1.18.18" if platform.machine() == "aarch64" else "1.18.33"
# Exact versions: what is tested must not change by itself.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("@anthropic-ai/claude-code@2.1.325",),
    "codex": ("@openai/codex@0.166.0",),
    "opencode": (f"opencode-ai@{_OPENCODE}",),
    "gemini": ("@google/gemini-cli@0.61.0",),
    "pi": ("@earendil-works/pi-coding-agent@0.87.1", "node@24"),  # crashes with older ones
}
PROGRAMS: Mapping[str, str] = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "gemini": "gemini",
    "pi": "pi",
}
INSTALL_SECONDS = 540
FOLDER_VARIABLE = "REKINDLE_TEST_AGENTS"  # another folder for them


def get_cache_folder() -> Path:
    """Return the folder that agents are installed in."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given or platformdirs.user_cache_dir("rekindle-tests", appauthor=False)) / "agents"


def install_agent(agent: str) -> Path:
    """Install an agent unless it is there, and return its program; raise Missing if that fails."""
    return install_packages(PACKAGES[agent], f".bin/{PROGRAMS[agent]}")


def install_packages(packages: tuple[str, ...], file: str) -> Path:
    """Install packages of npm unless they are there; return a file of theirs."""
    name = "+".join(packages).replace("/", "-")
    folder = get_cache_folder() / name
    path = folder / "node_modules" / file
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _install(packages, folder)
    if not path.exists():
        raise servers.Missing(f"{' '.join(packages)} has no file {file}")
    return path


def _install(packages: tuple[str, ...], folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise servers.Missing("npm is not installed, so no real agent can be")
    # Under another name until it is complete: an interrupted installation is not taken for one.
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    done = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--prefix", str(part), *packages],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=INSTALL_SECONDS,
    )
    if done.returncode:
        raise servers.Missing(f"npm install {' '.join(packages)}: {done.stderr[-500:]}")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
