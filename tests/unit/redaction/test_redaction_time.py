"""Redaction takes time in proportion to the length of a text, whatever the text says."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable
from time import process_time

import pytest

from rekindle.redaction import scanner
from rekindle.redaction.detectors import DETECTORS, tables
from rekindle.redaction.redactor import Redactor
from rekindle.redaction.scanner import ScanInput, find_positions
from rekindle.redaction.stems import KNOWN_LITERALS, find_literals

pytestmark = pytest.mark.slow

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


def test_a_long_list_of_secrets_is_removed_without_a_look_at_each() -> None:
    lines = "".join(f"API_KEY_{number}=qT7rudEUR6Bts{number:06}\n" for number in range(12_000))
    redactor = Redactor()
    text = redactor.redact_text(lines, "result")
    assert "qT7rudEUR6Bts" not in text
    assert sum(redactor.report.values()) < 6_000


def test_long_encoded_text_is_removed_and_long_encoded_data_stays() -> None:
    text = base64.b64encode(b"DB_PASSWORD=xK9mP2vL5nQ8 " * 4_000).decode()
    data = base64.b64encode(random.Random(3).randbytes(60_000)).decode()
    redacted = Redactor().redact_text(f"one {text} two {data} three")
    assert text[:40] not in redacted
    assert text[-40:] not in redacted
    assert data.rpartition("+")[0][-2_000:] in redacted


def test_a_table_whose_rows_name_the_secret_again_is_read_once() -> None:
    rows = "".join(f"| ada{number} | password | x{number} |\n" for number in range(400))
    scan = ScanInput(rows)
    inspections = [check for stem, check in tables.LITERAL_DETECTORS if stem == b"pass"]
    for at in scan.literal_positions[b"pass"]:
        assert not list(inspections[0](scan, at))
    assert list(scan.table_ends.values()) == [len(rows)]


def test_rows_below_a_header_that_is_repeated_are_all_redacted() -> None:
    pages = "user,password\n" + "".join(f"ada{number},xK9m!P2v{number}\n" for number in range(150))
    assert "xK9m" not in Redactor().redact_text(pages * 3)


def test_a_list_of_tokens_is_given_up_before_every_detector_searches_it() -> None:
    lot = random.Random(5)
    text = " ".join(lot.randbytes(12).hex().upper()[:20] + "aB3d" for _ in range(40_000))
    scan = ScanInput(text)
    assert len(scan.runs) < 120  # those of the last window
    assert set(range(len(text) >> 12)) <= scan.crowded
    assert not scan.literal_positions
    redactor = Redactor()
    assert len(redactor.redact_text(text)) < 5_000
    assert redactor.report["dense", ""] == 1
