import re
from pathlib import Path

import rekindle.store
from rekindle import Message
from rekindle.types import Tokens
from tests.new_store import open_new_store

FOLDER = Path(rekindle.store.__file__).parent


def test_every_update_of_a_session_counts_as_a_change() -> None:
    # `Store.recent` takes a session whose count has not changed from memory.
    updates = [
        (file.name, update)
        for file in FOLDER.rglob("*.py")
        for update in re.findall(r"UPDATE sessions SET[^?]*", file.read_text(encoding="utf-8"))
    ]
    assert len(updates) >= 8
    assert [where for where, update in updates if "changes = changes + 1" not in update] == []


def test_a_list_shows_what_another_store_has_changed(tmp_path: Path) -> None:
    with open_new_store(tmp_path / "s.db") as store, open_new_store(tmp_path / "s.db") as other:
        sessions = [store.begin(title=f"t{n}") for n in range(5)]
        for session in sessions:
            store.append(session, Message(role="user", content="hi"))
        before = {session.id: session for session in other.recent()}
        store.rename(sessions[0].id, "new name")
        store.append(sessions[1].id, Message(role="user", content="more"))
        store.end(sessions[2].id, "done")
        store.add_usage(sessions[3].id, Tokens(input=7))
        after = {session.id: session for session in other.recent()}
        assert after[sessions[0].id].title == "new name"
        assert after[sessions[1].id].message_count == 2
        assert after[sessions[2].id].end_reason == "done"
        assert after[sessions[3].id].tokens.input == 7
        assert after[sessions[4].id] is before[sessions[4].id]
