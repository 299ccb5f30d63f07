"""`rekindle chat`, the real command: at a real terminal, in a pipe, and for a program."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle import Session, Store, open_store
from rekindle.testing import ScriptedModel
from tests import command
from tests.acceptance.stores import make_store
from tests.acceptance.terminals import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal
from tests.waiting import PATIENCE, wait_until

OWNER = f"agent:main:local:dm:u={pwd.getpwuid(os.getuid()).pw_name}"
NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
IN_PART = 4  # chunks of the answer to "count", up to "one two"
AFTER_THE_CALL = 12  # chunks of the answer to "work", up to "first", and more than its call has


def call(command: str) -> dict[str, Any]:
    return {"name": "terminal", "arguments": {"command": command}}


SCRIPT: dict[str, Any] = {
    "turns": [
        {"user": "count", "steps": [{"text": NUMBERS, "chunk": 4}]},
        {"user": "greet", "steps": [{"text": "Hello, **Ada**! Use `ls`."}]},
        {
            "user": "look",
            "steps": [
                {"text": "Let me look.", "calls": [call("echo found-it")]},
                {"text": "Done."},
            ],
        },
        {
            "user": "break",
            "steps": [{"calls": [call("echo oh-no >&2; exit 3")]}, {"text": "It failed."}],
        },
        {
            "user": "clean up",
            "steps": [{"calls": [call("rm -rf build")]}, {"text": "I was told: {result}"}],
        },
        {
            "user": "tidy",
            "steps": [
                {"text": "Now let me see.", "chunk": 4, "calls": [call("rm -rf build")]},
                {"text": "I was told: {result}"},
            ],
        },
        {
            "user": "work",
            "steps": [
                {"calls": [call("echo once >> log")]},
                {"text": "first second third", "pause": 0.02, "chunk": 1},
            ],
        },
        {"user": "wait", "steps": [{"calls": [call("sleep 60")]}, {"text": "Waited."}]},
        {"user": "think", "steps": [{"reasoning": "deep thoughts", "text": "An answer."}]},
        {
            "user": "overload",
            "steps": [{"text": "never", "faults": [{"status": 401, "always": True}]}],
        },
        {
            "user": "poison",
            "steps": [*[{"calls": [call("kill -9 $PPID")]}] * 3, {"text": "survived"}],
        },
        {"user": "long", "steps": [{"text": "The quick brown fox jumps over the lazy dog."}]},
        {"user": "escape", "steps": [{"text": "a\x1b[2Jb\x07c"}]},
    ]
}


class Chat:
    """The command in a home of its own, with a model that follows a script."""

    def __init__(self, home: Path, target: str, model: ScriptedModel) -> None:
        self.home = home / "rekindle"
        self.work = home / "work"
        self.work.mkdir()
        self.target = target
        self.model = model
        kept = {name: text for name, text in os.environ.items() if not name.startswith("REKINDLE_")}
        self.env = {
            **kept,
            "HOME": str(home),
            "REKINDLE_HOME": str(self.home),
            "REKINDLE_STORE": target,
            "REKINDLE_MODEL": "scripted",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "a-key",
            "TZ": "UTC",
        }
        self._terminals: list[Terminal] = []

    def pipe(
        self, said: str, *words: str, code: int = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = command.run(
            ["chat", *words],
            input=said,
            env={**self.env, **env},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def events(self, said: str, *words: str, **more: Any) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in self.pipe(said, *words, "--json", **more).stdout.splitlines()
        ]

    def terminal(self, *words: str, columns: int = 80, **env: str) -> Terminal:
        opened = Terminal(["chat", *words], {**self.env, **env}, self.work, columns=columns)
        self._terminals.append(opened)
        return opened

    def sessions(self) -> list[Session]:
        with open_store(self.target) as store:
            return store.recent(owner=OWNER)

    def said(self, number: int = 0) -> list[tuple[str, str]]:
        """Roles and words of a session; the newest is number 0."""
        with open_store(self.target) as store:
            session = store.recent(owner=OWNER)[number]
            return [(one.role, one.text) for one in store.messages(session)]

    def title(self, title: str) -> None:
        with open_store(self.target) as store:
            store.rename(store.recent(owner=OWNER)[0], title)

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.kill()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT) as running:
        yield running


@pytest.fixture
def chat(tmp_path: Path, target: str, model: ScriptedModel) -> Iterator[Chat]:
    """On SQLite, then on PostgreSQL."""
    make_store(target)
    chat = Chat(tmp_path, target, model)
    yield chat
    chat.close()


@pytest.fixture
def here(tmp_path: Path, model: ScriptedModel) -> Iterator[Chat]:
    """For what does not depend on the engine."""
    target = str(tmp_path / "sessions.db")
    make_store(target)
    chat = Chat(tmp_path, target, model)
    yield chat
    chat.close()


# -- what the agent is told


def test_the_system_prompt_holds_the_persona_and_stays_the_same_within_a_session(
    chat: Chat,
) -> None:
    (chat.work / "SOUL.md").write_text("You are Brunhilde.\u200b\n")
    (chat.work / "AGENTS.md").write_text("Use tabs.\n")
    (chat.work / "CLAUDE.md").symlink_to("AGENTS.md")
    (chat.work / ".git").mkdir()
    (chat.work / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    mine = {"REKINDLE_AGENT_PROMPT": "You answer in verse."}
    chat.pipe("greet me", **mine)
    (chat.work / "AGENTS.md").write_text("Use spaces.\n")
    chat.pipe("long", "-c")
    first, second = (one.messages[0].text for one in chat.model.requests)
    assert first == second
    assert first.startswith("You answer in verse.\n\n## Your environment\n")
    assert f'- Working folder: "{chat.work}"' in first
    assert "- Time zone: UTC (UTC+00:00)" in first
    assert first.count("Use tabs.") == 1
    assert "You are Brunhilde.\n" in first
    assert "This conversation: a terminal on this machine" in first
    session = chat.sessions()[0]
    assert (session.git_branch, session.end_reason) == ("feature/x", "input_end")
    assert (session.model_config or {})["max_steps"] == 60
    chat.pipe("greet me")
    assert "Use spaces." in chat.model.requests[-1].messages[0].text, "another session"


# -- at a terminal


def test_an_answer_is_shown_while_it_is_written_and_kept(chat: Chat) -> None:
    terminal = chat.terminal()
    with chat.model.hold_requests(IN_PART):
        terminal.say("please count")
        terminal.wait_for("one two")
        assert "twelve" not in terminal.text
    terminal.wait_for(NUMBERS)
    terminal.wait_for_prompt()
    terminal.type(CTRL_D)
    assert terminal.left() == 0
    assert chat.said() == [("user", "please count"), ("assistant", NUMBERS)]
    assert chat.sessions()[0].end_reason == "user_exit"
    assert f"rekindle chat -r {chat.sessions()[0].id}" in terminal.text


def test_the_answer_counts_as_delivered_once_it_was_shown(chat: Chat) -> None:
    terminal = chat.terminal()
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.wait_for_prompt()
    with open_store(chat.target) as store:
        (route,) = store.routes.list()
        assert [one.state for one in store.inbox.list_outbound(route.key)] == ["sent"]
        assert store.inbox.list_waiting(route.key) == []


def test_light_markdown_becomes_style(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada! Use ls.")
    assert "\x1b[0;1mAda" in terminal.seen
    assert "\x1b[0;36mls" in terminal.seen


def test_without_colour_the_text_stands_as_the_model_wrote_it(here: Chat) -> None:
    terminal = here.terminal(NO_COLOR="1")
    terminal.say("greet me")
    terminal.wait_for("Hello, **Ada**! Use `ls`.")


def test_lines_are_broken_between_words_on_a_narrow_terminal(here: Chat) -> None:
    terminal = here.terminal(columns=24)
    terminal.say("long")
    terminal.wait_for("dog.")
    assert "The quick brown fox\njumps over the lazy\ndog." in terminal.text
    assert "scripted · new\nconversation · /help" in terminal.text


def test_what_a_model_writes_cannot_play_with_the_terminal(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("escape")
    terminal.wait_for("a␛[2Jb␇c")
    assert "escape" in terminal.text


def test_a_tool_call_is_folded_to_a_line_with_its_result(chat: Chat) -> None:
    terminal = chat.terminal()
    terminal.say("look around")
    terminal.wait_for("Done.")
    line = next(line for line in terminal.lines if "terminal" in line)
    assert line.replace("  ", " ").strip().startswith("💻")
    assert "echo found-it ✓ 0." in line
    assert terminal.text.index("Let me look.") < terminal.text.index("echo found-it")
    assert [role for role, _ in chat.said()] == ["user", "assistant", "tool", "assistant"]


def test_a_failed_call_says_why(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("break it")
    terminal.wait_for("It failed.")
    assert "exit 3 ✗" in terminal.text
    assert "exit code 3: oh-no" in terminal.text


def test_reasoning_is_dimmed_or_hidden_by_setting(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("think")
    terminal.wait_for("An answer.")
    assert "deep thoughts" in terminal.text
    hidden = here.terminal(REKINDLE_CHAT_REASONING="hide")
    hidden.say("think")
    hidden.wait_for("An answer.")
    assert "deep thoughts" not in hidden.seen


def test_ctrl_c_stops_the_answer_and_the_conversation_goes_on(chat: Chat) -> None:
    terminal = chat.terminal()
    with chat.model.hold_requests(IN_PART):
        terminal.say("please count")
        terminal.wait_for("one two")
        terminal.type(CTRL_C)
        terminal.wait_for("Stopped.")
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.wait_for_prompt()
    said = chat.said()
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
    assert said[1][1].startswith("one two")
    assert "twelve" not in said[1][1]
    assert all(not request.violations for request in chat.model.requests)
    with open_store(chat.target) as store:
        (route,) = store.routes.list()
        assert store.inbox.list_waiting(route.key) == []


def test_ctrl_c_stops_a_command_that_runs_and_the_history_stays_valid(chat: Chat) -> None:
    terminal = chat.terminal()
    terminal.say("wait for it")
    terminal.wait_for("sleep 60 …")
    began = time.monotonic()
    terminal.type(CTRL_C)
    terminal.wait_for("Stopped.")
    assert time.monotonic() - began < 10
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    assert [request.violations for request in chat.model.requests] == [[], []]


def test_an_impatient_ctrl_c_does_not_end_the_program(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("wait for it")
    terminal.wait_for("sleep 60 …")
    terminal.type(CTRL_C + CTRL_C)
    terminal.wait_for("Stopped.")
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")


def test_a_store_that_is_locked_for_a_while_does_not_end_the_conversation(here: Chat) -> None:
    import apsw

    terminal = here.terminal(REKINDLE_STORE_BUSY_SECONDS="0.3")
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.wait_for_prompt()
    other = apsw.Connection(here.target)
    other.execute("BEGIN IMMEDIATE")
    terminal.say("are you there?")
    terminal.wait_for("again.")
    other.execute("ROLLBACK")
    other.close()
    terminal.say("and now?")
    terminal.wait_for("You said: and now?")


def test_a_connection_that_breaks_under_a_write_does_not_end_the_program(here: Chat) -> None:
    terminal = here.terminal()
    terminal.wait_for_prompt()
    terminal.child.send_signal(signal.SIGPIPE)  # what the system sends then
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")


def test_ctrl_c_at_the_prompt_leaves_when_it_is_pressed_twice(here: Chat) -> None:
    terminal = here.terminal()
    terminal.wait_for_prompt()
    terminal.type(CTRL_C)
    terminal.wait_for("Press Ctrl-C again")
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.wait_for_prompt()
    terminal.type(CTRL_C)
    terminal.wait(lambda: terminal.text.count("Press Ctrl-C again") == 2)
    terminal.wait_for_prompt()
    terminal.type(CTRL_C)
    assert terminal.left() == 0


def test_a_dangerous_command_runs_only_after_a_yes(here: Chat) -> None:
    (here.work / "build").mkdir()
    terminal = here.terminal()
    terminal.say("clean up")
    terminal.wait_for("Run it? [y/N]")
    assert "rm -rf build" in terminal.text
    terminal.type("n" + ENTER)
    terminal.wait_for("refused by the user")
    assert (here.work / "build").exists()
    terminal.say("clean up")
    terminal.wait(lambda: terminal.text.count("Run it? [y/N]") == 2)
    terminal.type("y" + ENTER)
    terminal.wait(lambda: not (here.work / "build").exists())
    terminal.wait_for_prompt()


def test_what_was_typed_before_the_question_is_no_answer_to_it(here: Chat) -> None:
    (here.work / "build").mkdir()
    terminal = here.terminal()
    with here.model.hold_requests(max_chunks=4):
        terminal.say("tidy")
        terminal.wait_for("Now let")
        terminal.type("y" + ENTER)
    terminal.wait_for("Run it? [y/N]")
    time.sleep(0.3)
    assert (here.work / "build").exists()
    terminal.type(ENTER)
    terminal.wait_for("refused by the user")
    assert (here.work / "build").exists()


def test_a_terminal_that_is_told_to_end_leaves_the_turn_to_be_continued(here: Chat) -> None:
    terminal = here.terminal()
    with here.model.hold_requests(IN_PART):
        terminal.say("please count")
        terminal.wait_for("one two")
        terminal.child.send_signal(signal.SIGTERM)
        assert terminal.left() == 143
    again = here.terminal("-c")
    again.wait_for(NUMBERS)
    again.wait_for_prompt()
    assert here.said() == [("user", "please count"), ("assistant", NUMBERS)]


# -- typing


def test_several_lines_are_one_message(here: Chat) -> None:
    terminal = here.terminal()
    terminal.wait_for_prompt()
    terminal.type("alpha\\" + ENTER)
    terminal.wait_for("… ".rstrip())
    terminal.type("beta" + ALT_ENTER)
    terminal.type("\x1b[200~gamma\ndelta\x1b[201~")
    terminal.wait_for("delta")
    terminal.type(ENTER)
    terminal.wait_for("You said: alpha")
    terminal.wait_for_prompt()
    assert here.said()[0] == ("user", "alpha\nbeta\ngamma\ndelta")


def test_what_was_typed_is_there_again_in_the_next_run_and_only_for_its_owner(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("remember me")
    terminal.wait_for("You said")
    terminal.wait_for_prompt()
    terminal.type(CTRL_D)
    terminal.left()
    again = here.terminal()
    again.wait_for_prompt()
    again.type(UP)
    again.wait_for("› remember me")
    assert stat.S_IMODE((here.home / "chat_history").stat().st_mode) == 0o600


def test_tab_completes_commands_and_titles(here: Chat) -> None:
    here.pipe("greet me")
    here.title("Bob's plan")
    terminal = here.terminal()
    terminal.wait_for_prompt()
    terminal.type("/stat" + TAB)
    terminal.wait_for("› /status")
    terminal.type("\x15/resume Bo" + TAB)
    terminal.wait_for("› /resume Bob's plan")
    terminal.type(ENTER)
    terminal.wait_for("You are in “Bob's plan” (2 messages).")


def test_it_can_be_typed_at_without_prompt_toolkit(here: Chat, tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "prompt_toolkit"
    bare.mkdir(parents=True)
    (bare / "__init__.py").write_text("raise ImportError")
    path = [str(bare.parent), os.environ.get("PYTHONPATH", "")]
    terminal = here.terminal(PYTHONPATH=os.pathsep.join(filter(None, path)))
    with here.model.hold_requests(IN_PART):
        terminal.say("please count")
        terminal.wait_for("one two")
        terminal.type(CTRL_C)
        terminal.wait_for("Stopped.")
    terminal.wait_for_prompt()
    terminal.type("two\\" + ENTER + "lines" + ENTER)
    terminal.wait_for("You said: two")
    terminal.wait_for_prompt()
    terminal.type("/stat" + TAB)
    terminal.wait_for("› /status")
    terminal.type(CTRL_C)
    terminal.wait_for("Press Ctrl-C again")
    terminal.type(CTRL_D)
    assert terminal.left() == 0
    assert ("user", "two\nlines") in here.said()


# -- continuing


def test_continue_takes_up_the_newest_conversation(chat: Chat) -> None:
    chat.pipe("greet me")
    chat.pipe("one more")
    terminal = chat.terminal("-c")
    terminal.wait_for("one more (2 messages)")
    terminal.say("and another")
    terminal.wait_for("You said: and another")
    terminal.wait_for_prompt()
    assert [text for role, text in chat.said() if role == "user"] == ["one more", "and another"]


def test_continue_never_starts_anew_however_long_ago_it_was(here: Chat) -> None:
    here.pipe("greet me")
    _make_stale(here)
    assert here.pipe("and now?", "-c").stdout == "You said: and now?\n"
    assert len(here.sessions()) == 1


def test_resume_finds_a_conversation_by_title_and_by_id(chat: Chat) -> None:
    chat.pipe("greet me")
    chat.title("My Project")
    first = chat.sessions()[0].id
    chat.pipe("something else")
    assert chat.pipe("again", "-r", "My", "Project").stdout == "You said: again\n"
    assert chat.pipe("and again", "--resume", first[:20]).stdout == "You said: and again\n"
    assert [text for role, text in chat.said() if role == "user"] == [
        "greet me",
        "again",
        "and again",
    ]
    refused = chat.pipe("x", "-r", "nobody's", code=2)
    assert refused.stdout == ""
    assert refused.stderr.startswith("rekindle: ")


def test_resume_without_a_name_lets_the_user_choose(here: Chat) -> None:
    here.pipe("greet me")
    here.pipe("something else")
    terminal = here.terminal("-r")
    terminal.wait_for("Which one?")
    terminal.type("2" + ENTER)
    terminal.wait_for("greet me (2 messages)")
    terminal.say("again")
    terminal.wait_for("You said: again")
    refused = here.pipe("x", "-r", code=2)
    assert "a session name is required" in refused.stderr


def test_a_fork_leaves_the_original_as_it_was(chat: Chat) -> None:
    chat.pipe("greet me")
    chat.pipe("another way", "-c", "--fork")
    assert [len(chat.said(number)) for number in (0, 1)] == [4, 2]


def test_there_must_be_something_to_continue(here: Chat) -> None:
    assert "No conversation to continue" in here.pipe("x", "-c", code=2).stderr


def test_after_a_kill_in_the_middle_of_a_turn_continue_goes_on_where_it_stopped(chat: Chat) -> None:
    terminal = chat.terminal()
    with chat.model.hold_requests(AFTER_THE_CALL):
        terminal.say("do the work")
        terminal.wait_for("first")
        terminal.kill()
    again = chat.terminal("-c")
    again.wait_for("Not answered yet: do the work")
    again.wait_for("first second third")
    again.wait_for_prompt()
    again.say("greet me")
    again.wait_for("Hello, Ada!")
    again.wait_for_prompt()
    roles = [role for role, _ in chat.said()]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert (chat.work / "log").read_text() == "once\n"
    assert len(chat.sessions()) == 1


def test_after_a_kill_a_pipe_finishes_the_turn_beside_its_own_answer(here: Chat) -> None:
    terminal = here.terminal()
    with here.model.hold_requests(AFTER_THE_CALL):
        terminal.say("do the work")
        terminal.wait_for("first")
        terminal.kill()
    done = here.pipe("greet me", "-c")
    assert done.stdout == "Hello, **Ada**! Use `ls`.\n"
    assert "first second third" in done.stderr
    assert [text for role, text in here.said() if role == "user"] == ["do the work", "greet me"]


@pytest.mark.parametrize("seconds", [0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5])
def test_whenever_it_is_killed_what_was_taken_in_is_answered_once(
    here: Chat, seconds: float
) -> None:
    child = command.start(
            ["chat"], env=here.env, cwd=here.work, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(b"do the work")
    child.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    child.kill()
    child.wait()
    done = command.run(["chat", "-c"], env=here.env, cwd=here.work, input=b"", capture_output=True)
    if done.returncode == 2:  # it had not begun, or had ended
        said = here.said() if here.sessions() else []
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout == b"first second third\n"
        said = here.said()
    roles = [role for role, _ in said]
    if roles == ["user", "assistant", "assistant"]:  # killed while the tool ran: it has no result
        assert any("interrupted" in one.text for one in here.model.requests[-1].messages)
    else:
        assert roles in ([], ["user", "assistant", "tool", "assistant"])
    with open_store(here.target) as store:
        assert all(store.inbox.list_waiting(route.key) == [] for route in store.routes.list())


def test_two_terminals_have_two_conversations(here: Chat) -> None:
    one, other = here.terminal(), here.terminal()
    one.say("from one")
    other.say("from the other")
    one.wait_for("You said: from one")
    other.wait_for("You said: from the other")
    one.wait_for_prompt()
    other.wait_for_prompt()
    assert sorted(len(here.said(number)) for number in (0, 1)) == [2, 2]


def test_after_a_night_the_user_is_told_once_how_to_get_back(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.wait_for_prompt()
    _make_stale(here)
    terminal.say("good morning")
    terminal.wait_for("You said: good morning")
    terminal.wait_for_prompt()
    assert " ".join(terminal.text.split()).count("Send /back to return to the last one.") == 1
    assert "This is a new conversation" in here.model.requests[-1].messages[0].text
    terminal.say("once more")
    terminal.wait_for("You said: once more")
    terminal.wait_for_prompt()
    assert " ".join(terminal.text.split()).count("Send /back to return to the last one.") == 1
    terminal.say("/back")
    terminal.wait_for("You are in the conversation that began with “greet me”")


def _make_stale(chat: Chat) -> None:
    import apsw

    with apsw.Connection(chat.target) as connection:
        connection.execute("UPDATE routes SET updated = updated - 200000")


# -- commands


def test_commands_act_on_the_conversation_and_say_where_one_is(chat: Chat) -> None:
    terminal = chat.terminal()
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.say("/title Bob's plan")
    terminal.wait_for("You are in “Bob's plan” (2 messages).")
    terminal.say("/new")
    terminal.wait_for("You are in a new conversation.")
    terminal.say("something else")
    terminal.wait_for("You said: something else")
    terminal.say("/resume Bob's plan")
    terminal.wait(lambda: terminal.text.count("You are in “Bob's plan”") == 2)
    terminal.say("/retry")
    terminal.wait(lambda: terminal.text.count("Hello, Ada!") == 2)
    terminal.say("/help")
    terminal.wait_for("/quit – quit")
    terminal.say("/quit")
    assert terminal.left() == 0
    with open_store(chat.target) as store:
        plan = store.resolve("Bob's plan", owner=OWNER)
        assert [one.role for one in store.messages(plan)] == ["user", "assistant"]


def test_a_path_is_no_command(here: Chat) -> None:
    assert here.pipe("/etc/hosts is what?").stdout == "You said: /etc/hosts is what?\n"


# -- in a pipe


def test_in_a_pipe_the_answer_alone_is_on_stdout(chat: Chat) -> None:
    done = chat.pipe("look around")
    assert done.stdout == "Done.\n"
    assert "echo found-it ✓" in done.stderr
    assert "\x1b" not in done.stderr
    assert [role for role, _ in chat.said()] == ["user", "assistant", "tool", "assistant"]


def test_in_a_pipe_a_dangerous_command_is_refused_and_the_model_told(chat: Chat) -> None:
    (chat.work / "build").mkdir()
    done = chat.pipe("clean up")
    assert "nobody can be asked here" in done.stdout
    assert (chat.work / "build").exists()


def test_in_a_pipe_a_failure_is_an_exit_code_and_no_answer(chat: Chat) -> None:
    done = chat.pipe("overload", code=1)
    assert done.stdout == ""
    assert "I could not answer" in done.stderr


def test_bytes_that_are_no_text_do_not_stop_a_pipe(here: Chat) -> None:
    done = command.run(["chat"], env=here.env, cwd=here.work, input=b"caf\xe9", capture_output=True)
    assert done.stdout.decode() == "You said: caf\ufffd\n"


def test_a_command_works_in_a_pipe_too(here: Chat) -> None:
    here.pipe("greet me")
    assert "1. greet me · 2 messages" in here.pipe("/sessions").stdout


@pytest.mark.parametrize("option", ["--no-tools", "--json"])
def test_a_mistyped_command_in_a_pipe_is_a_mistake_and_nothing_is_said(
    here: Chat, option: str
) -> None:
    done = here.pipe("/sttaus", option, code=2)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.endswith("Unknown command /sttaus. Did you mean /status?")
    assert here.sessions() == []
    assert here.model.requests == []


def test_a_mistyped_command_at_a_terminal_is_just_told(here: Chat) -> None:
    terminal = here.terminal()
    terminal.say("/sttaus")
    terminal.wait_for("Unknown command /sttaus. Did you mean /status?")
    terminal.say("greet me")
    terminal.wait_for("Hello, Ada!")
    terminal.say("/quit")
    assert terminal.left() == 0


def test_a_command_that_is_refused_in_a_pipe_is_a_mistake(here: Chat) -> None:
    done = here.pipe("/resume no such thing", code=2)
    assert done.stdout == ""
    assert "Session not found: 'no such thing'" in done.stderr
    (event,) = here.events("/undo 0", code=2)
    assert (event["event"], event["ok"]) == ("reply", False)
    (event,) = here.events("/help")
    assert event["ok"] is True


def test_however_often_it_is_run_nothing_but_sessions_grows(chat: Chat) -> None:
    for _ in range(3):
        chat.pipe("greet me")
    chat.pipe("and more", "-c")
    chat.pipe("/sessions")
    chat.pipe("overload", code=1)
    with open_store(chat.target) as store:
        assert store.routes.list() == []
        assert store.inbox.get_counts() == (0, 0, 0, 0)
        assert rows_of(store, "inbox", "outbox", "leases") == [0, 0, 0]
    assert len(chat.sessions()) == 4


def test_what_a_killed_terminal_left_is_cleared_away_once_it_is_continued(chat: Chat) -> None:
    for kill in (True, False):
        child = command.start(["chat"], env=chat.env, cwd=chat.work, stdin=subprocess.PIPE)
        assert child.stdin is not None
        before = len(chat.model.requests)
        with chat.model.hold_requests() if kill else contextlib.nullcontext():
            child.stdin.write(b"please count" if kill else b"greet me")
            child.stdin.close()
            wait_until(lambda: len(chat.model.requests) > before)  # noqa: B023
            if kill:
                child.kill()
            child.wait(PATIENCE)
    with open_store(chat.target) as store:
        assert len(store.routes.list()) == 1, "what is not answered stays"
    chat.pipe("go on", "-r", chat.sessions()[1].id)
    with open_store(chat.target) as store:
        assert store.routes.list() == []
        assert rows_of(store, "inbox", "outbox", "leases") == [0, 0, 0]


def rows_of(store: Store, *tables: str) -> list[int]:
    with store._engine.begin_read() as tx:
        return [tx.run(f"SELECT count(*) FROM {table}")[0][0] for table in tables]


def test_a_message_that_kills_the_terminal_each_time_is_given_up(chat: Chat) -> None:
    chat.env |= {"REKINDLE_CHAT_APPROVAL": "never", "REKINDLE_SANDBOX_MODE": "off"}
    died = -signal.SIGKILL
    chat.pipe("poison", code=died)
    for _ in range(2):
        chat.pipe("", "-c", code=died)
    done = chat.pipe("", "-c", code=1)
    assert done.stdout == ""
    assert "I couldn't answer this message: the program crashed 3 times" in done.stderr
    assert chat.pipe("greet me", "-c").stdout.startswith("Hello")


# -- whose conversations


def test_people_who_share_a_store_have_their_own_conversations(chat: Chat) -> None:
    chat.pipe("greet me", REKINDLE_CHAT_OWNER="ada@example.org")
    chat.pipe("/title Plan", "-c", REKINDLE_CHAT_OWNER="ada@example.org")
    home = str(chat.home.parent / "another")
    assert chat.pipe("hello", "-c", code=2).stdout == "", "hers is not ours"
    assert "No conversation to continue" in chat.pipe("hello", "-c", code=2).stderr
    assert "Plan" not in chat.pipe("/sessions").stdout
    chat.pipe("hello", "-r", "Plan", code=2)
    theirs = {"REKINDLE_CHAT_OWNER": "ada@example.org", "REKINDLE_HOME": home}
    assert "Hello" in chat.pipe("greet me", "-r", "Plan", **theirs).stdout, "at another machine"
    with open_store(chat.target) as store:
        owner = "agent:main:local:dm:u=ada@example.org"
        assert [one.message_count for one in store.recent(owner=owner)] == [4]


def test_ctrl_c_in_a_pipe_ends_the_command_and_not_the_conversation(here: Chat) -> None:
    child = command.start(
        ["chat"],
        env=here.env,
        cwd=here.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    with here.model.hold_requests(IN_PART):
        child.stdin.write(b"please count")
        child.stdin.close()
        wait_until(lambda: here.model.requests)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 130
    assert here.pipe("greet me", "-c").stdout.startswith("Hello")
    assert [role for role, _ in here.said()] == ["user", "assistant", "user", "assistant"]


def test_what_asks_no_model_does_not_load_its_client(here: Chat) -> None:
    loaded = here.pipe("/sessions", PYTHONPROFILEIMPORTTIME="1").stderr
    assert "rekindle.agent.model.client" in loaded
    assert "openai" not in loaded


def test_programs_get_one_object_for_each_event(chat: Chat) -> None:
    events = chat.events("look around")
    kinds = [event["event"] for event in events]
    assert kinds[0] == "text"
    assert kinds[-1] == "answer"
    (called,) = [event for event in events if event["event"] == "call"]
    (result,) = [event for event in events if event["event"] == "result"]
    assert called["tool"] == "terminal"
    assert result["id"] == called["id"]
    assert result["failed"] is False
    assert "found-it" in result["content"]
    answer = events[-1]
    assert answer["text"] == "Done."
    assert answer["ok"] is True
    assert answer["session"] == chat.sessions()[0].id
    assert answer["tokens"]["output"] > 0


def test_programs_are_told_of_a_failure(here: Chat) -> None:
    last = here.events("overload", code=1)[-1]
    assert (last["event"], last["ok"]) == ("answer", False)
    assert "I could not answer" in last["text"]


# -- settings and options


def test_without_a_model_one_sentence_says_what_to_set(here: Chat) -> None:
    refused = here.pipe("x", code=2, REKINDLE_MODEL="")
    assert refused.stderr.count("\n") == 1
    assert "REKINDLE_MODEL" in refused.stderr
    keyless = here.pipe("x", code=2, OPENAI_API_KEY="", OPENAI_BASE_URL="")
    assert "OPENAI_API_KEY" in keyless.stderr


def test_the_model_and_the_tools_can_be_chosen(here: Chat) -> None:
    here.pipe("greet me", "-m", "other", "--tools", "files,todo")
    here.pipe("greet me", "--no-tools")
    here.pipe("greet me", REKINDLE_AGENT_TOOLS="terminal")
    chosen, none, by_setting = (request.body for request in here.model.requests)
    assert chosen["model"] == "other"
    names = {tool["function"]["name"] for tool in chosen["tools"]}
    assert names == {"read_file", "write_file", "patch", "search_files", "todo"}
    assert "tools" not in none
    assert [tool["function"]["name"] for tool in by_setting["tools"]] == ["terminal", "process"]
    assert "allowed: all" in here.pipe("x", "--tools", "hammer", code=2).stderr


@pytest.mark.parametrize(
    "words", [("My", "Project"), ("-c", "-r", "x"), ("--fork",), ("--tools", "todo", "--no-tools")]
)
def test_options_that_make_no_sense_together_are_refused(
    here: Chat, words: tuple[str, ...]
) -> None:
    refused = here.pipe("x", *words, code=2)
    assert refused.stderr.startswith("rekindle: ")
    assert here.model.requests == []


def test_nothing_said_is_a_mistake(here: Chat) -> None:
    assert "No input" in here.pipe("\n", code=2).stderr
