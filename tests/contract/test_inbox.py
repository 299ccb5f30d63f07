"""Inbox and outbox: nothing that came in is lost, and nothing is answered or sent twice."""

from __future__ import annotations

import threading

import pytest

from rekindle import Message, Store, ToolCall, open_store
from rekindle.errors import InboxFull, InvalidInput, NotFound, TurnTakenOver
from rekindle.store.conversations.inbox import InboxLimits
from rekindle.types import Source
from tests.conftest import Clock
from tests.contract.messages import answer, texts, user

ADA = Source("telegram", "7", user_name="Ada")
KEY = "agent:main:telegram:dm"
LEASE = 30.0


def accept(store: Store, text: str, id: str | None = None, instance: str = "a", key: str = KEY):  # type: ignore[no-untyped-def]
    said = user(text, platform_message_id=id)
    return store.inbox.accept(key, ADA, said, instance=instance, lease_seconds=LEASE)


def test_a_letter_comes_back_as_it_was(store: Store) -> None:
    said = Message(
        "user",
        [{"type": "text", "text": "\ud800\0"}],
        tool_calls=(ToolCall("1", "x", {"a": 1}),),
        platform_message_id="m1",
        meta={"edited": True},
        timestamp=5.0,
    )
    got = store.inbox.accept(KEY, ADA, said, instance="a", lease_seconds=LEASE)
    (letter,) = store.inbox.list_waiting(KEY)
    assert letter == got.inbound
    assert (letter.message, letter.message.timestamp, letter.source) == (said, 5.0, ADA)
    assert (letter.state, letter.session, letter.position) == ("waiting", None, None)


def test_what_a_platform_says_twice_is_taken_in_once(store: Store) -> None:
    first = accept(store, "hello", "m1")
    assert (first.is_new, first.has_lease) == (True, True)
    again = accept(store, "hello", "m1")
    assert (again.is_new, again.has_lease) == (False, False)
    assert again.inbound == first.inbound
    assert accept(store, "hello", "m1", key="other").is_new, "ids are a conversation's own"
    assert accept(store, "no id").is_new
    assert accept(store, "no id").is_new


def test_an_inbox_takes_no_more_than_its_limits_allow(store: Store) -> None:
    def offer(id: str, key: str, limits: InboxLimits) -> bool:
        said = user("hello", platform_message_id=id)
        return store.inbox.accept(
            key, ADA, said, instance="a", lease_seconds=LEASE, limits=limits
        ).is_new

    few = InboxLimits(per_conversation=2)
    assert offer("1", KEY, few)
    assert offer("2", KEY, few)
    with pytest.raises(InboxFull):
        offer("3", KEY, few)
    assert not offer("2", KEY, few), "a redelivery is recognised, full or not"
    assert offer("1", "other", few)
    with pytest.raises(InboxFull):
        offer("2", "other", InboxLimits(per_conversation=9, total=3))
    assert offer("2", "other", InboxLimits(per_conversation=9, total=4))
    waiting = store.inbox.list_waiting(KEY)
    assert [one.message.platform_message_id for one in waiting] == ["1", "2"]
    store.inbox.start_turn(waiting[0], store.begin(owner=KEY))
    with pytest.raises(InboxFull):
        offer("3", KEY, few)
    store.inbox.close(waiting[0])
    assert offer("3", KEY, few), "there is room again"


def test_a_turn_puts_the_message_into_its_session_once(store: Store, clock: Clock) -> None:
    letter = accept(store, "hello", "m1").inbound
    clock.now += 10
    session = store.begin(owner=KEY)
    begun = store.inbox.start_turn(letter, session)
    assert (begun.state, begun.session, begun.position) == ("running", session.id, 0)
    assert store.inbox.start_turn(letter, session) == begun, "after a crash it is begun again"
    assert texts(store, session) == ["hello"]
    assert store.messages(session)[0].timestamp == letter.time, "when it came, not when it was read"


def test_the_end_of_a_turn_stores_the_answer_and_sends_it(store: Store) -> None:
    letter = accept(store, "hello", "m1").inbound
    session = store.begin(owner=KEY)
    store.inbox.start_turn(letter, session)
    (parcel,) = store.inbox.finish_turn([letter], session, [answer("hi")], [(ADA, "hi")])
    assert (parcel.text, parcel.target, parcel.reply_to) == ("hi", ADA, letter.num)
    assert texts(store, session) == ["hello", "hi"]
    assert store.inbox.list_waiting(KEY) == []
    assert store.inbox.finish_turn([letter], session, [answer("hi")], [(ADA, "hi")]) == []
    assert texts(store, session) == ["hello", "hi"], "a turn ends once"
    assert store.inbox.list_due() == [parcel]
    assert accept(store, "hello", "m1").inbound.state == "done"


def test_a_turn_that_failed_says_so(store: Store) -> None:
    letter = accept(store, "hello").inbound
    session = store.begin(owner=KEY)
    store.inbox.start_turn(letter, session)
    (parcel,) = store.inbox.finish_turn(
        [letter], session, [], [(ADA, "sorry")], reason="model is away"
    )
    assert parcel.text == "sorry"
    assert store.inbox.list_waiting(KEY) == []


def test_a_parcel_is_tried_until_it_arrives_or_nobody_tries_any_more(
    store: Store, clock: Clock
) -> None:
    parcel = store.inbox.post(KEY, ADA, "news")
    store.inbox.mark_failed(parcel, "no network", retry_after=5.0)
    assert store.inbox.list_due() == []
    clock.now += 5
    (again,) = store.inbox.list_due()
    assert (again.attempts, again.reason) == (1, "no network")
    store.inbox.mark_sent(again, "p1")
    store.inbox.mark_failed(again, "late complaint", retry_after=1.0)
    (sent,) = store.inbox.list_outbound(KEY)
    assert (sent.state, sent.platform_message_id, sent.attempts) == ("sent", "p1", 2)
    lost = store.inbox.post(KEY, ADA, "more")
    store.inbox.mark_failed(lost, "blocked", retry_after=None)
    assert store.inbox.list_due() == []
    assert [p.state for p in store.inbox.list_outbound(KEY)] == ["sent", "failed"]


def test_one_works_on_a_conversation_until_nothing_waits(store: Store) -> None:
    first = accept(store, "one", instance="a").inbound
    assert not accept(store, "two", instance="b").has_lease, "a is at it"
    assert accept(store, "elsewhere", instance="b", key="other").has_lease
    assert [letter.message.content for letter in store.inbox.release_lease(KEY, "a")] == [
        "one",
        "two",
    ]
    store.inbox.finish_turn([first], "none", [], [])
    (second,) = store.inbox.release_lease(KEY, "a")
    store.inbox.finish_turn([second], "none", [], [])
    assert store.inbox.release_lease(KEY, "a") == []
    assert accept(store, "three", instance="b").has_lease


def test_who_does_not_hold_a_lease_cannot_give_it_back(store: Store) -> None:
    accept(store, "one", instance="a")
    assert store.inbox.release_lease(KEY, "b") == []
    assert not accept(store, "two", instance="b").has_lease


def test_what_the_dead_left_is_taken_over(store: Store, clock: Clock) -> None:
    letter = accept(store, "one", instance="dead").inbound
    store.inbox.start_turn(letter, store.begin(owner=KEY))
    assert store.inbox.adopt_conversations("b", LEASE) == [], "it may be alive"
    clock.now += LEASE - 1
    store.inbox.renew_leases("dead", LEASE)
    clock.now += LEASE - 1
    assert store.inbox.adopt_conversations("b", LEASE) == []
    clock.now += 1
    assert store.inbox.adopt_conversations("b", LEASE) == [KEY]
    assert store.inbox.adopt_conversations("c", LEASE) == [], "one of them"
    assert [each.state for each in store.inbox.list_waiting(KEY)] == ["running"]


def test_of_many_that_adopt_at_once_one_gets_each_conversation(target: str) -> None:
    with open_store(target) as one, open_store(target) as two:
        for number in range(20):
            one.inbox.accept(f"k{number}", ADA, user("x"), instance="dead", lease_seconds=-1.0)
        got: list[str] = []
        start = threading.Barrier(4)

        def adopt(store: Store, name: str) -> None:
            start.wait()
            got.extend(store.inbox.adopt_conversations(name, LEASE))

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

        def work(store: Store, instance: str) -> None:
            letters = store.inbox.list_waiting(KEY)
            while letters:
                for letter in letters:
                    store.inbox.finish_turn([letter], "none", [], [])
                    worked.append(letter.num)
                letters = store.inbox.release_lease(KEY, instance)

        def bring(store: Store, instance: str) -> None:
            for number in range(25):
                if accept(
                    store, f"{instance}{number}", f"{instance}{number}", instance=instance
                ).has_lease:
                    work(store, instance)

        threads = [
            threading.Thread(target=bring, args=(s, f"r{n}")) for n, s in enumerate((one, two) * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.inbox.list_waiting(KEY) == []
        assert len(worked) == len(set(worked)) == 100


def test_what_is_finished_is_forgotten_after_a_while(store: Store, clock: Clock) -> None:
    letter = accept(store, "one", "m1").inbound
    store.inbox.finish_turn([letter], "none", [], [])
    waiting = accept(store, "two", "m2").inbound
    store.inbox.mark_sent(store.inbox.post(KEY, ADA, "x"), "p")
    clock.now += 100
    store.inbox.delete_finished(older_than=200)
    assert not accept(store, "one", "m1").is_new
    store.inbox.delete_finished(older_than=50)
    assert store.inbox.list_outbound(KEY) == []
    assert store.inbox.list_waiting(KEY) == [waiting]
    assert accept(store, "one", "m1").is_new


def test_who_speaks_is_active_even_if_the_turn_never_ends(store: Store, clock: Clock) -> None:
    route = store.routes.open(KEY, ADA)
    clock.now += 100
    store.inbox.start_turn(accept(store, "hello").inbound, store.begin(id=route.session, owner=KEY))
    assert store.routes.get(KEY).updated == clock.now
    clock.now -= 50
    store.inbox.start_turn(accept(store, "more").inbound, store.begin(id=route.session, owner=KEY))
    assert store.routes.get(KEY).updated == clock.now + 50, (
        "a clock that was put back changes nothing"
    )


def test_a_turn_can_start_on_a_message_that_stands_there_already(store: Store) -> None:
    session = store.begin(owner=KEY)
    store.append(session, user("hello"))
    letter = accept(store, "/retry").inbound
    begun = store.inbox.start_turn_at(letter, session.id, 0)
    assert (begun.state, begun.session, begun.position) == ("running", session.id, 0)
    assert texts(store, session) == ["hello"]
    store.inbox.finish_turn([begun], session, [answer("hi")], [(ADA, "hi")])
    with pytest.raises(NotFound):
        store.inbox.start_turn_at(letter, session.id, 0)


def test_who_was_overtaken_writes_nothing_into_the_turn(store: Store, clock: Clock) -> None:
    letter = accept(store, "hello", "m1").inbound
    session = store.begin(owner=KEY)
    begun = store.inbox.start_turn(letter, session)
    store.inbox.append_in_turn(begun, "a", session, answer("first"))
    clock.now += LEASE + 1
    store.inbox.append_in_turn(begun, "a", session, answer("late, but nobody took over"))
    assert store.inbox.adopt_conversations("b", LEASE) == [KEY]
    with pytest.raises(TurnTakenOver):
        store.inbox.append_in_turn(begun, "a", session, answer("too late"))
    with pytest.raises(TurnTakenOver):
        store.inbox.finish_turn([begun], session, [answer("too late")], [], instance="a")
    assert store.inbox.list_waiting(KEY) == [begun]
    store.inbox.finish_turn([begun], session, [answer("done")], [(ADA, "done")], instance="b")
    assert store.inbox.release_lease(KEY, "b") == []
    with pytest.raises(TurnTakenOver):
        store.inbox.append_in_turn(begun, "a", session, answer("much too late"))
    said = ["hello", "first", "late, but nobody took over", "done"]
    assert texts(store, session) == said


def test_a_letter_is_closed_once(store: Store) -> None:
    letter = accept(store, "/help").inbound
    assert [store.inbox.close(letter), store.inbox.close(letter)] == [True, False]
    assert store.inbox.list_waiting(KEY) == []


def test_what_is_done_together_is_done_once_or_not_at_all(store: Store) -> None:
    letter = accept(store, "/undo").inbound
    session = store.begin(owner=KEY)
    store.append(session, user("one"), answer("1"), user("two"), answer("2"))

    def failing() -> None:
        assert store.inbox.close(letter)
        store.undo(session)
        store.inbox.post(KEY, ADA, "undone", letter)
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        store.transaction(failing)
    assert texts(store, session) == ["one", "1", "two", "2"]
    assert store.inbox.list_waiting(KEY) == [letter]
    assert store.inbox.list_outbound(KEY) == []

    def undo() -> bool:
        return store.inbox.close(letter) and bool(store.undo(session))

    assert [store.transaction(undo), store.transaction(undo)] == [True, False]
    assert texts(store, session) == ["one", "1"]


def test_one_sends_in_a_conversation_at_a_time_and_in_order(store: Store, clock: Clock) -> None:
    first, second = store.inbox.post(KEY, ADA, "one"), store.inbox.post(KEY, ADA, "two")
    assert store.inbox.claim_unsent(KEY, "a", LEASE) == [first, second]
    assert store.inbox.claim_unsent(KEY, "b", LEASE) == []
    assert store.inbox.claim_conversations("b", LEASE) == []
    store.inbox.mark_sent(first, "p1")
    assert store.inbox.release_send_lease(KEY, "b") == [], "it is not b's"
    assert store.inbox.release_send_lease(KEY, "a") == [second]
    assert not store.inbox.is_all_sent(KEY)
    store.inbox.mark_sent(second, "p2")
    assert store.inbox.is_all_sent(KEY)
    assert store.inbox.release_send_lease(KEY, "a") == []
    third = store.inbox.post(KEY, ADA, "three")
    assert store.inbox.claim_conversations("b", LEASE) == [KEY]
    clock.now += LEASE + 1
    assert store.inbox.claim_conversations("c", LEASE) == [KEY], "b is gone"
    assert store.inbox.release_send_lease(KEY, "c") == [third]
    store.inbox.mark_failed(third, "away", retry_after=60.0)
    store.inbox.release_leases("c")
    assert store.inbox.claim_conversations("d", LEASE) == [], "not before its time"


def test_what_an_instance_claimed_it_can_take_itself(store: Store) -> None:
    # A look and the turn that posted the answer may both want to send it; one of them must.
    posted = store.inbox.post(KEY, ADA, "one")
    assert store.inbox.claim_conversations("a", LEASE) == [KEY]
    assert store.inbox.claim_unsent(KEY, "b", LEASE) == []
    assert store.inbox.claim_unsent(KEY, "a", LEASE) == [posted]


def test_mail_can_be_taken_over_for_some_platforms_alone(store: Store, clock: Clock) -> None:
    for key in ("agent:main:chat:dm", "agent:main:chat2:dm"):
        accept(store, "hello", key=key)
        store.inbox.post(key, ADA, "news")
    clock.now += LEASE + 1
    under = ["agent:main:chat:"]
    assert store.inbox.adopt_conversations("b", LEASE, prefixes=under) == ["agent:main:chat:dm"]
    assert store.inbox.claim_conversations("b", LEASE, prefixes=under) == ["agent:main:chat:dm"]
    assert store.inbox.adopt_conversations(
        "b", LEASE, prefixes=["agent:main:other:", "agent:main:chat2:"]
    ) == ["agent:main:chat2:dm"]


def test_an_instance_knows_what_it_holds_and_what_came_in_there(store: Store, clock: Clock) -> None:
    accept(store, "one", instance="a")
    later = accept(store, "two", instance="b").inbound
    assert store.inbox.renew_leases("a", LEASE) == [KEY]
    assert [letter.message.content for letter in store.inbox.list_waiting_for_instance("a")] == [
        "one",
        "two",
    ]
    assert store.inbox.list_waiting_for_instance("b") == []
    clock.now += LEASE + 1
    assert store.inbox.adopt_conversations("b", LEASE) == [KEY]
    assert store.inbox.renew_leases("a", LEASE) == [], "it was taken over"
    store.inbox.release_leases("b")
    assert accept(store, "three", instance="c").has_lease
    assert later in store.inbox.list_waiting_for_instance("c")


def test_the_parcel_that_begins_an_answer_is_known(store: Store) -> None:
    letter = accept(store, "hello").inbound
    parts = store.inbox.finish_turn([letter], "none", [], [(ADA, "one"), (ADA, "two")])
    began = [store.inbox.find_answered(part) for part in parts]
    assert [found and found.num for found in began] == [letter.num, None]
    assert store.inbox.find_answered(store.inbox.post(KEY, ADA, "news")) is None


def test_a_clock_that_is_put_back_keeps_nothing_waiting(store: Store, clock: Clock) -> None:
    clock.forward(86_400)
    accept(store, "hello", instance="dead")
    store.inbox.post(KEY, ADA, "news")
    assert store.inbox.claim_conversations("dead", LEASE) == [KEY]
    clock.forward(-86_400)
    assert store.inbox.adopt_conversations("b", LEASE) == [KEY], "its lease would hold for a day"
    assert store.inbox.claim_conversations("b", LEASE) == [KEY]
    assert (
        store.inbox.adopt_conversations("c", LEASE)
        == store.inbox.claim_conversations("c", LEASE)
        == []
    ), "now they are b's"
    clock.forward(-60)
    assert store.inbox.adopt_conversations("c", LEASE) == [], (
        "a small step takes nothing from who lives"
    )
    assert not accept(store, "more", instance="c").has_lease


def test_the_mail_is_counted(store: Store) -> None:
    letter = accept(store, "one").inbound
    accept(store, "two")
    store.inbox.start_turn(letter, store.begin(owner=KEY))
    store.inbox.post(KEY, ADA, "x")
    store.inbox.mark_failed(store.inbox.post(KEY, ADA, "y"), "blocked", retry_after=None)
    assert store.inbox.get_counts() == (1, 1, 1, 1)


def test_attempts_are_counted_before_they_are_made_and_can_be_taken_back(store: Store) -> None:
    letter, other = accept(store, "one").inbound, accept(store, "two").inbound
    assert [store.inbox.count_attempt(letter) for _ in range(3)] == [1, 2, 3]
    store.inbox.start_turn(letter, store.begin(owner=KEY))
    store.inbox.undo_attempts([letter.num, other.num])
    assert [one.attempts for one in store.inbox.list_waiting(KEY)] == [2, 0], "none is below nought"
    store.inbox.close(letter)
    assert store.inbox.count_attempt(letter) == 0, "it has ended"


def test_a_hopeless_letter_is_kept_with_the_reason_for_a_while(store: Store, clock: Clock) -> None:
    letter, good = accept(store, "poison", "m1").inbound, accept(store, "good").inbound
    store.inbox.finish_turn(
        [letter], "none", [], [(ADA, "sorry")], reason="died", is_undeliverable=True
    )
    store.inbox.finish_turn([good], "none", [], [], reason="stopped")
    clock.forward(1)
    store.inbox.mark_failed(store.inbox.post(KEY, ADA, "news"), "blocked", retry_after=None)
    assert store.inbox.get_counts() == (0, 0, 1, 2)
    given_up = store.inbox.list_undeliverable()
    assert [(one.state, one.reason) for one in given_up] == [
        ("failed", "blocked"),
        ("undeliverable", "died"),
    ]
    assert not accept(store, "poison", "m1").is_new, "it is not tried when it is said again"
    clock.forward(100)
    store.inbox.delete_finished(50)
    assert store.inbox.list_undeliverable() == []


def test_a_conversation_is_forgotten_when_nothing_is_on_its_way(store: Store) -> None:
    route = store.routes.open(KEY, ADA)
    store.routes.open("another", ADA)
    letter = accept(store, "one").inbound
    assert not store.inbox.delete_conversation(KEY), "it is not answered"
    store.inbox.start_turn(letter, store.begin(id=route.session))
    (parcel,) = store.inbox.finish_turn([letter], route.session, [answer("yes")], [(ADA, "yes")])
    assert not store.inbox.delete_conversation(KEY), "the answer is not sent"
    store.inbox.mark_sent(parcel, "p1")
    assert store.inbox.delete_conversation(KEY)
    assert [one.key for one in store.routes.list()] == ["another"]
    assert store.inbox.list_outbound(KEY) == []
    assert texts(store, route.session) == ["one", "yes"], "what was said stays"
    assert not store.inbox.delete_conversation(KEY), "it is gone already"
    assert store._engine.transact([lambda tx: tx.run("SELECT count(*) FROM inbox")]) == [[(0,)]]


def test_what_is_pending_in_conversations_is_described(store: Store, clock: Clock) -> None:
    accept(store, "one")
    accept(store, "two")
    store.inbox.post(KEY, ADA, "on its way")
    assert store.inbox.describe_conversations([KEY, "other"]) == {
        KEY: (2, 0, 1, "a"),
        "other": (0, 0, 0, None),
    }
    assert store.inbox.describe_conversations([]) == {}
    clock.now += 10_000
    assert store.inbox.describe_conversations([KEY])[KEY].holder is None


def test_sent_messages_are_listed_in_pages(store: Store) -> None:
    posted = [store.inbox.post(KEY, ADA, f"{number}") for number in range(5)]
    first = store.inbox.list_by_state(["waiting"], 2)
    assert [one.num for one in first] == [posted[4].num, posted[3].num]
    rest = store.inbox.list_by_state(["waiting"], 10, before=first[-1].num)
    assert [one.num for one in rest] == [one.num for one in posted[2::-1]]
