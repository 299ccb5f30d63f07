"""Run attacks behind the wall and print what each of them did, as JSON lines.

`python -m tests.attacks.inside WAY < attacks.json`. Approval is switched off, so that the sandbox alone
stands between an attack and the files, processes and sockets planted here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NamedTuple

from rekindle.agent.toolkit import Toolkit, open_toolkit
from rekindle.agent.tools.tool import ToolContext
from rekindle.config import load_config
from rekindle.processes.from_config import create_client
from rekindle.sandbox.protected_files import COMMON_LAUNCH_FILES
from rekindle.types import ToolCall

HOME = Path("/home/ada")
VICTIM, WORKSPACE = HOME / "victim", HOME / "project"
REKINDLE_HOME = HOME / ".local/share/rekindle"
MARK = "PLANTED-SECRET"
PORTS = (9, 22, 53, 80, 443, 8765)
SECONDS = 20
_SECRETS = (
    *(".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".config/gh/hosts.yml"),
    *(".codex/auth.json", ".claude/.credentials.json", ".npmrc", ".netrc", ".pypirc", ".pgpass"),
    *(".git-credentials", ".docker/config.json", ".kube/config", ".gnupg/private-keys-v1.d/k.key"),
    *(
        ".mozilla/firefox/x/cookies.sqlite",
        ".config/google-chrome/Default/Cookies",
        ".bash_history",
    ),
    *(".config/gcloud/access_tokens.db", ".azure/msal_token_cache.json", ".vault-token", ".env"),
    *(".local/share/keyrings/login.keyring", ".config/rclone/rclone.conf", "notes/diary.txt"),
    *(
        ".local/share/rekindle/sessions.db",
        ".password-store/mail.gpg",
        ".zsh_history",
        ".gitconfig",
    ),
)
_LAUNCH_FILES = (".git/hooks", ".git/config", ".envrc", ".vscode", ".claude", ".mcp.json", ".idea")


class World(NamedTuple):
    """What is planted around the workspace: connections that were made, and a process to leave alone."""

    connections: list[str]
    bystander: subprocess.Popen[bytes]


def build_home() -> None:
    """Plant secrets, a victim folder and Rekindle's own files."""
    for name in _SECRETS:
        path = HOME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {MARK}\n")
    (HOME / ".bashrc").write_text("# start file\n")
    REKINDLE_HOME.mkdir(parents=True, exist_ok=True)
    (REKINDLE_HOME / "sessions.db").unlink(missing_ok=True)
    arguments = json.dumps([str(Path(__file__).with_name("shell_server.py"))])
    (REKINDLE_HOME / "config.toml").write_text(
        f"[mcp.servers.shell]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
        f"sandbox = true\ncwd = {json.dumps(str(WORKSPACE))}\n[mcp]\nstart_seconds = 60\n# {MARK}\n"
    )
    VICTIM.mkdir(exist_ok=True)
    for number in range(3):
        (VICTIM / f"f{number}").write_text("x\n")


def build_template(folder: Path) -> None:
    """Create the workspace that every attack starts with."""
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hello\n")
    (folder / "b").write_text("b\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "a.txt", "b"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    (folder / ".git/hooks").mkdir(exist_ok=True)
    if (
        os.environ.get("REKINDLE_SANDBOX_MODE") != "landlock"
    ):  # it cannot hide this, so it is asked about
        (folder / ".env").write_text(f"TOKEN={MARK}\n")


def reset_workspace(template: Path, *, keep: bool = False) -> None:
    """Empty the workspace and fill it again.

    With `keep`, protected files stay: to remove one here would lift its mount in a running server.
    """
    kept = {".git", ".env", *COMMON_LAUNCH_FILES} if keep else set[str]()
    WORKSPACE.mkdir(exist_ok=True)
    for path in WORKSPACE.iterdir():
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    ignore = shutil.ignore_patterns(*kept)
    shutil.copytree(template, WORKSPACE, symlinks=True, dirs_exist_ok=True, ignore=ignore)


def open_listeners(connections: list[str]) -> None:
    """Listen where an attack could connect to, and record who does."""
    for port in PORTS:
        _serve(socket.create_server(("127.0.0.1", port)), f"tcp {port}", connections)
    for name in ("/tmp/agent.sock", "\0planted"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
        listener.listen()
        _serve(listener, f"unix {name!r}", connections)


def _serve(listener: socket.socket, name: str, connections: list[str]) -> None:
    def accept_all() -> None:
        while True:
            client, _ = listener.accept()
            connections.append(name)
            client.close()

    threading.Thread(target=accept_all, daemon=True).start()


def take_snapshot() -> dict[str, str]:
    """Describe every file that an attack must not change."""
    found: dict[str, str] = {}
    for base in (HOME, Path("/tmp"), Path("/var"), Path("/run"), Path("/etc")):
        for folder, names, files in os.walk(base):
            names[:] = [name for name in names if not _is_ours(os.path.join(folder, name))]
            for name in (*names, *files):
                _describe_file(os.path.join(folder, name), found)
    for name in _LAUNCH_FILES:
        for path in (WORKSPACE / name, *sorted((WORKSPACE / name).rglob("*"))):
            _describe_file(str(path), found)
    return found


def _is_ours(path: str) -> bool:
    """Return whether a folder belongs to the program under test, or cannot change."""
    ours = ("/tmp/rekindle-", f"{REKINDLE_HOME}/processes")
    return path == str(WORKSPACE) or path.startswith(ours) or not os.access(path, os.W_OK)


def _describe_file(path: str, found: dict[str, str]) -> None:
    with suppress(OSError):
        status = os.lstat(path)
        text = f"{status.st_mode:o}"
        if os.path.isfile(path) and not os.path.islink(path) and status.st_size < 1_000_000:
            with suppress(OSError):
                text += hashlib.blake2b(Path(path).read_bytes(), digest_size=8).hexdigest()
        found[path] = text


# -- the ways in


Runner = Callable[[str], Awaitable[str]]


def make_runner(way: str, toolkit: Toolkit, context: ToolContext) -> Runner:
    """Return a function that runs a command in one way and returns the output."""

    async def call(name: str, **arguments: object) -> str:
        tool_call = ToolCall("1", name, json.dumps(arguments))
        return (await toolkit.toolbox.run(tool_call, context)).content

    async def run_in_background(command: str) -> str:
        started = json.loads(await call("terminal", command=command, background=True))
        if "process_id" not in started:
            return json.dumps(started)
        id = started["process_id"]
        waited = await call("process", action="wait", process_id=id, timeout=SECONDS)
        log = await call("process", action="log", process_id=id, limit=2000)
        await call("process", action="kill", process_id=id)
        return waited + log

    async def run_in_code(command: str) -> str:
        words = ["bash", "-c", command]
        code = (
            f"import subprocess\nsubprocess.run({words!r}, cwd={str(WORKSPACE)!r},"
            " stdin=subprocess.DEVNULL)\n"
        )
        return await call("execute_code", code=code, timeout=SECONDS)

    runners: Mapping[str, Runner] = {
        "terminal": lambda command: call("terminal", command=command, timeout=SECONDS),
        "execute_code": run_in_code,
        "process": run_in_background,
        "mcp": lambda command: call("mcp__shell__run", command=command),
    }
    return runners[way]


async def run_attacks(way: str, attacks: list[tuple[str, str]]) -> None:
    """Run the attacks one after another and print a line about each."""
    template = (
        Path("/run/template") if os.getuid() == 0 else HOME.parent / "ada" / ".cache" / "template"
    )
    build_home()
    build_template(template)
    reset_workspace(template)
    world = World([], subprocess.Popen(["sleep", "100000"]))
    open_listeners(world.connections)
    os.environ["OPENAI_API_KEY"] = f"sk-{MARK}"
    os.environ["SSH_AUTH_SOCK"] = "/tmp/agent.sock"
    config = load_config(os.environ)
    processes = create_client(config)
    names = ("mcp-shell",) if way == "mcp" else ("terminal", "code")
    tools = open_toolkit(config, names, processes=processes)
    async with aclosing(processes), tools as toolkit:
        assert not toolkit.problems, toolkit.problems
        context = ToolContext(
            session="attack",
            cwd=WORKSPACE,
            owner="ada",
            approval="never",
            environment=os.environ,
            notes={},
            rules=toolkit.rules,
            sandbox=toolkit.sandbox,
        )
        run = make_runner(way, toolkit, context)
        await run("true")  # what it starts once is not an effect
        before = take_snapshot()
        for name, command in attacks:
            reset_workspace(template, keep=way == "mcp")
            output = await run(command.replace("$V", str(VICTIM)).replace("$W", str(WORKSPACE)))
            after = take_snapshot()
            effects = sorted(
                path for path in {*before, *after} if before.get(path) != after.get(path)
            )
            if world.bystander.poll() is not None:
                effects.append("a process was killed")
            report = {
                "way": way, "name": name, "mode": toolkit.sandbox.mode, "effects": effects,
                "read": MARK in output, "connections": list(world.connections),
                "output": output[-400:],
            }  # fmt: skip
            sys.stdout.write(json.dumps(report) + "\n")
            sys.stdout.flush()
            if effects:
                build_home()
                before = take_snapshot()
            world.connections.clear()


if __name__ == "__main__":
    os.chdir(WORKSPACE.parent)
    WORKSPACE.mkdir(exist_ok=True)
    os.chdir(WORKSPACE)
    asyncio.run(run_attacks(sys.argv[1], [tuple(one) for one in json.load(sys.stdin)]))
