"""No playbook is saved with a text that looks like a secret to the redactor."""

from __future__ import annotations

from pathlib import Path

from rekindle.knowledge.examples.records import Example
from rekindle.knowledge.notes.playbook import KnownFix, Playbook, Routine
from rekindle.knowledge.notes.records import (
    ArgumentUse,
    CommandForms,
    FailingForm,
    Fix,
    PlaybookItem,
)
from rekindle.knowledge.trust.redact_playbook import redact_playbook
from rekindle.learning.notes.playbooks import load_playbook, save_playbook
from rekindle.store import open_store

SECRET = "src/" + "ghp_" + "k3J9sLq0Zx8VbN2mT5rW7yU1oP4aD6fG8hJ0"
PLAIN = "src/app.py"


def make_playbook(name: str) -> Playbook:
    """Make a playbook in which a name stands wherever a playbook has texts."""
    item = PlaybookItem(name, (0, 1), 2)
    form = CommandForms(f"make {name}", "", 2, 2, 0)
    plain = CommandForms("make test", "", 2, 2, 0)
    fix = Fix("make", f"make {name}", "", "error", (), "make all", "")
    return Playbook(
        commands=(
            PlaybookItem("make", (0, 1), 2, forms=(form,)),
            PlaybookItem("make test", (0, 1), 2, 2, 0, (plain, form), (ArgumentUse(name, (0, 1)),)),
        ),
        files=(item,),
        fixes=(KnownFix(fix, (0,)),),
        paths=(name,),
        routine=Routine((f"make {name}",), (0, 1), 2),
        red_tests=(item,),
        command_files=(item,),
        examples=(Example("make", "Make it.", f"make {name}", "Made.", (0, 1)),),
        checks=(f"make {name}",),
        failing=(FailingForm(f"make {name}", "", (0, 1)),),
    )


def test_texts_that_look_like_a_secret_are_left_out() -> None:
    redacted = redact_playbook(make_playbook(SECRET))
    assert "ghp_" not in repr(redacted)
    (command,) = redacted.commands
    assert [form.text for form in command.forms] == ["make test"]
    assert command.arguments == ()


def test_a_playbook_is_redacted_when_it_is_saved(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        save_playbook(store, "github.com/ada/shop", make_playbook(SECRET))
        assert "ghp_" not in repr(load_playbook(store, "github.com/ada/shop"))


def test_a_playbook_without_secrets_stays_as_it_is() -> None:
    playbook = make_playbook(PLAIN)
    assert redact_playbook(playbook) is playbook
