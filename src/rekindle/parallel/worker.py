"""A worker of the pool: `python -m rekindle.parallel.worker` runs the tasks that it reads from stdin."""

from __future__ import annotations

import os
import signal
import sys

from .frames import read_frame, write_frame
from .tasks import Task, run_task


def main() -> None:
    """Run tasks until the pool closes the pipe."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the command, which stops its workers
    with os.fdopen(os.dup(0), "rb") as source, os.fdopen(os.dup(1), "wb") as target:
        os.dup2(2, 1)  # what anything prints must not get between the answers
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        try:
            while True:
                write_frame(target, run_task(Task("", read_frame(source))))
        except (EOFError, BrokenPipeError):
            sys.exit(0)


if __name__ == "__main__":
    main()
