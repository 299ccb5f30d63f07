from __future__ import annotations

import json
import random
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Store, Tokens, ToolCall, open_store
from rekindle.store import Filter
from rekindle.types import make_foreign_message
from tests.conftest import ENGINES, Clock
from tests.contract.conftest import Opened
from tests.contract.messages import answer, call, dumped, found, result, started, texts, turns, user

ODD = "nul \0, lone \ud800, pair \ud83d\ude00, byte \udcff, escape \U0010fffe0000, 日本語 🎉"


def fill(store: Store, clock: Clock) -> None:
    """Everything that a store can hold."""
    rich = store.begin(
        id="rich", source="telegram", owner="ada", user="Ada", model="m", title="Plan", cwd="/x",
        model_config={"t": 0.5, "deep": [None, {"é": ODD}]}, git_branch="main", template="t", arm="warm",
    )  # fmt: skip
    store.append(
        rich,
        user("needle", platform_message_id="p1", timestamp=5.25),
        Message(
            role="assistant",
            content=None,
            tool_calls=(ToolCall("1", "ls", '{"a": 1}'), ToolCall("2", "rm", {"b": [1.5, ODD]})),
            reasoning="thought",
            finish_reason="tool_calls",
        ),
        result("listing", id="1"),
        Message(role="tool", content=[{"type": "text", "text": ODD}], meta={"is_error": True}),
        answer("", meta={}),
    )
    store.add_usage(rich, Tokens(1, 2, 3, 4, 5), Decimal("0.123456789"))
    store.add_usage(rich, Tokens(10, 20), Decimal("0.5"), model=f"other {ODD}")
    clock.forward(10)
    store.append(rich, *turns("b", "c"))
    clock.forward(1)
    plain = started(store, "plain", id="plain")
    store.undo(rich)
    clock.forward(1)
    store.append(plain, *turns("d"))
    store.undo(plain)
    clock.forward(1)
    store.append(rich, *turns("e"))
    store.undo(rich)
    clock.forward(1)
    store.redo(rich)
    store.end(rich, "done")
    store.fork(rich, at=2)
    store.fork(store.fork(rich))
    store.compress(plain, user("summary"))
    odd = store.begin(id=ODD, source=ODD, owner=ODD, user=ODD, cwd=ODD, parent="rich", title=ODD)
    store.append(odd, make_foreign_message("r\0", content=ODD, platform_message_id=ODD, name=ODD))
    store.end(odd, ODD)
    for name in ("archived", "pruned"):
        started(store, "needle", id=name, title=name, source=name)
        store.end(name, "done")
    store.archive(Filter(source="archived"))
    store.prune(Filter(source="pruned"))
    store.mark_imported("/some/file", "stamp\0")


def test_a_dump_is_read_in_again_without_loss(store: Store, another: Opened, clock: Clock) -> None:
    fill(store, clock)
    lines = dumped(store)
    other = another()
    report = other.load(lines)
    assert report.skipped == []
    assert (report.sessions, report.messages) == (9, sum(b'"type":"message"' in x for x in lines))
    assert dumped(other) == lines
    assert other.verify() == []
    assert other.recent(where=Filter(archived=None)) == store.recent(where=Filter(archived=None))
    for session in store.recent(where=Filter(archived=None)):
        assert other.messages(session, rewound=True) == store.messages(session, rewound=True)
        assert [rewind._replace(id=0) for rewind in other.rewinds(session)] == [
            rewind._replace(id=0) for rewind in store.rewinds(session)
        ]
    assert found(other, "needle", rewound=True) == found(store, "needle", rewound=True)
    assert found(other, "listing", tool="ls") == found(store, "listing", tool="ls") == ["listing"]


def test_what_a_session_was_started_with_comes_along(store: Store, another: Opened) -> None:
    given = [
        Message("system", f"Like this: {ODD}"),
        Message("assistant", None, [ToolCall("w1", "ls", {"path": "."})]),
        Message("tool", "a.py", tool_call_id="w1", name="ls"),
    ]
    for name in ("first", "second"):
        started(store, "hello", id=name)
        store.preludes.save(name, given, revision=3)
    lines = dumped(store)
    other = another()
    assert other.load(lines).skipped == []
    for name in ("first", "second"):
        assert other.preludes.load(name) == store.preludes.load(name)
    assert len(other.preludes.load("first").messages) == 3
    assert dumped(other) == lines
    assert other.load(lines).messages == 0
    report = another().load([lines[0], b'{"type": "prelude", "messages": [1]}', *lines[2:]])
    assert report.skipped == ["line 2: messages: expected objects"]


def test_a_loaded_session_goes_on_as_the_first_would(
    store: Store, another: Opened, clock: Clock
) -> None:
    fill(store, clock)
    other = another()
    other.load(dumped(store))
    assert other.append("rich", user("needle", platform_message_id="p1")) == [0]
    assert other.append("rich", user("next")) == store.append("rich", user("next"))
    other.redo("rich")
    store.redo("rich")
    assert texts(other, "rich") == texts(store, "rich")
    assert other.restore("pruned")[0].title == "pruned"
    assert other.session("rich") == store.session("rich")


def test_one_session_or_a_lineage_can_be_dumped(store: Store, another: Opened) -> None:
    parent = started(store, "a", id="parent")
    child = store.fork(parent)
    started(store, "b", id="stranger")
    other = another()
    assert other.load(store.dump([child])) == (1, 1, [])
    assert texts(other, child.id) == ["a"]
    assert other.load(store.dump(store.lineage("parent"))) == (1, 1, [])
    assert {session.id for session in other.recent()} == {"parent", child.id}
    assert list(store.dump(["nobody"])) == []


def test_loading_twice_changes_nothing(store: Store, another: Opened, clock: Clock) -> None:
    fill(store, clock)
    lines, other = dumped(store), another()
    other.load(lines)
    assert other.load(lines) == (0, 0, [])
    assert dumped(other) == lines
    assert store.load(lines) == (0, 0, [])
    assert dumped(store) == lines


def test_a_grown_dump_adds_only_what_is_new(store: Store, another: Opened, clock: Clock) -> None:
    session = started(store, "a", "b")
    other = another()
    other.load(dumped(store))
    clock.forward(5)
    store.append(session, user("c"), user("d"))
    store.add_usage(session, Tokens(7))
    started(store, "new")
    assert other.load(dumped(store)) == (2, 3, [])
    assert dumped(other) == dumped(store)
    assert other.verify() == []


def test_a_dump_that_was_rewound_and_grew_is_followed(
    store: Store, another: Opened, clock: Clock
) -> None:
    session = started(store, "a", "b", "c")
    other = another()
    other.load(dumped(store))
    clock.forward(1)
    store.undo(session)
    store.append(session, user("d"))
    other.load(dumped(store))
    assert texts(other, session) == texts(store, session) == ["a", "b", "d"]
    clock.forward(1)
    store.redo(session)
    store.append(session, user("e"))
    other.load(dumped(store))
    assert texts(other, session) == texts(store, session) == ["a", "b", "c", "e"]
    assert dumped(other) == dumped(store)
    assert other.verify() == []


def test_another_conversation_under_the_same_id_is_left_alone(
    store: Store, another: Opened
) -> None:
    started(store, "mine", "b", id="x")
    other = another()
    started(other, "yours", "b", "c", id="x")
    started(other, "fine", id="y")
    report = store.load(dumped(other))
    assert (report.sessions, report.messages) == (1, 1)
    assert report.skipped == ["session x: the store has a different conversation with this id"]
    assert texts(store, "x") == ["mine", "b"]


def test_damaged_lines_are_reported_by_number_and_the_rest_is_kept(
    store: Store, another: Opened
) -> None:
    started(store, "a", "b", "c", id="one")
    started(store, "d", id="two")
    lines = dumped(store)
    good = {"type": "session", "format": 1, "id": "three"}
    damaged = [
        lines[0],
        lines[1],
        lines[2][:20],
        lines[3],
        b"\xff\xfe\n",
        b"\n",
        b"[1]\n",
        b'{"type": "song"}\n',
        *lines[4:],
        b'{"type": "session", "id": 7}\n',
        b'{"type": "message", "role": "user", "position": 0}\n',
        json.dumps(good).encode(),
        b'{"type": "message", "content": "no role", "position": 0}\n',
        b'{"type": "message", "role": "user", "content": "no position"}\n',
        b'{"type": "message", "role": "user", "content": 5, "position": 1}\n',
        b'{"type": "message", "role": "user", "content": "kept", "position": 2}\n',
        b'{"type": "rewind", "id": 1}\n',
        json.dumps({**good, "format": 99}).encode(),
    ]
    other = another()
    report = other.load(damaged)
    numbers = [int(line.split()[1].rstrip(":")) for line in report.skipped]
    assert numbers == [3, 5, 7, 8, 11, 12, 14, 15, 16, 18, 19]
    assert (report.sessions, report.messages) == (3, 4)
    assert [texts(other, name) for name in ("one", "two", "three")] == [["a", "c"], ["d"], ["kept"]]
    assert other.verify() == []


def test_a_line_that_comes_twice_is_taken_once(store: Store, another: Opened) -> None:
    session = store.begin(id="one")
    store.append(session, user("a", platform_message_id="p"), user("b"))
    started(store, "c", id="two")
    lines = dumped(store)
    other = another()
    report = other.load([*lines[:2], lines[1], lines[2], lines[2], *lines[3:]])
    assert (texts(other, "one"), texts(other, "two")) == (["a", "b"], ["c"])
    assert report.messages == 3


WRONG = [None, True, -1, 2**70, float("nan"), "NaN", "\0", [1], {}]


def test_whatever_a_damaged_field_holds_the_other_sessions_come_in(
    tmp_path: Path, clock: Clock, empty_file: Path
) -> None:
    with open_store(tmp_path / "source.db", durability="relaxed", clock=clock) as store:
        fill(store, clock)
        lines, after = list(store.dump(["rich"])), list(store.dump(["plain"]))
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    one_of_each = {record["type"]: at for at, record in enumerate(records)} | {"message": 2}
    for at in one_of_each.values():
        for field in records[at]:
            for wrong in WRONG:
                changed = [*records[:at], {**records[at], field: wrong}, *records[at + 1 :]]
                said = f"{records[at]['type']}.{field} = {wrong!r:.20}"
                target = shutil.copy(empty_file, tmp_path / f"{random.getrandbits(60)}.db")
                with open_store(target, durability="relaxed", clock=clock) as other:
                    try:
                        other.load([*(json.dumps(record).encode() for record in changed), *after])
                    except Exception as error:
                        raise AssertionError(said) from error
                    assert texts(other, "plain", rewound=True) == ["plain", "d", "d!"], said
                    assert other.verify() == [], said
                    for session in other.recent(where=Filter(archived=None)):
                        assert len(other.messages(session)) == session.message_count, said


@pytest.mark.parametrize("engine", ENGINES)
def test_everything_can_be_copied_to_another_engine_and_back(
    store: Store, another: Opened, clock: Clock, engine: str
) -> None:
    fill(store, clock)
    progress: list[tuple[int, int]] = []
    there, back = another(engine), another(store.stats().engine)
    store.copy_to(there, progress=lambda done, total: progress.append((done, total)))
    there.copy_to(back)
    assert dumped(there) == dumped(store)
    assert dumped(back) == dumped(store)
    assert (there.verify(), back.verify()) == ([], [])
    assert back.get_import_stamp("/some/file") == "stamp\0"
    assert progress[-1][0] == progress[-1][1] == store.stats().messages


def test_titles_come_over_as_they_are(store: Store, another: Opened) -> None:
    started(store, id="first", title="later")
    started(store, id="gone", title="Plan")
    store.end("gone", "done")
    store.prune(Filter(title="plan"))
    store.rename("first", "Plan")
    other = another()
    other.load(dumped(store))
    assert dumped(other) == dumped(store)
    assert other.resolve("Plan").id == "first"


def test_the_line_of_a_shortened_title_comes_over(store: Store, another: Opened) -> None:
    base = "b" * 99 + "c"
    newest = [started(store, title=base) for _ in range(3)][-1]
    other = another()
    other.load(dumped(store))
    assert store.resolve(base).id == newest.id
    assert other.resolve(base).id == newest.id
    assert other.next_title(base) == store.next_title(base)


def test_a_title_that_is_taken_there_is_numbered(store: Store, another: Opened) -> None:
    started(store, "mine", id="mine", title="Plan")
    other = another()
    started(other, "yours", id="yours", title="Plan")
    store.load(dumped(other))
    assert (store.session("mine").title, store.session("yours").title) == ("Plan", "Plan #2")


def test_rewinds_made_at_the_same_moment_come_over(store: Store, another: Opened) -> None:
    session = store.begin()
    store.append(session, *turns("a", "b"))
    store.undo(session)
    store.redo(session)
    store.undo(session)
    other = another()
    other.load(dumped(store))
    assert len(other.rewinds(session)) == len(store.rewinds(session)) == 2
    assert texts(other, session) == ["a", "a!"]
    other.redo(session)
    assert texts(other, session) == ["a", "a!", "b", "b!"]


def test_a_dump_taken_while_messages_come_is_whole_for_each_session(
    store: Store, another: Opened
) -> None:
    for name in "ab":
        started(store, "1", "2", id=name)
    dumping = store.dump()
    lines = [next(dumping)]
    store.append("a", user("3"))
    store.append("b", user("3"))
    lines += dumping
    other = another()
    assert other.load(lines).skipped == []
    for name in "ab":
        assert len(other.messages(name)) == other.session(name).message_count
    assert other.verify() == []


def test_a_file_is_remembered_as_taken_in(store: Store) -> None:
    assert store.get_import_stamp("/a") is None
    store.mark_imported("/a", "1")
    store.mark_imported("/a", "2\0\ud800")
    long = "/very" * 1000
    store.mark_imported(long, "3")
    assert (store.get_import_stamp("/a"), store.get_import_stamp(long)) == ("2\0\ud800", "3")
    assert store.get_import_stamp(long + "x") is None
    store.mark_imported("/odd\0\ud800", "4")
    assert store.get_import_stamp("/odd\0\ud800") == "4"


def test_a_call_answered_without_a_name_is_known_by_its_tool_after_loading(
    store: Store, another: Opened
) -> None:
    session = store.begin()
    store.append(session, user("x"), call("grep"), result("needle"))
    other = another()
    other.load(dumped(store))
    assert found(other, "needle", tool="grep") == ["needle"]


def test_imported_files_are_found_by_a_part_of_their_path(store: Store) -> None:
    for path in ("/a/one-77.jsonl", "/b/two%_77\0.jsonl", "/c/three.jsonl"):
        store.mark_imported(path, "1")
    assert store.find_imports("77") == ["/a/one-77.jsonl", "/b/two%_77\0.jsonl"]
    assert store.find_imports("%") == ["/b/two%_77\0.jsonl"]
    assert store.find_imports("four") == []
