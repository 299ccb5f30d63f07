"""CPU time of `usage` and `insights` for many sessions that are already judged and learned."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench import report
from bench.workload import SEED

SESSIONS = 10_000
PROJECTS, CALLS, ROUNDS = 20, 8, 5
USAGE_LIMIT_MS = 300
_COMMANDS = ("npm test", "go test ./...", "ls", "make build")


def make_sessions(count: int) -> Iterator[object]:
    """Yield sessions of a few projects, some with failing commands, with usage in two quarters."""
    from rekindle import Message, Session, Tokens, ToolCall
    from rekindle.store.transfer.bulk_import import SessionImport
    from rekindle.types import QUARTER_SECONDS, UsageEntry

    chances = random.Random(f"{SEED}:sums")
    for number in range(count):
        started = 1_760_000_000.0 + number * 1_800
        project, model = f"app{number % PROJECTS}", "claude-sonnet-4-5"
        session = Session(
            f"sums-{number:06}", source="claude-code", started=started, cwd=f"/work/{project}",
            repository=f"https://example.org/owner/{project}", model=model,
        )  # fmt: skip
        said = [Message("user", "Please mend it.", timestamp=started, platform_message_id="u")]
        for turn in range(CALLS):
            call = ToolCall(
                f"toolu_{number:06}aB{turn}Cd", "Bash", {"command": chances.choice(_COMMANDS)}
            )
            failed = chances.random() < 0.1
            at = started + 60 * turn
            said += [
                Message("assistant", tool_calls=(call,), timestamp=at, platform_message_id=f"a{turn}"),
                Message(
                    "tool", "error: bad token" if failed else "done", tool_call_id=call.id,
                    meta={"exit_code": int(failed)}, timestamp=at + 30, platform_message_id=f"t{turn}",
                ),
            ]  # fmt: skip
        quarter = int(started) // QUARTER_SECONDS
        usage = [UsageEntry(quarter + n, model, Tokens(input=1_000, output=100)) for n in range(2)]
        yield SessionImport(session, said, is_complete=True, usage=usage)


def measure_sums(folder: Path, count: int) -> dict[str, float]:
    """Return the median CPU time of each report in milliseconds."""
    from rekindle import learn_from_sessions, open_store
    from rekindle.analytics.usage.pricing import PriceList
    from rekindle.analytics.usage.report import build_report
    from rekindle.cli.insights.loading import load_insights
    from rekindle.cli.insights.usage import get_offset
    from rekindle.cli.session_choice import parse_filter, select_sessions
    from rekindle.config.prices import load_price_table
    from rekindle.parallel import SERIAL

    prices = PriceList(load_price_table()[1])
    with open_store(folder / "rekindle.db", durability="relaxed") as store:
        made = [*make_sessions(count)]
        for start in range(0, count, 500):
            store.import_batch(made[start : start + 500])  # pyright: ignore[reportArgumentType]
        learn_from_sessions(store)

        def sum_usage(by: str | None, period: str | None) -> None:
            sums = store.sum_usage(get_offset, by=by)  # pyright: ignore[reportArgumentType]
            build_report(sums, prices, period, is_keyed=by is not None)  # pyright: ignore

        def sum_up(*, overview: bool) -> None:
            selection = select_sessions(store, parse_filter(None))
            load_insights(
                store, selection, SERIAL, with_overview=overview, with_statistics=not overview
            )

        load_insights(
            store, select_sessions(store, parse_filter(None)), SERIAL,
            with_overview=True, with_statistics=True,
        )  # fmt: skip
        return {
            "usage by day": _time_work(lambda: sum_usage(None, "day")),
            "usage by session": _time_work(lambda: sum_usage("session", None)),
            "insights": _time_work(lambda: sum_up(overview=True)),
            "insights --statistics": _time_work(lambda: sum_up(overview=False)),
        }


def _time_work(work: Callable[[], None]) -> float:
    taken: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        taken.append((time.process_time() - start) * 1e3)
    return median(taken)


def build_table(taken: dict[str, float], count: int) -> str:
    lines = [
        "## Usage and insights",
        "",
        f"CPU time for {count:,} sessions of {CALLS} calls, already judged and learned, without the"
        f" start of Python; medians of {ROUNDS} rounds. Limit for usage: {USAGE_LIMIT_MS} ms.",
        "",
        "| | ms |",
        "|---|---|",
        *(f"| `{name}` | {value:,.0f} |" for name, value in taken.items()),
    ]
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small store; writes no results")


def run(args: argparse.Namespace) -> None:
    count = SESSIONS // 20 if args.quick else SESSIONS
    with tempfile.TemporaryDirectory() as folder:
        table = build_table(measure_sums(Path(folder), count), count)
    print(table)
    if not args.quick:
        report.write_section("sums", table)
