"""Read the lists of attacks and run them behind the wall."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
SHARED = CHECKOUT.parent / "shared" / "attacks" / "commands.txt"
OWN = HERE / "commands.txt"
WAYS = ("terminal", "execute_code", "process", "mcp")
# Under Landlock, what runs in the background is asked about.
CASES = (
    *(("bubblewrap", way) for way in WAYS),
    ("landlock", "terminal"),
    ("landlock", "execute_code"),
)
USER = 1000
_LABELS = ("BYPASS", "UNASKED no effect seen |", "UNASKED not executed |")


class Attack(NamedTuple):
    """A command that tries to get out; `⏎` in a list stands for a line break."""

    name: str
    command: str


def read_attacks(file: Path) -> Iterator[Attack]:
    """Read a list: `LABEL name | command` or `name | command`."""
    if not file.exists():
        return
    for line in file.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        for label in _LABELS:
            line = line.removeprefix(label)
        name, _, command = line.strip().partition(" | ")
        yield Attack(name.strip(), command.removeprefix("| ").replace("⏎", "\n"))


def list_attacks() -> list[Attack]:
    """Return all known attacks."""
    return [*read_attacks(SHARED), *read_attacks(OWN)]


def find_missing_requirement() -> str | None:
    """Return why the wall cannot be built here, None if it can."""
    if os.getuid() != 0:
        return "only root can build the wall that the attacks run behind"
    missing = [name for name in ("unshare", "setpriv", "pivot_root") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else None


def run_attacks(
    way: str, attacks: Sequence[Attack], mode: str = "auto", seconds: float = 1800
) -> list[dict[str, Any]]:
    """Run attacks in one way behind the wall; return a report on each."""
    visible = {sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), str(CHECKOUT)}
    done = subprocess.run(
        [str(HERE / "wall.sh"), str(USER), ":".join(sorted(visible)),
         "env", f"REKINDLE_SANDBOX_MODE={mode}", sys.executable, "-m", "tests.attacks.inside", way],
        input=json.dumps(attacks),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT / 'src'}:{CHECKOUT}"},
        timeout=seconds,
        check=False,
    )  # fmt: skip
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(reports) != len(attacks):
        raise RuntimeError(f"{len(reports)} of {len(attacks)} attacks ran:\n{done.stderr[-3000:]}")
    return reports


def find_holes(reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reports of attacks that got out."""
    return [one for one in reports if one["effects"] or one["read"] or one["connections"]]
