"""`python -m soak crash`, `fuzz`, `gateway`, `processes`, `serve`: exit code 1 for a broken promise."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .crash import Start, crash, place
from .journal import entries

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    seed = options.seed if options.seed is not None else int(time.time())
    return options.run(options, seed)


def _crash(options: argparse.Namespace, seed: int) -> int:
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
    commands = parser.add_subparsers(required=True, metavar="crash|fuzz|gateway|processes|serve")
    command = commands.add_parser("crash", help="kill -9 writers at random moments")
    command.add_argument("--kills", type=int, default=200)
    command.add_argument("--writers", type=int, default=4)
    command.add_argument("--seed", type=int, help="of what is done and when; default: the time")
    command.add_argument(
        "--target",
        help="a path or a postgresql:// URL, new or empty; `postgresql` starts a server and"
        " restarts it too; default: a temporary SQLite file",
    )
    command.set_defaults(run=_crash)
    command = commands.add_parser("fuzz", help="damaged and hostile transcripts for every reader")
    command.add_argument("--seconds", type=float, default=60.0)
    command.add_argument("--format", action="append", metavar="NAME", help="this format only")
    command.add_argument("--seed", type=int, help="of the damage; default: the time")
    command.add_argument("--case", type=int, help="this case only, of the seed")
    command.add_argument("--corpus", type=Path, default=CORPUS, help="a folder of real transcripts")
    command.set_defaults(run=_fuzz)
    command = commands.add_parser("gateway", help="kill -9 gateways in the middle of conversations")
    command.add_argument("--kills", type=int, default=300)
    command.add_argument("--gateways", type=int, help="default: 1, on PostgreSQL 2")
    command.add_argument("--seed", type=int, help="of what is said and when; default: the time")
    command.add_argument("--target", help="as for crash")
    command.add_argument("--pause", type=float, help="seconds from being ready to being killed")
    command.add_argument(
        "--minutes", type=float, default=float("inf"), help="kill no more after this time"
    )
    command.add_argument(
        "--fork", action="store_true", help="fork gateways off a process that has loaded everything"
    )
    command.add_argument(
        "--record", action="store_true", help="write the figures into bench/RESULTS.md"
    )
    command.set_defaults(run=_gateway)
    command = commands.add_parser("processes", help="start and kill, and kill -9 of their keepers")
    command.add_argument("--cycles", type=int, default=1000)
    command.add_argument("--clients", type=int, default=100, help="kill -9 of clients")
    command.add_argument("--supervisors", type=int, default=20, help="kill -9 of supervisors")
    command.add_argument("--seed", type=int, help="of when and what; default: the time")
    command.set_defaults(run=_processes)
    _add_serve(commands)
    return parser


def _add_serve(commands: Any) -> None:
    command = commands.add_parser("serve", help="many agents push to one server, which is killed")
    command.add_argument("--agents", type=int, default=1000)
    command.add_argument("--minutes", type=float, default=10.0)
    command.add_argument(
        "--interval", type=float, default=2.0, help="seconds between two messages of an agent"
    )
    command.add_argument("--seed", type=int, help="of when agents push; default: the time")
    command.add_argument("--target", help="as for crash")
    command.add_argument(
        "--record", action="store_true", help="write the figures into bench/RESULTS.md"
    )
    command.set_defaults(run=_serve)


def _serve(options: argparse.Namespace, seed: int) -> int:
    from . import serve

    with serve.place(options.target) as (target, folder, kill_database, engine):
        _say(f"{options.agents} agents, {options.minutes:g} minutes, seed {seed}, on {engine}")
        report = serve.serve(
            target,
            folder,
            agents=options.agents,
            seconds=options.minutes * 60,
            interval=options.interval,
            seed=seed,
            kill_database=kill_database,
            say=_say,
        )
        report.engine = engine
        if report.wrong:
            kept = tempfile.mkdtemp(prefix="rekindle-soak-failed-")
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            _say(f"seed {seed}; log and records are kept in {kept}")
    _say(report.summary())
    for one in report.wrong[:40]:
        _say(f"  {one}")
    _say("FAILED" if report.wrong else "every acknowledged message is stored, once")
    if options.record:
        from .serve_results import record

        record(report, seed)
    return 1 if report.wrong else 0


def _processes(options: argparse.Namespace, seed: int) -> int:
    from . import processes

    _say(f"seed {seed}")
    counts = (options.cycles, options.clients, options.supervisors)
    report = processes.run(*counts, seed, _say)
    for one in (*report.said, *(f"  {wrong}" for wrong in report.wrong[:20])):
        _say(one)
    _say("FAILED" if report.wrong else "no process, output or exit code was lost, nothing was left")
    return 1 if report.wrong else 0


def _gateway(options: argparse.Namespace, seed: int) -> int:
    from . import gateway

    begun = time.monotonic()

    def progress(kill: int) -> None:
        if kill % 25 == 0 or kill == options.kills:
            _say(f"{kill}/{options.kills} kills, {time.monotonic() - begun:.0f} s")

    with gateway.place(options.target) as (target, folder):
        shared = target.startswith("postgresql:")
        count = options.gateways or (2 if shared else 1)
        _say(f"{count} gateways, {options.kills} kills, seed {seed}, on {target}")
        report = gateway.gateway(
            target,
            folder,
            kills=options.kills,
            gateways=count,
            seed=seed,
            pause=options.pause or gateway.PAUSE,
            seconds=options.minutes * 60,
            progress=progress,
            start=_find_start(options.fork),
        )
        if report.wrong:
            kept = tempfile.mkdtemp(prefix="rekindle-soak-failed-")
            shutil.copytree(folder.parent, kept, dirs_exist_ok=True, ignore=_ignore_sockets)
            _say(f"seed {seed}; logs, and the store if it is a file, are kept in {kept}")
    _say(report.summary())
    for one in report.wrong[:40]:
        _say(f"  {one}")
    _say("FAILED" if report.wrong else "every message, run and result came once, or says why not")
    if options.record:
        from .gateway_results import record

        engine = "PostgreSQL" if shared else "SQLite"
        record(f"{engine}, {count} gateway{'s' if count > 1 else ''}", report)
    return 1 if report.wrong else 0


def _fuzz(options: argparse.Namespace, seed: int) -> int:
    from . import fuzz
    from .specimens import made, real

    known = [format.name for format in fuzz.FORMATS]
    for name in options.format or ():
        if name not in known:
            _say(f"no format {name!r}; there are {', '.join(known)}")
            return 2
    specimens = [*made(seed), *real(options.corpus)]
    _say(f"{len(specimens)} sound files, {options.seconds:g} s, seed {seed}")
    end = time.monotonic() + options.seconds
    report = fuzz.run(
        specimens,
        seed,
        formats=options.format or (),
        cases=None if options.case is None else range(options.case, options.case + 1),
        until=lambda: options.case is None and time.monotonic() > end,
    )
    counts = ", ".join(f"{name} {count:,}" for name, count in report.by_format.items())
    _say(f"{report.cases:,} damaged files: {counts}")
    for one in report.findings.values():
        again = f"--seed {seed} --format {one.format} --case {one.case}"
        _say(f"  {one.problem}\n    {one.specimen}: {one.what}\n    {one.file}; {again}")
    if report.repeated:
        _say(f"  and {report.repeated:,} times more")
    _say("FAILED" if report.findings else "no crash, no hang, no lost good line")
    return 1 if report.findings else 0


def _find_start(fork: bool) -> Start:
    from .gateway import start_command

    if not fork:
        return start_command
    from tests import command

    return command.start


def _ignore_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


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
