"""Runs one measurement of one store and prints its figures as JSON.

python -m bench.store.child_process STORE ROW ARGS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.peers import load_store_class
from bench.store import growth, measurements

MEASUREMENTS = {
    "append": measurements.measure_append,
    "program": measurements.get_fresh_program,
    "together": measurements.measure_concurrent_append,
    "hammer": measurements.append_until_deadline,
    "load": measurements.measure_load,
    "recent": measurements.measure_recent,
    "recent_first": measurements.measure_first_recent,
    "search": measurements.measure_search,
}
GROWTH = {"growth_build": growth.build_growing_store, "growth_probe": growth.probe_growing_store}


def main() -> None:
    name, row, given = sys.argv[1:]
    args = json.loads(given)
    folder = Path(args.pop("folder"))
    if row == "flush":
        figures = measurements.flush_until_deadline(folder, **args)
    elif row in GROWTH:
        figures = GROWTH[row](folder, **args)
    else:
        figures = MEASUREMENTS[row](load_store_class(name), folder, **args)
    print("\n" + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
