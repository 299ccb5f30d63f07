"""What is remembered, in the store: facts, proposals, history, undo, and the claim of a flush."""

from __future__ import annotations

import pytest

from rekindle import Store
from rekindle.errors import InvalidInput, NotFound
from rekindle.store.conversations.memory import (
    AGENT,
    MAX_FACT_CHARS,
    MAX_FACTS,
    MAX_PROPOSALS,
    PERSON,
)
from rekindle.types import Source
from tests.conftest import Clock
from tests.contract.messages import user

ADA = Source("memory", "ada", user_id="1", user_name="Ada")
KEY = "agent:main:memory:dm:ada"


def texts(store: Store, owner: str = "ada") -> list[str]:
    return [fact.text for fact in store.memory.list(owner)]


def test_facts_belong_to_their_owner_and_come_back_as_they_were(store: Store) -> None:
    odd = "likes\0 tea \ud800"
    one = store.memory.add("ada", odd, actor=PERSON)
    two = store.memory.add("ada", "lives in Turin", actor=AGENT, session="s")
    assert [one.number, two.number] == [1, 2]
    assert texts(store) == [odd, "lives in Turin"]
    assert store.memory.list("bob") == []
    assert store.memory.list_owners() == [("ada", 2)]
    assert store.memory.add("ada", "Lives in turin", actor=AGENT) == two, "it is known"
    with pytest.raises(NotFound):
        store.memory.remove("bob", 1, actor=PERSON)


def test_there_are_few_facts_and_they_are_short(store: Store) -> None:
    with pytest.raises(InvalidInput, match="at most 300"):
        store.memory.add("ada", "x" * (MAX_FACT_CHARS + 1), actor=PERSON)
    with pytest.raises(InvalidInput, match="empty"):
        store.memory.add("ada", "  ", actor=PERSON)
    for number in range(MAX_FACTS):
        store.memory.add("ada", f"fact {number}", actor=PERSON)
    with pytest.raises(InvalidInput, match="already 50 facts"):
        store.memory.add("ada", "one more", actor=PERSON)
    for number in range(MAX_PROPOSALS):
        store.memory.add("ada", f"idea {number}", actor=AGENT, proposed=True)
    with pytest.raises(InvalidInput, match="already 20 proposals"):
        store.memory.add("ada", "one more", actor=AGENT, proposed=True)
    store.memory.replace("ada", 7, "another seventh", actor=PERSON)
    assert "another seventh" in texts(store)


def test_a_session_is_told_what_held_when_it_started(store: Store, clock: Clock) -> None:
    store.memory.add("ada", "old", actor=PERSON)
    store.memory.add("ada", "kept", actor=PERSON)
    clock.forward(10)
    session = store.begin(owner="ada")
    store.append(session, user("hello"))
    clock.forward(10)
    store.memory.add("ada", "new", actor=PERSON)
    store.memory.replace("ada", 2, "changed", actor=PERSON)
    store.memory.remove("ada", 1, actor=PERSON)
    clock.forward(10)
    told = [fact.text for fact in store.memory.list_for_session("ada", session.id)]
    assert told == ["old", "kept"]
    store.memory.undo("ada", actor=PERSON)
    told = [fact.text for fact in store.memory.list_for_session("ada", session.id)]
    assert told == ["old", "kept"], "taking it back changes nothing that was told"
    assert sorted(texts(store)) == ["changed", "new", "old"]


def test_a_proposal_is_no_fact_until_it_is_accepted(store: Store) -> None:
    store.memory.add("ada", "lives in Turin", actor=PERSON)
    idea = store.memory.add("ada", "send money to Eve", actor=AGENT, proposed=True)
    move = store.memory.replace("ada", 1, "lives in Rome", actor=AGENT, proposed=True)
    assert texts(store) == ["lives in Turin"]
    assert [one.replaces for one in store.memory.list("ada", proposed=True)] == [None, 1]
    store.memory.remove("ada", idea.number, actor=PERSON)
    accepted = store.memory.accept("ada", move.number)
    assert (accepted.number, texts(store)) == (1, ["lives in Rome"])
    assert store.memory.list("ada", proposed=True) == []
    with pytest.raises(NotFound, match="no proposal 2"):
        store.memory.accept("ada", idea.number)
    store.memory.undo("ada", actor=PERSON)
    assert texts(store) == ["lives in Turin"]


def test_changes_are_undone_one_after_the_other(store: Store) -> None:
    store.memory.add("ada", "one", actor=PERSON)
    store.memory.replace("ada", 1, "two", actor=AGENT)
    store.memory.remove("ada", 1, actor=AGENT)
    for expected in (["two"], ["one"]):
        store.memory.undo("ada", actor=AGENT)
        assert texts(store) == expected
    with pytest.raises(InvalidInput, match="made by the person"):
        store.memory.undo("ada", actor=AGENT)
    store.memory.undo("ada", actor=PERSON)
    assert texts(store) == []
    with pytest.raises(NotFound, match="nothing to undo"):
        store.memory.undo("ada", actor=PERSON)
    actions = [change.action for change in store.memory.list_changes("ada")]
    assert actions == ["undo", "undo", "undo", "remove", "replace", "add"]


def test_a_flush_is_claimed_once_with_the_lease(store: Store, clock: Clock) -> None:
    route = store.routes.open(KEY, ADA)
    assert store.memory.list_unflushed(["agent:main:memory:"], 0.0) == [], "nothing is stored"
    session = store.begin(id=route.session, owner=KEY)
    store.append(session, user("hello"))
    assert store.memory.list_unflushed(["agent:main:matrix:"], 0.0) == []
    (route,) = store.memory.list_unflushed(["agent:main:memory:"], 0.0)
    assert store.memory.claim_flush(route, instance="a", lease_seconds=30.0)
    assert store.memory.is_flushed(route.session)
    assert store.inbox.get_lease_holder(KEY) == "a"
    clock.forward(60)
    assert not store.memory.claim_flush(route, instance="b", lease_seconds=30.0)
    assert store.memory.list_unflushed(["agent:main:memory:"], 0.0) == []


def test_no_flush_is_claimed_while_somebody_works_or_writes(store: Store, clock: Clock) -> None:
    route = store.routes.open(KEY, ADA)
    store.append(store.begin(id=route.session, owner=KEY), user("hello"))
    accepted = store.inbox.accept(KEY, ADA, user("wait"), instance="a", lease_seconds=30.0)
    assert not store.memory.claim_flush(route, instance="a", lease_seconds=30.0), "it waits"
    store.inbox.close(accepted.inbound)
    assert not store.memory.claim_flush(route, instance="b", lease_seconds=30.0), "a has the lease"
    store.inbox.release_lease(KEY, "a")
    clock.forward(1)
    store.routes.touch(KEY)
    assert not store.memory.claim_flush(route, instance="b", lease_seconds=30.0), (
        "there was activity"
    )
    assert not store.memory.is_flushed(route.session)
    assert store.memory.claim_flush(store.routes.get(KEY), instance="b", lease_seconds=30.0)


def test_usage_is_added_to_a_conversation_without_activity(store: Store, clock: Clock) -> None:
    from rekindle.types import Tokens, Usage

    before = store.routes.open(KEY, ADA)
    store.append(store.begin(id=before.session), user("hello"))
    clock.forward(5)
    after = store.routes.add_usage(KEY, before.session, Usage(Tokens(input=3)), "m")
    assert (after.updated, after.tokens.input) == (before.updated, 3)
