"""What became of the calls, through the real command on stored sessions."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, Session, Store, Tokens, ToolCall, open_store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import JSON, QUARTER_SECONDS, UsageEntry, replace_fields
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


def run(command: str, number: int, text: str, **meta: JSON) -> Iterator[Message]:
    call = ToolCall(f"toolu_01pR0j{number:04}", "Bash", {"command": command})
    yield Message(role="assistant", tool_calls=(call,))
    yield Message(role="tool", content=text, tool_call_id=call.id, meta=meta)


@pytest.fixture
def project(tmp_path: Path) -> Rekindle:
    """Three sessions of a repository: a test that fails, what mends it, and a call that is refused."""
    rekindle = Rekindle(tmp_path)
    failure = "lots of output\nFAILED t.py::test_parse - assert 1 == 2\n1 failed\nnpm ERR! code 1"
    refusal = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you"
        " how to proceed, the user said:\nnot yet, please"
    )
    with open_store(rekindle.store) as store:
        for number in range(3):
            session = Session(
                f"session-{number}",
                source="claude-code",
                title=f"Mend the parser {number}",
                started=1_780_000_000.0 + number * 86_400,
                cwd="/work/app",
                repository="https://github.com/owner/app",
                model="claude-sonnet-4-5",
            )
            base = 10 * number
            messages = [
                Message(role="user", content="Please mend the parser."),
                *run("npm test --quick", base, failure, is_error=True, exit_code=1),
                *run("npm ci", base + 1, "added 9 packages", is_error=False, exit_code=0),
                *run("npm test --quick", base + 2, "3 passed", is_error=False, exit_code=0),
                *run("git push", base + 3, refusal, is_error=True),
            ]
            timed = [
                replace_fields(
                    one, timestamp=session.started + 60 * at, platform_message_id=f"m{at}"
                )
                for at, one in enumerate(messages)
            ]
            quarter = int(session.started) // QUARTER_SECONDS
            usage = [UsageEntry(quarter, "claude-sonnet-4-5", Tokens(input=100_000, output=9_000))]
            store.import_batch([SessionImport(session, timed, is_complete=True, usage=usage)])
    return rekindle


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
    assert "rule" in rekindle("calls", "Parser").splitlines()[0]


def test_failed_calls_say_what_they_did_and_what_went_wrong(project: Rekindle) -> None:
    shown = project("calls", "--all", "--failed")
    assert "npm test --quick\n" in shown
    assert "FAILED t.py::test_parse - assert 1 == 2" in shown
    assert "lots of output" not in shown
    assert "app · claude-code" in shown
    assert "git push" not in shown
    first, *_ = project.lines("calls", "--all", "--failed", "--json")
    assert (first["summary"], first["source"]) == ("npm test --quick", "claude-code")
    assert first["problem"] == "FAILED t.py::test_parse - assert 1 == 2"
    assert len(project.lines("calls", "--all", "--failed", "-n", "2", "--json")) == 2


def test_what_a_user_refused_is_no_failure_anywhere(project: Rekindle) -> None:
    refused = project.lines("calls", "--all", "--refused", "--json")
    assert [one["summary"] for one in refused] == ["git push"] * 3
    assert {(one["outcome"], one["failed"], one["error_kind"]) for one in refused} == {
        ("refused", None, "declined")
    }
    assert "declined: not yet, please" in project("calls", "--all", "--refused")
    totals = project.json("insights")["totals"]
    assert (totals["refused"], totals["rate"]["errors"], totals["rate"]["calls"]) == (3, 3, 9)
    profile = project.json("profile", "Mend the parser 0")
    assert (profile["refused"], profile["rate"]["errors"]) == (1, 1)
    notes = project.json("warm", "notes", "list", "--project", "owner/app")
    assert not [note for note in notes if "git push" in note["text"]]


def test_insights_open_with_time_cost_and_what_keeps_failing(project: Rekindle) -> None:
    shown = project("insights")
    head = "\n".join(shown.splitlines()[:8])
    assert "3 sessions" in head
    assert "$" in head
    assert "at work" in head
    assert "33.3%" in head
    assert "npm test" in shown
    assert "3 of 6 runs, in 3 of 3 sessions" in shown
    assert "last: FAILED t.py::test_parse - assert 1 == 2" in shown
    assert "mended by: `npm ci` before it" in shown
    found = project.json("insights")
    (row,) = found["commands"]
    newest = row["newest"][0]["session"]
    assert newest in shown
    assert found["sessions"][newest]["title"] == "Mend the parser 2"
    assert "Please mend the parser." in project("sessions", "show", newest)
    assert float(found["totals"]["cost"]) > 0


def test_insights_are_those_of_the_repository_one_stands_in(project: Rekindle) -> None:
    with open_store(project.store) as store:
        begin(store, "Elsewhere", conversation([False] * 3, salt="e"))
    folder = project.home / "app"
    (folder / ".git").mkdir(parents=True)
    remote = '[remote "origin"]\n\turl = git@github.com:owner/app.git\n'
    (folder / ".git" / "config").write_text(remote)
    inside = Rekindle(folder)
    inside.env = project.env
    assert inside.json("insights")["totals"]["sessions"] == 3
    assert inside.json("insights", "--all")["totals"]["sessions"] == 4


def test_the_page_leads_from_what_fails_to_its_sessions(project: Rekindle) -> None:
    project("insights", "--html", "page.html")
    text = (project.home / "page.html").read_text(encoding="utf-8")
    start, end = text.index("What keeps failing"), text.index("What mended it")
    row = text[start:end]
    assert "FAILED t.py::test_parse" in row
    assert "Mend the parser 2" in row
    newest = project.json("insights")["commands"][0]["newest"][0]["session"]
    assert f"rekindle resume {newest}" in row
    assert text.index("Claims, tested") > end


@pytest.mark.parametrize(
    ("words", "said"),
    [
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
    found = many.json("insights", "--statistics")
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
    shown = many("insights", "--statistics")
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
    before = rekindle.json("insights", "--statistics")["totals"]
    rekindle("sessions", "fork", "Parser", "--title", "Another way")
    after = rekindle.json("insights", "--statistics")["totals"]
    assert (after["sessions"], after["calls"]) == (2, 40)
    assert (after["copies"], after["judged"]) == (19, before["judged"])


def test_what_is_new_is_judged_the_next_time(rekindle: Rekindle, one: Session) -> None:
    assert rekindle.json("insights")["totals"]["rate"]["errors"] == 5
    with open_store(rekindle.store) as store:
        store.append(one.id, *list(conversation([True] * 3, salt="n"))[1:])
    found = rekindle.json("insights", "--statistics")["totals"]
    assert (found["calls"], found["failed"]) == (23, 8)


def begin_task(store: Store, number: int, reply: str) -> None:
    """Store a session whose user says in the end what they think of it."""
    call = ToolCall(f"toolu_01out{number}", "Edit", {"file_path": "/w/main.go"})
    messages = (
        Message("user", "Please mend it."),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "updated", tool_call_id=call.id, meta={"is_error": False}),
        Message("assistant", "Done."),
        Message("user", reply),
    )
    begin(store, f"Task {number}", iter(messages), id=f"task-{number}")


def test_what_became_of_sessions_is_listed_shown_and_summed_up(rekindle: Rekindle) -> None:
    with open_store(rekindle.store) as store:
        for number in range(6):
            words = "perfect, thanks" if number else "that's wrong, use the other one"
            begin_task(store, number, words)
    (failed,) = rekindle.json("sessions", "list", "outcome=failed")
    assert failed["id"] == "task-0"
    assert failed["outcome"]["rule"] == "words/correction"
    assert "succeeded: words/approval at #4" in rekindle("sessions", "show", "Task 1")
    with open_store(rekindle.store) as store:
        begin_task(store, 6, "perfect, thanks")
    whole = rekindle.json("insights", "--statistics")["outcomes"][0]
    assert (whole["succeeded"], whole["failed"]) == (6, 1)
    assert "What became of sessions" in rekindle("insights", "--statistics")
    assert "of sessions succeeded: 6 of 7" in rekindle("insights")
