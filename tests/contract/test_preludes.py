"""What warm sessions were started with: kept with the first message, handed on, and never a message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rekindle import Store
from rekindle.errors import NotFound
from rekindle.store import Filter
from rekindle.store.learning.preludes import decode_prelude, encode_prelude, hash_prelude
from rekindle.types import Message, ToolCall
from tests.conftest import Clock
from tests.contract.messages import user

PRELUDE = (
    Message("system", "Known from earlier sessions: zebras"),
    Message("user", "[from an earlier session] count the zebras – «all»"),
    Message("assistant", None, (ToolCall("abc123XYZ", "terminal", '{"command": "zebra"}'),)),
    Message("tool", "7", tool_call_id="abc123XYZ", name="terminal"),
    Message("assistant", "Done."),
)


def started(store: Store, *messages: Message, source: str = "local") -> str:
    session = store.begin(template="zoo", arm="warm", source=source)

    def work() -> None:
        store.append(session, user("how many?"))
        store.preludes.save(session, messages, revision=3)

    store.transaction(work)
    return session.id


def test_a_prelude_comes_back_byte_for_byte_with_what_is_known_about_it(
    store: Store, reopened: Callable[[], Store]
) -> None:
    id = started(store, *PRELUDE)
    found = reopened().preludes.load(id)
    assert found.messages == PRELUDE
    assert encode_prelude(found.messages) == encode_prelude(PRELUDE)
    assert found.prelude == hash_prelude(encode_prelude(PRELUDE))
    assert (found.arm, found.template, found.revision) == ("warm", "zoo", 3)
    assert decode_prelude(encode_prelude(PRELUDE)) == PRELUDE


def test_it_is_neither_a_message_nor_counted_nor_found(store: Store) -> None:
    id = started(store, *PRELUDE)
    assert [message.text for message in store.messages(id)] == ["how many?"]
    assert store.session(id).message_count == 1
    assert store.session(id).tool_call_count == 0
    assert store.search("zebras") == []


def test_the_first_message_and_the_prelude_are_kept_together_or_not_at_all(store: Store) -> None:
    session = store.begin()

    def work() -> None:
        store.append(session, user("hello"))
        store.preludes.save(session, PRELUDE)
        raise RuntimeError("the machine stops here")

    with pytest.raises(RuntimeError):
        store.transaction(work)
    assert store.preludes.is_new(session)
    assert store.preludes.load(session).messages == ()


def test_a_session_keeps_the_prelude_that_it_began_with(store: Store) -> None:
    id = started(store, *PRELUDE)
    store.preludes.save(id, PRELUDE[:1], revision=9)
    found = store.preludes.load(id)
    assert found.messages == PRELUDE
    assert found.revision == 3


def test_forks_and_compressed_children_have_the_prelude_of_their_parent(store: Store) -> None:
    id = started(store, *PRELUDE)
    fork = store.fork(id)
    child = store.compress(id, user("summary"))
    for one in (fork, child, store.fork(child)):
        assert store.preludes.load(one).messages == PRELUDE
        assert store.preludes.load(one).revision == 3


def test_a_cold_session_has_none(store: Store) -> None:
    id = started(store)
    assert store.preludes.load(id).messages == ()
    assert store.preludes.load(store.fork(id)).messages == ()
    assert store.preludes.load("nobody").messages == ()


def test_a_session_that_is_not_there_cannot_have_one(store: Store) -> None:
    with pytest.raises(NotFound):
        store.preludes.save("nobody", PRELUDE)


def test_with_the_last_session_that_had_it_a_prelude_is_deleted(store: Store, clock: Clock) -> None:
    started(store, *PRELUDE, source="one")
    second = started(store, *PRELUDE, source="two")
    clock.forward(100 * 86_400)
    store.prune(Filter(source="one"))
    store.purge(older_than=-1)
    assert store.preludes.load(second).messages == PRELUDE
    store.prune(Filter(source="two"))
    assert kept(store) == 1
    store.purge(older_than=-1)
    assert kept(store) == 0


def kept(store: Store) -> int:
    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        return tx.run("SELECT count(*) FROM preludes")[0][0]
