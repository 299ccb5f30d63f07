from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle import Store, open_store
from rekindle.transcripts import FORMATS
from rekindle.transcripts.intake import take_in
from rekindle.transcripts.places import SAMPLE
from rekindle.types import Tokens

from .conftest import Claude, Write, call, said


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.db") as store:
        yield store


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_sample_is_taken_in_whole_and_never_written_to(store: Store) -> None:
    before = tree(SAMPLE)
    steps: list[tuple[int, int]] = []
    intake = take_in(store, [SAMPLE], lambda done, total: steps.append((done, total)))
    assert (intake.files, intake.sessions, intake.messages) == (4, 4, 62)
    assert (intake.damage, intake.failed, intake.unknown) == ((), (), ())
    assert steps[-1][0] == steps[-1][1] == sum(len(data) for data, _ in before.values())
    titles = {session.title for session in store.recent()}
    assert "Fix rounding of invoice totals" in titles
    assert all(session.model and session.tokens.output for session in store.recent())
    assert tree(SAMPLE) == before
    assert store.verify() == []


def test_a_second_intake_changes_nothing_and_opens_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(store, [SAMPLE])
    before = [*store.dump()]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an unchanged file was opened")

    monkeypatch.setattr(Path, "open", refuse)
    intake = take_in(store, [SAMPLE])
    assert (intake.unchanged, intake.files, intake.messages) == (4, 0, 0)
    assert [*store.dump()] == before


def test_a_file_that_was_copied_elsewhere_adds_nothing(store: Store, tmp_path: Path) -> None:
    take_in(store, [SAMPLE])
    before = [*store.dump()]
    copies = tmp_path / "copies"
    copies.mkdir()
    for path in SAMPLE.iterdir():
        (copies / f"copy-of-{path.name}").write_bytes(path.read_bytes())
    intake = take_in(store, [copies])
    assert (intake.files, intake.sessions, intake.messages) == (4, 0, 0)
    assert [*store.dump()] == before


def test_a_file_that_grew_adds_only_what_is_new(store: Store, write: Write) -> None:
    c = Claude("grows")
    path = write(c.prompt("one"), c.answer("m1", said("two"), output=5))
    assert take_in(store, [path]).messages == 2
    write(c.prompt("three"), c.answer("m2", said("four"), output=7), append=True)
    intake = take_in(store, [path])
    assert (intake.sessions, intake.messages) == (1, 2)
    assert [m.text for m in store.messages("grows")] == ["one", "two", "three", "four"]
    assert store.session("grows").tokens == Tokens(input=6, output=12, cache_read=200)


def test_an_answer_that_was_read_half_written_is_completed(store: Store, write: Write) -> None:
    c = Claude("grows")
    path = write(c.prompt("go"), c.answer("m1", said("I look."), call("t1")))
    take_in(store, [path])
    write(c.result("t1", "a"), c.answer("m1", call("t2")), c.result("t2", "b"), append=True)
    take_in(store, [path])
    told = store.messages("grows")
    assert [[c.id for c in m.tool_calls] for m in told if m.role == "assistant"] == [["t1"], ["t2"]]
    assert [m.text for m in told] == ["go", "I look.", "", "a", "b"]
    write(c.prompt("thanks"), append=True)
    assert take_in(store, [path]).messages == 1
    assert store.session("grows").message_count == 6


def test_a_line_that_was_cut_when_it_was_read_is_taken_when_it_is_whole(
    store: Store, tmp_path: Path, write: Write
) -> None:
    c = Claude("grows")
    path = write(c.prompt("one"), c.prompt("two"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    first = take_in(store, [path])
    assert (first.messages, first.damaged, first.damage[0].line) == (1, 1, 2)
    path.write_bytes(whole)
    assert take_in(store, [path]).messages == 1
    assert [m.text for m in store.messages("grows")] == ["one", "two"]


def test_one_bad_file_does_not_stop_the_rest(
    store: Store, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write(Claude("a").prompt("x"), name="in/a.jsonl")
    write(Claude("b").prompt("y"), name="in/b.jsonl")
    write(b"\0\1", name="in/c.bin")
    write("MIT License", name="in/.git/LICENSE")
    real = type(FORMATS[0]).read

    def read(self: Any, path: Path) -> Any:
        if path.name == "a.jsonl":
            raise RuntimeError("a shape nobody has seen")
        return real(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(type(FORMATS[0]), "read", read)
        intake = take_in(store, [tmp_path / "in", tmp_path / "nowhere"])
    assert intake.messages == 1
    assert {(Path(f.file).name, f.why) for f in intake.failed} == {
        ("a.jsonl", "RuntimeError: a shape nobody has seen"),
        ("nowhere", "there is no such file"),
    }
    assert [Path(path).name for path in intake.unknown] == ["c.bin"]
    assert take_in(store, [good]).messages == 1, "a file that failed is tried again"


def test_a_sub_agent_stands_below_its_parent(store: Store, write: Write) -> None:
    c = Claude("p")
    path = write(c.prompt("x"), c.prompt("y", isSidechain=True, agentId="a1"))
    take_in(store, [path])
    assert [child.id for child in store.children("p")] == ["agent-a1@p"]
    assert store.session("p").message_count == 1


def test_a_title_that_is_taken_is_continued_and_a_given_one_is_kept(
    store: Store, write: Write
) -> None:
    def titled(id: str) -> Path:
        line = {"type": "ai-title", "aiTitle": "Same  name", "sessionId": id}
        return write(Claude(id).prompt("x"), line, name=f"{id}.jsonl")

    take_in(store, [titled("a"), titled("b")])
    assert {store.session(id).title for id in "ab"} == {"Same name", "Same name #2"}
    store.rename("a", "Mine")
    os.utime(titled("a"), (1, 1))
    take_in(store, [titled("a")])
    assert store.session("a").title == "Mine"


def test_old_messages_without_a_time_do_not_look_new(store: Store, write: Write) -> None:
    path = write({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
    os.utime(path, (1_600_000_000, 1_600_000_000))
    take_in(store, [path])
    session = store.recent()[0]
    assert (session.started, session.last_active) == (1_600_000_000, 1_600_000_000)


def test_hostile_sizes_reach_the_store(store: Store, write: Write) -> None:
    c = Claude("n" * 2000)
    path = write(
        c.prompt("x", uuid="u" * 2000),
        c.answer("m", call("t", n=10**30, s="\x00")),
        b'{"type":"user","sessionId":"' + c.session.encode() + b'","uuid":"z",'
        b'"message":{"content":"half \\ud83d"}}',
    )
    intake = take_in(store, [path])
    assert intake.failed == ()
    told = store.messages(store.recent()[0])
    assert [m.text for m in told] == ["x", "", "half \ud83d"]
    assert told[1].tool_calls[0].arguments == {"n": 10**30, "s": "\x00"}


def test_the_corpus_is_taken_in_whole_and_once(store: Store, corpus: Path) -> None:
    folders = [*corpus.glob("claude__*"), *corpus.glob("codex__*")]
    first = take_in(store, folders)
    assert (first.sessions, first.messages, first.damaged) == (48, 2964, 0)
    assert first.failed == ()
    second = take_in(store, folders)
    assert (second.files, second.messages) == (0, 0)
    assert store.verify() == []
