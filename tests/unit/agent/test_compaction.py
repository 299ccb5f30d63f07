"""Compression by tokens: random histories on a model that enforces its context, with fixed seeds."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rekindle import Message, Session, Store, ToolCall
from rekindle.agent.compaction import SUMMARY_MARK, compress_session
from rekindle.agent.compaction_plan import group_messages, plan_compression
from rekindle.agent.context_space import ContextLimits, ContextSpace
from rekindle.agent.model.client import Endpoint, Model, RetryPolicy
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ToolContext
from rekindle.agent.turn import Compacted, TurnContext, TurnEnded, TurnEvent, TurnLimits, run_turn
from rekindle.errors import CompressionFailed
from rekindle.store.store_executor import StoreExecutor
from rekindle.testing import ScriptedModel
from tests.cases import check_each
from tests.new_store import open_new_store

NO_TOOLS = ToolRegistry([]).select(())
WORDS = [
    "fix",
    "the",
    "login",
    "test",
    "run",
    "again",
    "parser",
    "name",
    "file",
    "error",
    "why",
    "done",
    "look",
    "here",
]
SCRIPTS = ("abc ", "привет ", "会议纪要", "🙂 ")


def write_text(random: Random, size: int) -> str:
    """Words in some script; `size` is the number of characters, at least one."""
    if random.random() < 0.2:
        text = random.choice(SCRIPTS) * (size // 3 + 1)
    else:
        text = " ".join(random.choices(WORDS, k=size // 4 + 1))
    return text[: max(1, size)]


def build_history(random: Random, scale: int) -> list[Message]:
    """Turns with calls that have results, late ones or none; some messages are huge."""
    ids, messages = count(), list[Message]()

    def size() -> int:
        return int(
            random.choice((0.01, 0.05, 0.1, 0.5)) * scale * (8 if random.random() < 0.1 else 1)
        )

    for _ in range(random.randrange(1, 14)):
        messages.append(Message("user", write_text(random, size())))
        for _ in range(random.randrange(4)):
            calls = [
                ToolCall(f"c{next(ids)}", "look", {"what": write_text(random, size() // 4)})
                for _ in range(random.randrange(1, 4))
            ]
            text = write_text(random, size() // 8) if random.random() < 0.5 else None
            messages.append(Message("assistant", text, tool_calls=tuple(calls)))
            random.shuffle(calls)
            for call in calls:
                if random.random() < 0.85:
                    if random.random() < 0.05:
                        messages.append(Message("user", "are you there?"))
                    result = write_text(random, size() * 2)
                    messages.append(Message("tool", result, tool_call_id=call.id, name="look"))
        if random.random() < 0.8:
            messages.append(Message("assistant", write_text(random, size())))
    messages.append(Message("user", "and now?"))
    return messages


def find_unanswered(messages: list[Message]) -> list[str]:
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    return [c.id for message in messages for c in message.tool_calls if c.id not in answered]


@check_each("seed", range(150))
def test_a_plan_fits_and_keeps_what_it_must(seed: int) -> None:
    random = Random(seed)
    context = random.choice((400, 1_000, 4_000, 30_000))
    ratio = random.choice((0.7, 1.0, 2.0))
    space = ContextLimits(context).build_space(random.randrange(context // 10), ratio)
    assert space is not None
    messages = build_history(random, context)
    plan = plan_compression(messages, space)
    assert plan is not None
    kept = [*plan.before, *plan.after]
    assert space.estimate(kept) + plan.summary_tokens <= space.tokens
    assert kept[-1] == messages[-1], "the last message is kept"
    verbatim = [message for message in kept if message.role != "tool"]
    places = {id(message): place for place, message in enumerate(messages)}
    order = [places[id(message)] for message in verbatim]
    assert order == sorted(order), "what is kept stays in order, word for word"
    calls = {call.id for message in kept for call in message.tool_calls}
    results = {message.tool_call_id for message in kept if message.role == "tool"}
    assert results <= calls, "no result without its call"
    if plan.middle:
        assert len(kept) + len(plan.middle) == len(messages), "nothing is lost"
        assert plan.summary_tokens >= 16
    missing = {*find_unanswered(messages)}
    assert {*find_unanswered(kept)} <= missing, "no call loses its result"
    unfinished = [m for m in messages if any(call.id in missing for call in m.tool_calls)]
    groups = [group for group in group_messages(messages) if group.is_unfinished]
    size = space.estimate(messages[n] for group in groups for n in group.positions)
    last = max((n for n, one in enumerate(messages) if one.role == "assistant"), default=0)
    room = space.tokens - space.summary_tokens
    if size <= room // 4 and space.estimate(messages[last:]) <= room // 2:
        assert all(message in kept for message in unfinished), "unfinished calls are kept"


def test_old_results_are_shortened_first_and_the_newest_is_left_alone() -> None:
    messages = [Message("user", "look at the files")]
    for number in range(4):
        call = ToolCall(f"c{number}", "look", {"file": str(number)})
        messages.append(Message("assistant", tool_calls=(call,)))
        messages.append(Message("tool", f"{number}" * 8_000, tool_call_id=call.id, name="look"))
    space = ContextSpace(10_000, 8_000)
    plan = plan_compression(messages, space)
    assert plan is not None
    assert not plan.middle, "shortened results were enough"
    sizes = [len(message.text) for message in plan.before if message.role == "tool"]
    assert sizes[0] < 1_000
    assert sizes[-1] == 8_000
    assert sizes == sorted(sizes), "the oldest first"
    assert "characters left out" in plan.before[2].text


def test_results_beside_an_unfinished_call_are_never_shortened() -> None:
    calls = (ToolCall("a", "look", {}), ToolCall("b", "look", {}))
    messages = [
        Message("user", "look"),
        Message("assistant", tool_calls=calls),
        Message("tool", "x" * 40_000, tool_call_id="a", name="look"),
    ]
    with pytest.raises(CompressionFailed, match=r"Message 3 \(the result of look\) is too large"):
        plan_compression(messages, ContextSpace(10_000, 8_000))
    messages.append(Message("tool", "y", tool_call_id="b", name="look"))
    plan = plan_compression(messages, ContextSpace(10_000, 8_000))
    assert plan is not None
    assert 10_000 < len(plan.before[2].text) < 30_000


class Runner:
    """A session with a history, and a model that enforces its context."""

    def __init__(self, store: Store, folder: Path, history: list[Message], **script: Any) -> None:
        self.store, self.folder = store, folder
        self.session: Session = store.begin(owner="ada")
        store.append(self.session, *history)
        self.script = {"strict": True, **script}

    def run(self, context: int = 0, **limits: Any) -> tuple[list[TurnEvent], ScriptedModel]:
        with ScriptedModel(self.script) as server:
            return asyncio.run(self._run(server, TurnLimits(context=context, **limits))), server

    async def _run(self, server: ScriptedModel, limits: TurnLimits) -> list[TurnEvent]:
        executor = StoreExecutor(self.store)
        policy = RetryPolicy(max_attempts=2, first_delay=0.01)
        async with Model(Endpoint(server.url, "scripted"), retry_policy=policy) as model:

            async def compress(
                session: Session, messages: Any, space: ContextSpace
            ) -> Compacted | None:
                return await compress_session(
                    executor, model, session, messages, space, on_request=False
                )

            context = TurnContext(
                model,
                NO_TOOLS,
                ToolContext(self.session.id, self.folder),
                opening=[Message("system", "Be brief.")],
                limits=limits,
                compress=compress,
            )
            turn = run_turn(executor, self.session, context)
            async with aclosing(turn) as events:
                seen = [event async for event in events]
        executor.close()
        return seen


def get_end(events: list[TurnEvent]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_new_store(tmp_path / "sessions.db") as opened:
        yield opened


FORMS = ("openai", "anthropic", "without numbers")


@pytest.mark.parametrize("seed", range(24))
def test_every_random_session_goes_on_whatever_its_history(
    store: Store, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    context = random.choice((900, 2_000, 8_000))
    history = build_history(random, context)
    form = FORMS[seed % 3]
    runner = Runner(
        store,
        tmp_path,
        history,
        context=context,
        context_error=form,
        bytes_per_token=random.choice((2.5, 4.0, 5.0)),
        turns=[{"user": "and now?", "steps": [{"text": "Going on."}]}],
        otherwise=[{"text": "The user wants it fixed. {user}"}],
    )
    # The size is set, or learned from the provider's error.
    events, _ = runner.run(context if random.random() < 0.5 else 0)
    ended = get_end(events)
    assert (ended.message.text, ended.reason) == ("Going on.", None)
    assert store.messages(runner.session) == [
        message._replace(timestamp=stored.timestamp, position=stored.position)
        for message, stored in zip(history, store.messages(runner.session), strict=True)
    ], "nothing of the parent is lost"
    if any(isinstance(event, Compacted) for event in events):
        assert store.session(runner.session.id).end_reason == "compression"
        assert store.find_tip(runner.session).id == ended.session.id


def test_the_size_in_the_providers_error_is_believed(store: Store, tmp_path: Path) -> None:
    history = [Message("user", "word " * 2_000), Message("assistant", "Yes."), Message("user", "?")]
    for form in ("openai", "anthropic"):
        runner = Runner(store, tmp_path, history, context=1_000, context_error=form)
        events, server = runner.run()
        assert get_end(events).reason is None
        refused = [one for one in server.requests if one.outcome == "refused"]
        assert len(refused) == 1, "one rejection is enough"


def test_what_fits_is_sent_unchanged_and_what_the_provider_counts_corrects_the_estimate(
    store: Store, tmp_path: Path
) -> None:
    # By the estimate alone it would be too long; the provider counts half as many tokens.
    history = [Message("user", "a" * 3_000), Message("assistant", "b" * 300), Message("user", "on")]
    runner = Runner(store, tmp_path, history, context=1_000, bytes_per_token=8.0)
    events, server = runner.run(2_000)
    assert not any(isinstance(event, Compacted) for event in events)
    assert len(server.requests) == 1


def test_a_message_that_is_too_large_is_named_and_the_next_one_goes_on(
    store: Store, tmp_path: Path
) -> None:
    history = [Message("user", "hello"), Message("assistant", "Hi."), Message("user", "x" * 50_000)]
    runner = Runner(store, tmp_path, history, context=2_000)
    events, server = runner.run(2_000)
    ended = get_end(events)
    assert re.search(
        r"Message 3 \(from the user\) is too large.*14,\d{3} tokens", ended.reason or ""
    )
    assert "Send a smaller message" in ended.message.text
    assert server.requests == [], "the model was not asked"
    store.append(runner.session, ended.message, Message("user", "and now?"))
    assert get_end(runner.run(2_000)[0]).reason is None


def test_a_summary_that_fails_says_why_and_the_session_stays_as_it_is(
    store: Store, tmp_path: Path
) -> None:
    history = [Message("user", f"{n} " + "word " * 200) for n in range(20)]
    fault = {"status": 401, "message": "bad key", "always": True}
    runner = Runner(
        store,
        tmp_path,
        [*history, Message("user", "and now?")],
        turns=[{"user": "and now?", "steps": [{"text": "Going on."}]}],
        otherwise=[{"text": "no", "faults": [fault]}],
    )
    ended = get_end(runner.run(2_000)[0])
    assert "could not be summarized" in (ended.reason or "")
    assert "bad key" in (ended.reason or "")
    assert "/retry" in ended.message.text
    assert store.session(runner.session.id).ended is None
    assert len(store.messages(runner.session)) == 21


def test_a_model_that_gives_no_summary_does_not_end_the_conversation(
    store: Store, tmp_path: Path
) -> None:
    history = [Message("user", f"{n} " + "word " * 200) for n in range(20)]
    runner = Runner(
        store,
        tmp_path,
        [*history, Message("user", "and now?")],
        turns=[{"user": "and now?", "steps": [{"text": "Going on."}]}],
        otherwise=[{"text": " "}],
    )
    events, _ = runner.run(2_000)
    assert get_end(events).message.text == "Going on."
    (compacted,) = [event for event in events if isinstance(event, Compacted)]
    summary = next(one for one in compacted.messages if one.text.startswith(SUMMARY_MARK))
    assert "could not be summarized" in summary.text


def test_instructions_larger_than_the_context_are_named(store: Store, tmp_path: Path) -> None:
    runner = Runner(store, tmp_path, [Message("user", "hello")])
    ended = get_end(runner.run(10)[0])
    assert "instructions and tools take about" in (ended.reason or "")


def test_an_ended_session_is_compressed_as_well(store: Store, tmp_path: Path) -> None:
    history = [Message("user", f"{n} " + "word " * 200) for n in range(20)]
    runner = Runner(store, tmp_path, history, context=2_000)
    store.end(runner.session, "user_exit")
    ended = get_end(runner.run(2_000)[0])
    assert ended.reason is None
    assert ended.session.parent == runner.session.id
