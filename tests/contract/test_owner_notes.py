"""Recall where several people share a process: nothing of one owner reaches another."""

from __future__ import annotations

import json

from rekindle import Message, Store, ToolCall
from rekindle.knowledge.notes.note import Recall
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.owners import recall_for_owner_at_failure, recall_for_owner_at_start
from rekindle.store.learning.observations import NoteDecision

FOLDER = "/gone/work/app"
DENIED = "cache: operation not permitted\nerror: build failed"


def work(store: Store, owner: str | None, word: str) -> None:
    """Store six sessions of an owner, in which `word` names all that they run."""
    for number in range(6):
        name = f"{word}-{number}"
        session = store.begin(id=name, cwd=FOLDER, owner=owner)
        messages = [Message("user", f"part {number} of the {word} work")]
        steps = (
            (f"make {word}-check", "ok", True),
            ("go vet ./...", DENIED, False),
            (f"make {word}-cache && go vet ./...", "ok", True),
        )
        for at, (command, output, works) in enumerate(steps):
            call = ToolCall(f"{name}-{at}", "Bash", {"command": command})
            messages.append(Message("assistant", tool_calls=(call,)))
            meta = {"is_error": not works}
            messages.append(Message("tool", output, tool_call_id=call.id, name="Bash", meta=meta))
        store.append(session, *messages)


def ask(store: Store, owner: str | None) -> list[Recall]:
    failed = ToolCall("1", "Bash", {"command": "go vet ./..."})
    return [
        recall_for_owner_at_start(store, FOLDER, "part 3 of the amber and birch work", owner),
        recall_for_owner_at_failure(store, FOLDER, failed, DENIED, owner),
        recall_for_owner_at_failure(store, FOLDER, failed._replace(arguments=json.dumps(
            {"command": "go vet ./..."})), DENIED, owner),
    ]  # fmt: skip


def test_each_owner_is_told_what_their_own_sessions_learned(store: Store) -> None:
    work(store, "ada", "amber")
    work(store, "bob", "birch")
    work(store, None, "cedar")
    learn_from_sessions(store)
    for owner, own in (("ada", "amber"), ("bob", "birch")):
        start, *failures = ask(store, owner)
        assert f"make {own}-check" in start.text
        assert all(f"make {own}-cache" in one.text for one in failures)
        others = {"amber", "birch", "cedar"} - {own}
        assert not any(word in repr(one) for one in (start, *failures) for word in others)


def test_without_an_owner_or_sessions_of_their_own_nobody_is_told_anything(store: Store) -> None:
    work(store, "ada", "amber")
    learn_from_sessions(store)
    assert [one.text for owner in (None, "", "eve", "ad", "ADA") for one in ask(store, owner)] == [
        ""
    ] * 15


def test_what_an_owner_asks_for_is_told_to_that_owner_alone(store: Store) -> None:
    for owner, word, wish in (
        ("ada", "amber", "always use tabs"),
        ("bob", "birch", "never use tabs"),
    ):
        work(store, owner, word)
        session = store.begin(id=f"{word}-wish", cwd=FOLDER, owner=owner)
        store.append(session, Message("user", f"{wish} for the code"))
    learn_from_sessions(store)
    ada, bob = ask(store, "ada")[0].text, ask(store, "bob")[0].text
    assert "“Always use tabs for the code.”" in ada
    assert "“Never use tabs for the code.”" in bob
    assert "Never" not in ada
    assert "Always" not in bob


def test_a_note_that_somebody_added_names_no_owner_and_is_left_out(store: Store) -> None:
    work(store, "ada", "amber")
    learn_from_sessions(store)
    project = store.session("amber-0").project or ""
    store.observations.save_decision(project, NoteDecision("n", "added", "ask birch first", 1.0))
    assert not any("birch" in one.text for one in ask(store, "ada"))


def test_a_retired_note_is_not_told(store: Store) -> None:
    work(store, "ada", "amber")
    learn_from_sessions(store)
    (start, *_) = ask(store, "ada")
    project = store.session("amber-0").project or ""
    for note in start.notes:
        store.observations.save_decision(project, NoteDecision(note.id, "retired", None, 1.0))
    assert ask(store, "ada")[0].text == ""
