"""The cost of redaction on hostile and ordinary text, and what it misses or removes wrongly.

    python -m bench redact [--quick]

The inputs are hostile texts of 5 MB, each full of what the detectors look for; the text of the corpus;
and planted secrets that earlier versions missed. Times are processor time. The floor for ordinary text
is one pass of a trivial regular expression over the same text, alternating with the redactor. The
corpus has no labels, so the harmless tokens removed have two bounds: everything removed as a secret,
real secrets included, and the part of it that looks like a word, a number, a path, a checksum or a
UUID.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple, cast

from bench import report
from bench.environments import ROOT
from bench.learning.hostile_texts import HOSTILE_TEXTS, make_hostile_text
from rekindle.redaction.detectors import SECRET_DETECTORS
from rekindle.redaction.detectors.encoded import make_encoded_detector
from rekindle.redaction.redactor import Redactor
from rekindle.redaction.scanner import find_spans
from rekindle.redaction.vocabulary.entropy import is_reference

SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus"
PLANTED = SHARED / "attacks" / "secrets-missed.txt"
SIZE, QUICK_SIZE = 5_000_000, 250_000
ROUNDS, QUICK_ROUNDS = 5, 1
CORPUS_CHARS, QUICK_CORPUS_CHARS = 40_000_000, 400_000
LIMIT_S = 1.0
MAX_HARMLESS = 1.0  # of 100,000 tokens
SHAPELESS = "provider without prefix, bare"  # indistinguishable from an identifier
_DETECTORS = (
    *SECRET_DETECTORS,
    make_encoded_detector(lambda text: bool(find_spans(text, SECRET_DETECTORS))),
)
_TRIVIAL = re.compile(r"token")
_SPACE = re.compile(r"\S+")
_HARMLESS = re.compile(
    r"[A-Za-z_.-]+|[\d.,:-]+|[0-9a-f]{40}|[0-9a-f]{64}|[~.]{0,2}/[\w./-]+"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
)


class CorpusFigures(NamedTuple):
    """Figures for ordinary text: its size, our seconds, those of the floor, and the removed words."""

    chars: int
    tokens: int
    seconds: float
    floor: float
    removed: int
    harmless: int


def make_redactor() -> Redactor:
    return Redactor(home="/home/ada", user="adalove")


def time_cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def measure_hostile(size: int, rounds: int) -> dict[str, float]:
    """Return the median seconds for each kind of hostile text."""
    taken: dict[str, float] = {}
    for kind in HOSTILE_TEXTS:
        texts = [make_hostile_text(kind, size)]
        taken[kind] = median(time_cpu(partial(redact_texts, texts)) for _ in range(rounds))
    return taken


def iter_strings(value: object) -> Iterator[str]:
    """Yield the texts of a JSON value, except those too short to redact."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            if len(one) > 5:
                yield one
        elif isinstance(one, dict):
            pending.extend(cast("dict[str, object]", one).values())
        elif isinstance(one, list):
            pending.extend(cast("list[object]", one))


def read_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a transcript in JSON or JSONL, or else the whole file."""
    content = path.read_bytes().decode("utf-8", "replace")
    try:
        yield from iter_strings(json.loads(content))
        return
    except ValueError:
        pass
    is_json = False
    for line in content.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        is_json = True
        yield from iter_strings(value)
    if not is_json:
        yield content


def load_corpus(limit: int) -> list[str]:
    """Return the distinct texts of the corpus, up to `limit` characters."""
    found: dict[str, None] = {}
    size = 0
    for path in sorted(CORPUS.rglob("*")):
        if not path.is_file() or path.suffix in (".db", ".sqlite", ".gz"):
            continue
        for text in read_texts(path):
            if text not in found:
                found[text] = None
                size += len(text)
            if size >= limit:
                return list(found)
    return list(found)


def iter_removed_words(text: str) -> Iterator[str]:
    """Yield the words that are removed as secrets."""
    end = 0
    for span in sorted(find_spans(text, _DETECTORS)):
        value = text[max(end, span.start) : span.end]
        end = max(end, span.end)
        if not is_reference(value[:100]):
            yield from value.split()


def redact_texts(texts: list[str]) -> None:
    redactor = make_redactor()
    for text in texts:
        redactor.redact_text(text)


def count_trivial_matches(texts: list[str]) -> None:
    for text in texts:
        sum(1 for _ in _TRIVIAL.finditer(text))


def measure_corpus(texts: list[str], rounds: int) -> CorpusFigures:
    floor: list[float] = []
    seconds: list[float] = []
    for _ in range(rounds):
        floor.append(time_cpu(lambda: count_trivial_matches(texts)))
        seconds.append(time_cpu(lambda: redact_texts(texts)))
    removed = Counter(word for text in texts for word in iter_removed_words(text))
    return CorpusFigures(
        chars=sum(map(len, texts)),
        tokens=sum(sum(1 for _ in _SPACE.finditer(text)) for text in texts),
        seconds=median(seconds),
        floor=median(floor),
        removed=sum(removed.values()),
        harmless=sum(count for word, count in removed.items() if _HARMLESS.fullmatch(word)),
    )


def read_planted() -> Iterator[tuple[str, str]]:
    """Yield the class and the text of each planted secret."""
    for line in PLANTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("MISS "):
            kind, _, text = (part.strip() for part in line[5:].split(" | ", 2))
            try:
                yield kind, str(ast.literal_eval(text))
            except (SyntaxError, ValueError):
                yield kind, text


def count_planted(planted: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Count the found and missed secrets of each class."""
    found: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for kind, text in planted:
        redactor = Redactor()
        redactor.redact_text(text)
        is_gone = redactor.report or "<secret:" in text  # some were masked in part already
        (found if is_gone else missed)[kind] += 1
    return {kind: (found[kind], missed[kind]) for kind in sorted(found | missed)}


def format_verdict(holds: bool) -> str:
    return "yes" if holds else "**no**"


def build_table(
    size: int,
    hostile: dict[str, float],
    corpus: CorpusFigures | None,
    planted: dict[str, tuple[int, int]],
) -> str:
    slowest = sorted(hostile, key=hostile.__getitem__, reverse=True)
    worst = hostile[slowest[0]]
    lines = [
        "## Redaction",
        "",
        f"`python -m bench redact`, {report.describe_machine()}. Processor time. The floor is one pass"
        " of a trivial regular expression over the same text.",
        "",
        f"| hostile text of {size / 1e6:g} MB, {len(hostile)} kinds | s | must reach | reached |",
        "|---|---:|---|---|",
        f"| median of all kinds | {median(hostile.values()):.2f} | – | – |",
        f"| worst: {slowest[0]} | {worst:.2f} | ≤ {LIMIT_S:g} | {format_verdict(worst <= LIMIT_S)} |",
        *(f"| {kind} | {hostile[kind]:.2f} | – | – |" for kind in slowest[1:5]),
        "",
    ]
    if corpus:
        lines += build_corpus_lines(corpus)
    lines += [
        "| planted secrets | found | missed | must miss | reached |",
        "|---|---:|---:|---|---|",
    ]
    for kind, (found, missed) in planted.items():
        must = ("–", "–") if kind == SHAPELESS else ("0", format_verdict(missed == 0))
        lines.append(f"| {kind} | {found} | {missed} | {must[0]} | {must[1]} |")
    return "\n".join([*lines, ""])


def build_corpus_lines(corpus: CorpusFigures) -> list[str]:
    harmless, removed = (
        count * 100_000 / max(1, corpus.tokens) for count in (corpus.harmless, corpus.removed)
    )
    speed, floor = (
        corpus.chars / 1e6 / max(spent, 1e-9) for spent in (corpus.seconds, corpus.floor)
    )
    return [
        f"| ordinary text: the corpus, {corpus.chars / 1e6:.1f} MB, {corpus.tokens:,} tokens | figure |"
        " must reach | reached |",
        "|---|---:|---|---|",
        f"| MB/s | {speed:.1f} | – | – |",
        f"| floor, MB/s | {floor:.0f} | – | – |",
        f"| removed per 100,000 tokens, real secrets included | {removed:.2f} | – | – |",
        f"| of these, probably harmless tokens | {harmless:.2f} | ≤ {MAX_HARMLESS:g} |"
        f" {format_verdict(harmless <= MAX_HARMLESS)} |",
        "",
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="short texts; writes no results")


def run(args: argparse.Namespace) -> None:
    size, rounds = (QUICK_SIZE, QUICK_ROUNDS) if args.quick else (SIZE, ROUNDS)
    texts = load_corpus(QUICK_CORPUS_CHARS if args.quick else CORPUS_CHARS)
    table = build_table(
        size,
        measure_hostile(size, rounds),
        measure_corpus(texts, rounds) if texts else None,
        count_planted(read_planted()) if PLANTED.exists() else {},
    )
    print(table)
    if not args.quick:
        report.write_section("redaction", table)
