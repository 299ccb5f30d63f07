"""Reads and appends of a PostgreSQL store as its tables grow: times, pages and plans."""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median, quantiles
from typing import Any

from bench import report
from bench.environments import ROOT
from bench.runner import Figures
from bench.workload import MESSAGES, SEED, build_vocabulary

from .plans import count_pages, explain_statements, find_full_scans

FREE_BYTES = 20 << 30  # that stay free on the disk
BYTES_PER_MESSAGE = 2_500  # assumed before the first load
COUNTED = 100  # calls of each operation whose pages are counted
PRUNED = 100  # sessions that are deleted at each size
MATCHES = ((0, 1), (1, 50), (50, 200), (200, 500), (500, None))
OPERATIONS = {
    "append": "durable append",
    "load": "load 40 messages",
    "list": "50 most recent sessions",
    "list_project": "20 most recent of a project",
    "best": "two-word search, best first",
    "newest": "two-word search, newest first",
    "common": "search of one of the 100 most common words",
    "rare": "search of a word that one message has",
    "project": "two-word search in a project",
    "source": "two-word search in the sessions of one agent",
    "prefix": "search of the beginning of a word",
    "title": "search of titles",
}


def measure_growth(
    url: str, sizes: Iterable[float], sessions: int = 0, text: int = 0, is_load: bool = False
) -> Iterator[tuple[float, Figures]]:
    """Fill one database up to each size in turn, as far as the disk has room, and measure."""
    from .synthetic_data import add_sessions

    per_message = BYTES_PER_MESSAGE
    for size in sizes:
        wanted = round(size * 1e6 / MESSAGES)
        free = shutil.disk_usage(ROOT).free
        # The log of a bulk load and the sorting of its indexes need room, too.
        if free - (wanted - sessions) * MESSAGES * per_message * 1.5 < FREE_BYTES:
            print(f"  {size:g} million: not enough room on the disk", flush=True)
            return
        figures: Figures = {}
        if wanted > sessions:
            figures = add_sessions(url, sessions + 1, wanted)
            sessions, text = wanted, text + figures.pop("text_bytes")
            figures["text_bytes"] = text
        figures |= {"messages": sessions * MESSAGES, "sessions": sessions}
        figures |= measure_sizes(url)
        per_message = figures["disk_bytes"] / (sessions * MESSAGES)
        if not is_load:
            figures |= measure_operations(url, sessions)
            retention = measure_retention(url)
            figures["plans"]["prune"] = retention.pop("plans")
            figures |= retention
        shown = {key: value for key, value in figures.items() if not isinstance(value, dict)}
        print(f"  {size:g} million: {shown}", flush=True)
        yield size, figures


def measure_sizes(url: str) -> Figures:
    import psycopg

    relations = (
        "SELECT relname, relkind::text, CASE WHEN relkind = 'r' THEN pg_table_size(oid)"
        " ELSE pg_relation_size(oid) END FROM pg_class"
        " WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace ORDER BY 3 DESC"
    )
    with psycopg.connect(url) as connection:
        rows = connection.execute(relations).fetchall()
    return {
        "disk_bytes": sum(size for _, _, size in rows),
        "table_bytes": {name: size for name, kind, size in rows if kind == "r" and size > 1 << 16},
        "index_bytes": {name: size for name, kind, size in rows if kind == "i" and size > 1 << 16},
    }


def make_operations(store: Any, sessions: int) -> dict[str, tuple[Callable[[Any], Any], list[Any]]]:
    """Return what is measured, each with its inputs."""
    from bench.peers.rekindle import build_message
    from bench.workload import make_conversation
    from rekindle import Filter

    from .synthetic_data import PROJECTS

    rng = random.Random(f"{SEED}:probe")
    words = [word for word in build_vocabulary() if word.isalpha()]
    bands = ((10, 100), (50, 500), (200, 3_000), (1_000, len(words)))
    pairs = [" ".join(rng.sample(words[slice(*bands[n % 4])], 2)) for n in range(200)]
    new = store.begin(id=f"new-{sessions}")
    said = [
        build_message(one)
        for index in range(5)
        for one in make_conversation(index + 10**6).messages
    ]
    ids = [make_id(rng.randrange(sessions // 10, sessions + 1)) for _ in range(200)]
    numbers = [rng.randrange(1, sessions * MESSAGES + 1) for _ in range(100)]
    projects = [
        Filter(projects=(f"example.com/team/project-{rng.randrange(PROJECTS)}",))
        for _ in range(100)
    ]
    return {
        "append": (lambda one: store.append(new, one), said),
        "load": (store.messages, ids),
        "list": (lambda _: store.recent(50), [0] * 100),
        "list_project": (lambda where: store.recent(20, where=where), projects),
        "best": (store.search, pairs),
        "newest": (lambda text: store.search(text, order="newest"), pairs),
        "common": (store.search, words[:100]),
        "rare": (lambda number: store.search(f"u{number}"), numbers),
        "project": (
            lambda one: store.search(one[0], where=one[1]),
            [*zip(pairs, projects * 2, strict=False)][:100],
        ),
        "source": (
            lambda text: store.search(text, where=Filter(source="codex")),
            pairs[:100],
        ),
        "prefix": (store.search, [f"{word[:4]}*" for word in words[500:2_500:20]]),
        "title": (
            store.search_titles,
            [f"plan {rng.randrange(1, sessions // 2) * 2}" for _ in range(50)],
        ),
    }


def make_id(number: int) -> str:
    """Return the id of a session, as the server made it."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def measure_operations(url: str, sessions: int) -> Figures:
    """Measure each operation, after one that warms it up, and explain what it runs."""
    from rekindle import open_store

    figures: Figures = {"plans": {}}
    with open_store(url) as store:
        for name, (work, inputs) in make_operations(store, sessions).items():
            work(inputs[0])
            taken: list[float] = []
            for value in inputs[1:]:
                begun = time.perf_counter()
                work(value)
                taken.append((time.perf_counter() - begun) * 1e3)
            figures |= {f"{name}_p50": median(taken), f"{name}_p95": quantiles(taken, n=20)[18]}
            if name != "append":
                pages = count_pages(work, inputs[:COUNTED])
                figures |= {
                    f"{name}_pages": median(pages),
                    f"{name}_pages_p95": quantiles(pages, n=20)[18],
                }
                if name == "best":
                    figures["by_matches"] = group_by_matches(url, inputs[:COUNTED], pages)
            with explain_statements() as plans:
                work(inputs[1])
                work(inputs[-1])
            figures["plans"][name] = plans
    return figures


def explain_operations(url: str, sessions: int) -> dict[str, list[Figures]]:
    """Explain what each operation runs."""
    from rekindle import open_store

    found: dict[str, list[Figures]] = {}
    with open_store(url) as store:
        for name, (work, inputs) in make_operations(store, sessions).items():
            work(inputs[0])
            with explain_statements() as plans:
                for value in (inputs[1], inputs[len(inputs) // 2], inputs[-1]):
                    work(value)
            found[name] = plans
    found["prune"] = measure_retention(url)["plans"]
    return found


def group_by_matches(
    url: str, pairs: Sequence[str], pages: Sequence[int]
) -> dict[str, tuple[float, int]]:
    """Return the median of the pages, and the number of searches, by how many messages match."""
    import psycopg

    groups: dict[str, list[int]] = {}
    with psycopg.connect(url) as connection:
        connection.execute("SET enable_seqscan = off")
        for pair, count in zip(pairs, pages, strict=True):
            sql = "SELECT count(*) FROM (SELECT FROM words WHERE text @@ %s::tsquery LIMIT %s) w"
            row = connection.execute(sql, (pair.replace(" ", " & "), MATCHES[-1][0])).fetchone()
            assert row is not None
            low = max(low for low, _ in MATCHES if low <= row[0])
            groups.setdefault(str(low), []).append(count)
    return {low: (median(found), len(found)) for low, found in groups.items()}


def measure_retention(url: str) -> Figures:
    """Delete the oldest sessions as `prune` does, and vacuum the large tables after it.

    So few are deleted that the size stays what it is called.
    """
    import psycopg

    from rekindle import Filter, open_store

    with open_store(url) as store, psycopg.connect(url, autocommit=True) as connection:
        oldest = (
            "SELECT last_active FROM sessions WHERE pruned IS NULL ORDER BY 1 LIMIT 1 OFFSET %s"
        )
        row = connection.execute(oldest, (PRUNED,)).fetchone()
        assert row is not None
        begun = time.perf_counter()
        pruned = store.prune(Filter(until=row[0]))
        store.purge(older_than=0)
        messages = sum(session.message_count for session in pruned)
        taken = time.perf_counter() - begun
        with explain_statements() as plans:
            store.prune_session(store.recent(1, where=Filter(until=row[0] + 600))[0])
            store.purge(older_than=0)
        begun = time.perf_counter()
        for table in ("words", "messages", "sessions"):
            connection.execute(f"VACUUM {table}")  # pyright: ignore
    return {
        "prune_ms": taken / messages * 1e3,
        "prune_vacuum_s": time.perf_counter() - begun,
        "pruned_messages": messages,
        "plans": plans,
    }


def describe_matches(rows: list[Figures], head: list[str]) -> Iterator[str]:
    """Yield the pages of searches by how many messages match."""
    if not all("by_matches" in row for row in rows):
        return
    yield "Pages that a two-word search reads, best first, by how many messages have both words:"
    lines = ["| " + " | ".join(head[:-1]) + " |", "|---" * (len(head) - 1) + "|"]
    for low, high in MATCHES:
        name = f"{low:,} or more" if high is None else f"{low}–{high - 1}" if low else "none"
        found = [row["by_matches"].get(str(low)) for row in rows]
        cells = [f"{one[0]:,.0f} ({one[1]} searches)" if one else "–" for one in found]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    yield "\n".join(lines)


def describe_growth(growth: Figures) -> Iterator[str]:
    sizes = sorted(growth, key=float)
    rows = [growth[size] for size in sizes]
    head = ["", *(f"{float(size):g} million" for size in sizes), "last ÷ first"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]

    def add(name: str, get: Callable[[Figures], float], unit: float = 1) -> None:
        values: list[float | None] = []
        for row in rows:
            try:
                values.append(get(row) / unit)
            except KeyError:  # the command that loaded it was stopped
                values.append(None)
        first, last = values[0], values[-1]
        ratio = f"{last / first:.2f}" if len(values) > 1 and first and last else "–"
        cells = ["–" if value is None else report.format_number(value) for value in values]
        lines.append("| " + " | ".join([name, *cells, ratio]) + " |")

    add("messages", lambda row: row["messages"])
    add("sessions", lambda row: row["sessions"])
    for key, name in OPERATIONS.items():
        add(f"{name}, p50 ms", lambda row: row[f"{key}_p50"])  # noqa: B023
        add(f"{name}, p95 ms", lambda row: row[f"{key}_p95"])  # noqa: B023
    for key, name in OPERATIONS.items():
        if f"{key}_pages" in rows[0]:
            add(f"{name}, pages p50", lambda row: row[f"{key}_pages"])  # noqa: B023
            add(f"{name}, pages p95", lambda row: row[f"{key}_pages_p95"])  # noqa: B023
    add(f"delete the oldest {PRUNED} sessions, ms per message", lambda row: row["prune_ms"])
    add("VACUUM after it, s", lambda row: row["prune_vacuum_s"])
    add("bytes on disk per message", lambda row: row["disk_bytes"] / row["messages"])
    add("bytes on disk per byte of text", lambda row: row["disk_bytes"] / row["text_bytes"])
    add("on disk, GB", lambda row: row["disk_bytes"], 1e9)
    for name in rows[-1]["table_bytes"]:
        add(f"table `{name}`, MB", lambda row: row["table_bytes"].get(name, 0), 1e6)  # noqa: B023
    for name in rows[-1]["index_bytes"]:
        add(f"index `{name}`, MB", lambda row: row["index_bytes"].get(name, 0), 1e6)  # noqa: B023
    add("load of what was added, s", lambda row: row["load_s"])
    add("VACUUM ANALYZE after it, s", lambda row: row["vacuum_s"])
    yield "Reads and appends as the tables grow, one client:"
    yield "\n".join(lines)
    yield from describe_matches(rows, head)
    yield from describe_plans(rows[-1]["plans"], "the largest size")


def describe_plans(plans: dict[str, list[Figures]], size: str) -> Iterator[str]:
    """Yield which plans read a large table from end to end, and how operations read tables."""
    scans = find_full_scans(plans)
    count = sum(map(len, plans.values()))
    yield (
        f"EXPLAIN of the {count} statements that these operations ran at {size}: "
        + ("no plan reads a large table from end to end." if not scans else "**full scans:**")
        + "".join(f"\n- {scan}" for scan in scans)
    )
    used = [
        f"| {name} | {', '.join(sorted({node for plan in found for node in plan['nodes']}))} |"
        for name, found in plans.items()
    ]
    yield "\n".join(["| operation | how tables are read |", "|---|---|", *used])
