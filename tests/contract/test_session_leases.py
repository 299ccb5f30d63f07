"""Session leases on both engines: one holder at a time, and a fence for those who were paused."""

from __future__ import annotations

import threading

import pytest

from rekindle import Message, Store
from rekindle.errors import SessionHeld
from rekindle.store.conversations.session_leases import LeaseHolder
from tests.conftest import Clock

ADA = LeaseHolder("chat-a", "terminal", "host-a", 11, "boot 1")
BOB = LeaseHolder("chat-b", "terminal", "host-b", 22, "boot 2")


def test_a_session_has_one_holder_until_it_is_released(store: Store, clock: Clock) -> None:
    leases = store.session_leases
    held = leases.acquire("s", ADA, 10)
    assert (held.name, held.program, held.host, held.pid) == ("chat-a", "terminal", "host-a", 11)
    assert leases.acquire("s", BOB, 10) == held == leases.find("s")
    assert leases.acquire("other", BOB, 10).name == "chat-b"
    leases.release(held)
    assert leases.find("s") is None
    assert leases.acquire("s", BOB, 10).name == "chat-b"


def test_a_lease_lasts_as_long_as_it_is_renewed(store: Store, clock: Clock) -> None:
    leases = store.session_leases
    held = leases.acquire("s", ADA, 10)
    clock.now += 8
    assert leases.renew(held, 10)
    clock.now += 8
    assert leases.acquire("s", BOB, 10).name == "chat-a"
    clock.now += 3
    assert leases.find("s") is None
    taken = leases.acquire("s", BOB, 10)
    assert (taken.name, taken.since) == ("chat-b", clock.now)
    assert not leases.renew(held, 10)
    leases.release(held)
    assert leases.acquire("s", ADA, 10) == taken, "who lost it cannot give it away"


def test_who_was_paused_cannot_write_once_another_holds_the_session(
    store: Store, clock: Clock
) -> None:
    leases, session = store.session_leases, store.begin()
    store.append(session, Message("user", "one"))
    held = leases.acquire(session.id, ADA, 10)

    def write(text: str) -> None:
        leases.require(held)
        store.append(session, Message("user", text))

    store.transaction(lambda: write("two"))
    clock.now += 60
    store.transaction(lambda: write("three, late, but nobody else came"))
    taken = leases.acquire(session.id, BOB, 10)
    for _ in range(2):
        with pytest.raises(SessionHeld, match="taken over"):
            store.transaction(lambda: write("never"))
        leases.release(taken)  # nor after the other has left
    assert len(store.messages(session)) == 3


def test_a_restarted_program_takes_its_own_lease_over(store: Store, clock: Clock) -> None:
    leases = store.session_leases
    before = leases.acquire("s", ADA, 10)
    clock.now += 1
    after = leases.acquire("s", ADA._replace(pid=12), 10)
    assert (after.pid, after.since) == (12, before.since)
    assert not leases.renew(before, 10)


def test_the_lease_of_a_program_that_is_known_to_have_ended_can_be_replaced(
    store: Store, clock: Clock
) -> None:
    leases = store.session_leases
    held = leases.acquire("s", ADA, 10)
    assert leases.acquire("s", BOB, 10, replaces="another").name == "chat-a"
    assert leases.acquire("s", BOB, 10, replaces=held.fence).name == "chat-b"
    assert leases.acquire("s", ADA, 10, replaces=held.fence).name == "chat-b", "only this one"


def test_a_clock_that_was_set_back_holds_no_session_forever(store: Store, clock: Clock) -> None:
    store.session_leases.acquire("s", ADA, 10)
    clock.now -= 86_400
    assert store.session_leases.acquire("s", BOB, 10).name == "chat-b"


def test_who_holds_a_session_continues_it(store: Store, clock: Clock) -> None:
    session = store.begin()
    store.append(session, Message("user", "one"))
    store.end(session, "user_exit")
    store.session_leases.acquire(session.id, ADA, 10)
    assert store.session(session.id).ended is None
    child = store.compress(session, Message("user", "summary"))
    store.session_leases.acquire(session.id, ADA, 10)
    assert store.session(session.id).end_reason == "compression"
    assert store.find_tip(session).id == child.id


def test_of_many_at_once_one_gets_the_session(store: Store, clock: Clock) -> None:
    winners: list[str] = []
    start = threading.Barrier(8)

    def acquire(number: int) -> None:
        holder = ADA._replace(name=f"chat-{number}")
        start.wait()
        winners.append(store.session_leases.acquire("s", holder, 10).name)

    threads = [threading.Thread(target=acquire, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*winners}) == 1


def test_old_leases_are_deleted(store: Store, clock: Clock) -> None:
    store.session_leases.acquire("s", ADA, 10)
    clock.now += 100_000
    lease = store.session_leases.acquire("t", BOB, 10)
    store.session_leases.delete_expired()
    assert store.session_leases.find("t") == lease
    assert store.session_leases.acquire("s", ADA, 10).since == clock.now
