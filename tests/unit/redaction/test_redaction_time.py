"""Redaction takes time in proportion to the length of a text, whatever the text says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from time import process_time

import pytest

from rekindle.redaction import scanner
from rekindle.redaction.detectors import DETECTORS
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


DENSE = (
    "token=", "password=x ", '"key":"', "secret='", "-----BEGIN PRIVATE KEY-----\n", "a@b.co ", "://a:b@",
    "eyJ-", "sk-", "4111 1111 ", "%41", "\\x67", "10.20.30.40 ", " -p ", "密码：", '{"password":', "pw",
    "| key ",
)  # fmt: skip


@pytest.mark.parametrize("piece", DENSE)
def test_a_long_text_is_inspected_at_a_bounded_number_of_places(piece: str) -> None:
    """However often a text names a secret, the work is in proportion to its length."""
    size = 2_500_000
    inspected = 0

    def count(detector: scanner.Detector) -> scanner.Detector:
        def check_and_count(check: scanner.Inspection) -> scanner.Inspection:
            def checked(scan: scanner.ScanInput, at: int) -> Iterable[scanner.RedactionSpan]:
                nonlocal inspected
                inspected += 1
                return check(scan, at)

            return checked

        return lambda scan: [
            found._replace(inspect=check_and_count(found.inspect)) for found in detector(scan)
        ]

    text = piece * (size // len(piece))
    spans = scanner.find_spans(text, [count(detector) for detector in DETECTORS])
    assert inspected < size / 4
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


def test_what_is_too_dense_to_inspect_is_removed_and_the_rest_is_kept() -> None:
    lines = "The tests pass and nothing else is to be said about it.\n" * 5_000
    redactor = Redactor()
    text = redactor.redact_text(f"{lines}{'password=swordfish9 ' * 20_000}\n{lines}", "result")
    assert "swordfish9" not in text
    assert redactor.report["dense", "result"] > 0
    assert text.startswith(lines[:200_000])
    assert text.endswith(lines[-200_000:])
