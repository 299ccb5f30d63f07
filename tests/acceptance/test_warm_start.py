"""Sessions that start warm, through the real command and a model that follows a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle import open_store
from rekindle.learning.library import TemplateLibrary
from rekindle.projects import hash_folder
from rekindle.store.learning.observations import StoredFolder
from rekindle.testing import ScriptedModel
from rekindle.types import Seed, Template, TemplateNote
from tests import command
from tests.acceptance.stores import make_store
from tests.waiting import PATIENCE

ASKED = "count the rows of march.csv by region"
SCRIPT: dict[str, Any] = {
    "turns": [{"user": "count the rows", "steps": [{"text": "There are 12."}]}]
}
TALLY = "make tally"
ROWS = TemplateNote(
    "rows1",
    "example",
    f"Asked “count the rows”: `{TALLY}`",
    command=TALLY,
    asked="count the rows",
    answer="There are 12.",
    sessions=3,
)
WARNING = TemplateNote(
    "rows2", "pitfall", "`tally` failed; `make tally` then worked.", command=TALLY, sessions=2
)


class Home:
    """The command in a home of its own."""

    def __init__(self, folder: Path, target: str, model: ScriptedModel) -> None:
        self.target = target
        self.model = model
        self.home = folder / "rekindle"
        self.work = folder / "work"
        self.work.mkdir()
        self.project = hash_folder(f"folder:{self.work}")
        self.templates = TemplateLibrary(self.home / "templates")
        kept = {name: text for name, text in os.environ.items() if not name.startswith("REKINDLE_")}
        self.env = {
            **kept,
            "HOME": str(folder),
            "REKINDLE_HOME": str(self.home),
            "REKINDLE_STORE": target,
            "REKINDLE_MODEL": "scripted",
            "REKINDLE_WARM_CONTROL_SHARE": "0",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "a-key",
        }

    def run(self, *words: str, said: str = "", code: int = 0, **env: str) -> str:
        done = command.run(
            words,
            input=said,
            env={**self.env, **env},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def sent(self) -> list[dict[str, Any]]:
        """The messages of the last request."""
        return self.model.requests[-1].body["messages"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with ScriptedModel(SCRIPT) as model:
        made = Home(tmp_path, str(tmp_path / "sessions.db"), model)
        make_store(made.target)
        made.templates.create(
            Template("rows", "Row Counting", notes=(ROWS, WARNING), project=made.project)
        )
        with open_store(made.target) as store:
            known = StoredFolder(f"folder:{made.work}", {})
            store.observations.save_folders({str(made.work): known})
        yield made


def tallied(messages: list[dict[str, Any]]) -> bool:
    return TALLY in json.dumps(messages)


def test_in_its_project_a_template_goes_out_before_the_first_message(home: Home) -> None:
    home.run("chat", said=ASKED)
    roles = [message["role"] for message in home.sent()]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert tallied(home.sent()[:-1])
    assert home.sent()[-1]["content"] == ASKED
    assert home.model.requests[-1].violations == []


def test_as_a_digest_they_stand_in_the_one_system_message(home: Home) -> None:
    home.run("chat", said=ASKED, REKINDLE_WARM_FORMAT="digest")
    assert [message["role"] for message in home.sent()] == ["system", "user"]
    assert tallied(home.sent()[:1])


def test_what_does_not_fit_and_what_is_to_be_cold_starts_cold(home: Home) -> None:
    home.templates.update("rows", lambda one: one._replace(project="github.com/o/other"))
    home.run("chat", said=ASKED)
    assert [message["role"] for message in home.sent()] == ["system", "user"]
    assert not tallied(home.sent())
    home.templates.update("rows", lambda one: one._replace(project=home.project))
    home.run("chat", "--cold", said=ASKED)
    assert not tallied(home.sent())
    home.run("chat", said=ASKED, REKINDLE_WARM_ENABLED="false")
    assert not tallied(home.sent())
    home.run("chat", said=ASKED, REKINDLE_WARM_CONTROL_SHARE="1")
    assert not tallied(home.sent())


def test_a_resumed_session_sends_the_same_prefix_though_the_template_has_changed(
    home: Home,
) -> None:
    home.run("chat", said=ASKED, REKINDLE_WARM_FORMAT="turns")
    first = json.dumps(home.sent())
    home.templates.update("rows", lambda one: one._replace(notes=()))
    home.run("chat", "-c", said="count the rows again", REKINDLE_WARM_FORMAT="digest")
    assert json.dumps(home.sent()).startswith(first[:-1])
    home.run("chat", "-c", "--fork", said="count the rows once more")
    assert json.dumps(home.sent()).startswith(first[:-1])


def test_the_notes_are_no_messages_of_the_session(home: Home) -> None:
    home.run("chat", said=ASKED)
    with open_store(home.target) as store:
        (session,) = store.recent()
        assert [message.role for message in store.messages(session)] == ["user", "assistant"]
        assert session.message_count == 2
        assert session.tool_call_count == 0
        assert (session.arm, session.template) == ("warm", "rows")
        assert store.search("tally") == []
        assert store.preludes.load(session).revision == 1


def test_the_arm_of_a_session_that_was_kept_cold_is_known(home: Home) -> None:
    home.run("chat", said=ASKED, REKINDLE_WARM_CONTROL_SHARE="1")
    with open_store(home.target) as store:
        (session,) = store.recent()
        assert (session.arm, session.template) == ("cold", "rows")  # it would have been given this


def test_a_template_can_be_asked_for_by_name_whatever_fits(home: Home) -> None:
    home.templates.update("rows", lambda one: one._replace(project="github.com/o/other"))
    home.run("chat", "--template", "Row Counting", said="tell me a joke")
    assert tallied(home.sent())
    assert "Template not found" in home.run("chat", "--template", "nothing", said="x", code=2)
    home.templates.update("rows", lambda one: one._replace(state="quarantined"))
    assert "quarantine" in home.run("chat", "--template", "rows", said="x", code=2)
    home.templates.update("rows", lambda one: one._replace(state="retired"))
    assert "is retired" in home.run("chat", "--template", "rows", said="x", code=2)
    assert "new conversation" in home.run("chat", "--template", "rows", "-c", said="x", code=2)


def test_a_template_in_quarantine_and_one_that_cannot_be_read_start_nothing(home: Home) -> None:
    home.templates.update("rows", lambda one: one._replace(state="quarantined"))
    home.templates.get_path("broken").write_text("{ this is not JSON")
    home.run("chat", said=ASKED)
    assert not tallied(home.sent())


def test_status_says_how_the_session_was_started(home: Home) -> None:
    home.run("chat", said=ASKED)
    assert "Start: warm, template “rows” (revision 1)" in home.run("chat", "-c", said="/status")
    home.run("chat", "--cold", said=ASKED)
    assert "Start: cold" in home.run("chat", "-c", said="/status")


def test_wishes_are_told_where_their_template_was_asked_for_and_not_elsewhere(home: Home) -> None:
    seed = Seed(instructions=("Use tabs, never spaces",))
    elsewhere = {"project": "github.com/o/other", "tags": ("shared",)}
    home.templates.update("rows", lambda one: one._replace(seed=seed, **elsewhere))
    home.run("chat", said=ASKED)
    assert tallied(home.sent())
    assert "Use tabs" not in json.dumps(home.sent())
    home.run("chat", "--template", "rows", said=ASKED)
    assert "Use tabs" in json.dumps(home.sent())


# ── looking before one starts


def test_warm_test_shows_the_messages_and_what_they_take(home: Home) -> None:
    shown = home.run("warm", "test", "Row Counting", ASKED, "--form", "turns")
    assert '→ terminal {"command": "make tally"}' in shown
    assert "- `tally` failed; `make tally` then worked. (2 sessions)" in shown
    assert ASKED in shown
    assert "tokens" in shown
    told = json.loads(home.run("warm", "test", "rows", ASKED, "--form", "turns", "--json"))
    home.run("chat", said=ASKED, REKINDLE_WARM_FORMAT="turns")
    assert told["messages"][1:] == home.sent()[1:]
    assert home.sent()[0]["content"].endswith(told["messages"][0]["content"])
    assert told["tokens"] > 0
    assert told["notes"] == ["rows1", "rows2"]


def test_warm_test_keeps_the_rules_of_a_provider(home: Home) -> None:
    told = json.loads(
        home.run("warm", "test", "rows", ASKED, "--form", "turns", "--provider", "gemini", "--json")
    )
    assert [message["role"] for message in told["messages"]] == ["system", "user"]
    assert "--provider" in home.run("warm", "test", "rows", ASKED, "--provider", "x", code=2)
    assert "--form" in home.run("warm", "test", "rows", ASKED, "--form", "x", code=2)
    assert "--max" in home.run("warm", "test", "rows", ASKED, "--max", "99", code=2)
    assert "Template not found" in home.run("warm", "test", "nothing", ASKED, code=2)


def test_warm_pick_says_what_would_be_chosen_or_that_nothing_fits(home: Home) -> None:
    shown = home.run("warm", "pick", ASKED)
    assert "Row Counting (rows): “Row Counting” was learned in this project" in shown
    assert "Asked “count the rows”" in shown
    told = json.loads(home.run("warm", "pick", ASKED, "--json"))
    assert told["template"] == "rows"
    assert [note["id"] for note in told["notes"]] == ["rows1", "rows2"]
    elsewhere = ("--folder", str(home.home))
    assert "start cold" in home.run("warm", "pick", ASKED, *elsewhere)
    nothing = json.loads(home.run("warm", "pick", ASKED, *elsewhere, "--json"))
    assert nothing["template"] is None
    assert nothing["reason"]


def test_a_look_ends_in_silence_with_the_pipe_that_it_is_for(home: Home) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = command.run(
        ["warm", "test", "rows", ASKED],
        env=home.env,
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_warm_load_gives_messages_for_other_programs(home: Home) -> None:
    messages = json.loads(home.run("warm", "load", "rows", "--form", "turns"))
    roles = ["system", "user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in messages] == roles
    assert json.loads(home.run("warm", "load", "rows", "--form", "turns", "--tool", "bash")) != []
    assert json.loads(home.run("warm", "load", "rows", "--tool", "write_letter")) == []
    assert json.loads(home.run("warm", "load", "rows", "--no-examples")) == []


def test_the_tool_is_there_for_the_model_and_answers_it(home: Home) -> None:
    home.run("chat", said=ASKED)
    names = [tool["function"]["name"] for tool in home.model.requests[-1].body["tools"]]
    assert "warm_session" in names
