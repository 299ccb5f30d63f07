"""When tokens were used: sums over local days, by key, on both engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from rekindle import Session, Store, Tokens, open_store
from rekindle.analytics.usage.report import to_day
from rekindle.store import Filter
from rekindle.store.sessions.usage_entries import UsageKey, find_offsets
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import QUARTER_SECONDS, Message, UsageEntry
from tests.conftest import Clock

KATHMANDU = ZoneInfo("Asia/Kathmandu")  # 5:45 ahead of UTC
BERLIN = ZoneInfo("Europe/Berlin")
A_CENT = Decimal("0.01")


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def entry(text: str, model: str = "small", tokens: int = 1, **more: int | Decimal) -> UsageEntry:
    quarter = int(seconds(text)) // QUARTER_SECONDS
    return UsageEntry(quarter, model, Tokens(input=tokens), **more)  # pyright: ignore


def store_session(store: Store, id: str, *entries: UsageEntry, **fields: str) -> None:
    total = Tokens(input=sum(one.tokens.input for one in entries))
    started = seconds("2026-01-01T12:00")
    session = Session(id, source="codex", started=started, tokens=total)._replace(**fields)
    message = Message(role="user", content="hello", timestamp=started, platform_message_id="m")
    store.import_batch([SessionImport(session, [message], is_complete=True, usage=entries)])


def offset_in(zone: ZoneInfo) -> Callable[[float], int]:
    def get_offset(at: float) -> int:
        offset = datetime.fromtimestamp(at, zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    return get_offset


def sum_days(store: Store, zone: ZoneInfo, **more: float) -> dict[str, int]:
    return {
        datetime.fromtimestamp(one.day * 86_400, UTC).date().isoformat(): one.tokens.input
        for one in store.sum_usage(offset_in(zone), **more)  # pyright: ignore
    }


def test_the_quarters_in_which_a_session_used_a_model_are_counted_once(store: Store) -> None:
    store_session(
        store,
        "busy",
        entry("2026-01-01T12:01"),
        entry("2026-01-01T12:02", "large"),
        entry("2026-01-01T12:50"),
    )
    store_session(store, "idle")
    assert store.count_active_quarters(["busy", "idle", "unknown"]) == {"busy": 2}


def test_a_day_is_the_day_of_the_place(store: Store) -> None:
    store_session(store, "one", entry("2026-01-31T18:14"), entry("2026-01-31T18:15", tokens=10))
    assert sum_days(store, ZoneInfo("UTC")) == {"2026-01-31": 11}
    assert sum_days(store, KATHMANDU) == {"2026-01-31": 1, "2026-02-01": 10}


def test_a_day_of_another_offset_is_counted_by_its_own(store: Store, clock: Clock) -> None:
    clock.now = seconds("2026-07-01T00:00")
    store_session(
        store,
        "one",
        entry("2026-03-28T22:59"),  # before midnight, one hour ahead of UTC
        entry("2026-03-28T23:00", tokens=10),
        entry("2026-03-29T21:59", tokens=100),  # two hours ahead since this day
        entry("2026-03-29T22:00", tokens=1000),
    )
    days = {"2026-03-28": 1, "2026-03-29": 110, "2026-03-30": 1000}
    assert sum_days(store, BERLIN) == days
    since = datetime(2026, 3, 29, tzinfo=BERLIN).timestamp()
    assert sum_days(store, BERLIN, since=since) == {"2026-03-29": 110, "2026-03-30": 1000}


def test_days_between_changes_of_prices_are_added_up(store: Store, clock: Clock) -> None:
    clock.now = seconds("2026-07-01T00:00")
    store_session(
        store,
        "one",
        entry("2026-03-27T22:59"),
        entry("2026-03-27T23:00", tokens=10),  # midnight in Berlin
        entry("2026-03-29T12:00", tokens=100),
        entry("2026-03-29T22:00", tokens=1000),  # midnight there, in summer
    )
    days = [to_day(date(2026, 3, 30)), to_day(date(2026, 3, 28))]
    found = store.sum_usage(offset_in(BERLIN), days=days)
    assert [(one.day, one.tokens.input) for one in found] == [
        (0, 1), (days[1], 110), (days[0], 1000),
    ]  # fmt: skip
    (all_days,) = store.sum_usage(offset_in(BERLIN), days=[])
    assert all_days.tokens.input == 1111


def test_changes_of_the_clock_are_found_to_the_quarter() -> None:
    first, last = (int(seconds(text)) // 900 for text in ("2024-01-01T00:00", "2026-01-01T00:00"))
    found = find_offsets(first, last, offset_in(BERLIN))
    times = [datetime.fromtimestamp(one.quarter * 900, UTC).isoformat()[:16] for one in found]
    assert times == [
        "2024-01-01T00:00", "2024-03-31T01:00", "2024-10-27T01:00", "2025-03-30T01:00",
        "2025-10-26T01:00",
    ]  # fmt: skip
    assert [one.seconds for one in found] == [3600, 7200, 3600, 7200, 3600]


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("model", {"small": 101, "large": 10}),
        ("agent", {"codex": 11, "pi": 100}),
        ("session", {"one": 11, "two": 100}),
        ("project", {"github.com/a/b": 11, "folder:/src/shop": 100}),
        (None, {"": 111}),
    ],
)
def test_usage_is_added_up_by_key(store: Store, by: UsageKey | None, keys: dict[str, int]) -> None:
    large = entry("2026-01-01T12:00", "large", 10)
    store_session(store, "one", entry("2026-01-01T12:00"), large, repository="github.com/a/b")
    store_session(store, "two", entry("2026-01-01T12:30", tokens=100), source="pi", cwd="/src/shop")
    found: dict[str, int] = {}
    for one in store.sum_usage(lambda _: 0, by=by):
        found[one.key] = found.get(one.key, 0) + one.tokens.input
    assert found == keys
    where = Filter(projects=("folder:/src/shop", "/none"))
    only = store.sum_usage(lambda _: 0, by="session", where=where)
    assert [one.key for one in only] == ["two"]


def test_kinds_of_prompts_and_reported_costs_are_kept_apart(store: Store) -> None:
    store_session(
        store,
        "one",
        entry("2026-01-01T12:00", cache_write_1h=3),
        entry("2026-01-01T12:15", cache_write_1h=4),
        entry("2026-01-01T12:15", above=200_000),
        entry("2026-01-01T12:30", cost=A_CENT),
        entry("2026-01-01T12:45", cost=A_CENT),
    )
    found = [
        (one.above, one.is_reported, one.tokens.input, one.cache_write_1h, one.cost)
        for one in store.sum_session_usage(["one"], lambda _: 0)
    ]
    assert found == [
        (0, False, 2, 7, 0),
        (0, True, 2, 0, 2 * A_CENT),
        (200_000, False, 1, 0, 0),
    ]


def test_importing_again_counts_nothing_twice_and_adds_what_is_new(store: Store) -> None:
    first = entry("2026-01-01T12:00", tokens=5)
    store_session(store, "one", first)
    store_session(store, "one", first)
    store_session(store, "one", first._replace(tokens=Tokens(7)), entry("2026-01-02T12:00"))
    assert sum_days(store, ZoneInfo("UTC")) == {"2026-01-01": 7, "2026-01-02": 1}


def test_a_session_without_entries_counts_on_its_first_day(store: Store, clock: Clock) -> None:
    session = store.begin(id="old", model="small", started=seconds("2026-01-05T23:00"))
    store.append(session, Message(role="user", content="hello"))

    def forget_entries() -> None:  # as a store of an older version
        store._write(lambda tx: tx.run("DELETE FROM usage_entries"))  # pyright: ignore

    clock.now = seconds("2026-01-07T12:00")
    store.add_usage(session, Tokens(5), model="large")
    store.add_usage(session, Tokens(2))
    forget_entries()
    found = {one.model: one.tokens.input for one in store.sum_usage(lambda _: 0)}
    assert found == {"large": 5, "small": 2}
    assert sum_days(store, ZoneInfo("UTC")) == {"2026-01-05": 2}, "one of both models"
    store.add_usage(session, Tokens(100))
    days = {(one.day % 7, one.model): one.tokens.input for one in store.sum_usage(lambda _: 0)}
    assert sorted(days.values()) == [2, 5, 100], "the earlier usage is not lost"


def test_what_an_agent_of_ours_uses_counts_when_it_is_used(store: Store, clock: Clock) -> None:
    clock.now = seconds("2026-01-05T12:00")
    session = store.begin(id="own", model="small")
    store.append(session, Message(role="user", content="hello"))
    store.add_usage(session, Tokens(5), A_CENT)
    clock.now += 86_400
    store.add_usage(session, Tokens(7), A_CENT)
    assert sum_days(store, ZoneInfo("UTC")) == {"2026-01-05": 5, "2026-01-06": 7}
    assert sum(one.cost for one in store.sum_usage(lambda _: 0)) == 2 * A_CENT


def test_pruned_sessions_do_not_count_and_purged_ones_leave_nothing(
    store: Store, clock: Clock
) -> None:
    store_session(store, "one", entry("2026-01-01T12:00"))
    clock.now = seconds("2026-06-01T12:00")
    store.prune(Filter())
    assert store.sum_usage(lambda _: 0) == []
    clock.now += 1.0
    assert store.purge(older_than=0.0) == 1
    count = "SELECT count(*) FROM usage_entries"
    assert store._write(lambda tx: tx.run(count)) == [(0,)]  # pyright: ignore


def test_a_copy_has_the_same_entries(store: Store, tmp_path: Path) -> None:
    odd = entry("2026-01-01T12:15", "odd\0name", cost=A_CENT, above=200_000)
    store_session(store, "one", entry("2026-01-01T12:00", cache_write_1h=1), odd)
    lines = [*store.dump()]
    assert sum(json.loads(line)["type"] == "usage_entry" for line in lines) == 2
    with open_store(tmp_path / "copy.db") as copy:
        assert copy.load(lines).skipped == []
        assert [*copy.dump()] == lines
        assert copy.sum_usage(lambda _: 0) == store.sum_usage(lambda _: 0)


def test_a_damaged_entry_is_skipped_and_costs_no_other(store: Store, tmp_path: Path) -> None:
    store_session(store, "one", entry("2026-01-01T12:00"))
    lines = [*store.dump()]
    bad = b'{"type": "usage_entry", "quarter": -1, "model": "small", "tokens": {}}'
    worse = b'{"type": "usage_entry", "quarter": "now", "model": 5}'
    with open_store(tmp_path / "copy.db") as copy:
        assert len(copy.load([*lines, bad, worse]).skipped) == 2
        assert len(copy.sum_usage(lambda _: 0)) == 1
