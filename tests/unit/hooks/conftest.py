from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rekindle import open_store
from rekindle.hooks.answers import HookAnswerer
from rekindle.hooks.events import HookRequest, ImportJob
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.store import Store
from rekindle.transcripts.importer import import_transcripts
from tests.acceptance.test_notes import write_session

FAILED = ("make lint-shop", "Exit code 2\nmake: *** No rule to make target 'lint-shop'.", False)
FIXED = ("make lint-shop -f shop.mk", "done", True)


class HookHome:
    """A home with a known project, and an answerer as the helper has it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.path.mkdir()
        (self.path / "hooks").mkdir(mode=0o700)
        self.project = folder / "work" / "shop"
        self.project.mkdir(parents=True)
        self.transcripts = folder / "transcripts"
        self.transcripts.mkdir()
        self.set_warm(control_share=0)
        self.jobs: list[ImportJob] = []
        self.answerer = self.restart()

    def restart(self) -> HookAnswerer:
        """Answer as a new helper: with nothing in memory."""
        self.answerer = HookAnswerer(
            self.path, write_later=lambda write: write(), start_import=self.jobs.append
        )
        return self.answerer

    def set_warm(self, **settings: object) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        (self.path / "config.toml").write_text("\n".join(["[warm]", *lines, ""]))

    def open(self) -> Store:
        return open_store(self.path / "sessions.db")

    def teach(
        self, folder: Path | None = None, name: str = "known", command: str = "make check-all"
    ) -> None:
        """Let a folder have sessions in which a command works and a failure is fixed."""
        for number in range(4):
            write_session(
                self.transcripts,
                f"{name}-{number}",
                (command, "ok", True),
                FAILED,
                FIXED,
                ("docker build shop-image .", "ok", True) if number < 1 else ("ls", "", True),
                asked="release the image" if number < 1 else f"improve part {number}",
                where=str(folder or self.project),
            )
        with self.open() as store:
            import_transcripts(store, [self.transcripts])
            learn_from_sessions(store)

    def answer(self, event: str, *, agent: str = "claude-code", **fields: Any) -> str:
        """Return what a hook tells the model."""
        printed = self.print_answer(event, agent=agent, **fields)
        if not printed:
            return ""
        said = json.loads(printed)["hookSpecificOutput"]
        assert said.keys() == {"hookEventName", "additionalContext"}
        return said["additionalContext"]

    def print_answer(self, event: str, *, agent: str = "claude-code", **fields: Any) -> bytes:
        given = {"session_id": "s1", "cwd": str(self.project), **fields}
        data = json.dumps(given).encode()
        return self.answerer.answer(HookRequest(agent, event, "/", data, len(data)))

    def fail(self, **fields: Any) -> str:
        return self.answer(
            "failure",
            tool_name="Bash",
            tool_input={"command": FAILED[0]},
            error=FAILED[1],
            **fields,
        )


@pytest.fixture
def home(tmp_path: Path) -> HookHome:
    return HookHome(tmp_path)
