"""Runs one row for one contestant and prints its figures: `python -m bench.child NAME ROW ARGS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import growth, rows
from .contestants import contestant


def main() -> None:
    name, row, given = sys.argv[1:]
    args = json.loads(given)
    folder = Path(args.pop("folder"))
    if row == "flush":
        figures = rows.flush(folder, **args)
    elif row.startswith("growth_"):
        figures = getattr(growth, row)(folder, **args)
    else:
        figures = getattr(rows, row)(contestant(name), folder, **args)
    print("\n" + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
