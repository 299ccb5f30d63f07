"""Words that users say as secrets are in no command."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.command_forms import parse_command_line
from rekindle.knowledge.trust.said_secrets import hide_said_secrets

SECRET = "migranir"


def hide(command: str, said: str) -> list[str]:
    forms = parse_command_line(command, "/p").forms
    return [f"{form.key} | {form.text}" for form in hide_said_secrets([forms], said)[0]]


@pytest.mark.parametrize(
    "said",
    [
        "The password is migranir.", "migranir is the password.", "Unlock it with migranir.",
        "The code is migranir.", "The PIN is migranir.", "Das Passwort lautet migranir.",
        "Das Kennwort lautet migranir.", "Le mot de passe est migranir.", "La contraseña es migranir.",
        "Hasło to migranir.", "The combination is migranir.", "It opens with migranir.",
        "The passphrase is migranir.", "p/w migranir", "The password:\n\nmigranir",
        "The password of our second customer in the north of the other country is migranir.",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "command",
    [
        "./bin/deskctl\nmigranir",
        "npm run migranir",
        "migranir --now",
        "bash migranir.sh",
        "make migranir",
    ],
)
def test_a_word_that_was_said_as_a_secret_is_kept_nowhere(command: str, said: str) -> None:
    assert SECRET not in "\n".join(hide(command, said))


def test_one_word_is_a_command_only_if_it_is_a_known_one_or_a_path() -> None:
    assert hide(SECRET, "") == []
    assert [hide(one, "") for one in ("make", "./setup")] == [["make | make"], ["setup | ./setup"]]


def test_other_words_stay() -> None:
    assert hide("npm run migranir", "Run migranir. The password is in the file.") == [
        "npm run migranir | npm run migranir"
    ]
