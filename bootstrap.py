"""Set up Rekindle in a fresh clone, with nothing but Python and git.

    python3 bootstrap.py               set up, import the sessions on this machine, show what was found
    python3 bootstrap.py run [ARG…]    set up, then run `rekindle ARG…`
    python3 bootstrap.py test [ARG…]   set up with what the tests need, then run `pytest ARG…`
    python3 bootstrap.py setup         only set up; add --dev for the tests, --programs for all programs
                                       that tests start, --docs for the site

Everything is installed into the folder .venv next to this file, with uv, which is brought with pip if it
is not available, or else with pip alone. A second run finds nothing to do and is quick.
"""

# ruff: noqa: T201, UP031, UP036  (it prints, and an older Python must get as far as the message)
import sys

if sys.version_info < (3, 11):
    sys.exit(
        "Rekindle needs Python 3.11 or newer; this is %s (%s).\n"
        "Run this file with a newer one, for example: python3.11 bootstrap.py"
        % (sys.version.split()[0], sys.executable)
    )

import compileall
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
COMMAND = BIN / ("rekindle.exe" if os.name == "nt" else "rekindle")
STAMP = VENV / "installed"
TOOLS = VENV / "tools"
UV = TOOLS / "bin" / ("uv.exe" if os.name == "nt" else "uv")

# Programs that the full suite starts, and the Debian packages that have them.
PROGRAMS = {
    "bwrap": ("bubblewrap",),
    "initdb": ("postgresql",),
    "pgbouncer": ("pgbouncer",),
    "rg": ("ripgrep",),
    "sshd": ("openssh-server",),
    "strace": ("strace",),
}
# Programs of the tests that the full suite leaves out by their markers; most of them are large.
MORE_PROGRAMS = {
    "busybox": ("busybox-static",),
    "chromium": ("chromium",),
    "mmdebstrap": ("mmdebstrap",),
    "ngircd": ("ngircd",),
    "podman": ("podman", "netavark", "aardvark-dns", "iptables"),
    "runc": ("runc",),
}

# What the first command installs: everything but the libraries of chat networks, which are large.
EXTRAS = "agent,mcp,backends,postgres,watch,web"
GROUPS = {
    "dev": "what its tests need",
    "frameworks": "the frameworks it fits into",
    "docs": "what its site needs",
}

# Use the interpreter that runs this file; never search for or download another one. Unbuffered
# output lets the progress display follow pip line by line.
ENVIRONMENT = {
    "UV_NATIVE_TLS": "1",  # trust the certificates that this machine trusts
    **os.environ,
    "UV_PYTHON_DOWNLOADS": "never",
    "PYTHONUNBUFFERED": "1",
}

TERMINAL_SECONDS = 1.0
PIPE_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    """Run one verb and return its exit code."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("start", [])
    if verb == "test":
        programs = start_programs({**PROGRAMS, **MORE_PROGRAMS} if rest else PROGRAMS)
        try:
            install("dev")
        finally:  # never leave apt-get behind in the middle of its work
            finish_programs(programs)
        os.chdir(ROOT)
        # Where no bytecode may be written, each run would compile every test for each worker.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return run([str(PYTHON), "-m", "pytest", *(rest or full_suite_options())])
    if verb == "setup":
        install(*(group for group in GROUPS if f"--{group}" in rest))
        if "--programs" in rest:
            finish_programs(start_programs({**PROGRAMS, **MORE_PROGRAMS}))
        show_command()
        return 0
    if verb == "run":
        install()
        return run([str(COMMAND), *rest])
    if verb == "start" and not rest:
        install()
        code = run([str(COMMAND), "start"])
        show_command()
        return code
    print(__doc__)
    return 0 if verb in ("-h", "--help") else 2


def full_suite_options() -> list[str]:
    """Return the pytest options for the full suite, which uses both cores of a small machine.

    Three workers per core, because many tests mostly wait for other programs. The tests of a file stay
    together, and files keep the order of the folders: the slow ones come first, so that no worker has
    to wait long for the others at the end.
    """
    return ["-n", "6", "--dist", "loadfile", "--no-loadscope-reorder"]


def run(command: list[str]) -> int:
    """Run a command in the user's folder and environment, and return its exit code."""
    try:
        return subprocess.run(command).returncode
    except KeyboardInterrupt:
        return 130


def install(*groups: str) -> None:
    """Install what pyproject.toml asks for into .venv, unless it is already there."""
    wanted = compute_stamp()
    held = STAMP.read_text().split() if STAMP.exists() else []
    if held[:1] != [wanted] or not {*groups} <= {*held}:
        began = time.monotonic()
        groups = tuple(group for group in GROUPS if group in groups or group in held)
        uv = find_uv()
        if not is_usable(uv):
            uv = create_environment(uv)
        elif not uv:
            uv = bring_uv()
        parts = ["Rekindle", *(GROUPS[group] for group in groups)]
        hint = "" if held else " (a minute, the first time)"
        say(f"Installing {' and '.join(parts)} with {'uv' if uv else 'pip'}{hint}")
        extras = "all" if "dev" in groups else EXTRAS
        requirements = ["--editable", f"{ROOT}[{extras}]", *read_requirements(groups)]
        install_requirements(uv, requirements)
        STAMP.write_text(f"{' '.join([wanted, *groups])}\n")
        say(f"Installed in {time.monotonic() - began:.0f} s")
    # If Python is configured not to write bytecode, every start would compile the package again.
    compileall.compile_dir(str(ROOT / "src"), quiet=2)


def install_requirements(uv: list[str], requirements: list[str]) -> None:
    """Install with uv; with pip where uv was brought by this program and does not get along."""
    target = ["--python", str(PYTHON), "--compile-bytecode"]
    if uv:
        command = [*uv, "pip", "install", *target, *requirements]
        if uv != [str(UV)] or not works([str(PYTHON), "-m", "pip", "--version"]):
            check(command)
            return
        if run_with_progress(command) == 0:
            return
        say("uv could not install it: installing with pip")
    options = ["--progress-bar", "off", "--no-color", "--no-compile"]
    check([str(PYTHON), "-m", "pip", "install", *options, *requirements])
    compile_libraries()


def bring_uv() -> list[str]:
    """Bring uv with pip and return its command, or an empty list: it installs four times as fast.

    Not where pip is told to use another index, which uv would not know.
    """
    pip = [str(PYTHON), "-m", "pip"]
    known = subprocess.run(
        [*pip, "config", "list"], capture_output=True, text=True, env=ENVIRONMENT
    )
    if known.returncode or re.search(r"^\S*\.(?:index-url|no-index)=", known.stdout, re.MULTILINE):
        return []
    options = ["--quiet", "--no-compile", "--disable-pip-version-check", "--target", str(TOOLS)]
    if not UV.exists():
        works([*pip, "install", *options, "uv"])
    return [str(UV)] if UV.exists() and works([str(UV), "--version"]) else []


def compile_libraries() -> None:
    """Compile what pip has installed, on all cores; pip itself would use one."""
    say("Compiling bytecode")
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([str(PYTHON), "-c", find], capture_output=True, text=True, check=True)
    # It fails where a package has templates that are no valid Python, and compiles all the others.
    run_with_progress([str(PYTHON), "-m", "compileall", "-q", "-j", "0", done.stdout.strip()])


def start_programs(programs: dict[str, tuple[str, ...]]) -> "RunningCommand | None":
    """Start to install what is missing of these, as root on Debian; elsewhere say what is missing."""
    missing = [program for program in programs if not find_program(program)]
    if not missing:
        return None
    packages = [package for program in missing for package in programs[program]]
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if not is_root or not shutil.which("apt-get"):
        say(f"NOT INSTALLED: {', '.join(missing)}. Tests that need them will be skipped.")
        say(f"On Debian: apt-get install {' '.join(packages)}")
        return None
    say(f"Installing Debian packages for the tests: {' '.join(packages)}")
    ENVIRONMENT["DEBIAN_FRONTEND"] = "noninteractive"
    command = f"apt-get install --yes --no-install-recommends {' '.join(packages)}"
    return RunningCommand(["sh", "-c", f"{command} || {{ apt-get update && {command}; }}"])


def finish_programs(running: "RunningCommand | None") -> None:
    """Wait until the programs are installed; exit if they cannot be."""
    if running:
        exit_if_failed(running)


def find_program(name: str) -> bool:
    """Return whether a program is installed; Debian keeps some of them out of the user's PATH."""
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
    folders += [str(folder) for folder in Path("/usr/lib/postgresql").glob("*/bin")]
    return shutil.which(name, path=os.pathsep.join(folders)) is not None


def compute_stamp() -> str:
    """Hash what an installation depends on.

    The code itself is not part of it: an editable installation does not copy the code.
    """
    facts = (ROOT / "pyproject.toml").read_bytes() + sys.version.encode() + str(ROOT).encode()
    return hashlib.sha256(facts).hexdigest()


def read_requirements(groups: tuple[str, ...]) -> list[str]:
    """Return the requirements of these dependency groups; pip can read groups only since 25.1."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        known = tomllib.load(file)["dependency-groups"]
    return [requirement for group in groups for requirement in known[group]]


def find_uv() -> list[str]:
    """Return the command of a working uv, or an empty list."""
    for command in (["uv"], [sys.executable, "-m", "uv"]):
        if shutil.which(command[0]) and works([*command, "--version"]):
            return command
    return []


def is_usable(uv: list[str]) -> bool:
    """Return whether .venv belongs to this very Python and has something to install with."""
    same = f"import sys; sys.exit(sys.version != {sys.version!r})"
    return (
        PYTHON.exists()
        and works([str(PYTHON), "-c", same])
        and (bool(uv) or works([str(PYTHON), "-m", "pip", "--version"]))
    )


def create_environment(uv: list[str]) -> list[str]:
    """Create .venv and return the command of the uv to install with, or an empty list for pip."""
    say(f"Creating {VENV}")
    STAMP.unlink(missing_ok=True)
    if uv:
        check([*uv, "venv", "--clear", "--python", sys.executable, str(VENV)])
        return uv
    if run_with_progress([sys.executable, "-m", "venv", "--clear", str(VENV)]) == 0:
        return bring_uv()
    # Some systems ship Python without the module that puts pip into an environment.
    shutil.rmtree(VENV, ignore_errors=True)
    check([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    say("Installing uv, because this Python cannot put pip into an environment")
    if run_with_progress([sys.executable, "-m", "pip", "install", "--target", str(TOOLS), "uv"]):
        sys.exit(
            "This Python cannot create an environment with pip in it. Install your system's package\n"
            "for that (Debian: apt-get install python3-venv) or uv, and run this again."
        )
    return [str(UV)]


def works(command: list[str]) -> bool:
    """Run a command silently and return whether it succeeded."""
    quiet = subprocess.DEVNULL
    return subprocess.run(command, stdout=quiet, stderr=quiet, env=ENVIRONMENT).returncode == 0


def check(command: list[str]) -> None:
    """Run a command and show its progress; if it fails, print its output and exit."""
    exit_if_failed(RunningCommand(command))


def exit_if_failed(running: "RunningCommand") -> None:
    """Show the progress of a command until it ends; if it failed, print its output and exit."""
    code = running.wait()
    if code:
        print("".join(running.output), end="", file=sys.stderr)
        sys.exit(f"bootstrap: this failed with exit code {code}:\n  {shlex.join(running.command)}")


def run_with_progress(command: list[str]) -> int:
    """Run a command, show its progress, and return its exit code."""
    return RunningCommand(command).wait()


class RunningCommand:
    """A command that was started, and the lines it has printed so far."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.output: list[str] = []
        self.process = subprocess.Popen(
            command,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert self.process.stdout is not None
        # Read in a thread, so that nothing waits for us, and that the elapsed time is shown even
        # while the command prints nothing.
        given = (self.process.stdout, self.output)
        self.reader = threading.Thread(target=collect_lines, args=given, daemon=True)
        self.reader.start()

    def wait(self) -> int:
        """Show the progress until the command ends, and return its exit code."""
        progress = Progress()
        try:
            while self.reader.is_alive():
                self.reader.join(progress.seconds)
                if self.reader.is_alive():
                    progress.show(self.output)
        finally:
            progress.clear()
        return self.process.wait()


def collect_lines(stream: Iterable[str], lines: list[str]) -> None:
    """Append each line of the stream to the list as it arrives."""
    for line in stream:
        lines.append(line)


class Progress:
    """The elapsed time and the current step: one changing line on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.is_terminal = sys.stderr.isatty()
        self.seconds = TERMINAL_SECONDS if self.is_terminal else PIPE_SECONDS
        self.began = time.monotonic()

    def show(self, output: list[str]) -> None:
        """Show the elapsed seconds and what the last line of `output` says."""
        line = f"bootstrap: {time.monotonic() - self.began:4.0f} s  {describe_step(output)}"
        width = shutil.get_terminal_size().columns - 1
        if self.is_terminal:
            print(f"\r{line[:width]:{width}}", end="", file=sys.stderr, flush=True)
        else:
            print(line[:100], file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Erase the line on a terminal."""
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{'':{width}}\r", end="", file=sys.stderr, flush=True)


def describe_step(output: list[str]) -> str:
    """Return what the installer is doing, from the last line of its output that says so."""
    for line in reversed(output):
        text = line.strip()
        if text.startswith("Installing collected packages:"):
            return f"Installing {text.count(',') + 1} packages"
        if text.startswith("Installed "):  # the last line of uv before its last step
            return "Compiling bytecode"
        if text.startswith("Successfully installed"):
            return "Finishing"
        if text.startswith("Processing "):  # a file in a local folder
            return f"Processing {Path(text.split()[1]).name}"
        if text and not text.startswith(("WARNING", "Looking in")):
            # Leave out where a package was found and what requires it.
            return text.split(" (from ")[0].split(" in /")[0]
    return "Working"


def show_command() -> None:
    """Print where the command is and, unless it is on PATH already, how to put it there."""
    say(f"The command is {COMMAND}")
    if shutil.which("rekindle"):
        return
    package = shlex.quote(("." if Path.cwd() == ROOT else str(ROOT)) + "[all]")
    if shutil.which("uv"):
        advice = f"uv tool install {package}"
    elif shutil.which("pipx"):
        advice = f"pipx install {package}"
    else:
        advice = f'export PATH="{BIN}:$PATH"'
    say(f"To run it as `rekindle` from any folder: {advice}")


def say(text: str) -> None:
    """Print a line to stderr, because stdout belongs to the command that is run."""
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
