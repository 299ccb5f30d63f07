"""A secret goes if something announces it, even if it is a word; code that reads like it stays."""

from __future__ import annotations

import pytest

from rekindle.redaction.redactor import Redactor
from rekindle.redaction.vocabulary.secret_names import SECRET_LAST_PARTS
from tests.cases import check_each

RANDOM = "Xk93jq0Lm2pQz7Rt"


def check_gone(text: str, secret: str) -> None:
    """Check that the secret goes, alone, between other lines, and for good."""
    redacted = Redactor().redact_text(text)
    assert secret in text
    assert secret not in redacted
    assert Redactor().redact_text(redacted) == redacted
    assert secret not in Redactor().redact_text(f"see:\n{text}\nand more")


def check_kept(text: str) -> None:
    redactor = Redactor()
    assert redactor.redact_text(text) == text
    assert not redactor.report


# ── names


@pytest.mark.parametrize("name", sorted(SECRET_LAST_PARTS))
def test_every_name_of_a_secret_is_searched_for(name: str) -> None:
    for text in (f"{name}={RANDOM}", f"MY_{name.upper()}={RANDOM}", f"--{name}={RANDOM}"):
        check_gone(text, RANDOM)
    if name != "session":  # its identifiers are everywhere, and harmless
        check_gone(f'{{"{name}": "{RANDOM}"}}', RANDOM)


@check_each(
    "text, secret",
    (
        ("PIN=471122", "471122"),
        ('{"pin": 99118822}', "99118822"),
        ('{"userPin": "4711"}', "4711"),
        ("CARD_PIN: 4711", "4711"),
        ("CVC: 785", "785"),
        ("CVV=803", "803"),
        ("pswd=marzipan", "marzipan"),
        ("PAT=hunter-blue-42", "hunter-blue-42"),
        ('"kennwort": "marzipan"', "marzipan"),
    ),
)
def test_a_short_name_announces_a_secret(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text",
    (
        'pin = "latest"',
        "pin: 13",
        "spin=471122",
        "mapping: 471122",
        "side=123456",
        "inside: 4711",
        '"session": "2026-01-20-9de86e4e-9df7-46f3-abb7-09b836f8dc9b"',
        "path: 471122",
        "pinned=1000",
        "salt: bytes | None = None",
    ),
)
def test_a_piece_of_another_word_announces_nothing(text: str) -> None:
    check_kept(text)
