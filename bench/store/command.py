"""`python -m bench store` and `python -m bench growth`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from bench.peers import PEERS
from bench.report import publish_figures
from bench.runner import WORK
from bench.store import growth, store_run, tables


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small slice; writes no results")
    parser.add_argument(
        "--keep-peers",
        action="store_true",
        help="measure the floors and Rekindle, and keep the last figures of the peers",
    )
    parser.add_argument("--only", action="append", choices=store_run.ROWS, help="only this row")
    parser.add_argument(
        "--no-peers", action="store_true", help="only the floors and Rekindle; writes no results"
    )
    parser.add_argument(
        "--peer", action="append", choices=PEERS, help="only this peer; writes no results"
    )


def add_growth_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=list(growth.SIZES), metavar="N")
    parser.add_argument("--quick", action="store_true", help="two small sizes; writes no results")


def run_store(args: argparse.Namespace) -> None:
    peers = () if args.no_peers or args.keep_peers else tuple(args.peer or PEERS)
    size = store_run.QUICK if args.quick else store_run.Size()
    run = store_run.StoreRun(size, peers)
    rows = store_run.measure_rows(run, tuple(args.only or store_run.ROWS))
    run.remove_stores()
    taken: dict[str, Any] = {"rows": rows, "missing": run.missing, "versions": run.versions}
    partial = "quick" if args.quick else "peerless" if args.no_peers or args.peer else ""
    if args.keep_peers and not partial:
        kept = json.loads((WORK / "store.json").read_text())
        taken["rows"] = {row: kept["rows"].get(row, {}) | rows[row] for row in rows}
        taken["peers"] = {"date": kept.get("peers", {}).get("date", kept["date"])}
    is_whole = not (args.only or args.keep_peers)
    publish_figures("store", taken, tables.render_store, partial=partial, is_whole=is_whole)


def run_growth(args: argparse.Namespace) -> None:
    rows = growth.measure_growth((200, 1_000) if args.quick else tuple(args.sizes))
    partial = "quick" if args.quick else ""
    publish_figures("growth", {"rows": rows}, tables.render_growth, partial=partial)
