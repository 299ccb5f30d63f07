"""Identities of one person on several platforms, on every engine."""

from __future__ import annotations

import pytest

from rekindle import Message, Store
from rekindle.errors import InvalidInput
from rekindle.gateway.access.gate import Gate
from rekindle.gateway.access.rules import AccessRules
from rekindle.routing.schedule_rule import ScheduleRule
from rekindle.store.conversations.jobs import JobPlan
from rekindle.types import Source, Tokens, Usage
from tests.conftest import Clock

ADA = Source("matrix", "!a:x", user_id="@ada:x", user_name="Ada")
PHONE = Source("pager", "7", user_id="77", user_name="Ada M.")


def add_session(store: Store, owner: str, source: str, title: str) -> str:
    session = store.begin(owner=owner, source=source, title=title)
    store.append(session, Message("user", "hello"))
    return session.id


def list_titles(store: Store, owner: str) -> set[str | None]:
    return {one.title for one in store.recent(owner=owner)}


def test_a_code_works_once_and_until_it_expires(store: Store, clock: Clock) -> None:
    store.links.save_code(ADA, "ABCDEFGH", 600)
    maker = store.links.use_code("abcd-efgh")
    assert maker is not None
    assert (maker.chat, maker.person) == (ADA, None)
    assert store.links.use_code("ABCDEFGH") is None
    store.links.save_code(ADA, "BCDEFGHJ", 600)
    clock.now += 601
    assert store.links.use_code("BCDEFGHJ") is None


def test_sessions_follow_a_link_and_are_separated_by_platform(store: Store) -> None:
    add_session(store, "ada", "matrix", "Plan")
    add_session(store, "phone", "pager", "Plan")
    store.routes.open("k", PHONE, owner="ada")
    store.links.link(PHONE, "matrix:@ada:x", "ada", "phone")
    assert list_titles(store, "ada") == {"Plan", "Plan #2"}
    assert list_titles(store, "phone") == set()
    add_session(store, "ada", "pager", "Later")
    link = store.links.find("pager", "77")
    assert link is not None
    store.links.unlink(link, "phone")
    assert list_titles(store, "ada") == {"Plan"}
    assert list_titles(store, "phone") == {"Plan #2", "Later"}
    assert store.routes.get("k").owner is None
    assert store.links.find("pager", "77") is None
    assert [one.event for one in store.people.list_events()] == ["unlinked", "linked"]
    assert not store.verify()


def test_role_and_usage_are_those_of_the_person(store: Store) -> None:
    rules = AccessRules({("matrix", "@ada:x"): "owner", ("pager", "*"): "guest"})
    gate = Gate(store.people, rules, store.links)
    assert gate.find_role(PHONE) == "guest"
    store.links.link(PHONE, "matrix:@ada:x", "ada", "phone")
    assert (gate.find_role(PHONE), gate.find_owner(PHONE)) == ("owner", "ada")
    assert gate.find_unlinked_role(PHONE) == "guest"
    assert gate.find_owner(PHONE._replace(chat_type="group")) is None
    assert gate.find_person(PHONE) == gate.find_person(ADA) == "matrix:@ada:x"
    gate.record_usage(gate.find_person(PHONE), Usage(Tokens(5)))
    gate.record_turn(gate.find_person(PHONE))
    store.people.set_role("matrix", "@ada:x", "user")
    assert gate.find_role(PHONE) == "user"
    store.people.set_role("pager", "77", "denied")
    assert gate.find_role(PHONE) is None, "who is denied stays denied"
    store.people.set_role("pager", "77", "owner")
    store.people.set_role("matrix", "@ada:x", "denied")
    assert gate.find_role(PHONE) is None


def test_an_identity_that_stands_for_others_is_not_linked_to_another(store: Store) -> None:
    store.links.link(PHONE, "matrix:@ada:x", "ada", "phone")
    with pytest.raises(InvalidInput):
        store.links.link(ADA, "slack:U1", "u1", "ada")


def test_wrong_codes_are_counted_per_identity(store: Store, clock: Clock) -> None:
    for _ in range(3):
        store.links.record_wrong_code(PHONE)
    assert store.links.count_wrong_codes(PHONE, 3600) == 3
    assert store.links.count_wrong_codes(ADA, 3600) == 0
    clock.now += 3601
    assert store.links.count_wrong_codes(PHONE, 3600) == 0


def add_job(store: Store, owner: str, maker: Source, name: str) -> None:
    rule = ScheduleRule("interval", 3600.0, "UTC")
    plan = JobPlan(name, owner, maker, "prompt", "look", rule, maker, "origin")
    store.jobs.add(plan, 1e12)


def list_facts(store: Store, owner: str) -> list[str]:
    return [fact.text for fact in store.memory.list(owner)]


def list_jobs(store: Store, owner: str) -> list[str]:
    return [job.name for job in store.jobs.list(owner=owner)]


def test_jobs_and_facts_follow_a_link_and_are_separated_by_platform(store: Store) -> None:
    here = add_session(store, "ada", "matrix", "Here")
    there = add_session(store, "phone", "pager", "There")
    store.memory.add("ada", "likes tea", actor="agent", session=here)
    store.memory.add("phone", "likes tea", actor="agent", session=there)
    store.memory.add("phone", "rides a bike", actor="agent", session=there)
    add_job(store, "ada", ADA, "backup")
    add_job(store, "phone", PHONE, "weather")
    store.links.link(PHONE, "matrix:@ada:x", "ada", "phone")
    assert list_facts(store, "ada") == ["likes tea", "rides a bike"]
    assert list_facts(store, "phone") == []
    assert sorted(list_jobs(store, "ada")) == ["backup", "weather"]
    assert list_jobs(store, "phone") == []
    link = store.links.find("pager", "77")
    assert link is not None
    store.links.unlink(link, "phone")
    assert list_facts(store, "ada") == ["likes tea"]
    assert list_facts(store, "phone") == ["rides a bike"]
    assert list_jobs(store, "ada") == ["backup"]
    assert list_jobs(store, "phone") == ["weather"]


def test_all_links_are_listed(store: Store) -> None:
    store.links.save_code(ADA, "ABCDEFGH", 600)
    assert store.links.list_all() == []
    store.routes.open("k", PHONE, owner="ada")
    store.links.link(PHONE, "matrix:@ada:x", "ada", "phone")
    assert [(one.platform, one.person) for one in store.links.list_all()] == [
        ("pager", "matrix:@ada:x")
    ]
