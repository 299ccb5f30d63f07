"""tau2-bench: `{info, tasks, simulations[]}`, or one simulation in a file of its own.

A simulation is a session. The `id` of a tool message is the id of the call that it answers. The
user is simulated and may own tools too: such a call is part of a user message, and its result says
`requestor: user`. `error` tells whether a call failed, and is null where a submission left it out.
Tokens and cost are the agent's alone, as is the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import Record, count, number, present, record, records, seconds, text
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.stream import Closed, Place, steps
from rekindle.transcripts.readers.ids import made_id
from rekindle.types import JSON, Content, Message, Session, Tokens, ToolCall, replace

SOURCE = "tau2"

_ROLES = ("user", "assistant", "tool")
_DEAREST = 1e9


def sniff(head: Head) -> bool:
    return _is_run(head.fields) or _is_simulation(head.fields)


def _is_run(about: Record) -> bool:
    # The tasks alone may be longer than the head, so what is simulated may not be seen.
    info = record(about.get("info"))
    return isinstance(about.get("simulations"), list) or (
        "agent_info" in info and "environment_info" in info
    )


def _is_simulation(about: Record) -> bool:
    return "task_id" in about and ("termination_reason" in about or "reward_info" in about)


def read(path: Path) -> Iterator[Event]:
    run = _Run(path)
    for step in steps(path, _opens):
        if isinstance(step, Damage):
            yield step
            continue
        if isinstance(step, Closed):
            if _is_place(step.place):
                yield from run.finish()
            continue
        *above, key = step.place
        if "tasks" in above[:1]:
            continue
        if above[-1:] == ["messages"]:
            yield from run.take(step.value, key, step.line)
        elif step.place == ("info",):
            run.about(record(step.value))
        elif _is_place(tuple(above)):
            run.learn(key, step.value)
    yield from run.finish()


def _is_place(place: Place) -> bool:
    """Whether a simulation stands here: in the list, or as the document itself."""
    return not place or (len(place) == 2 and place[0] == "simulations")


def _opens(place: Place) -> bool:
    # The tasks are opened so that they can be passed over one by one.
    return place in (("simulations",), ("tasks",), ("messages",)) or (
        place[0] == "simulations" and (len(place) == 2 or place[2:] == ("messages",))
    )


class _Run:
    """The simulations of one file, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model: str | None = None
        self.made = 0
        self._clear()

    def _clear(self) -> None:
        self.facts: Record = {}
        self.session: Session | None = None
        self.spent = Tokens()
        self.calls: dict[str, str] = {}
        # The last message waits for what the simulation was worth.
        self.last: Message | None = None

    def about(self, info: Record) -> None:
        self.model = text(record(info.get("agent_info")), "llm")

    def learn(self, key: str | int, value: JSON) -> None:
        if isinstance(key, str):
            self.facts[key] = value

    def take(self, value: object, index: str | int, line: int) -> Iterator[Event]:
        """An element of `messages`: a message, or the results of several calls."""
        said = record(value)
        several = records(said.get("tool_messages"))
        for part, one in enumerate(several or [said]):
            place = f"item:{index + 1}" if isinstance(index, int) else f"item:{index}"
            place = f"{place}:{part}" if several else place
            if one.get("role") == "system":
                continue
            if one.get("role") not in _ROLES:
                yield Damage(str(self.path), line, f"{place}: expected a message with a role")
                continue
            yield from self._say(self._message(one, place))

    def _say(self, message: Message) -> Iterator[Event]:
        if self.session is None:
            self.session = self._session()
            yield Opened(self.session)
        if self.last is not None:
            yield self.last
        self.last = message

    def _session(self) -> Session:
        self.made += 1
        return Session(
            id=text(self.facts, "id") or made_id("tau2", self.path, f"simulation {self.made}"),
            source=SOURCE,
            model=self.model,
            started=seconds(self.facts.get("start_time")) or 0.0,
        )

    def _message(self, said: Record, place: str) -> Message:
        role = cast(str, said["role"])
        calls = tuple(
            _call(call, f"{place}:{part}")
            for part, call in enumerate(records(said.get("tool_calls")))
        )
        answered = text(said, "id", "tool_call_id") if role == "tool" else None
        self.calls.update((call.id, call.name) for call in calls)
        if role == "assistant":
            self._spend(said)
        choice = record(next(iter(records(record(said.get("raw_data")).get("choices"))), None))
        return Message(
            role=role,
            content=_content(said.get("content")),
            tool_calls=calls,
            tool_call_id=answered,
            name=self.calls.pop(answered, None) if answered else None,
            reasoning=text(record(choice.get("message")), "reasoning_content"),
            finish_reason=text(choice, "finish_reason"),
            platform_message_id=place,
            meta=_facts(said) if role == "tool" else None,
            timestamp=seconds(said.get("timestamp")),
        )

    def _spend(self, said: Record) -> None:
        usage = record(said.get("usage"))
        whole = record(record(said.get("raw_data")).get("usage"))
        cached = count(record(whole.get("prompt_tokens_details")).get("cached_tokens"))
        given = count(usage.get("prompt_tokens"))
        cached = min(cached, given)
        spent = Tokens(given - cached, count(usage.get("completion_tokens")), cached)
        self.spent = self.spent.plus(spent)

    def finish(self) -> Iterator[Event]:
        """The end of a simulation."""
        if self.last is not None:
            yield replace(self.last, meta=present({**(self.last.meta or {}), **self._worth()}))
        if self.session is not None:
            cost = number(self.facts.get("agent_cost")) or 0.0
            yield Learned(
                replace(
                    self.session,
                    model=self.session.model or self.model,
                    started=self.session.started or seconds(self.facts.get("start_time")) or 0.0,
                    ended=seconds(self.facts.get("end_time")),
                    end_reason=text(self.facts, "termination_reason"),
                    tokens=self.spent,
                    cost=Decimal(str(cost)) if 0 < cost < _DEAREST else Decimal(0),
                )
            )
        self._clear()

    def _worth(self) -> dict[str, JSON]:
        task = self.facts.get("task_id")
        return {
            "reward": number(record(self.facts.get("reward_info")).get("reward")),
            "task": task if isinstance(task, (int, str)) else None,
            "trial": number(self.facts.get("trial")),
        }


def _facts(said: Record) -> dict[str, JSON] | None:
    failed = said.get("error")
    return present(
        {
            "is_error": failed if isinstance(failed, bool) else None,
            "requestor": "user" if said.get("requestor") == "user" else None,
        }
    )


def _call(call: Record, place: str) -> ToolCall:
    arguments = call.get("arguments")
    if not isinstance(arguments, (str, dict)):
        arguments = "" if arguments is None else json.dumps(arguments)
    return ToolCall(
        text(call, "id") or place, text(call, "name") or "", cast("str | Record", arguments)
    )


def _content(value: Any) -> Content:
    return value if value is None or isinstance(value, str) else json.dumps(value)
