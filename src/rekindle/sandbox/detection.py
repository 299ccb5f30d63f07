"""Find the sandbox that works on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from . import landlock
from .sandbox import Sandbox, SandboxOptions

_PROBE_SECONDS = 20
# Without nested user namespaces where bubblewrap can forbid them (0.8 and later).
_BUBBLEWRAP_OPTIONS = (("--disable-userns",), ())


def open_sandbox(mode: str = "auto", options: SandboxOptions | None = None) -> Sandbox:
    """Return the sandbox for a mode: the best that works (`auto`), one kind of it, or `off`."""
    options = options or SandboxOptions()
    if mode == "off":
        return Sandbox("off", options=options)
    problems: list[str] = []
    for name, probe in (("bubblewrap", _probe_bubblewrap), ("landlock", _probe_landlock)):
        if mode in ("auto", name):
            program, problem = probe()
            if program:
                return Sandbox(
                    "bubblewrap" if name == "bubblewrap" else "landlock", program, options
                )
            problems.append(problem)
    return Sandbox("none", options=options, problem="; ".join(problems))


@cache
def _probe_bubblewrap() -> tuple[tuple[str, ...], str]:
    """Return bubblewrap's program and options if it works here, else why not."""
    program = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin")
    if program is None:
        return (), "bubblewrap is not installed (package `bubblewrap`)"
    problem = ""
    for options in _BUBBLEWRAP_OPTIONS:
        words = [
            program,
            "--unshare-user",
            *options,
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
        ]
        words += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        problem = _run_probe([*words, "--", "/bin/sh", "-c", "exit 0"])
        if not problem:
            return (program, *options), ""
    return (), f"bubblewrap does not work here: {problem}"


@cache
def _probe_landlock() -> tuple[tuple[str, ...], str]:
    """Return the launcher's command if Landlock and seccomp work here, else why not."""
    problem = ""
    for launcher in landlock.list_launchers():
        problem = _run_probe(landlock.build_probe(launcher))
        if not problem:
            return launcher, ""
    return (), f"Landlock does not work here: {problem}"


def _run_probe(words: list[str]) -> str:
    """Run a command; return an empty text if it succeeds, else the reason."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env={"PATH": os.defpath},
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit code {done.returncode}"
