"""Routes: one session per conversation, in one transaction each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal

import pytest

from rekindle import Store, open_store
from rekindle.errors import InvalidInput, NotFound
from rekindle.store import Filter
from rekindle.types import Route, Source, Tokens, Usage
from tests.conftest import Clock
from tests.contract.messages import user

ADA = Source("telegram", "7", chat_name="Ada", user_id="7", user_name="Ada")
KEY = "agent:main:telegram:dm"
Reopened = Callable[[], Store]


def talk(store: Store, route: Route, text: str = "hello") -> None:
    session = store.begin(id=route.session, owner=route.key, source=route.origin.platform)
    store.append(session, user(text))


def test_a_key_gets_a_session_and_keeps_it(store: Store) -> None:
    first = store.routes.open(KEY, ADA, name="DM with Ada")
    assert (first.key, first.origin, first.display_name) == (KEY, ADA, "DM with Ada")
    assert (first.previous, first.reset, first.tokens) == (None, None, Tokens())
    assert store.routes.open(KEY, ADA) == first
    assert store.routes.get(KEY) == first
    assert store.recent() == [], "a route writes no session"
    with pytest.raises(NotFound, match="no conversation 'elsewhere'"):
        store.routes.get("elsewhere")


def test_odd_names_come_back_as_they_were(store: Store) -> None:
    odd = Source("my\0net", "!a:b.c", chat_name="\ud800", chat_type="group", chat_topic="\u2028")
    assert store.routes.open("agent:main:odd:\ud83d", odd, name="\0").origin == odd
    assert store.routes.get("agent:main:odd:\ud83d").display_name == "\0"


def test_a_stale_route_starts_anew_and_says_why_once(store: Store, clock: Clock) -> None:
    old = store.routes.open(KEY, ADA)
    talk(store, old)
    clock.now += 100
    new = store.routes.open(
        KEY, ADA, get_reset_reason=lambda route: "idle" if route == old else None
    )
    assert new.session != old.session
    assert (new.previous, new.reset, new.updated) == (old.session, "idle", clock.now)
    ended = store.session(old.session)
    assert (ended.end_reason, ended.ended) == ("session_reset", clock.now)
    assert [store.routes.pop_reset_reason(KEY), store.routes.pop_reset_reason(KEY)] == [
        "idle",
        None,
    ]
    assert store.routes.open(KEY, ADA, get_reset_reason=lambda _: None).session == new.session


def test_a_forced_reset_never_gives_an_old_session(store: Store) -> None:
    seen = {store.routes.open(KEY, ADA).session}
    for count in range(2, 12):
        talk(store, store.routes.get(KEY))
        seen.add(store.routes.reset(KEY).session)
        assert len(seen) == count


def test_a_session_without_a_message_is_no_way_back(store: Store) -> None:
    said = store.routes.open(KEY, ADA)
    talk(store, said)
    store.routes.reset(KEY)
    assert store.routes.reset(KEY).previous == said.session


def test_a_switch_ends_one_session_and_reopens_the_other(store: Store) -> None:
    first = store.routes.open(KEY, ADA)
    talk(store, first)
    second = store.routes.reset(KEY)
    talk(store, second)
    back = store.routes.switch(KEY, first.session)
    assert (back.session, back.previous) == (first.session, second.session)
    assert store.session(first.session).ended is None
    assert store.session(second.session).end_reason == "session_switch"
    assert store.routes.switch(KEY, first.session) == back, "already there"
    assert store.session(first.session).ended is None
    with pytest.raises(NotFound):
        store.routes.switch(KEY, "nowhere")
    assert store.routes.get(KEY) == back


def test_a_conversation_follows_its_session_into_a_child(store: Store) -> None:
    route = store.routes.open(KEY, ADA)
    talk(store, route)
    child = store.compress(route.session, user("what happened so far"))
    assert store.routes.follow(KEY, route.session, child.id).session == child.id
    with pytest.raises(InvalidInput, match="has already moved to session"):
        store.routes.follow(KEY, route.session, "other")


def test_activity_and_tokens_add_up(store: Store, clock: Clock) -> None:
    route = store.routes.open(KEY, ADA)
    talk(store, route)
    clock.now += 60
    store.routes.touch(KEY)
    for model, used in (
        ("small", Usage(Tokens(input=5, output=2), Decimal("0.01"))),
        ("small", Usage(Tokens(output=1))),
        ("large", Usage(Tokens(input=7))),
    ):
        store.routes.add_usage(KEY, route.session, used, model)
    with pytest.raises(NotFound):
        store.routes.add_usage(KEY, "nowhere", Usage(Tokens(input=1)), "small")
    route = store.routes.get(KEY)
    assert route.tokens == Tokens(input=12, output=3) == store.session(route.session).tokens
    assert store.usage(route.session) == route.usage
    assert route.usage == {
        "small": Usage(Tokens(input=5, output=3), Decimal("0.01")),
        "large": Usage(Tokens(input=7)),
    }
    assert store.routes.get(KEY).updated == clock.now
    clock.now -= 3600
    assert store.routes.touch(KEY).updated == clock.now + 3600, "a clock that jumps back"


def test_routes_are_listed_by_activity(store: Store, clock: Clock) -> None:
    for number in range(5):
        clock.now += 60
        store.routes.open(f"key{number}", ADA)
    assert [r.key for r in store.routes.list()] == ["key4", "key3", "key2", "key1", "key0"]
    assert [r.key for r in store.routes.list(active_minutes=1.5)] == ["key4", "key3"]
    assert [r.key for r in store.routes.list(limit=2, offset=1)] == ["key3", "key2"]


def test_a_route_whose_session_was_pruned_starts_anew(store: Store) -> None:
    route = store.routes.open(KEY, ADA)
    talk(store, route)
    store.end(route.session, "done")
    store.prune(Filter())
    new = store.routes.open(KEY, ADA)
    assert new.session != route.session
    talk(store, new)


def test_of_many_that_ask_for_one_key_at_once_all_get_the_same_session(target: str) -> None:
    with open_store(target) as one, open_store(target) as two:
        answers: list[str] = []
        start = threading.Barrier(8)

        def ask(store: Store) -> None:
            start.wait()
            answers.append(store.routes.open(KEY, ADA).session)

        threads = [threading.Thread(target=ask, args=(s,)) for s in (one, two) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 8
        assert len(set(answers)) == 1


def test_of_many_that_find_a_route_stale_one_resets_it(target: str) -> None:
    with open_store(target) as one, open_store(target) as two:
        old = one.routes.open(KEY, ADA)
        talk(one, old)
        answers: list[str] = []
        start = threading.Barrier(8)

        def ask(store: Store) -> None:
            start.wait()
            stale = store.routes.open(
                KEY,
                ADA,
                get_reset_reason=lambda route: "idle" if route.session == old.session else None,
            )
            answers.append(stale.session)

        threads = [threading.Thread(target=ask, args=(s,)) for s in (one, two) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(answers)) == 1
        assert old.session not in answers


def test_whether_another_session_was_ever_stored(store: Store) -> None:
    assert not store.has_any_sessions()
    route = store.routes.open(KEY, ADA)
    assert not store.has_any_sessions()
    talk(store, route)
    assert store.has_any_sessions()
    assert not store.has_any_sessions(excluding=route.session)


def test_every_gateway_sees_the_same_home_channels(store: Store, reopened: Reopened) -> None:
    store.routes.set_home(Source("a", "1", "Ops", "group", user_id="7", user_name="Ada"))
    store.routes.set_home(Source("b", "2"))
    assert reopened().routes.list_homes() == [Source("a", "1", "Ops", "group"), Source("b", "2")]
    reopened().routes.set_home(Source("a", "3"))
    assert store.routes.list_homes() == [Source("a", "3"), Source("b", "2")], (
        "one for each platform"
    )


def test_what_was_listed_is_known_to_every_gateway(store: Store, reopened: Reopened) -> None:
    store.routes.open("k", Source("memory", "1"))
    assert store.routes.load_listed_sessions("k") == []
    store.routes.save_listed_sessions("k", ["b", "a"])
    assert reopened().routes.load_listed_sessions("k") == ["b", "a"]
    assert store.routes.load_listed_sessions("unknown") == []


def test_routes_are_found_by_the_beginning_of_their_keys(store: Store) -> None:
    for key in ("x:1", "x:1:2", "x:2", "y", "x:10", "x:é"):
        store.routes.open(key, Source("memory", "1"))
    assert [one.key for one in store.routes.list_by_prefix("x:1")] == ["x:1", "x:10", "x:1:2"]
    assert [one.key for one in store.routes.list_by_prefix("x:")] == [
        "x:1",
        "x:10",
        "x:1:2",
        "x:2",
        "x:é",
    ]
