"""How a session is resumed: the agent, the command, the folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rekindle import Message, open_store
from rekindle.coding_agents.resume import (
    TARGETS,
    ResumePlan,
    find_resumable,
    plan_resume,
    quote_word,
    render_command,
)
from rekindle.errors import InvalidInput
from rekindle.store import Store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Session

ID = "6f1d3c52-8a0e-4b7f-9c1d-2e3f4a5b6c7d"
CLAUDE = Session(ID, source="claude-code", cwd="/work/my app", message_count=4)


@pytest.mark.parametrize(
    ("source", "id", "command"),
    [
        ("claude-code", ID, f"claude --resume {ID}"),
        ("codex", ID, f"codex resume {ID}"),
        ("opencode", "ses_abc", "opencode --session ses_abc"),
        ("pi", ID, f"pi --session {ID}"),
        ("gemini", ID, f"gemini --resume {ID}"),
        ("local", "20260101_x", "rekindle chat --resume 20260101_x"),
    ],
)
def test_a_session_is_resumed_by_its_own_agent_in_its_own_folder(
    source: str, id: str, command: str
) -> None:
    plan = plan_resume(Session(id, source=source, cwd="/work/my app"))
    assert not plan.restore_needed
    assert plan.folder == "/work/my app"
    assert render_command(plan) == f"cd '/work/my app' && {command}"


def test_a_session_that_the_agent_deleted_is_put_back_under_its_id() -> None:
    plan = plan_resume(CLAUDE, is_present=False)
    assert (plan.restore_needed, plan.session) == (True, ID)
    assert "no longer has" in plan.note


def test_another_agent_gets_a_copy_under_an_id_of_its_own() -> None:
    plan = plan_resume(CLAUDE, target="codex")
    assert plan.restore_needed
    assert plan.session != ID
    assert plan.command == ("codex", "resume", plan.session)
    assert plan == plan_resume(CLAUDE, target="codex")
    assert "Claude Code" in plan.note
    grown = plan_resume(CLAUDE._replace(message_count=6), target="codex")
    assert grown.session != plan.session


def test_an_agent_that_cannot_be_started_needs_a_target() -> None:
    with pytest.raises(InvalidInput, match=r"hermes.*--in"):
        plan_resume(Session("x", source="hermes"))
    for target in TARGETS:
        assert plan_resume(Session("x", source="hermes"), target=target).agent == target
    with pytest.raises(InvalidInput, match="aider"):
        plan_resume(CLAUDE, target="aider")


@pytest.mark.parametrize("cwd", [None, "", "relative", "-x", "/a\0b", "C:\\work"])
def test_a_folder_that_cannot_be_one_here_is_unknown(cwd: str | None) -> None:
    plan = plan_resume(CLAUDE._replace(cwd=cwd))
    assert plan.folder is None
    assert render_command(plan) == f"claude --resume {ID}"


def test_an_id_that_the_agent_would_refuse_or_misread_is_not_handed_to_it() -> None:
    plan = plan_resume(CLAUDE._replace(id="--dangerously-skip-permissions"))
    assert plan.restore_needed
    assert "--dangerously-skip-permissions" not in plan.command
    chat = plan_resume(Session("-c", source="local"))
    assert chat.command[-2:] == ("--", "-c")


@pytest.mark.slow
@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "two words",
        "it's",
        '$HOME `id` "x"',
        "a\nb",
        "\x1b]0;title\x07",
        "é日本",
        "\\'\n\x7f",
    ],
)
def test_a_shell_reads_back_every_word_and_a_terminal_sees_no_control_character(word: str) -> None:
    quoted = quote_word(word)
    assert quoted.isprintable()
    script = f"printf %s {quoted}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == word


def test_preparations_stand_between_the_folder_and_the_command() -> None:
    plan = ResumePlan(
        "opencode", ("opencode", "-s", "x"), "/a", preparation=(("opencode", "import", "/f"),)
    )
    assert render_command(plan) == "cd /a && opencode import /f && opencode -s x"


# ── which session


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "sessions.db")


def put(
    store: Store,
    id: str,
    source: str = "claude-code",
    parent: str | None = None,
    sub_agent: str | None = None,
) -> Session:
    session = Session(id, source=source, parent=parent, sub_agent=sub_agent)
    store.import_batch([SessionImport(session, [Message("user", id)], is_complete=True)])
    return store.session(id)


def test_a_sub_agent_is_resumed_at_its_parent(store: Store) -> None:
    for source in ("claude-code", "codex", "opencode"):
        root = put(store, f"{source}-root", source)
        child = put(store, f"{source}-child", source, root.id, "explorer")
        assert find_resumable(store, child) == root
    lost = put(store, "agent-1@gone", parent="gone", sub_agent="agent")
    assert find_resumable(store, lost) == lost


def test_a_fork_and_a_hand_over_are_resumed_themselves(store: Store) -> None:
    put(store, "root")
    for fork in (put(store, "fork", parent="root"), put(store, "ses_9", "opencode", "root")):
        assert find_resumable(store, fork) == fork


def test_a_compressed_session_is_resumed_where_it_continues(store: Store) -> None:
    first = store.begin(source="local")
    store.append(first, Message("user", "a"))
    second = store.compress(first, Message("user", "b"))
    assert find_resumable(store, store.session(first.id)).id == second.id


def test_parents_that_go_in_circles_end(store: Store) -> None:
    put(store, "x", parent="y", sub_agent="agent")
    put(store, "y", parent="x", sub_agent="agent")
    assert find_resumable(store, store.session("x"))
