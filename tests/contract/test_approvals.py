"""Questions to an owner about a tool call, on every engine."""

from __future__ import annotations

import pytest

from rekindle import Message, Store
from rekindle.errors import InvalidInput, NotFound
from rekindle.store.conversations.approvals import ApprovalQuestion
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.types import Source
from tests.conftest import Clock

ADA = Source("memory", "ada", user_id="1")


@pytest.fixture
def inbound(store: Store) -> InboundMessage:
    message = Message("user", "clean up")
    return store.inbox.accept("k", ADA, message, instance="one", lease_seconds=30).inbound


def ask(store: Store, inbound: InboundMessage, digest: str = "d") -> tuple[ApprovalQuestion, bool]:
    return store.approvals.ask(
        inbound.num, inbound.key, digest, tool="terminal", summary="rm\0 -r", seconds=60
    )


def test_an_answer_is_claimed_once(store: Store, inbound: InboundMessage) -> None:
    question, is_new = ask(store, inbound)
    assert is_new
    assert ask(store, inbound) == (question, False)
    assert store.approvals.list_open() == [question]
    assert store.approvals.claim_answer(question.id) is None
    store.approvals.answer(f" {question.id.upper()} ", "once", "memory:1")
    assert ask(store, inbound)[0].answer == "once", "after a crash the answer still counts"
    assert not store.approvals.close(question.id)
    assert store.approvals.claim_answer(question.id) == "once"
    assert store.approvals.claim_answer(question.id) is None
    assert store.approvals.get_state(question.id) == "used"
    assert ask(store, inbound)[1], "the next call of the same words is another question"
    with pytest.raises(InvalidInput, match="already approved"):
        store.approvals.answer(question.id, "no", "memory:1")


def test_a_question_expires_and_ends_with_its_turn(
    store: Store, inbound: InboundMessage, clock: Clock
) -> None:
    question, _ = ask(store, inbound)
    clock.now += 61
    assert store.approvals.get_state(question.id) == "expired"
    assert store.approvals.list_open() == []
    with pytest.raises(InvalidInput, match="no longer open"):
        store.approvals.answer(question.id, "once", "memory:1")
    assert store.approvals.close(question.id)
    again, is_new = ask(store, inbound)
    assert is_new
    store.inbox.close(inbound)
    with pytest.raises(InvalidInput, match="no longer open"):
        store.approvals.answer(again.id, "once", "memory:1")
    assert store.approvals.list_open() == []
    with pytest.raises(NotFound):
        store.approvals.answer("zzzzz", "once", "memory:1")
    clock.now += 10
    store.approvals.delete_old(5)
    assert store.approvals.get_state(again.id) == "expired"
