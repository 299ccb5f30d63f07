"""Two real processes on one session: one writes, the other waits, continues in a copy, or is refused."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import open_store
from rekindle.testing import ScriptedModel
from tests.acceptance.stores import make_store
from tests.acceptance.terminals import CTRL_C, CTRL_D, Terminal
from tests.acceptance.test_chat import AFTER_THE_CALL, OWNER, SCRIPT, Chat
from tests.waiting import wait_until

ASKED = "Wait for it (w), continue in a copy (c)"


@pytest.fixture
def chat(tmp_path: Path, target: str) -> Iterator[Chat]:
    """On SQLite, then on PostgreSQL."""
    make_store(target)
    with ScriptedModel(SCRIPT) as model:
        opened = Chat(tmp_path, target, model)
        yield opened
        opened.close()


def open_first(chat: Chat) -> Terminal:
    """A terminal with a conversation in it."""
    first = chat.terminal()
    first.say("greet me")
    first.wait_for("Hello, Ada!")
    first.wait_for_prompt()
    return first


def find_pid(chat: Chat) -> int:
    """The process that holds the newest session."""
    with open_store(chat.target) as store:
        lease = store.session_leases.find(store.recent(owner=OWNER)[0].id)
    assert lease is not None
    return lease.pid


def test_a_second_terminal_is_told_who_is_there_and_waits_until_it_is_killed(chat: Chat) -> None:
    first = open_first(chat)
    pid, session = find_pid(chat), chat.sessions()[0].id
    second = chat.terminal("-r", session, columns=160)
    second.wait_for(ASKED)
    assert f"open in another terminal (process {pid} on {platform.node()}, since 20" in second.text
    second.type("w\r")
    second.wait_for("Waiting")
    first.say("greet me again")
    first.wait(lambda: first.text.count("Hello, Ada!") == 2)
    first.wait_for_prompt()
    first.kill()
    second.wait_for("4 messages")
    second.say("look here")
    second.wait_for("Done.")
    second.wait_for_prompt()
    assert len(chat.sessions()) == 1
    words = [text for role, text in chat.said() if role == "user"]
    assert words == ["greet me", "greet me again", "look here"]


def test_a_second_terminal_continues_in_a_copy(chat: Chat) -> None:
    first = open_first(chat)
    second = chat.terminal("-c")
    second.wait_for(ASKED)
    second.type("c\r")
    second.say("look here")
    second.wait_for("Done.")
    second.wait_for_prompt()
    first.say("think about it")
    first.wait_for("An answer.")
    first.wait_for_prompt()
    said = {tuple(text for role, text in chat.said(n) if role == "user") for n in range(2)}
    assert said == {("greet me", "look here"), ("greet me", "think about it")}
    second.type(CTRL_D)
    assert second.left() == 0


def test_a_terminal_that_stops_waiting_or_declines_changes_nothing(chat: Chat) -> None:
    open_first(chat)
    second = chat.terminal("-c")
    second.wait_for(ASKED)
    second.type("w\r")
    second.wait_for("Waiting")
    second.type(CTRL_C)
    second.wait(lambda: second.text.count(ASKED) == 2)
    second.type("\r")
    assert second.left() == 0
    assert [len(chat.said(n)) for n in range(len(chat.sessions()))] == [2]


def test_a_pipe_is_refused_with_one_line_and_may_take_a_copy(chat: Chat) -> None:
    first = open_first(chat)
    session = chat.sessions()[0].id
    refused = chat.pipe("greet me", "-r", session, code=1)
    assert refused.stdout == ""
    line = f"process {find_pid(chat)} on {platform.node()}"
    assert line in refused.stderr
    assert "--fork" in refused.stderr
    assert chat.pipe("greet me", "-r", session, "--fork").stdout.startswith("Hello")
    first.type(CTRL_D)
    assert first.left() == 0
    assert chat.pipe("greet me", "-r", session).stdout.startswith("Hello")


def test_who_was_paused_for_too_long_cannot_write_into_the_turn_of_another(chat: Chat) -> None:
    first = chat.terminal()
    with chat.model.hold_requests(AFTER_THE_CALL):
        first.say("do the work")
        first.wait_for("first")
        pid, session = find_pid(chat), chat.sessions()[0].id
        os.kill(pid, signal.SIGSTOP)
        second = chat.terminal("-r", session)
        second.wait_for(ASKED)
        second.type("w\r")  # the lease expires, although its holder is still there
        second.wait_for("do the work")
        second.wait_for_prompt()
        os.kill(pid, signal.SIGCONT)
    first.wait_for("taken over")
    second.say("greet me")
    second.wait_for("Hello, Ada!")
    second.wait_for_prompt()
    assert "first second third" not in [text for _, text in chat.said()]
    assert [role for role, _ in chat.said()] == ["user", "assistant", "tool", "user", "assistant"]
    first.say("greet me")
    first.wait_for("open in another terminal")


def test_a_conversation_that_is_open_elsewhere_cannot_be_switched_to(chat: Chat) -> None:
    open_first(chat)
    chat.title("Plan")
    second = chat.terminal(columns=160)
    second.say("/resume Plan")
    second.wait_for("That conversation is open in another terminal")
    second.wait_for_prompt()


def test_a_killed_gateway_frees_its_session_at_once(chat: Chat, tmp_path: Path) -> None:
    chat.pipe("greet me")
    session = chat.sessions()[0].id
    source = (
        "import sys, time, rekindle\n"
        "from types import SimpleNamespace\n"
        "from rekindle.gateway.turns.session_hold import SessionHold\n"
        "store = rekindle.open_store(sys.argv[1])\n"
        "executor = SimpleNamespace(store=store)\n"
        "context = SimpleNamespace(executor=executor, instance='g', program='gateway',\n"
        "    session_wait=1.0)\n"
        "SessionHold(context, 'key').acquire(sys.argv[2])\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", source, chat.target, session], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert "open in a gateway" in chat.pipe("greet me", "-c", code=1).stderr
    finally:
        holder.kill()
        holder.wait()
    assert chat.pipe("greet me", "-c").stdout.startswith("Hello")


# -- how sessions end, and what is stored with them


def test_every_session_ends_with_a_reason_and_knows_its_branch_and_model(chat: Chat) -> None:
    subprocess.run(["git", "init", "-q", "-b", "side"], cwd=chat.work, check=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q"]
    subprocess.run([*git, "--allow-empty", "-m", "x"], cwd=chat.work, check=True)

    def list_reasons() -> list[str | None]:
        with open_store(chat.target) as store:
            return [one.end_reason for one in reversed(store.recent(owner=OWNER))]

    leaving = open_first(chat)
    leaving.type(CTRL_D)
    assert leaving.left() == 0
    quitting = open_first(chat)
    quitting.say("/quit")
    assert quitting.left() == 0
    anew = open_first(chat)
    anew.say("/new")
    anew.wait_for("Started a new conversation")
    anew.wait_for_prompt()
    assert list_reasons() == ["user_exit", "user_exit", "session_reset"]
    anew.say("think about it")
    anew.wait_for("An answer.")
    anew.wait_for_prompt()
    os.kill(find_pid(chat), signal.SIGTERM)
    assert anew.left() == 143
    assert list_reasons()[3:] == ["terminated"]
    killed = open_first(chat)
    killed.kill()
    assert list_reasons()[4:] == [None]
    chat.pipe("greet me")
    assert list_reasons()[4:] == ["terminal_lost", "input_end"]
    for session in chat.sessions():
        assert session.git_branch == "side"
        assert (session.model_config or {})["provider"]
        assert session.cwd == str(chat.work)
    chat.pipe("greet me", "-c")
    wait_until(lambda: list_reasons()[-1] == "input_end")
    assert chat.sessions()[0].message_count == 4
