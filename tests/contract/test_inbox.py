"""Inbox and outbox: nothing that came in is lost, and nothing is answered or sent twice."""

from __future__ import annotations

import threading

import pytest

from rekindle import Message, Store, ToolCall, open_store
from rekindle.errors import InvalidInput, NotFound
from rekindle.types import Source
from tests.conftest import Clock
from tests.contract.messages import answer, texts, user

ADA = Source("telegram", "7", user_name="Ada")
KEY = "agent:main:telegram:dm"
LEASE = 30.0


def accept(store: Store, text: str, id: str | None = None, runner: str = "a", key: str = KEY):  # type: ignore[no-untyped-def]
    said = user(text, platform_message_id=id)
    return store.mail.accept(key, ADA, said, runner=runner, lease=LEASE)


def test_a_letter_comes_back_as_it_was(store: Store) -> None:
    said = Message(
        "user",
        [{"type": "text", "text": "\ud800\0"}],
        tool_calls=(ToolCall("1", "x", {"a": 1}),),
        platform_message_id="m1",
        meta={"edited": True},
        timestamp=5.0,
    )
    got = store.mail.accept(KEY, ADA, said, runner="a", lease=LEASE)
    (letter,) = store.mail.waiting(KEY)
    assert letter == got.letter
    assert (letter.message, letter.message.timestamp, letter.source) == (said, 5.0, ADA)
    assert (letter.state, letter.session, letter.position) == ("waiting", None, None)


def test_what_a_platform_says_twice_is_taken_in_once(store: Store) -> None:
    first = accept(store, "hello", "m1")
    assert (first.is_new, first.is_ours) == (True, True)
    again = accept(store, "hello", "m1")
    assert (again.is_new, again.is_ours) == (False, False)
    assert again.letter == first.letter
    assert accept(store, "hello", "m1", key="other").is_new, "ids are a conversation's own"
    assert accept(store, "no id").is_new
    assert accept(store, "no id").is_new


def test_a_turn_puts_the_message_into_its_session_once(store: Store, clock: Clock) -> None:
    letter = accept(store, "hello", "m1").letter
    clock.now += 10
    session = store.begin(owner=KEY)
    begun = store.mail.begin(letter, session)
    assert (begun.state, begun.session, begun.position) == ("running", session.id, 0)
    assert store.mail.begin(letter, session) == begun, "after a crash it is begun again"
    assert texts(store, session) == ["hello"]
    assert store.messages(session)[0].timestamp == letter.time, "when it came, not when it was read"


def test_the_end_of_a_turn_stores_the_answer_and_sends_it(store: Store) -> None:
    letter = accept(store, "hello", "m1").letter
    session = store.begin(owner=KEY)
    store.mail.begin(letter, session)
    (parcel,) = store.mail.finish([letter], session, [answer("hi")], [(ADA, "hi")])
    assert (parcel.text, parcel.target, parcel.answers) == ("hi", ADA, letter.num)
    assert texts(store, session) == ["hello", "hi"]
    assert store.mail.waiting(KEY) == []
    assert store.mail.finish([letter], session, [answer("hi")], [(ADA, "hi")]) == []
    assert texts(store, session) == ["hello", "hi"], "a turn ends once"
    assert store.mail.due() == [parcel]
    assert accept(store, "hello", "m1").letter.state == "done"


def test_a_turn_that_failed_says_so(store: Store) -> None:
    letter = accept(store, "hello").letter
    session = store.begin(owner=KEY)
    store.mail.begin(letter, session)
    (parcel,) = store.mail.finish([letter], session, [], [(ADA, "sorry")], reason="model is away")
    assert parcel.text == "sorry"
    assert store.mail.waiting(KEY) == []


def test_a_parcel_is_tried_until_it_arrives_or_nobody_tries_any_more(
    store: Store, clock: Clock
) -> None:
    parcel = store.mail.post(KEY, ADA, "news")
    store.mail.missed(parcel, "no network", again=5.0)
    assert store.mail.due() == []
    clock.now += 5
    (again,) = store.mail.due()
    assert (again.attempts, again.reason) == (1, "no network")
    store.mail.sent(again, "p1")
    store.mail.missed(again, "late complaint", again=1.0)
    (sent,) = store.mail.parcels(KEY)
    assert (sent.state, sent.platform_message_id, sent.attempts) == ("sent", "p1", 2)
    lost = store.mail.post(KEY, ADA, "more")
    store.mail.missed(lost, "blocked", again=None)
    assert store.mail.due() == []
    assert [p.state for p in store.mail.parcels(KEY)] == ["sent", "failed"]


def test_one_works_on_a_conversation_until_nothing_waits(store: Store) -> None:
    first = accept(store, "one", runner="a").letter
    assert not accept(store, "two", runner="b").is_ours, "a is at it"
    assert accept(store, "elsewhere", runner="b", key="other").is_ours
    assert [letter.message.content for letter in store.mail.release(KEY, "a")] == ["one", "two"]
    store.mail.finish([first], "none", [], [])
    (second,) = store.mail.release(KEY, "a")
    store.mail.finish([second], "none", [], [])
    assert store.mail.release(KEY, "a") == []
    assert accept(store, "three", runner="b").is_ours


def test_who_does_not_hold_a_lease_cannot_give_it_back(store: Store) -> None:
    accept(store, "one", runner="a")
    assert store.mail.release(KEY, "b") == []
    assert not accept(store, "two", runner="b").is_ours


def test_what_the_dead_left_is_taken_over(store: Store, clock: Clock) -> None:
    letter = accept(store, "one", runner="dead").letter
    store.mail.begin(letter, store.begin(owner=KEY))
    assert store.mail.adopt("b", LEASE) == [], "it may be alive"
    clock.now += LEASE - 1
    store.mail.renew("dead", LEASE)
    clock.now += LEASE - 1
    assert store.mail.adopt("b", LEASE) == []
    clock.now += 1
    assert store.mail.adopt("b", LEASE) == [KEY]
    assert store.mail.adopt("c", LEASE) == [], "one of them"
    assert [each.state for each in store.mail.waiting(KEY)] == ["running"]


def test_of_many_that_adopt_at_once_one_gets_each_conversation(target: str) -> None:
    with open_store(target) as one, open_store(target) as two:
        for number in range(20):
            one.mail.accept(f"k{number}", ADA, user("x"), runner="dead", lease=-1.0)
        got: list[str] = []
        start = threading.Barrier(4)

        def adopt(store: Store, name: str) -> None:
            start.wait()
            got.extend(store.mail.adopt(name, LEASE))

        threads = [
            threading.Thread(target=adopt, args=(s, f"r{n}")) for n, s in enumerate((one, two) * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == sorted(f"k{number}" for number in range(20))


def test_a_message_never_waits_for_nobody(target: str) -> None:
    """One keeps giving the lease back while others bring letters: in the end none is left over."""
    with open_store(target) as one, open_store(target) as two:
        worked: list[int] = []

        def work(store: Store, runner: str) -> None:
            letters = store.mail.waiting(KEY)
            while letters:
                for letter in letters:
                    store.mail.finish([letter], "none", [], [])
                    worked.append(letter.num)
                letters = store.mail.release(KEY, runner)

        def bring(store: Store, runner: str) -> None:
            for number in range(25):
                if accept(store, f"{runner}{number}", f"{runner}{number}", runner=runner).is_ours:
                    work(store, runner)

        threads = [
            threading.Thread(target=bring, args=(s, f"r{n}")) for n, s in enumerate((one, two) * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.mail.waiting(KEY) == []
        assert len(worked) == len(set(worked)) == 100


def test_what_is_finished_is_forgotten_after_a_while(store: Store, clock: Clock) -> None:
    letter = accept(store, "one", "m1").letter
    store.mail.finish([letter], "none", [], [])
    waiting = accept(store, "two", "m2").letter
    store.mail.sent(store.mail.post(KEY, ADA, "x"), "p")
    clock.now += 100
    store.mail.tidy(older_than=200)
    assert not accept(store, "one", "m1").is_new
    store.mail.tidy(older_than=50)
    assert store.mail.parcels(KEY) == []
    assert store.mail.waiting(KEY) == [waiting]
    assert accept(store, "one", "m1").is_new


def test_who_speaks_is_active_even_if_the_turn_never_ends(store: Store, clock: Clock) -> None:
    route = store.routes.open(KEY, ADA)
    clock.now += 100
    store.mail.begin(accept(store, "hello").letter, store.begin(id=route.session, owner=KEY))
    assert store.routes.get(KEY).updated == clock.now
    clock.now -= 50
    store.mail.begin(accept(store, "more").letter, store.begin(id=route.session, owner=KEY))
    assert store.routes.get(KEY).updated == clock.now + 50, (
        "a clock that was put back changes nothing"
    )


def test_a_turn_can_start_on_a_message_that_stands_there_already(store: Store) -> None:
    session = store.begin(owner=KEY)
    store.append(session, user("hello"))
    letter = accept(store, "/retry").letter
    begun = store.mail.go_on(letter, session.id, 0)
    assert (begun.state, begun.session, begun.position) == ("running", session.id, 0)
    assert texts(store, session) == ["hello"]
    store.mail.finish([begun], session, [answer("hi")], [(ADA, "hi")])
    with pytest.raises(NotFound):
        store.mail.go_on(letter, session.id, 0)


def test_a_letter_is_closed_once(store: Store) -> None:
    letter = accept(store, "/help").letter
    assert [store.mail.close(letter), store.mail.close(letter)] == [True, False]
    assert store.mail.waiting(KEY) == []


def test_what_is_done_together_is_done_once_or_not_at_all(store: Store) -> None:
    letter = accept(store, "/undo").letter
    session = store.begin(owner=KEY)
    store.append(session, user("one"), answer("1"), user("two"), answer("2"))

    def failing() -> None:
        assert store.mail.close(letter)
        store.undo(session)
        store.mail.post(KEY, ADA, "undone", letter)
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        store.together(failing)
    assert texts(store, session) == ["one", "1", "two", "2"]
    assert store.mail.waiting(KEY) == [letter]
    assert store.mail.parcels(KEY) == []

    def undo() -> bool:
        return store.mail.close(letter) and bool(store.undo(session))

    assert [store.together(undo), store.together(undo)] == [True, False]
    assert texts(store, session) == ["one", "1"]


def test_one_sends_in_a_conversation_at_a_time_and_in_order(store: Store, clock: Clock) -> None:
    first, second = store.mail.post(KEY, ADA, "one"), store.mail.post(KEY, ADA, "two")
    assert store.mail.take(KEY, "a", LEASE) == [first, second]
    assert store.mail.take(KEY, "b", LEASE) == []
    assert store.mail.claim("b", LEASE) == []
    store.mail.sent(first, "p1")
    assert store.mail.let_go(KEY, "b") == [], "it is not b's"
    assert store.mail.let_go(KEY, "a") == [second]
    assert not store.mail.is_sent(KEY)
    store.mail.sent(second, "p2")
    assert store.mail.is_sent(KEY)
    assert store.mail.let_go(KEY, "a") == []
    third = store.mail.post(KEY, ADA, "three")
    assert store.mail.claim("b", LEASE) == [KEY]
    clock.now += LEASE + 1
    assert store.mail.claim("c", LEASE) == [KEY], "b is gone"
    assert store.mail.let_go(KEY, "c") == [third]
    store.mail.missed(third, "away", again=60.0)
    store.mail.give_up("c")
    assert store.mail.claim("d", LEASE) == [], "not before its time"


def test_what_a_runner_claimed_it_can_take_itself(store: Store) -> None:
    # A look and the turn that posted the answer may both want to send it; one of them must.
    posted = store.mail.post(KEY, ADA, "one")
    assert store.mail.claim("a", LEASE) == [KEY]
    assert store.mail.take(KEY, "b", LEASE) == []
    assert store.mail.take(KEY, "a", LEASE) == [posted]


def test_mail_can_be_taken_over_for_some_platforms_alone(store: Store, clock: Clock) -> None:
    for key in ("agent:main:chat:dm", "agent:main:chat2:dm"):
        accept(store, "hello", key=key)
        store.mail.post(key, ADA, "news")
    clock.now += LEASE + 1
    under = ["agent:main:chat:"]
    assert store.mail.adopt("b", LEASE, under=under) == ["agent:main:chat:dm"]
    assert store.mail.claim("b", LEASE, under=under) == ["agent:main:chat:dm"]
    assert store.mail.adopt("b", LEASE, under=["agent:main:other:", "agent:main:chat2:"]) == [
        "agent:main:chat2:dm"
    ]


def test_a_runner_knows_what_it_holds_and_what_came_in_there(store: Store, clock: Clock) -> None:
    accept(store, "one", runner="a")
    later = accept(store, "two", runner="b").letter
    assert store.mail.renew("a", LEASE) == [KEY]
    assert [letter.message.content for letter in store.mail.arrived("a")] == ["one", "two"]
    assert store.mail.arrived("b") == []
    clock.now += LEASE + 1
    assert store.mail.adopt("b", LEASE) == [KEY]
    assert store.mail.renew("a", LEASE) == [], "it was taken over"
    store.mail.give_up("b")
    assert accept(store, "three", runner="c").is_ours
    assert later in store.mail.arrived("c")


def test_the_parcel_that_begins_an_answer_is_known(store: Store) -> None:
    letter = accept(store, "hello").letter
    parts = store.mail.finish([letter], "none", [], [(ADA, "one"), (ADA, "two")])
    began = [store.mail.opens(part) for part in parts]
    assert [found and found.num for found in began] == [letter.num, None]
    assert store.mail.opens(store.mail.post(KEY, ADA, "news")) is None


def test_a_clock_that_is_put_back_keeps_nothing_waiting(store: Store, clock: Clock) -> None:
    clock.forward(86_400)
    accept(store, "hello", runner="dead")
    store.mail.post(KEY, ADA, "news")
    assert store.mail.claim("dead", LEASE) == [KEY]
    clock.forward(-86_400)
    assert store.mail.adopt("b", LEASE) == [KEY], "its lease would hold for a day"
    assert store.mail.claim("b", LEASE) == [KEY]
    assert store.mail.adopt("c", LEASE) == store.mail.claim("c", LEASE) == [], "now they are b's"
    clock.forward(-60)
    assert store.mail.adopt("c", LEASE) == [], "a small step takes nothing from who lives"
    assert not accept(store, "more", runner="c").is_ours


def test_the_mail_is_counted(store: Store) -> None:
    letter = accept(store, "one").letter
    accept(store, "two")
    store.mail.begin(letter, store.begin(owner=KEY))
    store.mail.post(KEY, ADA, "x")
    store.mail.missed(store.mail.post(KEY, ADA, "y"), "blocked", again=None)
    assert store.mail.counts() == (1, 1, 1, 1)


def test_attempts_are_counted_before_they_are_made_and_can_be_taken_back(store: Store) -> None:
    letter, other = accept(store, "one").letter, accept(store, "two").letter
    assert [store.mail.attempt(letter) for _ in range(3)] == [1, 2, 3]
    store.mail.begin(letter, store.begin(owner=KEY))
    store.mail.spare([letter.num, other.num])
    assert [one.attempts for one in store.mail.waiting(KEY)] == [2, 0], "none is below nought"
    store.mail.close(letter)
    assert store.mail.attempt(letter) == 0, "it has ended"


def test_a_hopeless_letter_is_kept_with_the_reason_for_a_while(store: Store, clock: Clock) -> None:
    letter, good = accept(store, "poison", "m1").letter, accept(store, "good").letter
    store.mail.finish([letter], "none", [], [(ADA, "sorry")], reason="died", hopeless=True)
    store.mail.finish([good], "none", [], [], reason="stopped")
    clock.forward(1)
    store.mail.missed(store.mail.post(KEY, ADA, "news"), "blocked", again=None)
    assert store.mail.counts() == (0, 0, 1, 2)
    given_up = store.mail.undeliverable()
    assert [(one.state, one.reason) for one in given_up] == [
        ("failed", "blocked"),
        ("undeliverable", "died"),
    ]
    assert not accept(store, "poison", "m1").is_new, "it is not tried when it is said again"
    clock.forward(100)
    store.mail.tidy(50)
    assert store.mail.undeliverable() == []


def test_a_conversation_is_forgotten_when_nothing_is_on_its_way(store: Store) -> None:
    route = store.routes.open(KEY, ADA)
    store.routes.open("another", ADA)
    letter = accept(store, "one").letter
    assert not store.mail.forget(KEY), "it is not answered"
    store.mail.begin(letter, store.begin(id=route.session))
    (parcel,) = store.mail.finish([letter], route.session, [answer("yes")], [(ADA, "yes")])
    assert not store.mail.forget(KEY), "the answer is not sent"
    store.mail.sent(parcel, "p1")
    assert store.mail.forget(KEY)
    assert [one.key for one in store.routes.list()] == ["another"]
    assert store.mail.parcels(KEY) == []
    assert texts(store, route.session) == ["one", "yes"], "what was said stays"
    assert not store.mail.forget(KEY), "it is gone already"
    assert store._engine.transact([lambda tx: tx.run("SELECT count(*) FROM inbox")]) == [[(0,)]]
