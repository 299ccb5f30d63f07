"""The README's figures about warm starts are those that were measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARMS = ("cold", "warm", "placebo")
TASKS = 35
ZERO = ("none", "zero", "no")

SECTION = re.compile(r"<!-- warm-1\.5b-second: begin -->(.*?)<!-- warm-1\.5b-second: end -->", re.S)
# A paragraph ends at a blank line, and a list item where the next one begins.
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*] )")


def read_measured() -> dict[str, int]:
    """Return the tasks that each arm completed, from the table in bench/RESULTS.md."""
    section = SECTION.search((ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8"))
    assert section, "bench/RESULTS.md has no section warm-1.5b-second"
    return read_table(section[1])


def read_table(text: str) -> dict[str, int]:
    """Return the rows of the form `| arm | 12 of 20 |`."""
    rows = re.findall(rf"^\| *\**(\w+)\** *\| *\**(\d+) of {TASKS}\b", text, re.M)
    return {arm: int(done) for arm, done in rows}


def find_claimed(text: str, arm: str) -> set[int]:
    """Return the figures for an arm in the paragraphs that compare all of them.

    A figure is a number with a few words between it and the arm (`12 of 20 done warm`), but no
    punctuation and no other arm; or the cell next to the arm in a table.
    """
    others = "|".join(ARMS)
    number = rf"(?P<number>\d+|{'|'.join(ZERO)})"
    words = rf"(?: of(?: the)? {TASKS})?(?: (?!(?:{others})\b)[a-z-]+){{0,5}}? "
    patterns = (
        rf"(?<![\d.,])\b{number}{words}{arm}\b",
        rf"\|\s*{arm}[^|]*\|\s*{number}\b",
    )
    found: set[int] = set()
    for paragraph in PARAGRAPH.split(text):
        plain = " ".join(re.sub(r"[*_`]", "", paragraph).lower().split())
        if not all(re.search(rf"\b{word}\b", plain) for word in (*ARMS, TASKS)):
            continue
        for pattern in patterns:
            for match in re.finditer(pattern, plain):
                found.add(0 if match["number"] in ZERO else int(match["number"]))
    return found


@pytest.mark.parametrize("arm", ARMS)
def test_the_readme_tells_what_was_measured(arm: str) -> None:
    measured = read_measured()[arm]
    claimed = find_claimed((ROOT / "README.md").read_text(encoding="utf-8"), arm)
    # "35 tasks with a warm start" tells how many tasks there were.
    claimed -= {TASKS} - {measured}
    assert claimed == {measured}, f"{arm}: README.md says {claimed or 'nothing'}"


def test_a_table_in_the_readme_tells_what_was_measured() -> None:
    claimed = read_table((ROOT / "README.md").read_text(encoding="utf-8"))
    assert claimed.items() <= read_measured().items()


@pytest.mark.parametrize(
    "text",
    [
        "on 35 tasks it had not seen: 0 done cold, 12 done warm, 1 with a placebo ([x](y))",
        "Of 35 tasks, 0 were done cold, **12 warm** and 1\nwith a placebo.",
        "0 of 35 tasks cold, 12 of 35 tasks with a warm start, and 1 of the 35 with the placebo",
        "None of the 35 tasks was done cold; 12 were done\nwarm, 1 with a placebo",
        "| arm | done |\n|---|---|\n| cold | 0 of 35 |\n| warm | 12 of 35 |\n| placebo | 1 of 35 |",
        "- a start warm, 9\n- 35 tasks: 0 done cold, 12 done warm, 1 placebo\n- 7 warm",
    ],
)
def test_figures_are_found_in_several_wordings(text: str) -> None:
    assert [find_claimed(text, arm) for arm in ARMS] == [{0}, {12}, {1}]
