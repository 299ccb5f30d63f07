from __future__ import annotations

from decimal import Decimal

import pytest

from rekindle import Store, Tokens
from rekindle.errors import InvalidInput
from rekindle.store import Filter
from tests.conftest import Clock
from tests.contract.messages import answer, call, result, started, texts, turns, user


def test_a_fork_has_the_conversation_up_to_and_including_a_message(store: Store) -> None:
    parent = started(store, *"abcde")
    for at in range(5):
        child = store.fork(parent, at=at)
        assert texts(store, child) == list("abcde"[: at + 1])
        assert (child.parent, child.forked_at, child.message_count) == (parent.id, at, at + 1)
    assert texts(store, parent) == list("abcde")
    assert store.session(parent.id).ended is None


def test_a_fork_without_a_place_has_all_of_it(store: Store) -> None:
    parent = started(store, *"abc")
    child = store.fork(parent)
    assert texts(store, child) == list("abc")
    assert child.forked_at == 2


def test_parent_and_fork_go_their_own_ways(store: Store) -> None:
    parent = started(store, "a", "b")
    child = store.fork(parent, at=0)
    assert store.append(child, user("child")) == [1]
    assert store.append(parent, user("parent")) == [2]
    assert (texts(store, child), texts(store, parent)) == (["a", "child"], ["a", "b", "parent"])


def test_a_fork_keeps_what_its_parent_is_and_counts_for_itself(store: Store, clock: Clock) -> None:
    parent = store.begin(source="telegram", owner="ada", model="m", cwd="/x", arm="warm")
    store.append(parent, user("hi"), call("ls"), result("a"))
    store.add_usage(parent, Tokens(5), Decimal(1))
    store.end(parent, "done")
    clock.forward(60)
    child = store.fork(parent, at=1)
    assert (child.source, child.owner, child.model, child.cwd) == ("telegram", "ada", "m", "/x")
    assert (child.message_count, child.tool_call_count) == (2, 1)
    assert (child.tokens, child.cost) == (Tokens(), Decimal(0))
    assert (child.ended, child.end_reason) == (None, None)
    assert (child.started, child.last_active, child.preview) == (clock.now, clock.now, "hi")
    assert store.session(child.id) == child


def test_a_fork_may_belong_to_another_owner_and_source(store: Store) -> None:
    parent = store.begin(source="claude-code", title="Plan")
    store.append(parent, user("hi"))
    child = store.fork(parent, title="Plan (copied)", source="local", owner="ada")
    assert (child.source, child.owner, child.title) == ("local", "ada", "Plan (copied)")
    assert store.session(parent.id).owner is None


def test_a_session_that_was_copied_elsewhere_is_linked_as_a_fork(store: Store) -> None:
    origin = started(store, "heron one", "heron two", "heron two")
    copy = started(store, "heron one", "heron two", "heron two", "heron three")
    linked = store.link_copy(copy, origin)
    assert (linked.parent, linked.forked_at) == (origin.id, 2)
    assert [hit.session.id for hit in store.search("heron")].count(copy.id) == 1  # what is new
    assert len(store.search("heron", limit=50)) == 4
    assert store.link_copy(copy, origin) == store.session(copy.id)
    assert store.verify() == []


def test_a_session_with_another_parent_is_not_linked_anew(store: Store) -> None:
    origin, other = started(store, "a"), started(store, "b")
    fork = store.fork(origin)
    assert store.link_copy(fork, other).parent == origin.id
    assert store.link_copy(origin, origin).parent is None


def test_a_fork_leaves_out_what_was_rewound(store: Store) -> None:
    parent = store.begin()
    store.append(parent, *turns("a", "b"))
    store.undo(parent)
    store.append(parent, *turns("c"))
    child = store.fork(parent)
    assert texts(store, child) == ["a", "a!", "c", "c!"]
    assert [message.position for message in store.messages(child)] == [0, 1, 2, 3]
    assert store.append(child, user("next")) == [4]


def test_a_fork_at_no_message_is_refused(store: Store) -> None:
    parent = started(store, *"abc", id="a")
    started(store, "not yours", id="b")
    store.undo(parent)
    for at in (-1, 2, 3, 1 << 32, (1 << 32) + 1):
        with pytest.raises(InvalidInput, match=f"no message at position {at}"):
            store.fork(parent, at=at)
    store.undo(parent, turns=9)
    with pytest.raises(InvalidInput, match="no message"):
        store.fork(parent)
    assert {session.id for session in store.recent()} == {"a", "b"}


def test_a_fork_continues_the_title_or_takes_a_new_one(store: Store) -> None:
    parent = started(store, "x", title="Plan")
    assert store.fork(parent).title == "Plan #2"
    assert store.fork(parent, title="Other").title == "Other"
    assert store.fork(parent, title="Other").title == "Other #2"
    assert store.fork(started(store, "y")).title is None


def test_a_platform_message_is_known_in_a_fork_too(store: Store) -> None:
    parent = store.begin()
    store.append(parent, user("a"), user("b", platform_message_id="m1"))
    child = store.fork(parent)
    assert store.append(child, user("b", platform_message_id="m1")) == [1]
    assert texts(store, child) == ["a", "b"]


def test_compression_ends_the_parent_and_goes_on_in_a_child(store: Store, clock: Clock) -> None:
    parent = started(store, "a", "b", owner="ada", title="Plan")
    clock.forward(5)
    child = store.compress(parent, user("summary of a and b"), answer("understood"))
    ended = store.session(parent.id)
    assert (ended.end_reason, ended.ended) == ("compression", clock.now)
    assert texts(store, parent) == ["a", "b"]
    assert texts(store, child) == ["summary of a and b", "understood"]
    assert (child.parent, child.forked_at, child.title) == (parent.id, None, "Plan #2")
    assert (child.owner, child.message_count, child.preview) == ("ada", 2, "summary of a and b")


def test_a_session_is_compressed_once(store: Store) -> None:
    parent = started(store)
    child = store.compress(parent, user("summary"))
    with pytest.raises(InvalidInput, match=f"continues in {child.id}"):
        store.compress(parent, user("again"))
    assert store.children(parent) == [child]


def test_compressing_to_nothing_is_refused_and_ends_nothing(store: Store) -> None:
    parent = started(store)
    with pytest.raises(InvalidInput, match="at least one message"):
        store.compress(parent)
    assert store.session(parent.id).ended is None


def test_the_tip_is_the_end_of_a_chain_of_compressions(store: Store) -> None:
    chain = [started(store, "start", title="Plan")]
    for number in range(4):
        chain.append(store.compress(chain[-1], user(f"summary {number}")))
    assert [store.find_tip(link).id for link in chain] == [chain[-1].id] * 5
    assert chain[-1].title == "Plan #5"
    assert store.resolve("Plan").id == chain[-1].id


def test_the_tip_follows_compressions_and_not_forks(store: Store) -> None:
    parent = started(store, "a")
    forked = store.fork(parent)
    assert store.find_tip(parent).id == parent.id
    child = store.compress(parent, user("summary"))
    store.fork(parent, at=0)
    assert store.find_tip(parent).id == child.id
    assert store.find_tip(forked).id == forked.id


def test_lineage_is_walked_both_ways(store: Store, clock: Clock) -> None:
    def later() -> None:
        clock.forward(1)

    root = started(store, "a", "b")
    later()
    left = store.fork(root, at=0)
    later()
    right = store.compress(root, user("summary"))
    later()
    leaf = store.fork(right)
    stranger = started(store, "someone else")

    def names(of: str) -> list[str]:
        return [session.id for session in store.lineage(of)]

    assert names(root.id) == [root.id, left.id, right.id, leaf.id]
    assert names(right.id) == [root.id, right.id, leaf.id]
    assert names(leaf.id) == [root.id, right.id, leaf.id]
    assert names(left.id) == [root.id, left.id]
    assert names(stranger.id) == [stranger.id]
    assert [child.id for child in store.children(root)] == [left.id, right.id]
    assert store.children(leaf) == []


def test_a_parent_may_live_outside_the_store(store: Store) -> None:
    child = started(store, parent="elsewhere")
    assert child.parent == "elsewhere"
    assert store.lineage(child) == [child]
    assert store.verify() == []


def test_a_pruned_link_does_not_break_the_chain(store: Store, clock: Clock) -> None:
    root = started(store, "a")
    clock.forward(1)
    middle = store.fork(root)
    clock.forward(1)
    leaf = store.fork(middle)
    store.rename(middle, "goes")
    store.end(middle, "done")
    assert [session.id for session in store.prune(Filter(title="goes"))] == [middle.id]
    assert [session.id for session in store.lineage(leaf)] == [root.id, leaf.id]
    assert texts(store, leaf) == ["a"]
