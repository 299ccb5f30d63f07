"""`python -m soak crash`: exit code 1 if the store broke a promise."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .crash import crash, place
from .journal import entries


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    seed = options.seed if options.seed is not None else int(time.time())
    with place(options.target) as (target, folder, restart):
        _say(f"{options.writers} writers, {options.kills} kills, seed {seed}, on {target}")
        report = crash(
            target,
            folder,
            kills=options.kills,
            writers=options.writers,
            seed=seed,
            restart=restart,
            progress=_Progress(options.kills),
        )
    _say("")
    _say(report.summary())
    for one in report.wrong[:20]:
        _say(f"  {one}")
    _say("FAILED" if report.wrong else "nothing that was acknowledged is lost")
    return 1 if report.wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="crash")
    command = commands.add_parser("crash", help="kill -9 writers at random moments")
    command.add_argument("--kills", type=int, default=200)
    command.add_argument("--writers", type=int, default=4)
    command.add_argument("--seed", type=int, help="of what is done and when; default: the time")
    command.add_argument(
        "--target",
        help="a path or a postgresql:// URL, new or empty; `postgresql` starts a server and"
        " restarts it too; default: a temporary SQLite file",
    )
    return parser


class _Progress:
    """One line that counts on a terminal, a line now and then elsewhere."""

    def __init__(self, kills: int) -> None:
        self._kills = kills
        self._begun = time.monotonic()

    def __call__(self, kill: int, folder: Path) -> None:
        every = 1 if sys.stdout.isatty() else 25
        if kill % every and kill != self._kills:
            return
        seconds = time.monotonic() - self._begun
        line = f"{kill}/{self._kills} kills, {seconds:.0f} s"
        if kill % 25 == 0:
            said = sum(len(one.tokens) for one in entries(folder) if one.what == "appended")
            line += f", {said:,} messages acknowledged"
        _say(line, end="\r" if sys.stdout.isatty() else "\n")


def _say(line: str, end: str = "\n") -> None:
    sys.stdout.write(line + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
