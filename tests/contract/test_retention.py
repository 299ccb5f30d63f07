from __future__ import annotations

from collections.abc import Callable

import pytest

from rekindle import Store, open_store
from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.store import Filter
from tests.conftest import Clock
from tests.contract.messages import call, found, result, started, texts, user

DAY = 86_400
Reopened = Callable[[], Store]


def old(store: Store, clock: Clock, *names: str, **fields: str) -> None:
    """Sessions that were last used ten days ago."""
    for name in names:
        started(store, f"needle {name}", id=name, **fields)
    clock.forward(10 * DAY)


def names(sessions: object) -> list[str]:
    return [session.id for session in sessions]  # pyright: ignore


def test_a_dry_run_says_what_the_real_run_does(store: Store, clock: Clock) -> None:
    old(store, clock, *"abc", source="cli")
    old(store, clock, "d", source="telegram")
    where = Filter.parse("source=cli idle>7d")
    for act in (store.archive, store.prune):
        planned = act(where, dry_run=True)
        assert names(planned) == ["a", "b", "c"]
        assert set(names(store.recent())) == {"a", "b", "c", "d"}
        assert act(where) == planned
        assert names(store.recent()) == ["d"]
        store.restore(*names(planned))


def test_age_is_counted_from_the_last_activity(store: Store, clock: Clock) -> None:
    old(store, clock, "a", "b")
    store.append("a", user("used again"))
    clock.forward(2 * DAY)
    assert names(store.prune(Filter.parse("idle>7d"))) == ["b"]


def test_an_active_session_is_never_pruned_or_archived(store: Store, clock: Clock) -> None:
    old(store, clock, "idle")
    for name in ("active", "ended"):
        started(store, id=name)
    store.end("ended", "done")
    assert set(names(store.archive(Filter(), dry_run=True))) == {"idle", "ended"}
    assert set(names(store.archive(Filter()))) == {"idle", "ended"}
    assert set(names(store.prune(Filter(archived=None)))) == {"idle", "ended"}
    assert names(store.recent()) == ["active"]


def test_how_long_a_session_counts_as_active_can_be_set(target: str, clock: Clock) -> None:
    with open_store(target, clock=clock, active_seconds=60) as store:
        started(store, id="a")
        clock.forward(59)
        assert store.prune(Filter()) == []
        clock.forward(2)
        assert names(store.prune(Filter())) == ["a"]


def test_a_pruned_session_is_gone_for_every_read(store: Store, clock: Clock) -> None:
    old(store, clock, "a", title="Plan")
    store.prune(Filter())
    reads: list[Callable[[], object]] = [
        lambda: store.session("a"),
        lambda: store.messages("a"),
        lambda: store.resolve("a"),
        lambda: store.resolve("Plan"),
        lambda: store.append("a", user("x")),
        lambda: store.fork("a"),
        lambda: store.undo("a"),
        lambda: store.end("a", "x"),
    ]
    for read in reads:
        with pytest.raises(NotFound):
            read()
    assert store.recent() == []
    assert found(store, "needle") == []
    assert found(store, "needle", role="user") == []
    assert store.stats().pruned == 1


def test_a_session_pruned_elsewhere_is_gone_here_too(
    store: Store, reopened: Reopened, clock: Clock
) -> None:
    old(store, clock, "a")
    other = reopened()
    assert texts(other, "a") == ["needle a"]
    store.prune(Filter())
    with pytest.raises(NotFound):
        other.messages("a")
    with pytest.raises(NotFound):
        other.append("a", user("x"))


def test_a_session_purged_elsewhere_can_be_begun_anew_here(
    store: Store, reopened: Reopened, clock: Clock
) -> None:
    old(store, clock, "a")
    other = reopened()
    other.append("a", user("known here"))
    clock.forward(10 * DAY)
    store.prune(Filter())
    store.purge(older_than=-1)
    started(store, "fresh", id="a")
    other.append("a", user("more"))
    assert texts(other, "a") == ["fresh", "more"]


def test_a_pruned_session_comes_back_as_it_was(store: Store, clock: Clock) -> None:
    session = store.begin(id="a", title="Plan")
    store.append(session, user("needle one"), call("ls"), result("x"), user("needle two"))
    store.undo(session)
    clock.forward(10 * DAY)
    before, rewinds = store.session("a"), store.rewinds("a")
    store.prune(Filter())
    clock.forward(6 * DAY)
    assert store.restore("a") == [before]
    assert store.session("a") == before
    assert texts(store, "a", rewound=True) == ["needle one", None, "x", "needle two"]
    assert store.rewinds("a") == rewinds
    assert found(store, "needle") == ["needle one"]


def test_an_archived_session_is_kept_out_of_the_way_and_can_be_used(
    store: Store, clock: Clock
) -> None:
    old(store, clock, "a")
    assert names(store.archive(Filter())) == ["a"]
    assert store.session("a").archived == clock.now
    assert (store.recent(), found(store, "needle")) == ([], [])
    store.append("a", user("still here"))
    assert texts(store, "a") == ["needle a", "still here"]
    assert store.restore("a")[0].archived is None
    assert names(store.recent()) == ["a"]


def test_a_title_given_away_meanwhile_is_numbered_on_return(store: Store, clock: Clock) -> None:
    old(store, clock, "a", title="Plan")
    store.prune(Filter())
    started(store, id="b", title="Plan")
    assert store.restore("a")[0].title == "Plan #2"
    assert store.session("b").title == "Plan"
    assert store.resolve("Plan #2").id == "a"
    assert store.verify() == []


def test_a_removed_session_is_restored_by_its_title_or_the_beginning_of_its_id(
    store: Store, clock: Clock
) -> None:
    old(store, clock, "2026_a", title="Plan")
    old(store, clock, "2027_b", title="Draft")
    store.prune(Filter(title="Plan"))
    store.archive(Filter())
    started(store, id="2026_c", title="Sketch")
    assert names(store.restore("Plan", "2027")) == ["2026_a", "2027_b"]
    with pytest.raises(NotFound, match="Sketch"):
        store.restore("Sketch")
    assert {session.id for session in store.recent()} == {"2026_a", "2027_b", "2026_c"}


def test_a_name_that_fits_several_removed_sessions_restores_none(
    store: Store, clock: Clock
) -> None:
    old(store, clock, "2026_a")
    old(store, clock, "2026_b")
    store.prune(Filter())
    with pytest.raises(AmbiguousName, match="2026_b"):
        store.restore("2026")
    assert store.recent() == []


def test_restoring_several_is_all_or_nothing(store: Store, clock: Clock) -> None:
    old(store, clock, "a")
    store.prune(Filter())
    with pytest.raises(NotFound, match="nobody"):
        store.restore("a", "nobody")
    assert store.recent() == []


def test_pruned_sessions_are_really_deleted_when_the_undo_window_ends(
    store: Store, clock: Clock
) -> None:
    old(store, clock, "a", "b")
    store.append("b", *(user(f"needle {number}") for number in range(150)))
    store.undo("b")
    clock.forward(2 * DAY)
    store.prune(Filter())
    clock.forward(6 * DAY)
    assert store.purge() == 0
    assert store.stats().messages == 152
    clock.forward(2 * DAY)
    assert store.purge() == 2
    stats = store.stats()
    assert (stats.sessions, stats.pruned, stats.messages, stats.rewound) == (0, 0, 0, 0)
    assert found(store, "needle", rewound=True) == []
    with pytest.raises(NotFound, match="cannot be restored"):
        store.restore("a")
    assert list(store.dump()) == []
    assert store.verify() == []


def test_pruning_deletes_what_was_pruned_long_ago(store: Store, clock: Clock) -> None:
    old(store, clock, "a")
    store.prune(Filter())
    old(store, clock, "b")
    assert names(store.prune(Filter())) == ["b"]
    assert store.stats().pruned == 1
    with pytest.raises(NotFound):
        store.restore("a")
    assert names(store.restore("b")) == ["b"]


def test_a_dry_run_deletes_nothing_for_good(store: Store, clock: Clock) -> None:
    old(store, clock, "a")
    store.prune(Filter())
    clock.forward(30 * DAY)
    assert store.prune(Filter(), dry_run=True) == []
    assert names(store.restore("a")) == ["a"]


def test_the_undo_window_can_be_set(target: str, clock: Clock) -> None:
    with open_store(target, clock=clock, undo_seconds=3600) as store:
        old(store, clock, "a")
        store.prune(Filter())
        clock.forward(3601)
        assert store.purge() == 1


def test_purging_leaves_the_others_alone(store: Store, clock: Clock) -> None:
    old(store, clock, *"abc")
    fork = store.fork("b")
    store.prune(Filter(parent=False))
    clock.forward(8 * DAY)
    assert store.purge() == 3
    assert texts(store, fork) == ["needle b"]
    assert [hit.session.id for hit in store.search("needle")] == [fork.id]
    assert store.verify() == []
    started(store, "needle new", id="new")
    assert texts(store, "new") == ["needle new"]


def test_an_id_can_be_used_again_after_purging(store: Store, clock: Clock) -> None:
    old(store, clock, "a")
    store.prune(Filter())
    clock.forward(8 * DAY)
    store.purge()
    started(store, "fresh", id="a")
    assert texts(store, "a") == ["fresh"]


def test_one_session_is_deleted_and_restored_by_its_id(store: Store, clock: Clock) -> None:
    started(store, "needle", id="busy")
    with pytest.raises(InvalidInput, match="End it first"):
        store.prune_session("busy")
    store.end("busy", "user")
    assert store.prune_session("busy").pruned is not None
    assert (found(store, "needle"), names(store.recent())) == ([], [])
    with pytest.raises(NotFound):
        store.prune_session("busy")
    store.restore("busy")
    assert names(store.recent()) == ["busy"]
    store.reopen("busy")
    clock.forward(10 * DAY)
    store.prune_session("busy")
    clock.forward(10 * DAY)
    store.purge()
    with pytest.raises(NotFound):
        store.restore("busy")
