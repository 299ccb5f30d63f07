"""The command line of the crash tests. The exit code is 1 if a promise was broken."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from soak.crash.journal import read_entries
from soak.crash.writer_kills import Start, kill_writers, open_target

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


def main(words: list[str] | None = None) -> int:
    options = _build_parser().parse_args(words)
    seed = options.seed if options.seed is not None else int(time.time())
    return options.run(options, seed)


def _run_crash(options: argparse.Namespace, seed: int) -> int:
    with open_target(options.target) as (target, folder, restart):
        _print_line(f"{options.writers} writers, {options.kills} kills, seed {seed}, on {target}")
        report = kill_writers(
            target,
            folder,
            kills=options.kills,
            writers=options.writers,
            seed=seed,
            restart=restart,
            progress=_Progress(options.kills),
        )
    _print_line("")
    _print_line(report.summarize())
    for one in report.wrong[:20]:
        _print_line(f"  {one}")
    _print_line("FAILED" if report.wrong else "every acknowledged message is stored")
    return 1 if report.wrong else 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="crash|fuzz|gateway|processes|serve")
    command = commands.add_parser("crash", help="kill -9 of writers at random moments")
    command.add_argument("--kills", type=int, default=200)
    command.add_argument("--writers", type=int, default=4)
    command.add_argument("--seed", type=int, help="of the random choices; default: the time")
    command.add_argument(
        "--target",
        help="a path or a postgresql:// URL, new or empty; `postgresql` starts a server and"
        " restarts it too; default: a temporary SQLite file",
    )
    command.set_defaults(run=_run_crash)
    command = commands.add_parser("fuzz", help="damaged and hostile transcripts for every reader")
    command.add_argument("--seconds", type=float, default=60.0)
    command.add_argument(
        "--format", action="append", metavar="NAME", help="only this format (repeatable)"
    )
    command.add_argument("--seed", type=int, help="of the damage; default: the time")
    command.add_argument("--case", type=int, help="only this case of the seed")
    command.add_argument("--corpus", type=Path, default=CORPUS, help="a folder of real transcripts")
    command.set_defaults(run=_run_fuzz)
    command = commands.add_parser("gateway", help="kill -9 of gateways during conversations")
    command.add_argument("--kills", type=int, default=300)
    command.add_argument("--gateways", type=int, help="default: 1, on PostgreSQL 2")
    command.add_argument("--seed", type=int, help="of the random choices; default: the time")
    command.add_argument("--target", help="as for crash")
    command.add_argument("--pause", type=float, help="average seconds between ready and killed")
    command.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop killing after this time"
    )
    command.add_argument(
        "--fork",
        action="store_true",
        help="fork gateways from a process that has loaded all modules",
    )
    command.add_argument(
        "--record", action="store_true", help="write the figures to bench/RESULTS.md"
    )
    command.set_defaults(run=_run_gateway)
    command = commands.add_parser(
        "processes", help="start and kill processes, and kill -9 of clients and supervisors"
    )
    command.add_argument("--cycles", type=int, default=1000)
    command.add_argument("--clients", type=int, default=100, help="kill -9 of clients")
    command.add_argument("--supervisors", type=int, default=20, help="kill -9 of supervisors")
    command.add_argument("--seed", type=int, help="of the random choices; default: the time")
    command.set_defaults(run=_run_processes)
    _add_serve(commands)
    return parser


def _add_serve(commands: Any) -> None:
    command = commands.add_parser("serve", help="kill -9 of a server that many agents push to")
    command.add_argument("--agents", type=int, default=1000)
    command.add_argument("--minutes", type=float, default=10.0)
    command.add_argument(
        "--interval", type=float, default=2.0, help="seconds between two messages of an agent"
    )
    command.add_argument("--seed", type=int, help="of the random choices; default: the time")
    command.add_argument("--target", help="as for crash")
    command.add_argument(
        "--record", action="store_true", help="write the figures to bench/RESULTS.md"
    )
    command.set_defaults(run=_run_serve)


def _run_serve(options: argparse.Namespace, seed: int) -> int:
    from soak.serve import server_kills

    with server_kills.open_target(options.target) as (target, folder, kill_database, engine):
        _print_line(
            f"{options.agents} agents, {options.minutes:g} minutes, seed {seed}, on {engine}"
        )
        report = server_kills.kill_server(
            target,
            folder,
            agents=options.agents,
            seconds=options.minutes * 60,
            interval=options.interval,
            seed=seed,
            kill_database=kill_database,
            say=_print_line,
        )
        report.engine = engine
        if report.wrong:
            kept = tempfile.mkdtemp(prefix="rekindle-soak-failed-")
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            _print_line(f"seed {seed}; log and records are kept in {kept}")
    _print_line(report.summarize())
    for one in report.wrong[:40]:
        _print_line(f"  {one}")
    _print_line("FAILED" if report.wrong else "every acknowledged message is stored, once")
    if options.record:
        from soak.serve.results import record_figures

        record_figures(report, seed)
    return 1 if report.wrong else 0


def _run_processes(options: argparse.Namespace, seed: int) -> int:
    from soak import process_kills

    _print_line(f"seed {seed}")
    counts = (options.cycles, options.clients, options.supervisors)
    report = process_kills.run(*counts, seed, _print_line)
    for one in (*report.said, *(f"  {wrong}" for wrong in report.wrong[:20])):
        _print_line(one)
    _print_line(
        "FAILED"
        if report.wrong
        else "no process, output or exit code was lost, and none was left over"
    )
    return 1 if report.wrong else 0


def _run_gateway(options: argparse.Namespace, seed: int) -> int:
    from soak.gateway import gateway_kills

    begun = time.monotonic()

    def progress(kill: int) -> None:
        if kill % 25 == 0 or kill == options.kills:
            _print_line(f"{kill}/{options.kills} kills, {time.monotonic() - begun:.0f} s")

    with gateway_kills.open_target(options.target) as (target, folder):
        shared = target.startswith("postgresql:")
        count = options.gateways or (2 if shared else 1)
        _print_line(f"{count} gateways, {options.kills} kills, seed {seed}, on {target}")
        report = gateway_kills.kill_gateways(
            target,
            folder,
            kills=options.kills,
            gateways=count,
            seed=seed,
            pause=options.pause or gateway_kills.PAUSE,
            seconds=options.minutes * 60,
            progress=progress,
            start=_find_start(options.fork),
        )
        if report.wrong:
            kept = tempfile.mkdtemp(prefix="rekindle-soak-failed-")
            shutil.copytree(folder.parent, kept, dirs_exist_ok=True, ignore=_ignore_sockets)
            _print_line(f"seed {seed}; logs, and the store if it is a file, are kept in {kept}")
    _print_line(report.summarize())
    for one in report.wrong[:40]:
        _print_line(f"  {one}")
    _print_line(
        "FAILED" if report.wrong else "every message, run and result arrived once or has a reason"
    )
    if options.record:
        from soak.gateway.results import record_figures

        engine = "PostgreSQL" if shared else "SQLite"
        record_figures(f"{engine}, {count} gateway{'s' if count > 1 else ''}", report)
    return 1 if report.wrong else 0


def _run_fuzz(options: argparse.Namespace, seed: int) -> int:
    from soak.fuzz import fuzzing
    from soak.fuzz.specimens import make_specimens, read_specimens

    known = [format.name for format in fuzzing.FORMATS]
    for name in options.format or ():
        if name not in known:
            _print_line(f"unknown format {name!r}; known formats: {', '.join(known)}")
            return 2
    specimens = [*make_specimens(seed), *read_specimens(options.corpus)]
    _print_line(f"{len(specimens)} intact files, {options.seconds:g} s, seed {seed}")
    end = time.monotonic() + options.seconds
    report = fuzzing.run(
        specimens,
        seed,
        formats=options.format or (),
        cases=None if options.case is None else range(options.case, options.case + 1),
        until=lambda: options.case is None and time.monotonic() > end,
    )
    counts = ", ".join(f"{name} {count:,}" for name, count in report.by_format.items())
    _print_line(f"{report.cases:,} damaged files: {counts}")
    for one in report.findings.values():
        again = f"--seed {seed} --format {one.format} --case {one.case}"
        _print_line(f"  {one.problem}\n    {one.specimen}: {one.what}\n    {one.file}; {again}")
    if report.repeated:
        _print_line(f"  and {report.repeated:,} repetitions")
    _print_line("FAILED" if report.findings else "no crash, no hang, no intact line lost")
    return 1 if report.findings else 0


def _find_start(fork: bool) -> Start:
    from soak.gateway.gateway_kills import start_command

    if not fork:
        return start_command
    from tests import command

    return command.start


def _ignore_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


class _Progress:
    """Prints progress: a live counter on a terminal, occasional lines elsewhere."""

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
            said = sum(len(one.tokens) for one in read_entries(folder) if one.what == "appended")
            line += f", {said:,} messages acknowledged"
        _print_line(line, end="\r" if sys.stdout.isatty() else "\n")


def _print_line(line: str, end: str = "\n") -> None:
    sys.stdout.write(line + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
