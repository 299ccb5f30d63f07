"""From a fresh clone to a running Rekindle, with nothing but Python and git.

    python3 bootstrap.py               set up, find the sessions on this machine, show what is there
    python3 bootstrap.py run [ARG…]    set up, then run `rekindle ARG…`
    python3 bootstrap.py test [ARG…]   set up with what the tests need, then run `pytest ARG…`
    python3 bootstrap.py setup         only set up; `setup --dev` with what the tests need

Everything is installed into the folder .venv beside this file. It is made with uv where there is
one, else with Python's own venv and pip. A second run sees that nothing changed and is quick.
"""

# ruff: noqa: T201, UP031, UP036  (it prints, and an older Python must get as far as the message)
import sys

if sys.version_info < (3, 11):
    sys.exit(
        "Rekindle needs Python 3.11 or newer; this is %s (%s).\n"
        "Run this file with a newer one, such as: python3.11 bootstrap.py"
        % (sys.version.split()[0], sys.executable)
    )

import compileall
import hashlib
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "installed"
TOOLS = VENV / "tools"

# The interpreter that runs this file is the one to use: no other is looked for or brought here.
ENVIRONMENT = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}


def main(arguments: list[str]) -> int:
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("start", [])
    if verb == "test":
        install(dev=True)
        os.chdir(ROOT)
        # Where no bytecode may be written, each run would compile every test for each worker.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return run([str(PYTHON), "-m", "pytest", *(rest or all_tests())])
    if verb == "setup":
        install(dev="--dev" in rest)
        return 0
    if verb == "run":
        install()
        return run([str(BIN / "rekindle"), *rest])
    if verb == "start" and not rest:
        install()
        return run([str(BIN / "rekindle"), "start"])
    print(__doc__)
    return 0 if verb in ("-h", "--help") else 2


def all_tests() -> list[str]:
    """The whole suite takes both halves of a small machine. A file's tests stay together, and the
    order is that of the folders: the long ones come first, so that no half waits for the other.
    """
    return ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def run(command: list[str]) -> int:
    """Run the command in the folder and the environment of the user."""
    try:
        return subprocess.run(command).returncode
    except KeyboardInterrupt:
        return 130


def install(dev: bool = False) -> None:
    """Bring .venv to what pyproject.toml asks for, unless it is there already."""
    wanted = stamp()
    held = STAMP.read_text().split() if STAMP.exists() else []
    if held[:1] != [wanted] or (dev and "dev" not in held):
        dev = dev or "dev" in held
        uv = find_uv()
        if not is_usable(uv):
            uv = make_environment(uv)
        say("Installing Rekindle" + (" and what its tests need" if dev else ""))
        requirements = ["--editable", f"{ROOT}[all]", *(development() if dev else [])]
        if uv:
            target = ["--python", str(PYTHON), "--compile-bytecode"]
            check([*uv, "pip", "install", "--quiet", *target, *requirements])
        else:
            check([str(PYTHON), "-m", "pip", "install", "--quiet", *requirements])
        STAMP.write_text(f"{wanted} dev\n" if dev else f"{wanted}\n")
    # Where Python was told not to write bytecode, every start would compile the package again.
    compileall.compile_dir(str(ROOT / "src"), quiet=2)


def stamp() -> str:
    """What an installation depends on; the code itself is not copied, so it is not part of it."""
    facts = (ROOT / "pyproject.toml").read_bytes() + sys.version.encode() + str(ROOT).encode()
    return hashlib.sha256(facts).hexdigest()


def development() -> list[str]:
    """The requirements of the dependency group `dev`."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return list(tomllib.load(file)["dependency-groups"]["dev"])


def find_uv() -> list[str]:
    """The command of a uv that works, or nothing."""
    for command in (["uv"], [sys.executable, "-m", "uv"]):
        if shutil.which(command[0]) and works([*command, "--version"]):
            return command
    return []


def is_usable(uv: list[str]) -> bool:
    """Is there an environment of this very Python, with something that can install into it?"""
    same = f"import sys; sys.exit(sys.version != {sys.version!r})"
    return (
        PYTHON.exists()
        and works([str(PYTHON), "-c", same])
        and (bool(uv) or works([str(PYTHON), "-m", "pip", "--version"]))
    )


def make_environment(uv: list[str]) -> list[str]:
    """Make .venv; the uv to go on with, or nothing when pip is to be used."""
    say(f"Making {VENV}")
    STAMP.unlink(missing_ok=True)
    if uv:
        check([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)])
        return uv
    if works([sys.executable, "-m", "venv", "--clear", str(VENV)]):
        return []
    # Some systems ship Python without the part that puts pip into an environment.
    shutil.rmtree(VENV, ignore_errors=True)
    check([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    if not works([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(TOOLS), "uv"]):
        sys.exit(
            "This Python can make no environment with pip in it. Install your system's package\n"
            "for that (Debian: apt-get install python3-venv) or uv, and run this again."
        )
    return [str(TOOLS / "bin" / ("uv.exe" if os.name == "nt" else "uv"))]


def works(command: list[str]) -> bool:
    quiet = subprocess.DEVNULL
    return subprocess.run(command, stdout=quiet, stderr=quiet, env=ENVIRONMENT).returncode == 0


def check(command: list[str]) -> None:
    code = subprocess.run(command, env=ENVIRONMENT).returncode
    if code:
        sys.exit(f"bootstrap: this failed with exit code {code}:\n  {' '.join(command)}")


def say(text: str) -> None:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
