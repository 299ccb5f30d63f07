"""Hooks in the real agents' configurations, and a project with a history for them to recall."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from rekindle import open_store
from rekindle.hooks.command import build_hook_command, list_events
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.store import Store
from rekindle.transcripts.importer import import_transcripts
from tests.acceptance.test_notes import write_session
from tests.hook_launcher import write_patient_launcher
from tests.waiting import wait_until

from .lab import AgentLab

KNOWN_COMMAND = "make check-everything"
FAILING_COMMAND = "make lint-shop"
FIX = "make lint-shop -f shop.mk"
FAILURE = "make: *** No rule to make target 'lint-shop'.  Stop."
_FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
}
TIMEOUT_SECONDS = 10


def add_hooks(lab: AgentLab, *, without: str = "") -> None:
    """Let an agent run our hooks; all events but `without`."""
    write_patient_launcher(lab.rekindle_home)
    file = _FILES[lab.agent]
    settings = lab.read_json(file)
    hooks: dict[str, Any] = {}
    for event, name in list_events(lab.agent, before_call=False).items():
        if event == without:
            continue
        command = build_hook_command(lab.agent, event, lab.rekindle_home)
        one = {"type": "command", "command": command, "timeout": TIMEOUT_SECONDS}
        if lab.agent == "gemini":
            one |= {"name": f"rekindle {event}", "timeout": TIMEOUT_SECONDS * 1000}
        hooks[name] = [{"hooks": [one]}]
    settings["hooks"] = hooks
    if lab.agent == "gemini":
        settings["hooksConfig"] = {"enabled": True}
    lab.write_json(file, settings)


def open_lab_store(lab: AgentLab) -> Store:
    return open_store(lab.rekindle_home / "sessions.db")


def teach(lab: AgentLab, folder: Path | None = None) -> None:
    """Give the project of the lab a history: a command that works, and a failure with its fix."""
    transcripts = lab.rekindle_home.parent / "history"
    transcripts.mkdir(exist_ok=True)
    where = str(folder or lab.repository)
    failed = (FAILING_COMMAND, f"Exit code 2\n{FAILURE}", False)
    for number, part in enumerate(["cart", "checkout", "tax table", "search page"]):
        write_session(
            transcripts,
            f"known-{number}",
            (KNOWN_COMMAND, "ok", True),
            failed,
            (FIX, "done", True),
            asked=f"improve the {part} of the shop",
            where=where,
        )
    with open_lab_store(lab) as store:
        import_transcripts(store, [transcripts])
        learn_from_sessions(store)


def set_control_share(lab: AgentLab, share: float) -> None:
    (lab.rekindle_home / "config.toml").write_text(f"[warm]\ncontrol_share = {share}\n")


def run_hook(home: Path, agent: str, event: str, fields: object) -> bytes:
    """Run a hook as an agent does, and return what it prints."""
    command = build_hook_command(agent, event, home)
    given = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    done = subprocess.run(["sh", "-c", command], input=given, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def warm_up(home: Path) -> None:
    """Start the helper, so that a busy machine does not make the first answer late."""
    socket = home / "hooks" / "helper.sock"

    def is_ready() -> bool:
        run_hook(home, "claude-code", "prompt", {"session_id": f"warm-up-{os.getpid()}"})
        return socket.exists()

    wait_until(is_ready)


def stop_helper(home: Path) -> None:
    """Let the helper exit: it does when its socket is gone."""
    (home / "hooks" / "helper.sock").unlink(missing_ok=True)
