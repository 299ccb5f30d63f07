"""Every pattern of the package takes time in proportion to the text, whatever the text says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit import pattern_sweep
from tests.unit.pattern_samples import create_run, iter_hostile_texts

PARTS = 4
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_pattern_takes_longer_than_its_text_deserves(part: int) -> None:
    """In a process of its own, whose timer of CPU time stops what does not end."""
    command = [sys.executable, "-m", "tests.unit.pattern_sweep", str(part), str(PARTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    *faults, count = map(json.loads, done.stdout.splitlines())
    assert faults == []
    assert count > 80


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [
        (r"(?:[\w@+-][\w.@+-]*)?(?:/[\w.@+-]+)*/?[\w@+-]+\.[a-z]", True),
        (r"git (?:-\S+ |-C \S+ |--\S+ )*log", True),
        (r"\s+$", True),
        (r"<<(\w+)[^\n]*\n", True),
        (r"(?<!\s)\s+$", False),
        (r"\$\([^)]{0,400}\)", False),
        (r"needle", False),
    ],
)
def test_the_sweep_tells_slow_patterns_from_others(pattern: str, is_slow: bool) -> None:
    source = (
        "import re, signal, sys\n"
        "from tests.unit import pattern_sweep as sweep\n"
        "signal.signal(signal.SIGPROF, sweep.raise_timeout)\n"
        "use = sweep.Use(re.compile(sys.argv[1]), '', '', sweep.METHODS)\n"
        "print(sweep.find_fault(use))"
    )
    command = [sys.executable, "-c", source, pattern]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert (done.stdout != b"None\n") is is_slow


def test_the_sweep_finds_patterns_wherever_they_are_kept() -> None:
    uses = {f"{use.module}.{use.name}" for use in pattern_sweep.list_uses()}
    assert "rekindle.knowledge.seed._URL_OR_NAME" in uses
    assert "rekindle.judging.judge._DEFAULT_JUDGE._signatures._last._regex" in uses
    assert any(name.startswith("rekindle.config.toml_file.line ") for name in uses)


def test_hostile_texts_repeat_what_the_pattern_repeats() -> None:
    texts = {text(8) for _, text in iter_hostile_texts(re.compile(r"key:(?:-\w+ )*!"))}
    assert "key:-a -a " in texts
    assert create_run("<", "ab", ">")(6) == "<ababab>"
