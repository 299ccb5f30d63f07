"""Every pattern of the package takes time in proportion to the text, whatever the text says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit import pattern_sweep
from tests.unit.pattern_samples import create_run, iter_hostile_texts
from tests.unit.pattern_sweep import Use

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SLOW = {
    r"(?:[\w@+-][\w.@+-]*)?(?:/[\w.@+-]+)*/?[\w@+-]+\.[a-z]": True,
    r"git (?:-\S+ |-C \S+ |--\S+ )*log": True,
    r"\s+$": True,
    r"<<(\w+)[^\n]*\n": True,
    r"(?<!\s)\s+$": False,
    r"\$\([^)]{0,400}\)": False,
    r"needle": False,
}


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    return pattern_sweep.list_uses()


def test_no_pattern_takes_longer_than_its_text_deserves(uses: list[Use]) -> None:
    """Sweep what is not recorded yet; `python -m tests.unit.pattern_sweep --record` records it."""
    assert len(uses) > 320
    if pattern_sweep.list_unrecorded(uses):
        # In processes of its own, whose timers of CPU time stop what does not end.
        command = [sys.executable, "-m", "tests.unit.pattern_sweep"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_change_of_a_pattern_or_its_use_is_swept(uses: list[Use]) -> None:
    texts = (use for use in uses if isinstance(use.pattern.pattern, str))
    recorded = next(use for use in texts if not pattern_sweep.list_unrecorded([use]))
    source, flags = recorded.pattern.pattern, recorded.pattern.flags
    changed = (
        recorded._replace(pattern=re.compile(source + "x", flags)),
        recorded._replace(pattern=re.compile(source, flags ^ re.MULTILINE)),
        recorded._replace(methods=frozenset({"match", "fullmatch"})),
    )
    for use in changed:
        assert pattern_sweep.list_unrecorded([use]) == [use]


def test_the_sweep_tells_slow_patterns_from_others() -> None:
    source = (
        "import re, sys\n"
        "from tests.unit import pattern_sweep as sweep\n"
        "sweep.set_timer()\n"
        "sweep.MAX_SECONDS = 0.2\n"
        "for pattern in sys.argv[1:]:\n"
        "    use = sweep.Use(re.compile(pattern), '', '', sweep.METHODS)\n"
        "    print(sweep.find_fault(use) is not None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, *SLOW], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(is_slow) for is_slow in SLOW.values()]


def test_the_sweep_finds_patterns_wherever_they_are_kept(uses: list[Use]) -> None:
    names = {f"{use.module}.{use.name}" for use in uses}
    assert "rekindle.knowledge.seed._QUESTION" in names
    assert "rekindle.judging.judge._DEFAULT_JUDGE._signatures._last._regex" in names
    assert any(name.startswith("rekindle.config.toml_file.line ") for name in names)


def test_hostile_texts_repeat_what_the_pattern_repeats() -> None:
    texts = {text(8) for _, text in iter_hostile_texts(re.compile(r"key:(?:-\w+ )*!"))}
    assert "key:-a -a " in texts
    assert create_run("<", "ab", ">")(6) == "<ababab>"
