"""Who may talk to the gateway: roles, pairing codes, daily usage, on every engine."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from rekindle import Store
from rekindle.errors import NotFound
from rekindle.types import Tokens, Usage
from tests.conftest import Clock


def ask(store: Store, user: str, code: str, *, max_pending: int = 50) -> bool:
    return store.people.record_request(
        "matrix", user, "Ada", code, seconds=3600, pause=600, max_pending=max_pending
    )


def test_a_role_is_kept_changed_and_taken_away(store: Store) -> None:
    assert store.people.find("matrix", "@ada:x") is None
    assert not store.people.has_anyone()
    store.people.set_role("matrix", "@ada:x", "user", name="Ada")
    assert store.people.has_anyone()
    store.people.set_role("matrix", "@ada:x", "owner")
    (ada,) = store.people.list()
    assert (ada.platform, ada.user_id, ada.role, ada.name) == ("matrix", "@ada:x", "owner", "Ada")
    store.people.set_role("matrix", "@ada:x", "denied")
    found = store.people.find("matrix", "@ada:x")
    assert found is not None
    assert found.role == "denied"
    assert not store.people.has_anyone()
    assert store.people.find("telegram", "@ada:x") is None, "an id belongs to its platform"


def test_a_code_lets_one_person_in_once(store: Store) -> None:
    assert ask(store, "@ada:x", "ABCDEFGH")
    waiting = store.people.find("matrix", "@ada:x")
    assert waiting is not None
    assert waiting.role is None
    paired = store.people.approve("abcd-efgh", "user")
    assert (paired.user_id, paired.role, paired.name) == ("@ada:x", "user", "Ada")
    with pytest.raises(NotFound):
        store.people.approve("ABCDEFGH", "owner")
    assert store.people.find("matrix", "@ada:x") == paired


def test_a_code_expires(store: Store, clock: Clock) -> None:
    ask(store, "@ada:x", "ABCDEFGH")
    clock.now += 3601
    with pytest.raises(NotFound):
        store.people.approve("ABCDEFGH", "user")
    assert store.people.count_wrong_codes(60) == 1


def test_a_stranger_cannot_make_the_gateway_send_at_will(store: Store, clock: Clock) -> None:
    assert ask(store, "@ada:x", "AAAAAAAA", max_pending=2)
    assert not ask(store, "@ada:x", "BBBBBBBB", max_pending=2), "one code at a time"
    clock.now += 601
    assert ask(store, "@ada:x", "CCCCCCCC", max_pending=2)
    with pytest.raises(NotFound):
        store.people.approve("AAAAAAAA", "user")  # replaced by the new one
    assert ask(store, "@bob:x", "DDDDDDDD", max_pending=2)
    assert not ask(store, "@eve:x", "EEEEEEEE", max_pending=2), "too many are waiting"
    store.people.approve("CCCCCCCC", "user")
    assert ask(store, "@eve:x", "EEEEEEEE", max_pending=2)


def test_someone_denied_gets_no_code(store: Store, clock: Clock) -> None:
    store.people.set_role("matrix", "@eve:x", "denied")
    clock.now += 10_000
    assert not ask(store, "@eve:x", "ABCDEFGH")


def test_usage_adds_up_per_person_and_day(store: Store, clock: Clock) -> None:
    usage = Usage(Tokens(input=100, output=20), Decimal("0.25"))
    store.people.add_usage("matrix:@ada:x", "2026-11-17", usage, turns=1)
    store.people.add_usage("matrix:@ada:x", "2026-11-17", usage, turns=1)
    store.people.add_usage("matrix:@ada:x", "2026-11-18", usage, turns=1)
    assert store.people.get_usage("matrix:@ada:x", "2026-11-17") == (2, 240, Decimal("0.5"))
    assert store.people.get_usage("matrix:@bob:x", "2026-11-17") == (0, 0, 0)
    day = 86_400.0
    clock.now = datetime(2026, 11, 18, tzinfo=UTC).timestamp() + 30 * day
    store.people.delete_old(30 * day)
    assert store.people.get_usage("matrix:@ada:x", "2026-11-17") == (0, 0, 0)
    assert store.people.get_usage("matrix:@ada:x", "2026-11-18").turns == 1


def test_every_decision_is_logged_and_forgotten_in_time(store: Store, clock: Clock) -> None:
    ask(store, "@ada:x", "ABCDEFGH")
    store.people.approve("ABCDEFGH", "guest")
    store.people.set_role("matrix", "@ada:x", "denied")
    events = [(one.event, one.detail) for one in store.people.list_events()]
    assert events == [("denied", "denied"), ("allowed", "guest"), ("asked", "")]
    clock.now += 100
    ask(store, "@bob:x", "BCDEFGHJ")
    store.people.delete_old(50)
    assert [one.user_id for one in store.people.list_events()] == ["@bob:x"]
    assert {one.user_id for one in store.people.list()} == {"@ada:x", "@bob:x"}


def test_people_are_listed_in_pages_and_requests_apart(store: Store, clock: Clock) -> None:
    for number in range(5):
        store.people.set_role("pager", f"{number}", "user")
    assert ask(store, "@ada:x", "AAAAAAAA")
    first = store.people.list(limit=2)
    assert [one.user_id for one in first] == ["@ada:x", "0"]
    rest = store.people.list(limit=10, after=(first[-1].platform, first[-1].user_id))
    assert [one.user_id for one in rest] == ["1", "2", "3", "4"]
    assert [one.user_id for one in store.people.list_requests()] == ["@ada:x"]
    clock.now += 3601
    assert store.people.list_requests() == []


def test_usage_is_summed_for_a_day_and_in_total(store: Store) -> None:
    usage = Usage(Tokens(input=10), Decimal("0.5"))
    for day in ("2026-01-01", "2026-01-02", "2026-01-02"):
        store.people.add_usage("matrix:@ada:x", day, usage, turns=1)
    sums = store.people.sum_usage(["matrix:@ada:x", "pager:7"], "2026-01-02")
    assert sums["matrix:@ada:x"] == ((2, 20, Decimal("1.0")), (3, 30, Decimal("1.5")))
    assert sums["pager:7"] == ((0, 0, Decimal(0)), (0, 0, Decimal(0)))
    assert store.people.sum_usage([], "2026-01-02") == {}
