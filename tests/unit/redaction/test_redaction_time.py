"""Redaction takes time in proportion to the length of a text, whatever the text says."""

from __future__ import annotations

import random
from collections.abc import Callable
from time import process_time

import pytest

from rekindle.redaction.redactor import Redactor
from rekindle.redaction.scanner import ScanInput, find_positions
from rekindle.redaction.stems import KNOWN_LITERALS, find_literals

HOSTILE: dict[str, Callable[[int], str]] = {
    "options in a row": lambda size: "sqlplus -" * (size // 9),
    "one long option": lambda size: "htpasswd -" + "b" * size,
    "marks of base64 in a run": lambda size: "eyJ-" * (size // 4),
    "names in a run": lambda size: "token=" * (size // 6),
    "a key without its beginning": lambda size: "A" * size + "\n-----END PRIVATE KEY-----\n",
}


def seconds(text: str) -> float:
    """The best of three: what else the machine does makes a run longer, never shorter."""
    spent: list[float] = []
    for _ in range(3):
        start = process_time()
        Redactor().redact_text(text)
        spent.append(process_time() - start)
    return min(spent)


@pytest.mark.parametrize("kind", HOSTILE)
def test_four_times_the_text_takes_about_four_times_as_long(kind: str) -> None:
    """A rule whose time grows with the square of the length takes sixteen times as long."""
    text = HOSTILE[kind]
    assert seconds(text(16_000)) < 11 * seconds(text(4_000))


def test_all_literals_are_found_in_one_sweep_as_if_each_was_searched_for() -> None:
    lot = random.Random(11)
    pieces = [stem[:size] for stem in sorted(KNOWN_LITERALS) for size in range(1, len(stem) + 1)]
    for _ in range(300):
        text = b"".join(lot.choices(pieces, k=lot.randrange(40)))
        alone = {stem: find_positions(ScanInput(""), text, stem) for stem in KNOWN_LITERALS}
        assert find_literals(text, set()) == {stem: found for stem, found in alone.items() if found}
