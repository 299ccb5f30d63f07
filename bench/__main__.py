"""The bench's command line."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime

from . import (
    agents,
    attacks,
    choosing,
    gateway,
    growth,
    hooks,
    importing,
    integrations,
    judging,
    learning,
    matrix,
    parallel,
    picker,
    processes,
    recall,
    redaction,
    refresh,
    report,
    sandbox,
    scale,
    schedule,
    store_run,
    sums,
    web,
)
from .contestants import PEERS
from .runner import WORK, alone
from .warm import command as warm


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    store = commands.add_parser("store", help="the store against raw floors and peers")
    store.add_argument("--quick", action="store_true", help="a small slice; writes no results file")
    store.add_argument(
        "--keep-peers",
        action="store_true",
        help="floors and Rekindle anew, peers as the last whole run found them",
    )
    store.add_argument("--only", action="append", choices=store_run.ROWS, help="this row only")
    store.add_argument(
        "--no-peers", action="store_true", help="floors and Rekindle only; writes no results file"
    )
    store.add_argument(
        "--peer", action="append", choices=PEERS, help="this peer only; writes no results file"
    )
    curve = commands.add_parser("growth", help="how the store behaves as it grows")
    curve.add_argument("--sizes", type=int, nargs="+", default=list(growth.SIZES), metavar="N")
    curve.add_argument(
        "--quick", action="store_true", help="two small sizes; writes no results file"
    )
    importing.add_arguments(commands.add_parser("import", help="an import against its floor"))
    gateway.add_arguments(commands.add_parser("gateway", help="time before the model, and a crowd"))
    choosing.add_arguments(commands.add_parser("choose", help="the start of a warm session"))
    recall.add_arguments(commands.add_parser("recall", help="recall on real histories"))
    agents.add_arguments(commands.add_parser("agents", help="an experiment on real agents"))
    hooks.add_arguments(commands.add_parser("hooks", help="what an agent waits for a hook"))
    refresh.add_arguments(commands.add_parser("refresh", help="what reading pays to be fresh"))
    redaction.add_arguments(
        commands.add_parser("redact", help="hostile, ordinary and planted text")
    )
    learning.add_arguments(commands.add_parser("learn", help="learning against reading the rows"))
    matrix.add_arguments(commands.add_parser("matrix", help="many rooms through a real Synapse"))
    parallel.add_arguments(
        commands.add_parser("parallel", help="one process, a pool, and a Dask cluster")
    )
    sums.add_arguments(commands.add_parser("sums", help="usage and insights over many sessions"))
    processes.add_arguments(commands.add_parser("processes", help="background processes and peers"))
    integrations.add_arguments(
        commands.add_parser("integrations", help="turns in other frameworks")
    )
    picker.add_arguments(commands.add_parser("picker", help="first paint and keystrokes"))
    sandbox.add_arguments(commands.add_parser("sandbox", help="start of a confined command"))
    scale.add_arguments(commands.add_parser("scale", help="one PostgreSQL for many machines"))
    schedule.add_arguments(commands.add_parser("schedule", help="idle cost and delay of jobs"))
    attacks.add_arguments(commands.add_parser("attacks", help="attacks from inside the sandbox"))
    warm.add_arguments(commands.add_parser("warm", help="warm starts with a real model"))
    web.add_arguments(commands.add_parser("web", help="pages in a real browser"))
    judging.add_arguments(commands.add_parser("judge", help="verdicts against hidden labels"))
    return parser.parse_args()


def keep(section: str, taken: dict, whole: bool) -> dict:
    """Put the figures beside those already kept; a run of single rows replaces just these."""
    file = WORK / f"{section}.json"
    kept = {} if whole or not file.exists() else json.loads(file.read_text())
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    dates = kept.get("dates", {}) | dict.fromkeys(taken["rows"], now)
    rows = kept.get("rows", {}) | taken.pop("rows")
    taken = {key: kept.get(key, {}) | value for key, value in taken.items()}
    # A table stays that of its whole run, even with some rows taken again.
    told = kept.get("command", "python -m bench " + " ".join(sys.argv[1:]))
    merged = {
        **kept,
        "command": told,
        **taken,
        "rows": rows,
        "dates": dates,
        "machine": report.machine(),
        "date": now,
    }
    file.write_text(json.dumps(merged, indent=1))
    return merged


def measure_store(args: argparse.Namespace) -> None:
    peers = () if args.no_peers or args.keep_peers else tuple(args.peer or PEERS)
    size = store_run.QUICK if args.quick else store_run.Size()
    run = store_run.StoreRun(size, peers)
    rows = store_run.measure(run, tuple(args.only or store_run.ROWS))
    run.clean()
    taken = {"rows": rows, "missing": run.missing, "versions": run.versions}
    partial = "quick" if args.quick else "peerless" if args.no_peers or args.peer else ""
    if args.keep_peers and not partial:
        kept = json.loads((WORK / "store.json").read_text())
        taken["rows"] = {row: kept["rows"].get(row, {}) | rows[row] for row in rows}
        taken["peers"] = {"date": kept.get("peers", {}).get("date", kept["date"])}
    finish("store", taken, partial, whole=not (args.only or args.keep_peers))


def measure_growth(args: argparse.Namespace) -> None:
    rows = growth.measure((200, 1_000) if args.quick else tuple(args.sizes))
    finish("growth", {"rows": rows}, "quick" if args.quick else "", whole=True)


def measure_import(args: argparse.Namespace) -> None:
    finish("importing", importing.measure(args.quick), "quick" if args.quick else "", whole=True)


def finish(section: str, taken: dict, partial: str, whole: bool) -> None:
    """Show the tables; only a run of full size with every peer goes into the results file."""
    kept = keep(f"{section}-{partial}" if partial else section, taken, whole)
    text = getattr(report, section)(kept)
    print(text)
    if not partial:
        report.write(section, text)


if __name__ == "__main__":
    args = parse()
    if args.command == "judge":
        judging.run(args)
        raise SystemExit
    with alone():
        if section := {
            "gateway": gateway,
            "choose": choosing,
            "recall": recall,
            "agents": agents,
            "attacks": attacks,
            "hooks": hooks,
            "redact": redaction,
            "refresh": refresh,
            "integrations": integrations,
            "learn": learning,
            "matrix": matrix,
            "parallel": parallel,
            "picker": picker,
            "sums": sums,
            "processes": processes,
            "sandbox": sandbox,
            "scale": scale,
            "schedule": schedule,
            "warm": warm,
            "web": web,
        }.get(args.command):
            section.run(args)
            raise SystemExit
        {"store": measure_store, "growth": measure_growth, "import": measure_import}[args.command](
            args
        )
