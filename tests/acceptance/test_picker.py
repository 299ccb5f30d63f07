"""`rekindle` alone at a terminal: find a session, and resume it in its own agent and folder."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, open_store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import QUARTER_SECONDS, Session, Tokens, UsageEntry
from tests import command
from tests.acceptance.stores import make_store
from tests.acceptance.terminals import CTRL_D, ENTER, TAB, Terminal
from tests.waiting import PATIENCE

ESCAPE, F1, DOWN = "\x1b", "\x1bOP", "\x1b[B"
CTRL_F, CTRL_R, CTRL_S, CTRL_Y, CTRL_Z = "\x06", "\x12", "\x13", "\x19", "\x1a"
CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
HOSTILE = f"Evil{CLIPBOARD}\x1b[2J\x9b31m\u202etitle"


class PickerHome:
    """A home with sessions of several agents and projects, and agents that write down their start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "rekindle" / "sessions.db"
        self.started = folder / "started.json"
        bin = folder / "bin"
        bin.mkdir()
        for agent in ("claude", "codex"):
            program = bin / agent
            program.write_text(
                "#!/bin/sh\n"
                f'{{ pwd; echo {agent}; for word in "$@"; do echo "$word"; done; }} > "{self.started}"\n'
            )
            program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if "REKINDLE" not in name}
        path = f"{bin}:{os.environ['PATH']}"
        self.env = {**kept, "HOME": str(folder), "REKINDLE_HOME": str(folder / "rekindle")}
        self.env |= {"PATH": path, "TZ": "UTC", "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
        self.env = {name: value for name, value in self.env.items() if value}
        self.terminals: list[Terminal] = []

    def make_project(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        remote = f"https://example.com/team/{name}.git"
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", remote], check=True)
        return folder

    def fill(self) -> None:
        """Store what two agents did in two projects, with what it cost."""
        now = time.time()
        make_store(self.store)
        shop, site = self.make_project("shop"), self.make_project("site")
        sessions = (
            ("claude-code", "11111111-1111-4111-8111-111111111111", "Fix the login form", shop),
            ("claude-code", "22222222-2222-4222-8222-222222222222", None, site),
            ("codex", "33333333-3333-4333-8333-333333333333", "Write the changelog", shop),
        )
        items: list[SessionImport] = []
        for number, (source, id, title, cwd) in enumerate(sessions):
            began = now - 60 * (number + 1)
            tokens = Tokens(100_000, 10_000)
            session = Session(
                id=id, source=source, title=title, cwd=str(cwd), git_branch="main", started=began,
                last_active=began, model="claude-sonnet-4-5", tokens=tokens,
                repository=f"example.com/team/{cwd.name}",
            )  # fmt: skip
            said = [
                Message("user", f"please begin number {number}", timestamp=began),
                Message("assistant", "I found the quokka in the basket", timestamp=began),
                Message("user", f"and finish it {number}", timestamp=began),
            ]
            entry = UsageEntry(int(now) // QUARTER_SECONDS, "claude-sonnet-4-5", tokens)
            items.append(SessionImport(session, said, is_complete=True, usage=[entry]))
            transcript = self.folder / ".claude/projects/x" / f"{id}.jsonl"
            transcript.parent.mkdir(parents=True, exist_ok=True)
            if source == "claude-code":
                line = {
                    "type": "user",
                    "sessionId": id,
                    "cwd": str(cwd),
                    "message": {"role": "user"},
                }
                transcript.write_text(json.dumps(line) + "\n")
        with open_store(self.store) as store:
            store.import_batch(items)

    def open(self, *words: str, cwd: Path | None = None, columns: int = 120) -> Terminal:
        one = Terminal(words, self.env, cwd or self.folder, columns=columns, rows=30)
        self.terminals.append(one)
        return one

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = command.run(
            words, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, done
        return done


@pytest.fixture
def home(tmp_path: Path) -> Iterator[PickerHome]:
    one = PickerHome(tmp_path)
    yield one
    for terminal in one.terminals:
        terminal.kill()


def select_session(screen: Terminal, letters: str, title: str) -> None:
    """Type, and wait until the session is the selected one."""
    screen.type(letters)
    screen.wait(lambda: any(re.match(rf"❯ .*{title}", line) for line in screen.lines))


def test_in_the_first_minute_a_session_is_found_and_goes_on(home: PickerHome) -> None:
    home.fill()
    screen = home.open()
    screen.wait_for("this week")  # the cost comes when it has been added up
    assert screen.lines[0].startswith("rekindle  all projects  3 sessions · $1.35 this week")
    assert {"shop", "site"} <= set(screen.text.split())
    screen.wait_for("First: please begin number 0")  # the preview of the selected session
    screen.wait_for("Last: and finish it 0")
    screen.wait_for("claude-code · claude-sonnet-4-5 · main")
    screen.wait_for("~/shop")

    select_session(screen, "log", "Fix the login form")
    screen.type(ENTER)
    assert screen.left() == 0
    folder, *words = home.started.read_text().split("\n")[:-1]
    assert folder == str(home.folder / "shop")
    assert words == ["claude", "--resume", "11111111-1111-4111-8111-111111111111"]


def test_sub_agents_stand_under_the_session_that_started_them(home: PickerHome) -> None:
    make_store(home.store)
    opening = "Review the code changes against the base branch. Report only bugs."
    with open_store(home.store) as store:
        for number, part in enumerate(("basket", "checkout", "login", "search")):
            asked = f"{opening} Look at the {part}"
            started = Session(id=f"outer-{number}", source="codex", started=number)
            inner = Session(
                id=f"inner-{number}",
                source="codex",
                started=number,
                parent=started.id,
                sub_agent="x",
            )
            said = [Message("user", asked, timestamp=9.0), Message("user", "go on", timestamp=9.0)]
            told = [Message("user", f"Count the wombats of {number}", timestamp=9.0)]
            store.import_batch([SessionImport(started, said), SessionImport(inner, told)])
    screen = home.open()
    screen.wait_for("4 sessions")
    screen.wait_for("1 sub-agent")
    screen.wait_for("… search")
    assert "wombats" not in screen.text
    screen.type('"wombats of 2"')
    screen.wait_for("Count the wombats of 2")
    assert any(line.startswith("❯ … login") for line in screen.lines)


def test_words_of_messages_find_sessions_with_the_place(home: PickerHome) -> None:
    home.fill()
    screen = home.open(columns=80)
    screen.wait_for("3 sessions")
    assert "First:" not in screen.text  # a narrow terminal has no preview
    screen.type("quok")
    screen.wait_for("I found the quokka in the basket")
    screen.type("x")
    screen.wait_for("Nothing found.")
    screen.type(ESCAPE)
    screen.wait_for("Write the changelog")
    screen.type(ESCAPE)
    assert screen.left() == 0
    assert "\x1b[?1049l" in screen.seen


def test_a_project_is_listed_alone_until_one_asks_for_all(home: PickerHome) -> None:
    home.fill()
    screen = home.open(cwd=home.folder / "site")
    screen.wait_for("1 session ")
    assert "team/site" in screen.lines[0]
    assert "Fix the login form" not in screen.text
    screen.type(TAB)
    screen.wait_for("3 sessions")
    screen.wait_for("Fix the login form")
    screen.type("\x01")
    screen.wait_for("1 session ")


def test_keys_rename_archive_and_bring_back(home: PickerHome) -> None:
    home.fill()
    screen = home.open()
    screen.wait_for("3 sessions")
    select_session(screen, "login", "Fix the login form")
    screen.type(CTRL_R)
    screen.wait_for("Title: Fix the login form")
    screen.type(" twice" + ENTER)
    screen.wait_for("Renamed to 'Fix the login form twice'.")
    screen.type(CTRL_D)
    screen.wait_for("^Z brings it back")
    assert "❯" not in screen.text
    screen.type(CTRL_Z)
    screen.wait_for("Brought back")
    screen.type(ESCAPE)
    screen.wait_for("Write the changelog")
    screen.type("?")
    screen.wait_for("clear the search, then quit")
    screen.type(ESCAPE)
    screen.wait_for("❯")
    with open_store(home.store) as store:
        assert store.resolve("Fix the login form twice").archived is None


def test_keys_copy_the_command_fork_and_share(home: PickerHome) -> None:
    home.fill()
    screen = home.open()
    screen.wait_for("3 sessions")
    select_session(screen, "login", "Fix the login form")
    command_line = f"cd {home.folder}/shop && claude --resume 11111111-1111-4111-8111-111111111111"
    screen.type(CTRL_Y)
    screen.wait_for("Copied: cd ")
    encoded = base64.b64encode(command_line.encode()).decode()
    assert f"\x1b]52;c;{encoded}\x07" in screen.seen
    screen.type(CTRL_S)
    screen.wait_for("Read it before you share")
    (page,) = home.folder.glob("*.html")
    assert "quokka" in page.read_text()
    screen.type(CTRL_F)
    screen.wait_for("Enter continues the copy")
    screen.type("\x03")
    assert screen.left() == 0
    assert f"{command_line}\r\n" in screen.seen  # it stays when the picker is gone
    with open_store(home.store) as store:
        assert len(store.recent()) == 4


def test_what_an_agent_has_just_written_appears_by_itself(home: PickerHome) -> None:
    home.fill()
    id = "44444444-4444-4444-8444-444444444444"
    line = {
        "type": "user", "sessionId": id, "uuid": "a", "cwd": str(home.folder / "shop"),
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "message": {"role": "user", "content": "count the wombats"},
    }  # fmt: skip
    path = home.folder / f".claude/projects/x/{id}.jsonl"
    path.write_text(json.dumps(line) + "\n")
    screen = home.open()
    screen.wait_for("new session")
    screen.wait_for("count the wombats")
    screen.wait_for("4 sessions")


def test_a_session_that_cannot_go_on_says_why_and_the_picker_stays(home: PickerHome) -> None:
    home.fill()
    (home.folder / "site").rename(home.folder / "elsewhere")
    screen = home.open()
    screen.wait_for("3 sessions")
    select_session(screen, "number 1", "please begin number 1")
    screen.type(ENTER)
    screen.wait_for("The folder of this session does not exist")
    screen.wait(lambda: "\x1b[?1049l" in screen.seen and "❯" in screen.text)
    screen.type(ESCAPE)
    screen.wait_for("Write the changelog")


def test_hostile_titles_reach_no_terminal(home: PickerHome) -> None:
    make_store(home.store)
    with open_store(home.store) as store:
        session = store.begin(source=HOSTILE, cwd=f"/{HOSTILE}", git_branch=HOSTILE, model=HOSTILE)
        store.append(session, Message("user", f"{HOSTILE} needle {HOSTILE}"))
        store.append(session, Message("assistant", f"answer {HOSTILE}"))
    screen = home.open()
    screen.wait_for("1 session ")
    screen.wait_for("answer Evil")
    screen.type("needle")
    screen.wait_for("needle ")
    screen.type(CTRL_Y)
    screen.wait_for("Copied")
    assert CLIPBOARD not in screen.seen
    assert not {"\x9b", "\u202e"} & set(screen.seen)
    assert "\x1b[2J" not in screen.seen.replace("\x1b[?1049h\x1b[2J", "")


def test_a_pipe_gets_a_list_and_a_hint(home: PickerHome) -> None:
    home.fill()
    done = home.run()
    assert "Write the changelog" in done.stdout
    assert "\x1b" not in done.stdout
    assert "on a terminal" in done.stderr


def test_at_the_first_start_the_sessions_of_this_machine_are_there(home: PickerHome) -> None:
    home.fill()
    home.store.unlink()
    line = {
        "type": "user", "sessionId": "a", "uuid": "a", "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": "count the wombats"},
    }  # fmt: skip
    (home.folder / ".claude/projects/x/a.jsonl").write_text(json.dumps(line) + "\n")
    screen = home.open()
    screen.wait_for("❯ count the wombats")


def test_an_empty_store_says_what_is_there_and_how_to_begin(home: PickerHome) -> None:
    assert "rekindle start" in home.run().stdout
    transcript = home.folder / ".claude/projects/x/a.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text("{}\n")
    screen = home.open()
    assert screen.left() == 0
    screen.wait_for("~/.claude/projects  1 file")
    screen.wait_for("rekindle start")
