"""Templates through the real command: built, shown, changed, shared, and what can go wrong."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle import Message, ToolCall, open_store
from tests import command
from tests.acceptance.stores import make_store
from tests.acceptance.test_cli import Rekindle
from tests.waiting import PATIENCE

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
SECRET = "AKIA" + "Z7QX3MNB5TRW8KLP"


def session(number: int) -> list[Message]:
    """A session that runs the tests the way it is done here, after a try that does not work here."""
    calls = [
        ("read_file", {"path": "docs/guide.md"}, "# Guide", 0),
        ("terminal", {"command": f"pytest tests/test_{number}.py"}, "sh: pytest: not found", 127),
        ("terminal", {"command": f"uv run pytest tests/test_{number}.py"}, "12 passed", 0),
        ("terminal", {"command": "ls -la"}, "a b c", 0),
        ("terminal", {"command": f"npm run sync --key {SECRET} --all"}, "synced", 0),
        ("terminal", {"command": "make lint"}, "no problems", 0),
    ]
    said = [Message("user", "Add a test for the parser, please.")]
    for place, (tool, arguments, result, code) in enumerate(calls):
        id = f"call_{number}aB3d{place}Ef7"
        said.append(Message("assistant", None, [ToolCall(id, tool, json.dumps(arguments))]))
        meta = {"exit_code": code} if tool == "terminal" else None
        said.append(Message("tool", result, tool_call_id=id, name=tool, meta=meta))
    return said + [Message("assistant", "Going on.")] * 20


def home(folder: Path) -> Rekindle:
    """A home with four sessions that do the same work."""
    (folder / "rekindle").mkdir()
    rekindle = Rekindle(folder)
    make_store(rekindle.store)
    with open_store(rekindle.store) as store:
        for number in range(4):
            begun = store.begin(
                source="codex", owner="ada", title=f"Work {number}", cwd=str(folder)
            )
            store.append(begun, *session(number))
    return rekindle


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    return home(tmp_path)


@pytest.fixture
def built(rekindle: Rekindle) -> Rekindle:
    rekindle("warm", "build", "--name", "Our Tests", "--tag", "python")
    return rekindle


def file_of(rekindle: Rekindle, id: str = "our-tests") -> Path:
    return rekindle.home / "rekindle" / "templates" / f"{id}.json"


def test_building_learns_what_sessions_share_and_tells_what_it_looked_at(
    rekindle: Rekindle,
) -> None:
    told = rekindle.json("warm", "build", "--name", "Our Tests", "--json")
    metrics = told["metrics"]
    assert (metrics["scanned"], metrics["qualified"], metrics["looked_through"]) == (4, 4, 4)
    assert "avg_proficiency_gain" in metrics
    assert told["pattern_count"] > 2
    shown = rekindle("warm", "show", "our-tests")
    assert "`npm run sync --key <value> --all`" in shown
    assert "`make lint`, usually last" in shown
    assert "docs/guide.md" in shown
    assert "ls -la" not in shown
    assert SECRET not in shown
    assert SECRET not in file_of(rekindle).read_text()
    again = rekindle.json("warm", "build", "--name", "Our Tests", "--json")
    assert (again["metrics"]["looked_through"], again["revision"]) == (0, 2)


def test_a_build_says_why_there_is_nothing(rekindle: Rekindle) -> None:
    said = rekindle.refusal("warm", "build", "--name", "x", "--min-messages", "500")
    assert "none of 4 sessions qualified" in said
    assert "4 under 500 messages" in said
    assert "research" in rekindle.refusal("warm", "build", "--name", "x", "--type", "odd")
    assert "--max: expected 1 or more" in rekindle.refusal("warm", "build", "-n", "x", "--max", "0")
    assert "scanned" not in rekindle.refusal("warm", "build", "--name", "x", "--source", "nobody")


def test_a_template_is_listed_found_by_id_and_name_and_filtered(built: Rekindle) -> None:
    (row,) = built.json("warm", "list", "--json")
    assert (row["id"], row["name"], row["state"], row["tags"]) == (
        "our-tests", "Our Tests", "active", ["python"],
    )  # fmt: skip
    assert row["use"]["sessions"] == 0
    assert built.json("warm", "show", "Our Tests", "--json")["id"] == "our-tests"
    assert built.json("warm", "list", "--tag", "go", "--json") == []
    assert built.json("warm", "list", "--source", "codex", "--json") != []
    assert built.json("warm", "list", "--type", "research", "--json") == []
    assert "our-tests" in built("warm", "list")
    nothing = built.run("warm", "list", "--tag", "go").stderr.decode()
    assert nothing == "No templates match --tag go. `rekindle warm list` shows all 1.\n"
    assert "code, file, research" in built.refusal("warm", "list", "--type", "odd")
    assert "active, quarantined, retired" in built.refusal("warm", "list", "--state", "odd")


def test_use_and_success_come_from_the_sessions_that_used_it(built: Rekindle) -> None:
    with open_store(built.store) as store:
        used = store.begin(template="our-tests", arm="warm")
        store.append(used, *session(9))
    (row,) = built.json("warm", "list", "--json")
    assert row["use"]["sessions"] == 1
    assert row["use"]["success_rate"] == round(5 / 6, 4)


def test_a_template_is_edited_and_deleted(built: Rekindle) -> None:
    notes = built.json("warm", "show", "our-tests", "--json")["notes"]
    built(
        "warm",
        "edit",
        "our-tests",
        "--description",
        "How we test",
        "--tag",
        "ci",
        "--drop",
        notes[0]["id"],
    )
    after = built.json("warm", "show", "our-tests", "--json")
    assert after["description"] == "How we test"
    assert after["tags"] == ["python", "ci"]
    assert len(after["notes"]) == len(notes) - 1
    assert after["revision"] == 2
    assert "no note id begins" in built.refusal("warm", "edit", "our-tests", "--drop", "zzz")
    refused = built.refusal("warm", "delete", "our-tests")
    assert "confirmation required to delete 'our-tests': pass --yes" in refused
    built("warm", "delete", "our-tests", "--yes")
    assert built.json("warm", "list", "--json") == []
    assert "Template not found" in built.refusal("warm", "show", "our-tests")


def test_a_session_is_extracted(rekindle: Rekindle) -> None:
    told = rekindle("warm", "extract", "Work 1", "--name", "one", "--description", f"for {SECRET}")
    assert re.match(r"Redacted: aws-key 1 \(description\), value \d \(notes\)\.\n", told)
    shown = rekindle.json("warm", "show", "one", "--json")
    assert shown["made"] == "extracted"
    assert shown["seed"]["style"]["messages"] == 1
    assert shown["seed"]["markers"] == ["docs/guide.md"]
    assert 0 < len(shown["notes"]) <= 5
    assert SECRET not in json.dumps(shown)


def test_a_template_travels_and_waits_in_quarantine(built: Rekindle, tmp_path: Path) -> None:
    file = tmp_path / "shared.json"
    built("warm", "export", "our-tests", "-o", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert built("warm", "export", "our-tests").startswith('{\n  "kind": "rekindle-template"')
    (tmp_path / "other" / "rekindle").mkdir(parents=True)
    other = Rekindle(tmp_path / "other")
    got = other.json("warm", "import", str(file), "--json")
    assert got["state"] == "quarantined"
    assert got["dropped"] == 0
    shown = other("warm", "show", "our-tests")
    assert "activate it with" in shown
    assert re.search(
        r"origin +rekindle \S+, exported 20\d\d-.*, built there, from 4 sessions", shown
    )
    looked = other.run("warm", "test", "our-tests", "run the tests")
    assert "quarantined. This is only a preview" in looked.stderr.decode()
    assert b"npm run sync" in looked.stdout
    assert "is in quarantine" in other.refusal("warm", "load", "our-tests")
    other("warm", "accept", "our-tests")
    assert other.json("warm", "list", "--json")[0]["state"] == "active"
    assert "already exists" in other.refusal("warm", "import", str(file))
    file.write_text(file.read_text().replace("npm run", "npm rum"))
    assert "checksum" in other.refusal("warm", "import", str(file), "--name", "again")


def test_templates_are_merged_and_retired(built: Rekindle) -> None:
    built("warm", "extract", "Work 2", "--name", "one")
    built("warm", "merge", "our-tests", "one", "--name", "Both")
    both = built.json("warm", "show", "both", "--json")
    assert both["made"] == "merged"
    assert both["seed"]["markers"] == ["docs/guide.md"]
    built("warm", "retire", "both")
    assert built.json("warm", "list", "--state", "retired", "--json")[0]["id"] == "both"
    listed = built.json("warm", "list", "--source", "codex", "--json")
    assert [one["id"] for one in listed] == ["both", "one", "our-tests"]
    told = built.run("warm", "test", "both", "add a test", "--no-examples")
    assert b"is retired. This is only a preview" in told.stderr
    assert b"docs/guide.md" in told.stdout
    assert b"npm run" not in told.stdout


def test_an_automatic_template_is_not_used_before_it_is_accepted(rekindle: Rekindle) -> None:
    said = rekindle.refusal("warm", "build", "--name", "auto", "--auto")
    assert "over 10% of the calls failed" in said, "these sessions did not do well"
    with open_store(rekindle.store) as store:
        for number in range(2):
            went_well = session(10 + number)
            store.append(store.begin(), went_well[0], *went_well[5:])
            store.append(store.begin(), *went_well[:3], *went_well[5:], *went_well[5:][-4:])
    told = rekindle.json(
        "warm", "build", "--name", "auto", "--auto", "--min-messages", "20", "--json"
    )
    assert (told["state"], told["made"]) == ("quarantined", "automatic")
    assert rekindle.json("warm", "accept", "auto", "--json")["state"] == "active"


def test_names_that_reach_outside_are_refused(rekindle: Rekindle) -> None:
    for name in ("../../x", "/etc/passwd", "a/b", "..", "\u202e"):
        said = rekindle.refusal("warm", "build", "--name", name)
        assert "name" in said
        assert "Template not found" in rekindle.refusal("warm", "show", name)
    assert sorted(path.name for path in rekindle.home.iterdir()) == ["rekindle"]


SPOILED: list[tuple[str, str, str]] = [
    ('"format": 3', '"format": 7', "upgrade Rekindle"),
    ('"tags"', '"taggs"', "unknown field 'taggs'"),
    ('"notes"', "notes", "is not JSON"),
    ('"notes"', " " * 10_000_000 + '"notes"', "exceeds the 5,000,000"),
]


@pytest.mark.parametrize(("old", "new", "said"), SPOILED)
def test_a_spoiled_file_is_told_with_its_place_and_nothing_is_lost(
    built: Rekindle, old: str, new: str, said: str
) -> None:
    path = file_of(built)
    path.write_text(path.read_text().replace(old, new))
    before = path.read_bytes()
    told = built.refusal("warm", "show", "our-tests")
    assert said in told
    assert "our-tests.json" in told
    built.refusal("warm", "edit", "our-tests", "--tag", "x")
    built.refusal("warm", "build", "--name", "our-tests")
    assert path.read_bytes() == before
    built("warm", "delete", "our-tests", "--yes")


def test_many_writers_at_once_lose_nothing(built: Rekindle) -> None:
    writers = [
        command.start(
            ["warm", "edit", "our-tests", "--tag", f"t{number}"],
            env=built.env, cwd=built.home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for number in range(5)
    ]  # fmt: skip
    for writer in writers:
        _, wrong = writer.communicate(timeout=PATIENCE)
        assert writer.returncode == 0, wrong
    shown = built.json("warm", "show", "our-tests", "--json")
    assert set(shown["tags"]) == {"python", *(f"t{number}" for number in range(5))}
    assert shown["revision"] == 6


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are asked for by fork")
def test_a_full_disk_leaves_the_old_template(built: Rekindle) -> None:
    path = file_of(built)
    before = path.read_bytes()

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = command.run(
            ["warm", "export", "our-tests", "-o", str(path)],
        env=built.env, cwd=built.home, capture_output=True, preexec_fn=no_room, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"our-tests.json" in done.stderr
    assert path.read_bytes() == before
    assert [name for name in os.listdir(path.parent) if name.endswith(".draft")] == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of transcripts is not there")
def test_a_template_of_real_sessions_reads_like_advice(tmp_path: Path) -> None:
    (tmp_path / "rekindle").mkdir()
    rekindle = Rekindle(tmp_path)
    rekindle("import", str(CORPUS))
    told = rekindle.json("warm", "build", "--name", "demo", "--json")
    assert told["metrics"]["qualified"] == 50
    shown = rekindle.json("warm", "show", "demo", "--json")
    notes = shown["notes"]
    assert len(notes) > 10
    assert {one["kind"] for one in notes} >= {"command", "place"}
    for one in notes:
        assert one["sessions"] > 1
        assert one.get("command") not in ("ls", "pwd", "git status")
    again = rekindle.json("warm", "build", "--name", "demo", "--json")
    assert (again["metrics"]["looked_through"], again["revision"]) == (0, 2)
