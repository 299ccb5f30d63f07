"""Secrets of every class go; ordinary text of every kind stays."""

from __future__ import annotations

import base64
import string
from collections.abc import Iterator

import pytest

from rekindle.redaction.redactor import Redactor
from tests.counts import choose_count
from tests.unit.redaction.canaries import ALNUM, HEX, Lot
from tests.unit.redaction.texts_by_class import NEWER_PROVIDERS, PERSONAL_TEXTS, TEXTS_BY_CLASS

WORDS = ("tiger", "winter", "dragon", "monkey", "sunset", "castle")
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def fill_text(text: str, lot: Lot) -> tuple[str, list[str]]:
    """Fill the fields of a text; return it, and the values that must be gone."""
    token = "gh" + "p_" + lot.draw(ALNUM, 36)
    pieces: list[str] = []
    values: list[str] = []
    for before, field, _, _ in string.Formatter().parse(text):
        pieces.append(before)
        if field is not None:
            value = draw_field(field, lot, token)
            pieces.append(value)
            values.append(value)
    return "".join(pieces), values


def draw_field(field: str, lot: Lot, token: str) -> str:
    if field[-1] == "T" or field[:1] == "T":
        return encode_token(field, token)
    line = f"DB_PASSWORD={lot.draw(ALNUM, 12)}"
    if field == "g":
        signs = lot.random.choice("!@#%*?+")
        return f"K{lot.draw(ALNUM, 7)}x3{signs}{lot.draw(ALNUM, 4)}"
    simple = {
        "m": lambda: f"{lot.random.choice(WORDS)}{lot.random.randint(10, 9999)}!",
        "b": lambda: base64.b64encode(lot.random.randbytes(32)).decode(),
        "b40": lambda: lot.draw(ALNUM, 40),
        "b64line": lambda: lot.draw(ALNUM, 64),
        "u": lot.uuid,
        "pw64": lambda: base64.b64encode(line.encode()).decode(),
        "utf16": lambda: base64.b64encode(f"$env:{line}".encode("utf-16-le")).decode(),
        "twice64": lambda: base64.b64encode(base64.b64encode(line.encode())).decode(),
    }.get(field)
    if simple:
        return simple()
    alphabet = {"h": HEX, "w": BASE58}.get(field[0], ALNUM)
    return lot.draw(alphabet, int(field[1:]))


def encode_token(field: str, token: str) -> str:
    """Encode a token, or return one half of it."""
    return {
        "T1": lambda: token[:22],
        "T2": lambda: token[22:],
        "hexT": token.encode().hex,
        "b32T": lambda: base64.b32encode(token.encode()).decode().rstrip("="),
        "octT": lambda: "".join(f"\\{ord(letter):03o}" for letter in token),
        "bytesT": lambda: ", ".join(str(ord(letter)) for letter in token),
        "escT": lambda: "".join(f"\\x{ord(letter):02x}" for letter in token),
        "entT": lambda: "".join(f"&#{ord(letter)};" for letter in token),
        "zwT": lambda: f"{token[:20]}\u200b{token[20:]}",
    }[field]()


def list_cases() -> Iterator[tuple[str, str]]:
    for kind, texts in TEXTS_BY_CLASS.items():
        yield from ((kind, text) for text in texts)
    for name, (one, two) in NEWER_PROVIDERS.items():
        yield f"provider {name}", f"Use {one}{two} for this."
        yield f"provider {name}", f'{{{{"cmd":"{{{{\\"v\\":\\"{one}{two}\\"}}}}"}}}}'


@pytest.mark.parametrize(("kind", "text"), list_cases())
def test_a_secret_of_this_class_is_gone(kind: str, text: str) -> None:
    for seed in range(choose_count(4, 40)):
        full, values = fill_text(text, Lot(seed))
        redactor = Redactor()
        redacted = redactor.redact_text(full, "result")
        left = [value for value in values if len(value) > 3 and value in redacted]
        assert left == [], f"{kind}: {redacted}"
        assert redactor.report, f"{kind}: {full}"
        assert {place for _, place in redactor.report} == {"result"}
        assert Redactor().redact_text(redacted) == redacted


@pytest.mark.parametrize(("text", "private"), PERSONAL_TEXTS)
def test_personal_data_is_gone(text: str, private: str) -> None:
    assert private not in Redactor().redact_text(text)
    assert private not in Redactor().redact_text(f"see:\n{text}\nand more")
