from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Session, Store, open_store
from rekindle.transcripts import FORMATS, SessionStarted, SessionUpdated
from rekindle.transcripts import importer as module
from rekindle.transcripts.discovery import SAMPLE
from rekindle.transcripts.importer import FormatCount, import_transcripts
from rekindle.types import Tokens
from tests.new_store import open_new_store
from tests.unit.transcripts.conftest import Claude, Write, call, said


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_new_store(tmp_path / "store.db") as store:
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
    intake = import_transcripts(store, [SAMPLE], lambda done, total: steps.append((done, total)))
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
    import_transcripts(store, [SAMPLE])
    before = [*store.dump()]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an unchanged file was opened")

    monkeypatch.setattr(Path, "open", refuse)
    intake = import_transcripts(store, [SAMPLE])
    assert (intake.unchanged, intake.files, intake.messages) == (4, 0, 0)
    assert [*store.dump()] == before


def test_a_file_that_was_copied_elsewhere_adds_nothing(store: Store, tmp_path: Path) -> None:
    import_transcripts(store, [SAMPLE])
    before = [*store.dump()]
    copies = tmp_path / "copies"
    copies.mkdir()
    for path in SAMPLE.iterdir():
        (copies / f"copy-of-{path.name}").write_bytes(path.read_bytes())
    intake = import_transcripts(store, [copies])
    assert (intake.files, intake.sessions, intake.messages) == (4, 0, 0)
    assert [*store.dump()] == before


def test_a_file_that_grew_adds_only_what_is_new(store: Store, write: Write) -> None:
    c = Claude("grows")
    path = write(c.prompt("one"), c.answer("m1", said("two"), output=5))
    assert import_transcripts(store, [path]).messages == 2
    write(c.prompt("three"), c.answer("m2", said("four"), output=7), append=True)
    intake = import_transcripts(store, [path])
    assert (intake.sessions, intake.messages) == (1, 2)
    assert [m.text for m in store.messages("grows")] == ["one", "two", "three", "four"]
    assert store.session("grows").tokens == Tokens(input=6, output=12, cache_read=200)


def test_an_answer_that_was_read_half_written_is_completed(store: Store, write: Write) -> None:
    c = Claude("grows")
    path = write(c.prompt("go"), c.answer("m1", said("I look."), call("t1")))
    import_transcripts(store, [path])
    write(c.result("t1", "a"), c.answer("m1", call("t2")), c.result("t2", "b"), append=True)
    import_transcripts(store, [path])
    told = store.messages("grows")
    assert [[c.id for c in m.tool_calls] for m in told if m.role == "assistant"] == [["t1"], ["t2"]]
    assert [m.text for m in told] == ["go", "I look.", "", "a", "b"]
    write(c.prompt("thanks"), append=True)
    assert import_transcripts(store, [path]).messages == 1
    assert store.session("grows").message_count == 6


def test_a_line_that_was_cut_when_it_was_read_is_taken_when_it_is_whole(
    store: Store, tmp_path: Path, write: Write
) -> None:
    c = Claude("grows")
    path = write(c.prompt("one"), c.prompt("two"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    first = import_transcripts(store, [path])
    assert (first.messages, first.damaged, first.damage[0].line) == (1, 1, 2)
    path.write_bytes(whole)
    assert import_transcripts(store, [path]).messages == 1
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
        intake = import_transcripts(store, [tmp_path / "in", tmp_path / "nowhere"])
    assert intake.messages == 1
    assert {(Path(f.file).name, f.reason) for f in intake.failed} == {
        ("a.jsonl", "RuntimeError: a shape nobody has seen"),
        ("nowhere", "file not found"),
    }
    assert [Path(path).name for path in intake.unknown] == ["c.bin"]
    assert import_transcripts(store, [good]).messages == 1, "a file that failed is tried again"


def test_a_sub_agent_stands_below_its_parent(store: Store, write: Write) -> None:
    c = Claude("p")
    path = write(c.prompt("x"), c.prompt("y", isSidechain=True, agentId="a1"))
    import_transcripts(store, [path])
    assert [child.id for child in store.children("p")] == ["agent-a1@p"]
    assert store.session("p").message_count == 1


def test_a_title_that_is_taken_is_continued_and_a_given_one_is_kept(
    store: Store, write: Write
) -> None:
    def titled(id: str) -> Path:
        line = {"type": "ai-title", "aiTitle": "Same  name", "sessionId": id}
        return write(Claude(id).prompt("x"), line, name=f"{id}.jsonl")

    import_transcripts(store, [titled("a"), titled("b")])
    assert {store.session(id).title for id in "ab"} == {"Same name", "Same name #2"}
    store.rename("a", "Mine")
    os.utime(titled("a"), (1, 1))
    import_transcripts(store, [titled("a")])
    assert store.session("a").title == "Mine"


def test_old_messages_without_a_time_do_not_look_new(store: Store, write: Write) -> None:
    path = write({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
    os.utime(path, (1_600_000_000, 1_600_000_000))
    import_transcripts(store, [path])
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
    intake = import_transcripts(store, [path])
    assert intake.failed == ()
    told = store.messages(store.recent()[0])
    assert [m.text for m in told] == ["x", "", "half \ud83d"]
    assert told[1].tool_calls[0].arguments == {"n": 10**30, "s": "\x00"}


def reading(monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Iterator[Any]]) -> None:
    """Let the files of Claude Code be read like this."""
    monkeypatch.setattr(type(FORMATS[0]), "read", lambda self, path: read(path))


def line(id: str, **fields: Any) -> Message:
    return Message(role="user", content=id, platform_message_id=id, **fields)


def test_the_answer_tells_what_came_in_each_format(store: Store, write: Write) -> None:
    c = Claude("a")
    write(c.prompt("x"), c.answer("m", call("t1"), call("t2")), "{broken", name="in/a.jsonl")
    write(Claude("b").prompt("x"), name="in/b.jsonl")
    write({"role": "user", "content": "hello"}, name="in/chat.jsonl")
    intake = import_transcripts(store, [write("notes", name="in/b.txt").parent])
    assert intake.formats == {
        "claude-code": FormatCount(
            files=2, sessions=2, messages=3, calls=2, damaged=1, new_sessions=2
        ),
        "openai-chat": FormatCount(files=1, sessions=1, messages=1, new_sessions=1),
    }
    assert intake[:4] == (3, 3, 4, 2)
    assert intake.damaged == 1


def test_what_the_end_of_a_file_tells_is_taken_over_once(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Session(
        "s", source="x", owner="ada", user="Ada", model="m", parent="p", started=5.0, ended=9.0,
        end_reason="compression", tokens=Tokens(1, 2), cost=Decimal("0.25"), title="T",
        model_config={"effort": "high"},
    )  # fmt: skip

    def read(path: Path) -> Iterator[Any]:
        yield SessionStarted(Session("s", source="x"))
        yield line("one")
        yield SessionUpdated(told)

    reading(monkeypatch, read)
    path = write(Claude("a").prompt("x"))
    for moment in (1, 2):
        os.utime(path, (moment, moment))
        import_transcripts(store, [path])
        session = store.session("s")
        for field in (
            *("owner", "user", "model", "parent", "started", "ended", "end_reason"),
            *("tokens", "cost", "title", "model_config"),
        ):
            assert getattr(session, field) == getattr(told, field), field
    assert session.message_count == 1


def test_hundreds_of_sessions_in_one_file_are_told_apart(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> Iterator[Any]:
        for round in range(3):
            for number in range(700):
                yield SessionStarted(Session(f"s{number}"))
                yield line(f"{round}-{number}")
        for number in range(700):
            yield SessionUpdated(Session(f"s{number}", tokens=Tokens(number)))

    reading(monkeypatch, read)
    intake = import_transcripts(store, [write(Claude("a").prompt("x"))])
    assert (intake.sessions, intake.messages) == (700, 2100)
    for number in (0, 333, 699):
        told = [message.text for message in store.messages(f"s{number}")]
        assert told == [f"{round}-{number}" for round in range(3)]
        assert store.session(f"s{number}").tokens.input == number
    assert store.verify() == []


def test_a_file_that_fails_in_the_middle_keeps_what_was_read_and_is_tried_again(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(Claude("a").prompt("x"))

    def read(path: Path) -> Iterator[Any]:
        yield SessionStarted(Session("s"))
        yield line("one")
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        reading(patch, read)
        intake = import_transcripts(store, [path])
    assert (intake.files, intake.messages) == (0, 1)
    assert [tuple(failure) for failure in intake.failed] == [(str(path), "Input/output error")]
    assert import_transcripts(store, [path]).files == 1


def test_a_message_that_the_store_refuses_is_damage_and_the_rest_comes_in(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> Iterator[Any]:
        yield SessionStarted(Session("s"))
        yield line("one")
        yield line("bad", meta={"n": float("inf")})
        yield line("two")

    reading(monkeypatch, read)
    intake = import_transcripts(store, [write(Claude("a").prompt("x"))])
    assert (intake.messages, intake.damaged, intake.failed) == (2, 1, ())
    assert "message.meta" in intake.damage[0].what


def test_a_session_that_the_store_refuses_costs_only_its_file(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = write(Claude("a").prompt("x"), name="in/a.jsonl")
    write(Claude("b").prompt("y"), name="in/b.jsonl")
    real = type(FORMATS[0]).read

    def read(self: Any, path: Path) -> Iterator[Any]:
        if path.name == "a.jsonl":
            yield SessionStarted(Session("first"))
            yield line("kept")
            yield SessionStarted(Session("s", cost=Decimal("Infinity")))
            yield line("one")
        else:
            yield from real(self, path)

    monkeypatch.setattr(type(FORMATS[0]), "read", read)
    intake = import_transcripts(store, [bad.parent])
    assert intake.messages == 2
    assert [(failure.file, "session.cost" in failure.reason) for failure in intake.failed] == [
        (str(bad), True)
    ]
    assert import_transcripts(store, [bad.parent]).unchanged == 1, "only the good file is done"


def test_a_file_that_disappears_or_cannot_be_looked_at_is_told(
    store: Store, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = write(Claude("a").prompt("x"), name="in/a.jsonl")
    write(Claude("b").prompt("y"), name="in/b.jsonl")
    (tmp_path / "in" / "c.jsonl").symlink_to(tmp_path / "nowhere")
    real = module.find_files

    def find(*args: Any) -> Iterator[Any]:
        found = [*real(*args)]
        gone.unlink(missing_ok=True)
        return iter(found)

    monkeypatch.setattr(module, "find_files", find)
    intake = import_transcripts(store, [tmp_path / "in"])
    assert intake.messages == 1
    assert {Path(failure.file).name for failure in intake.failed} == {"a.jsonl", "c.jsonl"}


def test_what_is_written_while_the_file_is_read_comes_in_the_next_time(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = Claude("grows")
    path = write(c.prompt("one"))
    real = type(FORMATS[0]).read

    def read(self: Any, path: Path) -> Iterator[Any]:
        yield from real(self, path)
        write(c.prompt("two"), append=True)

    with monkeypatch.context() as patch:
        patch.setattr(type(FORMATS[0]), "read", read)
        assert import_transcripts(store, [path]).messages == 1
    assert import_transcripts(store, [path]).messages == 1
    assert [message.text for message in store.messages("grows")] == ["one", "two"]


def test_an_intake_that_is_interrupted_anywhere_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 10)
    with open_new_store(tmp_path / "whole.db") as store:
        import_transcripts(store, [SAMPLE])
        wanted = [*store.dump()]
    real, stops = Store.import_batch, 0
    with open_new_store(tmp_path / "store.db") as store:
        for allowed in range(100):

            def stopping(*args: Any, left: list[int] = [allowed]) -> Any:  # noqa: B006
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                return real(*args)

            monkeypatch.setattr(Store, "import_batch", stopping)
            try:
                import_transcripts(store, [SAMPLE])
                break
            except KeyboardInterrupt:
                stops += 1
        assert stops > 3
        assert sorted(store.dump()) == sorted(wanted)
        assert store.verify() == []


def test_two_intakes_of_one_tree_at_once_write_it_once(tmp_path: Path) -> None:
    counts: list[int] = []
    gate = threading.Barrier(3)

    def run() -> None:
        with open_store(tmp_path / "store.db") as store:
            gate.wait()
            counts.append(import_transcripts(store, [SAMPLE]).messages)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 62
    with open_new_store(tmp_path / "store.db") as store:
        assert sum(session.message_count for session in store.recent()) == 62
        assert store.verify() == []


def test_progress_is_told_within_a_long_file(store: Store, write: Write) -> None:
    c = Claude("long")
    path = write(*(c.prompt("x" * 500) for _ in range(2_000)))
    steps: list[int] = []
    import_transcripts(store, [path], lambda done, total: steps.append(done))
    assert steps == sorted(steps)
    assert len({step for step in steps if 0 < step < path.stat().st_size}) > 3
    assert steps[-1] == path.stat().st_size


def test_a_database_whose_log_grew_is_looked_at_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in" / "state.db"
    path.parent.mkdir()
    path.write_bytes(b"no session")
    log = path.with_name("state.db-wal")
    log.write_bytes(b"x")
    looked: list[str] = []

    def look(path: Any) -> None:
        looked.append(path.name)

    monkeypatch.setattr(module, "detect_format", look)
    for given in (path.parent, path, path.parent):
        assert import_transcripts(store, [given]).unknown == (str(path),), (
            "the log is no file of its own"
        )
    assert looked == ["state.db"]
    log.write_bytes(b"xx")
    import_transcripts(store, [path])
    assert looked == ["state.db"] * 2


def test_links_lead_to_the_file_once_and_loops_end(store: Store, write: Write) -> None:
    path = write(Claude("a").prompt("x"), name="in/a.jsonl")
    path.with_name("b.jsonl").symlink_to(path)
    (path.parent / "again").symlink_to(path.parent)
    os.mkfifo(path.parent / "pipe")
    intake = import_transcripts(store, [path.parent, path, path.parent / "b.jsonl"])
    assert (intake.files, intake.unchanged, intake.unknown, intake.failed) == (1, 0, (), ())


def test_the_corpus_is_taken_in_whole_and_once(store: Store, corpus: Path) -> None:
    folders = [*corpus.glob("claude__*"), *corpus.glob("codex__*")]
    first = import_transcripts(store, folders)
    assert (first.sessions, first.messages, first.damaged) == (48, 2964, 0)
    assert first.failed == ()
    second = import_transcripts(store, folders)
    assert (second.files, second.messages) == (0, 0)
    assert store.verify() == []


def test_the_next_batch_is_read_while_the_last_is_written(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 1)
    done: list[str] = []
    real = store.import_batch

    def taken(*given: Any) -> Any:
        done.append("begin")
        answer = real(*given)
        done.append("end")
        return answer

    def read(path: Path) -> Iterator[Any]:
        yield SessionStarted(Session("s"))
        for name in ("one", "two", "three"):
            done.append(name)
            yield line(name)

    reading(monkeypatch, read)
    monkeypatch.setattr(store, "import_batch", taken)
    intake = import_transcripts(store, [write(Claude("a").prompt("x"))])
    assert (intake.files, intake.messages) == (1, 3)
    assert done[:7] == ["one", "begin", "two", "end", "begin", "three", "end"]
    assert [message.text for message in store.messages("s")] == ["one", "two", "three"]


def test_a_file_is_not_done_when_what_it_said_first_fails_after_its_end_was_read(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 1)
    path = write(Claude("a").prompt("x"))
    real = store.import_batch

    def taken(arrivals: Any, files: Any, meanwhile: Any = None) -> Any:
        if meanwhile:
            meanwhile()
        if any(one.session.id == "bad" for one in arrivals):
            raise ValueError("no room")
        return real(arrivals, files)

    def read(path: Path) -> Iterator[Any]:
        yield SessionStarted(Session("bad"))
        yield line("one")
        yield SessionStarted(Session("good"))
        yield line("two")

    with monkeypatch.context() as patch:
        reading(patch, read)
        patch.setattr(store, "import_batch", taken)
        intake = import_transcripts(store, [path])
    assert (intake.files, intake.messages) == (0, 1)
    assert [failure.reason for failure in intake.failed] == ["session bad: no room"]
    assert import_transcripts(store, [path]).files == 1


def test_trouble_with_telling_the_progress_stops_the_intake_after_what_was_read(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 1)
    monkeypatch.setattr(module, "_make_file_progress", lambda *_: None)  # between the files alone
    write(Claude("a").prompt("x"), name="in/a.jsonl")
    folder = write(Claude("b").prompt("z"), name="in/b.jsonl").parent

    def tell(done: int, total: int) -> None:
        if done == total:
            raise ValueError("the terminal is gone")

    with pytest.raises(ValueError, match="terminal"):
        import_transcripts(store, [folder], tell)
    assert {session.id for session in store.recent()} == {"a", "b"}


def test_an_intake_that_is_interrupted_while_it_writes_is_completed_by_the_next(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_MESSAGES", 1)
    path = write(Claude("a").prompt("x"))

    def read(path: Path, stop: bool = True) -> Iterator[Any]:
        yield SessionStarted(Session("s"))
        yield line("one")
        if stop:
            raise KeyboardInterrupt
        yield line("two")

    reading(monkeypatch, read)
    with pytest.raises(KeyboardInterrupt):
        import_transcripts(store, [path])
    assert [message.text for message in store.messages("s")] == ["one"]
    reading(monkeypatch, lambda path: read(path, stop=False))
    assert import_transcripts(store, [path]).messages == 1
    assert store.verify() == []
