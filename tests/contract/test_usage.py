"""What each model took of a session: sums that hold whatever happens to the session."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from rekindle import Session, Store, Tokens, open_store
from rekindle.errors import NotFound
from rekindle.store import Filter
from rekindle.store.core.engine import Transaction
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Usage
from tests.conftest import Clock
from tests.contract.messages import user

A_CENT = Decimal("0.01")


def begun(store: Store, id: str = "one", model: str | None = "small") -> Session:
    session = store.begin(id=id, model=model, owner="ada")
    store.append(session, user("hello"))
    return session


def changed(store: Store, sql: str, *values: object) -> None:
    """Change the database behind the store's back."""

    def work(tx: Transaction) -> None:
        tx.run(sql, values)

    store._write(work)  # pyright: ignore[reportPrivateUsage]


def test_a_session_that_switched_models_keeps_the_sums_of_each(store: Store) -> None:
    session = begun(store)
    store.add_usage(session, Tokens(10, 1), A_CENT, model="small")
    store.add_usage(session, Tokens(500, 50, 5), Decimal("0.25"), model="large")
    counted = store.add_usage(session, Tokens(20, 2), A_CENT, model="small")
    assert (counted.tokens, counted.cost) == (Tokens(530, 53, 5), Decimal("0.27"))
    assert store.usage(session) == {
        "small": Usage(Tokens(30, 3), Decimal("0.02")),
        "large": Usage(Tokens(500, 50, 5), Decimal("0.25")),
    }
    assert store.session("one").model == "small", "the one it was begun with"


def test_what_no_model_is_named_for_goes_to_the_models_of_the_session(store: Store) -> None:
    own = begun(store, "own")
    store.add_usage(own, Tokens(7), A_CENT)
    store.add_usage(own, Tokens(3), model="large")
    assert store.usage(own) == {"large": Usage(Tokens(3)), "small": Usage(Tokens(7), A_CENT)}
    unknown = begun(store, "unknown", model=None)
    store.add_usage(unknown, Tokens(4))
    assert store.usage(unknown) == {"": Usage(Tokens(4))}
    assert store.usage(begun(store, "fresh")) == {}


def test_a_session_that_gets_another_model_leaves_the_old_one_its_share(store: Store) -> None:
    session = begun(store)
    store.add_usage(session, Tokens(7), A_CENT)
    store.update(session, model="large")
    store.add_usage(session, Tokens(1))
    assert store.usage(session) == {"small": Usage(Tokens(7), A_CENT), "large": Usage(Tokens(1))}


def test_the_usage_of_another_owner_is_not_found(store: Store) -> None:
    session = begun(store)
    assert store.usage(session, owner="ada") == {}
    with pytest.raises(NotFound):
        store.usage(session, owner="bob")


def test_the_whole_store_is_summed_up_by_model_the_most_first(store: Store, clock: Clock) -> None:
    first, second = begun(store, "first"), begun(store, "second", model="large")
    store.add_usage(first, Tokens(10), A_CENT, model="large")
    store.add_usage(first, Tokens(5))
    store.add_usage(second, Tokens(100), A_CENT)
    store.add_usage(begun(store, "third", model=None), Tokens(1))
    assert store.stats().by_model == {
        "large": Usage(Tokens(110), Decimal("0.02")),
        "small": Usage(Tokens(5)),
        "": Usage(Tokens(1)),
    }
    assert [*store.stats().by_model] == ["large", "small", ""]
    clock.forward(90_000)
    store.prune(Filter(model="large"))
    assert store.stats().by_model["large"] == Usage(Tokens(10), A_CENT), "of the first session"


def test_an_import_that_tells_more_raises_the_share_of_the_sessions_own_model(store: Store) -> None:
    session = begun(store)
    store.add_usage(session, Tokens(10), model="large")
    told = session._replace(tokens=Tokens(25), cost=A_CENT)
    store.import_batch([SessionImport(told, [], is_complete=True)])
    assert store.usage(session) == {"large": Usage(Tokens(10)), "small": Usage(Tokens(15), A_CENT)}


def test_a_copy_has_the_same_sums_of_each_model(store: Store, tmp_path: Path, clock: Clock) -> None:
    session = begun(store)
    store.add_usage(session, Tokens(10, 1), A_CENT, model="large")
    store.add_usage(session, Tokens(2))
    with open_store(tmp_path / "copy.db", clock=clock) as copy:
        store.copy_to(copy)
        assert copy.usage("one") == store.usage("one")
        store.append(session, user("more"))
        store.add_usage(session, Tokens(5), model="large")
        store.copy_to(copy)
        assert copy.usage("one") == store.usage("one")
        assert copy.verify() == []


def test_a_line_of_usage_that_cannot_be_is_left_out_and_said(store: Store) -> None:
    lines = [
        {"type": "session", "format": 1, "id": "x", "source": "local"},
        {"type": "message", "position": 0, "role": "user", "content": "hi"},
        {"type": "usage", "model": "small", "tokens": {"input": -1}},
        {"type": "usage", "model": "small", "cost": "NaN"},
        {"type": "usage", "model": 7},
    ]
    report = store.load(json.dumps(line).encode() for line in lines)
    assert (report.sessions, len(report.skipped)) == (1, 3)
    assert store.usage("x") == {}


def test_sums_that_are_too_small_are_found_and_mended(
    store: Store, reopened: Callable[[], Store]
) -> None:
    session = begun(store)
    store.add_usage(session, Tokens(10, 1), A_CENT, model="small")
    changed(store, "UPDATE sessions SET tokens_input = 3")
    assert [finding.check for finding in store.verify()] == ["usage"]
    assert any("recomputed tokens and cost" in line for line in store.repair())
    assert (store.verify(), store.session("one").tokens) == ([], Tokens(10, 1))


def test_purging_a_session_takes_its_usage_along(store: Store, clock: Clock) -> None:
    session = begun(store)
    store.add_usage(session, Tokens(10), model="small")
    clock.forward(90_000)
    store.prune(Filter())
    clock.forward(10 * 86_400)
    assert store.purge() == 1
    assert store.verify() == []
    assert store.stats().by_model == {}


def test_messages_take_along_what_models_used_for_them(store: Store) -> None:
    begun(store)
    store.add_usage("one", Tokens(1, 1))
    together, apart = begun(store, "together"), begun(store, "apart")
    for session in (together, apart):
        store.add_usage(session, Tokens(7, 5), A_CENT)
    used = {"small": Tokens(10, 2), "large": Tokens(3, 4, cache_read=5)}
    store.append(together, user("next"), used=used)
    store.append(apart, user("next"))
    for model, tokens in used.items():
        store.add_usage(apart, tokens, model=model)
    assert store.usage("together") == store.usage("apart")
    assert store.session("together").tokens == store.session("apart").tokens
    sums = [one[1:] for one in store.sum_session_usage(["together"], lambda _: 0)]
    assert [one[1:] for one in sums] == [
        one[2:] for one in store.sum_session_usage(["apart"], lambda _: 0)
    ]
    assert store.verify() == []


def test_what_models_used_is_not_stored_without_the_messages(store: Store) -> None:
    with pytest.raises(NotFound):
        store.append("nowhere", user("hello"), used={"small": Tokens(1, 1)})
    session = begun(store)

    def fail() -> None:
        store.append(session, user("next"), used={"small": Tokens(1, 1)})
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        store.transaction(fail)
    assert store.session("one").tokens == Tokens()
    assert store.usage("one") == {}
