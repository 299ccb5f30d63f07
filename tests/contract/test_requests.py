"""What users asked for first and last, sub-agents under their parents, and branches left behind."""

from __future__ import annotations

from typing import Any

from rekindle import Message, Session, Store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Tokens
from tests.contract.messages import answer, found, started, texts, turns, user


def asked(store: Store, session: Session | str) -> tuple[str | None, str | None]:
    known = store.session(session if isinstance(session, str) else session.id)
    return known.preview, known.last_request


def said(*names: str) -> list[Message]:
    return [Message("user", name, platform_message_id=name, timestamp=5.0) for name in names]


def bring(store: Store, id: str, *messages: Message, **more: Any) -> None:
    fields = {key: more.pop(key) for key in ("parent", "sub_agent", "tokens") if key in more}
    session = Session(id, source="claude-code", started=1.0, **fields)
    store.import_batch([SessionImport(session, messages, is_complete=True, **more)], {})


def test_requests_follow_appends(store: Store) -> None:
    session = store.begin()
    store.append(session, user("/model opus"))
    assert asked(store, session) == ("/model opus", None)
    store.append(session, user("fix the parser"), answer("done"))
    assert asked(store, session) == ("fix the parser", "fix the parser")
    store.append(session, user("<system-reminder>\nx\n</system-reminder>"))
    store.append(session, user("now commit"))
    store.append(session, answer("done"))
    assert asked(store, session) == ("fix the parser", "now commit")


def test_requests_follow_rewinds_and_forks(store: Store) -> None:
    session = store.begin()
    store.append(session, *turns("a", "b", "c"))
    store.undo(session)
    assert asked(store, session) == ("a", "b")
    store.redo(session)
    assert asked(store, session) == ("a", "c")
    assert asked(store, store.fork(session, at=1)) == ("a", "a")
    store.rewrite(session, user("new"))
    assert asked(store, session) == ("new", "new")


def test_requests_follow_imports(store: Store) -> None:
    bring(store, "one", *said("first"))
    bring(store, "one", *said("first", "last"))
    assert asked(store, "one") == ("first", "last")


def test_a_branch_left_behind_is_rewound_and_can_come_back(store: Store) -> None:
    bring(store, "one", *said("start", "old"))
    bring(store, "one", *said("start", "old", "new"), abandoned={"old"})
    assert texts(store, "one") == ["start", "new"]
    assert [m.text for m in store.messages("one", rewound=True) if m.rewound] == ["old"]
    assert (store.session("one").message_count, asked(store, "one")) == (2, ("start", "new"))
    assert [rewind.kind for rewind in store.rewinds("one")] == ["branch"]
    assert found(store, "old") == []
    bring(store, "one", *said("start", "old", "new"), abandoned={"new"})
    assert (texts(store, "one"), asked(store, "one")) == (["start", "old"], ("start", "old"))
    assert [*store.verify()] == []


def test_a_new_session_is_stored_without_its_branches(store: Store) -> None:
    bring(store, "one", *said("old", "new"), abandoned={"old"})
    assert (texts(store, "one"), asked(store, "one")) == (["new"], ("new", "new"))


def test_what_a_user_undid_stays_undone_after_an_import(store: Store) -> None:
    bring(store, "one", *said("a", "b"))
    store.undo("one")
    bring(store, "one", *said("a", "b", "c"), abandoned={"c"})
    assert texts(store, "one") == ["a"]


def test_sub_agents_are_found_below_their_session_at_any_depth(store: Store) -> None:
    bring(store, "top", *said("go"))
    bring(store, "sub", *said("look"), parent="top", sub_agent="explorer", tokens=Tokens(5))
    bring(store, "deep", *said("deeper"), parent="sub", sub_agent="agent")
    bring(store, "fork", *said("other"), parent="top")
    bring(store, "orphan", *said("alone"), parent="gone", sub_agent="agent")
    inner = store.find_sub_agents(["top", "fork"])
    assert {id: [one.id for one in ones] for id, ones in inner.items()} == {"top": ["sub", "deep"]}
    assert {one.id for one in store.recent(fold=True)} == {"top", "fork", "orphan"}
    assert len(store.recent()) == 5


def test_sub_agents_in_a_circle_are_found_once(store: Store) -> None:
    bring(store, "a", *said("x"), parent="b", sub_agent="agent")
    bring(store, "b", *said("y"), parent="a", sub_agent="agent")
    assert [one.id for one in store.find_sub_agents(["a"])["a"]] == ["b"]


def test_a_fork_of_a_sub_agent_is_none(store: Store) -> None:
    bring(store, "sub", *said("look"), parent="top", sub_agent="explorer")
    assert store.fork("sub").sub_agent is None


def test_names_begin_where_sessions_that_begin_alike_differ(store: Store) -> None:
    plan = "Implement the following plan: "
    sessions = [started(store, f"{plan}{word}") for word in ("one", "two", "three", "four")]
    own = started(store, "short")
    titled = started(store, f"{plan}five", title="Mine")
    listed = [store.session(one.id) for one in (*sessions, own, titled)]
    names = store.load_names(listed)
    assert [names[one.id] for one in listed] == [
        "… one", "… two", "… three", "… four", "short", "Mine",
    ]  # fmt: skip


def test_names_of_equal_requests_are_the_last_ones_or_have_branch_and_time(store: Store) -> None:
    prompt = "Review the code changes against the base branch 'main'."
    sessions = [started(store, prompt) for _ in range(5)]
    store.append(sessions[0], user("look at the tests, too"))
    store.update(sessions[2], git_branch="fix/login")
    names = store.load_names([store.session(one.id) for one in sessions[:3]])
    assert names[sessions[2].id].startswith("fix/login ")
    assert names[sessions[0].id] == "look at the tests, too"
    assert names[sessions[1].id].endswith(f" {prompt}")
    assert names[sessions[1].id] != prompt
