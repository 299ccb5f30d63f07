"""Count what went wrong, without the names and numbers in which failures differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

MAX_LABEL_CHARS = 110
_VALUE = re.compile(
    r"`[^`\n]{0,200}`|\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|~?[\w.@+-]{0,80}(?:/[\w.@+-]{1,80}){1,20}/?"
    r"|\b[\w-]{1,80}\.[a-z]{1,4}\b(?::\d+)*|\b0x[0-9a-f]+|\d+"
)
_GAPS = re.compile(r"[.~]{0,3}…(?:[\s,:;.-]{0,9}…)*")


def count_problems(problems: Iterable[str]) -> list[tuple[str, int]]:
    """Return what went wrong and how often, the most frequent first."""
    counts = Counter(label for one in problems if (label := mask_values(one)))
    return counts.most_common()


def mask_values(problem: str) -> str:
    """Replace paths, quoted texts and numbers, and cut the rest to a short line."""
    label = " ".join(_GAPS.sub("…", _VALUE.sub("…", problem[:1_000])).split())
    return label if len(label) <= MAX_LABEL_CHARS else label[: MAX_LABEL_CHARS - 1] + "…"
