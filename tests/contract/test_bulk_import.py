"""What an import brings goes into one transaction, and the same again changes nothing."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Session, Store, ToolCall, open_store
from rekindle.errors import InvalidInput, NotFound
from rekindle.store import Filter
from rekindle.store.transfer.bulk_import import SessionImport, SessionImportResult
from rekindle.types import Tokens
from tests.contract.messages import dumped, found, texts

Reopened = Callable[[], Store]


def said(*names: str, role: str = "user", **fields: Any) -> list[Message]:
    return [
        Message(role=role, content=name, platform_message_id=name, timestamp=5.0, **fields)
        for name in names
    ]


def asked(id: str, *calls: str, text: str | None = None) -> Message:
    return Message(
        role="assistant",
        content=text,
        tool_calls=[ToolCall(call, "run") for call in calls],
        platform_message_id=id,
    )


def whole(session: Session, *messages: Message) -> SessionImport:
    return SessionImport(session, messages, is_complete=True)


def test_sessions_of_many_files_and_the_files_are_written_together(store: Store) -> None:
    arrived = store.import_batch(
        [
            SessionImport(Session("a", source="codex", started=2.0), said("one", "two")),
            SessionImport(Session("b", started=3.0), [asked("m", "c1", "c2"), *said("three")]),
        ],
        {"/a.jsonl": "1", "/b.jsonl": "2"},
    )
    assert arrived == [
        SessionImportResult(2, 0, is_new=True),
        SessionImportResult(2, 2, is_new=True),
    ]
    assert texts(store, "a") == ["one", "two"]
    assert store.session("b").tool_call_count == 2
    session = store.session("a")
    assert (session.source, session.started, session.last_active) == ("codex", 2.0, 5.0)
    assert (session.message_count, session.preview) == (2, "one")
    assert store.get_import_stamps(["/a.jsonl", "/b.jsonl", "/c.jsonl"]) == {
        "/a.jsonl": "1",
        "/b.jsonl": "2",
    }
    assert found(store, "three") == ["three"]
    assert store.verify() == []


def test_the_same_again_changes_nothing_and_more_is_added_behind(store: Store) -> None:
    told = Session("a", tokens=Tokens(3, 4), cost=Decimal("0.5"), title="Plan", started=1.0)
    store.import_batch([whole(told, *said("one", "two", "one"))])
    before = dumped(store)
    assert texts(store, "a") == ["one", "two"]
    assert store.import_batch([whole(told, *said("one", "two"))]) == [SessionImportResult()]
    assert dumped(store) == before
    assert store.import_batch([whole(told, *said("one", "two", "three"))]) == [
        SessionImportResult(1)
    ]
    assert texts(store, "a") == ["one", "two", "three"]
    assert store.verify() == []


def test_more_ids_than_are_asked_for_together_are_all_known(store: Store) -> None:
    names = [f"n{number}" for number in range(1_001)]
    store.import_batch([SessionImport(Session("a"), said(*names))])
    assert store.import_batch([SessionImport(Session("a"), said(*names, "new"))]) == [
        SessionImportResult(1)
    ]
    positions = store.append("a", *said("n0", "n500", "n1000", "new"))
    assert positions == [0, 500, 1000, 1001]


def test_a_session_without_a_message_is_not_begun(store: Store) -> None:
    assert store.import_batch([whole(Session("empty", title="x"))]) == [SessionImportResult()]
    with pytest.raises(NotFound):
        store.session("empty")


def test_what_a_file_tells_fills_in_what_is_not_known(store: Store) -> None:
    bare = Session("a", started=9.0)
    store.import_batch([SessionImport(bare, said("one"))])
    told = Session(
        "a",
        owner="ada",
        user="Ada",
        model="m",
        title="Plan",
        parent="p",
        started=4.0,
        ended=7.0,
        end_reason="done",
        cwd="/w",
        git_branch="main",
        model_config={"temperature": 0.5},
        tokens=Tokens(1, 2, 3, 4, 5),
        cost=Decimal("1.25"),
    )
    store.import_batch([whole(told)])
    known = store.session("a")
    for field in (
        *("owner", "user", "model", "title", "parent", "started", "ended", "end_reason"),
        *("cwd", "git_branch", "model_config", "tokens", "cost"),
    ):
        assert getattr(known, field) == getattr(told, field), field
    assert store.verify() == []


def test_the_first_end_title_and_facts_stay_and_counts_are_raised_not_added(store: Store) -> None:
    first = Session(
        "a", title="First", model="m", ended=7.0, end_reason="done", tokens=Tokens(10, 10),
        cost=Decimal(2),
    )  # fmt: skip
    store.import_batch([whole(first, *said("one"))])
    second = first._replace(
        title="Second", model="n", ended=8.0, end_reason="error", tokens=Tokens(5, 20),
        cost=Decimal(3),
    )  # fmt: skip
    for _ in range(2):
        store.import_batch([whole(second)])
    known = store.session("a")
    assert (known.title, known.model, known.ended, known.end_reason) == ("First", "m", 7.0, "done")
    assert (known.tokens, known.cost) == (Tokens(10, 20), Decimal(3))


def test_a_title_that_is_taken_is_continued(store: Store) -> None:
    named = [whole(Session(id, title="Plan"), *said("x")) for id in "ab"]
    store.import_batch(named)
    assert [store.session(id).title for id in "ab"] == ["Plan", "Plan #2"]
    store.import_batch(named)
    assert [store.session(id).title for id in "ab"] == ["Plan", "Plan #2"]


def test_an_answer_that_was_stored_half_written_is_completed_in_its_place(store: Store) -> None:
    store.import_batch(
        [SessionImport(Session("a"), [*said("go"), asked("m", "c1", text="I look.")])]
    )
    more = [*said("go"), asked("m", "c1", "c2", text="I look."), *said("result")]
    assert store.import_batch([SessionImport(Session("a"), more)]) == [SessionImportResult(2, 1)]
    told = store.messages("a")
    assert [[call.id for call in message.tool_calls] for message in told] == [
        [],
        ["c1"],
        ["c2"],
        [],
    ]
    assert [message.text for message in told] == ["go", "I look.", "", "result"]
    assert store.import_batch([SessionImport(Session("a"), more)]) == [SessionImportResult()]


def test_a_pruned_session_does_not_come_back_by_an_import(store: Store) -> None:
    arrival = SessionImport(Session("a", started=1.0), said("one"))
    store.import_batch([arrival])
    store.prune(Filter())
    assert store.import_batch([whole(arrival.session, *said("one", "two"))]) == [
        SessionImportResult()
    ]
    store.restore("a")
    assert texts(store, "a") == ["one"]


def test_a_message_that_cannot_be_stored_is_refused_by_itself(store: Store) -> None:
    bad = Message(role="user", content="bad", meta={"n": float("nan")}, platform_message_id="bad")
    (arrived,) = store.import_batch(
        [SessionImport(Session("a"), [*said("one"), bad, *said("two")])]
    )
    assert arrived.messages == 2
    assert "message.meta" in arrived.rejected[0]
    assert texts(store, "a") == ["one", "two"]


@pytest.mark.parametrize(
    "session",
    [
        Session(""),
        Session("x" * 600),
        Session("a", parent="a"),
        Session("a", started=float("nan")),
        Session("a", ended=1e30),
        Session("a", cost=Decimal("NaN")),
        Session("a", cost=Decimal("1e30")),
        Session("a", tokens=Tokens(-1)),
        Session("a", model=7),  # type: ignore[arg-type]
    ],
)
def test_a_session_that_cannot_be_stored_stops_the_whole(store: Store, session: Session) -> None:
    with pytest.raises(InvalidInput, match="session"):
        store.import_batch(
            [SessionImport(Session("good"), said("x")), SessionImport(session, said("y"))],
            {"/f": "1"},
        )
    with pytest.raises(NotFound):
        store.session("good")
    assert store.get_import_stamps(["/f"]) == {}


def test_two_that_bring_the_same_at_once_write_it_once(store: Store, reopened: Reopened) -> None:
    stores = [store, reopened(), reopened()]
    gate = threading.Barrier(len(stores))
    new: list[int] = []

    def bring(into: Store) -> None:
        gate.wait()
        for number in range(20):
            names = [f"{number}-{place}" for place in range(10)]
            (arrived,) = into.import_batch(
                [whole(Session(f"s{number}", started=1.0), *said(*names))]
            )
            new.append(arrived.messages)

    threads = [threading.Thread(target=bring, args=(into,)) for into in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new) == 200
    for number in range(20):
        assert texts(store, f"s{number}") == [f"{number}-{place}" for place in range(10)]
    assert store.verify() == []


def test_a_call_that_json_cannot_say_is_refused(store: Store) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    odd = (ToolCall("1", "run", deep), ToolCall("2", "run", {"a": {1, 2}}))
    refused = [Message(role="assistant", tool_calls=[call]) for call in odd]
    (arrived,) = store.import_batch([SessionImport(Session("a"), [*said("one"), *refused])])
    assert arrived.messages == 1
    assert len(arrived.rejected) == 2
    with pytest.raises(InvalidInput, match=r"tool_calls\.arguments"):
        store.append("a", refused[1])


def test_the_words_around_odd_signs_are_found_in_a_full_batch(store: Store) -> None:
    odd = [f"left{n}\0right{n}" for n in range(70)] + ["\ud800between\udfff", ""]
    store.import_batch([SessionImport(Session("a"), [Message("user", text) for text in odd])])
    assert found(store, "right3") == ["left3\0right3"]
    assert found(store, "left69 right69") == ["left69\0right69"]
    assert found(store, "between") == ["\ud800between\udfff"]
    assert store.verify() == []


def test_words_are_found_where_others_went_from_among_them(store: Store) -> None:
    for number in range(30):
        store.append(store.begin(id=f"s{number}"), Message("user", f"word{number}"))
    for number in range(0, 30, 7):
        store.append(f"s{number}", Message("user", "more"))
        store.end(f"s{number}", "done")
    store.prune(Filter(messages=((">", 1),)))
    store.purge(older_than=-1)
    store.import_batch([SessionImport(Session("a"), said(*(f"later{n}" for n in range(100))))])
    for number in range(30):
        assert found(store, f"word{number}") == ([f"word{number}"] if number % 7 else [])
    assert found(store, "later99") == ["later99"]
    assert store.verify() == []


def test_what_is_brought_is_there_where_no_thread_can_be_started(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    store.import_batch([SessionImport(Session("a"), said("one"))], {"/a": "1"}, lambda: None)
    assert texts(store, "a") == ["one"]


def test_ctrl_c_while_it_is_written_leaves_the_store_in_order(tmp_path: Path) -> None:
    """Also when it is pressed while nothing else is left to do than to wait for the writing."""

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, pressed)
    many = [SessionImport(Session(f"s{n}"), said(*map(str, range(200)))) for n in range(100)]
    try:
        with open_store(tmp_path / "sessions.db") as store:
            for moment in (0.0, 0.02, 0.04, 0.06):  # after the rest, which comes before the writing
                with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                    store.import_batch(
                        many, {}, lambda at=moment: signal.setitimer(signal.ITIMER_REAL, at + 0.001)
                    )
                    time.sleep(5)  # the writing was done before
                store.append(store.begin(id=f"after {moment}"), Message("user", "goes on"))
            assert texts(store, "after 0.06") == ["goes on"]
            assert store.verify() == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_is_done_meanwhile_may_fail_and_what_was_brought_is_there(store: Store) -> None:
    def fail() -> None:
        raise ArithmeticError("meanwhile")

    with suppress(ArithmeticError):  # an engine may leave it undone
        store.import_batch([SessionImport(Session("a"), said("one"))], {"/a": "1"}, fail)
    assert texts(store, "a") == ["one"]
    assert store.get_import_stamps(["/a"]) == {"/a": "1"}
    store.append("a", Message("user", "two"))
    assert store.verify() == []
