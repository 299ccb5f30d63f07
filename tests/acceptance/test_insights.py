"""What became of the calls, through the real command on stored sessions."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, Session, Store, ToolCall, open_store
from tests.acceptance.stores import make_store
from tests.acceptance.test_cli import Rekindle


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    rekindle = Rekindle(tmp_path)
    make_store(rekindle.store)
    return rekindle


def conversation(
    failures: list[bool], tools: list[str] | None = None, salt: str = ""
) -> Iterator[Message]:
    """A user's request, and calls one by one whose protocol says whether they failed."""
    yield Message(role="user", content="Please mend the parser.")
    for number, failed in enumerate(failures):
        tool = tools[number] if tools else "read_file"
        id = f"toolu_01{salt}aB3dE5fG7hJ{number:04}"
        call = ToolCall(id, tool, json.dumps({"path": f"part{number}.py"}))
        yield Message(role="assistant", tool_calls=(call,))
        text = "No such file" if failed else "def parse(): ..."
        meta = {"is_error": failed, "duration": 0.25}
        yield Message(role="tool", tool_call_id=id, name=tool, content=text, meta=meta)


def begin(store: Store, title: str, messages: Iterator[Message], **fields: str) -> Session:
    session = store.begin(source="local", title=title, **fields)  # pyright: ignore[reportArgumentType]
    store.append(session, *messages)
    return session


@pytest.fixture
def one(rekindle: Rekindle) -> Session:
    """Twenty calls, of which the first four and the last one failed; one is bookkeeping."""
    failures = [True] * 4 + [False] * 15 + [True]
    tools = ["read_file"] * 9 + ["memory"] + ["patch"] * 10
    with open_store(rekindle.store) as store:
        return begin(store, "Parser", conversation(failures, tools))


def test_calls_are_one_object_per_line_with_everything_that_is_known(
    rekindle: Rekindle, one: Session
) -> None:
    lines = rekindle.lines("calls", "Parser", "--json")
    assert len(lines) == 20
    first = lines[0]
    assert first.keys() >= {
        "session", "position", "call_id", "tool", "outcome", "failed", "error_kind", "fault",
        "rule", "confidence", "duration",
    }  # fmt: skip
    assert (first["session"], first["position"], first["tool"]) == (one.id, 1, "read_file")
    assert (first["outcome"], first["failed"], first["duration"]) == ("error", True, 0.25)
    assert [line["failed"] for line in lines].count(True) == 5
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)


def test_calls_of_all_sessions_of_a_filter_or_only_those_that_failed(
    rekindle: Rekindle, one: Session
) -> None:
    with open_store(rekindle.store) as store:
        begin(store, "Other", conversation([False] * 3, salt="x"), owner="ada")
    assert len(rekindle.lines("calls", "--all", "--json")) == 23
    assert len(rekindle.lines("calls", "owner=ada", "--json")) == 3
    assert len(rekindle.lines("calls", "--all", "--owner", "ada", "--json")) == 3
    assert len(rekindle.lines("calls", "--all", "--failed", "--json")) == 5
    shown = rekindle("calls", "Parser", "--failed")
    assert shown.count("error") >= 5
    assert "rule" in shown.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["calls"], "--all"),
        (["calls", "Parser", "--all"], "--all"),
        (["calls", "nobody"], "nobody"),
        (["profile", "nobody"], "nobody"),
        (["compare", "Parser", "source=mars"], "source=mars"),
        (["compress-check", "nobody"], "nobody"),
        (["insights", "colour=red"], "colour=red"),
        (["insights", "--html", "no/such/folder/page.html"], "folder not found"),
    ],
)
def test_a_wrong_question_is_answered_in_one_line(
    rekindle: Rekindle, one: Session, words: list[str], said: str
) -> None:
    assert said in rekindle.refusal(*words)


def test_a_profile_counts_errors_without_bookkeeping_and_tells_the_gain(
    rekindle: Rekindle, one: Session
) -> None:
    found = rekindle.json("profile", "Parser")
    assert (found["messages"], found["calls"], found["bookkeeping"]) == (41, 20, 1)
    assert (found["rate"]["errors"], found["rate"]["calls"]) == (5, 19)
    assert found["rate"]["low"] < 5 / 19 < found["rate"]["high"]
    assert found["gain"]["first"]["errors"] == 3
    assert found["gain"]["difference"]["value"] == pytest.approx(-2 / 3)
    assert (found["dominant"], found["task"], found["early_task"]) == ("file", "file", "file")
    assert {use["tool"]: use["calls"] for use in found["tools"]} == {"read_file": 9, "patch": 10}
    shown = rekindle("profile", "Parser")
    for part in ("26.3%", "first 20%", "main kind", "retries", "patch"):
        assert part in shown


def test_two_sessions_are_compared_with_an_interval_and_a_test(
    rekindle: Rekindle, one: Session
) -> None:
    with open_store(rekindle.store) as store:
        begin(store, "Better", conversation([False] * 40, salt="y"))
    found = rekindle.json("compare", "Parser", "Better")
    assert found["improvement"]["value"] == pytest.approx(5 / 19)
    assert found["improvement"]["low"] > 0
    assert found["improvement"]["p"] < 0.01
    assert found["test"] == "Fisher's exact test"
    assert found["better"] == "Better"
    assert "Better is better" in rekindle("compare", "Parser", "Better")


def test_sets_of_sessions_are_compared_by_a_filter(rekindle: Rekindle) -> None:
    chances = random.Random(1)
    with open_store(rekindle.store) as store:
        for number in range(16):
            rate = 0.3 if number % 2 else 0.05
            failures = [chances.random() < rate for _ in range(30)]
            arm = ("warm", "cold")[number % 2]
            begin(store, f"{arm} {number}", conversation(failures, salt=f"{number:02}"), arm=arm)
    found = rekindle.json("compare", "arm=cold", "arm=warm messages>10")
    assert found["a"]["rate"]["sessions"] == found["b"]["rate"]["sessions"] == 8
    assert found["better"] == "arm=warm messages>10"
    assert found["improvement"]["low"] > 0
    few = rekindle.json("compare", "title~0", "arm=cold")
    assert few["enough"] is False
    assert "not enough data" in rekindle("compare", "title~0", "arm=cold")


def test_a_compression_is_checked_in_a_child_and_inside_a_session(rekindle: Rekindle) -> None:
    with open_store(rekindle.store) as store:
        parent = begin(store, "Long", conversation([True] * 2 + [False] * 28))
        child = store.compress(parent, Message(role="user", content="Summary: the parser."))
        store.append(child, *list(conversation([True] + [False] * 29, salt="z"))[1:])
        begin(store, "Short", conversation([False] * 3, salt="s"))
    for name in (parent.id, child.id):
        found = rekindle.json("compress-check", name)
        assert found["sessions"] == [parent.id, child.id]
        assert found["has_compression"] is True
        assert found["proficiency_preserved"] is True
        (only,) = found["compressions"]
        assert only["in_child"] is True
        assert (only["before"]["errors"], only["after"]["errors"]) == (2, 1)
        assert (only["near_before"]["calls"], only["near_after"]["calls"]) == (20, 20)
    assert "within 20%: yes" in rekindle("compress-check", parent.id)
    assert rekindle.json("compress-check", "Short")["has_compression"] is False
    assert "never compressed" in rekindle("compress-check", "Short")


def survivors(store: Store, sessions: int) -> None:
    """Nobody learns, but sessions with many errors are short."""
    chances = random.Random(2)
    for number in range(sessions):
        bad = number % 2
        length = chances.randint(16, 40) if bad else chances.randint(55, 70)
        rate = 0.2 if bad else 0.06
        failures = [chances.random() < rate for _ in range(length)]
        begin(store, f"s{number}", conversation(failures, salt=f"{number:03}"))


@pytest.fixture
def many(rekindle: Rekindle) -> Rekindle:
    with open_store(rekindle.store) as store:
        survivors(store, 60)
    return rekindle


def test_insights_tell_survivors_from_learning(many: Rekindle) -> None:
    found = many.json("insights")
    assert found["totals"]["sessions"] == 60
    assert found["totals"]["judged"] == found["totals"]["calls"] > 2000
    middle, long = found["lengths"]
    assert (middle["name"], long["name"]) == ("30–99", "100 and more")
    assert middle["rate"]["low"] > long["rate"]["high"]
    claim = next(one for one in found["claims"] if one["name"] == "long-sessions")
    readings = {one["name"]: one["verdict"] for one in claim["readings"]}
    assert readings["as claimed"] == "supported"
    assert readings["same session"] != "supported"
    assert claim["verdict"] != "supported"
    assert {one["name"]: one["verdict"] for one in claim["traps"]}["survivors"] == "present"


def test_insights_on_a_terminal_have_tables_plots_and_verdicts(many: Rekindle) -> None:
    shown = many("insights")
    for part in ("By session length", "By call number", "●", "By tool", "survivors", "→"):
        assert part in shown
    assert re.search(r"as claimed +−\d", shown)
    assert many("insights", "source=mars") == ""


def test_the_page_is_one_file_that_needs_nothing_else(many: Rekindle) -> None:
    assert "page.html" in many("insights", "--html", "page.html")
    text = (many.home / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count("<svg") > 20
    assert "as claimed" in text
    assert not re.search(r"<script|https?://|src=|@import", text)


def test_a_forked_session_does_not_count_its_calls_twice(rekindle: Rekindle, one: Session) -> None:
    before = rekindle.json("insights")["totals"]
    rekindle("sessions", "fork", "Parser", "--title", "Another way")
    after = rekindle.json("insights")["totals"]
    assert (after["sessions"], after["calls"]) == (2, 40)
    assert (after["copies"], after["judged"]) == (19, before["judged"])


def test_what_is_new_is_judged_the_next_time(rekindle: Rekindle, one: Session) -> None:
    assert rekindle.json("insights")["totals"]["failed"] == 5
    with open_store(rekindle.store) as store:
        store.append(one.id, *list(conversation([True] * 3, salt="n"))[1:])
    found = rekindle.json("insights")["totals"]
    assert (found["calls"], found["failed"]) == (23, 8)


def test_what_became_of_sessions_is_listed_shown_and_summed_up(rekindle: Rekindle) -> None:
    with open_store(rekindle.store) as store:
        for number in range(6):
            call = ToolCall(f"toolu_01out{number}", "Edit", {"file_path": "/w/main.go"})
            words = "perfect, thanks" if number else "that's wrong, use the other one"
            messages = (
                Message("user", "Please mend it."),
                Message("assistant", tool_calls=(call,)),
                Message("tool", "updated", tool_call_id=call.id, meta={"is_error": False}),
                Message("assistant", "Done."),
                Message("user", words),
            )
            begin(store, f"Task {number}", iter(messages), id=f"task-{number}")
    (failed,) = rekindle.json("sessions", "list", "outcome=failed")
    assert failed["id"] == "task-0"
    assert failed["outcome"]["rule"] == "words/correction"
    assert "succeeded: words/approval at #4" in rekindle("sessions", "show", "Task 1")
    whole = rekindle.json("insights")["outcomes"][0]
    assert (whole["succeeded"], whole["failed"]) == (5, 1)
    assert "What became of sessions" in rekindle("insights")
