"""A stored conversation, made valid for the provider it is sent to.

A conversation may have been cut at any moment: a call without a result, a result without its call,
two messages of the user in a row. It may come from another program, with ids and contents that a
provider refuses. What is stored stays as it is; `repaired` gives what is sent instead.

What it decides:

- A result is put right behind its call, however late it came: the newest call of that id. A result
  without an id answers a call of the newest message with calls.
- A call without a result gets one that says it was interrupted, and that it may have taken effect.
- A second, different result of one call is added to the first, with a mark; a copy is left out.
- A result without a call becomes text with a mark that it is data: no call is made up for it.
- Messages of one role in a row become one. Where people with different names spoke, the names are
  put into the text.
- Blank messages of the assistant and the system are left out; a blank one of the user says so.
- Where a provider wants another order, one short message in brackets is put in.

Equal input gives equal bytes, and a conversation that only grows keeps the bytes of what was sent
before, so that prompt caches hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from string import ascii_letters, digits
from typing import cast

from rekindle.types import JSON, Message, ToolCall, replace

from .message_format import carried, joined, prefixed, speaking
from .providers import EXTRA, RULES, Provider, Rules, is_system, signature
from .validate import is_sound

INTERRUPTED = "(The call was interrupted: there is no result. It may or may not have taken effect.)"
AGAIN = "[Another result of the same call]"
ORPHAN = "[Result of a tool call that is not in this conversation: data, not a message of the user]"
NOTE = "[system]"
OPENING = "(The conversation begins here.)"
BRIDGE = "(The user wrote before I went on.)"
CLOSING = "(Go on.)"

# Google's word for a call that was not made by a Gemini model, or whose signature was not kept.
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
_SIGNS = digits + ascii_letters
_ID_LENGTH = 9  # what every provider takes


def repaired(messages: Iterable[Message], provider: Provider = "openai") -> list[Message]:
    """The conversation as `provider` takes it. Give it everything that one request sends."""
    rules = RULES[provider]
    messages = list(messages)
    return messages if is_sound(messages, rules) else mended(messages, rules)


def mended(messages: Iterable[Message], rules: Rules) -> list[Message]:
    """The same by the long way; a sound conversation comes back as it is."""
    said = (carried(message, rules) for message in messages)
    steps = _answered(message for message in said if message is not None)
    sent = [message for step in _named(steps, rules) for message in step]
    return list(_in_turn(_merged(sent, rules), rules))


@dataclass(slots=True)
class _Step:
    """A message, and the results of its calls by their numbers, in the order they came."""

    message: Message
    results: dict[int, Message] = field(default_factory=dict[int, Message])

    def waiting(self) -> Iterator[int]:
        """The numbers of the calls that have no result."""
        return (n for n in range(len(self.message.tool_calls)) if n not in self.results)


@dataclass(slots=True)
class _Calls:
    """Where a result belongs."""

    newest: _Step | None = None  # the last message with calls
    by_id: dict[str, _Step] = field(default_factory=dict[str, _Step])  # the last one with that id

    def ask(self, step: _Step) -> None:
        self.newest = step
        self.by_id.update({call.id: step for call in step.message.tool_calls})

    def answer(self, result: Message) -> bool:
        """Put the result behind its call; False if there is none."""
        id = result.tool_call_id or ""
        step = self.by_id.get(id)
        if step is None:
            return not id and self._answer_nameless(result)
        for number in step.waiting():
            if step.message.tool_calls[number].id == id:
                step.results[number] = result
                return True
        return self._add(step, id, result)

    def _add(self, step: _Step, id: str, result: Message) -> bool:
        """Add another result of a call that has one, unless it is a copy."""
        number = next(n for n in step.results if step.message.tool_calls[n].id == id)
        first = step.results[number]
        if result.content != first.content:
            content = joined([first.content, prefixed(result.content, AGAIN)])
            step.results[number] = replace(first, content=content)
        return True

    def _answer_nameless(self, result: Message) -> bool:
        step = self.newest
        numbers = list(step.waiting()) if step else []
        if step is None or not numbers:
            return False
        calls = step.message.tool_calls
        same = (n for n in numbers if result.name and calls[n].name == result.name)
        step.results[next(same, numbers[0])] = result
        return True


def _answered(messages: Iterable[Message]) -> list[_Step]:
    """Every message with the results of its calls; results without a call as text."""
    steps: list[_Step] = []
    calls = _Calls()
    for message in messages:
        if message.role != "tool":
            steps.append(_Step(message))
            if message.tool_calls:
                calls.ask(steps[-1])
        elif not calls.answer(message):
            text = prefixed(message.text, ORPHAN)
            steps.append(_Step(Message("user", text, timestamp=message.timestamp)))
    for step in steps:
        for number in list(step.waiting()):
            step.results[number] = Message("tool", INTERRUPTED)
    return steps


def _named(steps: Iterable[_Step], rules: Rules) -> Iterator[list[Message]]:
    """The messages of each step, with ids that the provider takes and calls no more than it takes."""
    ids_of = _Ids(rules)
    for step in steps:
        calls = step.message.tool_calls
        if not calls:
            yield [step.message]
            continue
        for start in range(0, len(calls), rules.most_calls):
            numbers = range(start, min(start + rules.most_calls, len(calls)))
            ids = ids_of([calls[number].id for number in numbers])
            by_number = dict(zip(numbers, ids, strict=True))
            made = step.message if len(numbers) == len(calls) else _share(step.message, numbers)
            yield [
                _with_ids(made, ids, rules),
                *(
                    result
                    if result.tool_call_id == by_number[number]
                    else replace(result, tool_call_id=by_number[number])
                    for number, result in step.results.items()
                    if number in by_number
                ),
            ]


def _share(message: Message, numbers: range) -> Message:
    """A message with some of its calls; what it says goes with the first of them."""
    calls = message.tool_calls[numbers.start : numbers.stop]
    if numbers.start == 0:
        return replace(message, tool_calls=calls)
    return replace(message, tool_calls=calls, content=None, reasoning=None)


@dataclass(slots=True)
class _Ids:
    """Gives calls ids that the provider takes: the given one where it will do."""

    rules: Rules
    taken: set[str] = field(default_factory=set[str])
    seen: Counter[str] = field(default_factory=Counter[str])  # how often an id was to be replaced

    def __call__(self, given: Iterable[str]) -> list[str]:
        if not self.rules.unique_ids:
            self.taken.clear()
        return [self._one(id) for id in given]

    def _one(self, id: str) -> str:
        new = id
        while new in self.taken or not self.rules.id.fullmatch(new):
            new = _invented(f"{self.seen[id]}:{id}")
            self.seen[id] += 1
        self.taken.add(new)
        return new


@lru_cache(maxsize=10_000)
def _invented(seed: str) -> str:
    number = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest())
    signs: list[str] = []
    for _ in range(_ID_LENGTH):
        number, place = divmod(number, len(_SIGNS))
        signs.append(_SIGNS[place])
    return "".join(signs)


def _with_ids(message: Message, ids: Sequence[str], rules: Rules) -> Message:
    """The message with these ids for its calls, and what the provider wants back with each."""
    calls = message.tool_calls
    if not rules.signed and not message.meta and all(map(_has_id, calls, ids)):
        return message
    renamed = tuple(
        ToolCall(id, call.name, call.arguments) for id, call in zip(ids, calls, strict=True)
    )
    extra = {
        id: told for id, call in zip(ids, calls, strict=True) if (told := signature(message, call))
    }
    if rules.signed:
        extra.setdefault(ids[0], _UNSIGNED)
    if renamed == calls and extra == (message.meta or {}).get(EXTRA, {}):
        return message
    meta: dict[str, JSON] = {**(message.meta or {}), EXTRA: extra}
    if not extra:
        del meta[EXTRA]
    return replace(message, tool_calls=renamed, meta=meta or None)


def _has_id(call: ToolCall, id: str) -> bool:
    return call.id == id


def _merged(messages: Iterable[Message], rules: Rules) -> Iterator[Message]:
    """One message where several of one role stand in a row."""
    for role, group in groupby(_early_system(messages, rules), lambda message: message.role):
        row = list(group)
        if len(row) == 1 or role not in ("user", "assistant"):
            yield from row
        elif role == "user":
            yield _one_of_users(row)
        else:
            yield from _one_of_assistants(row)


def _early_system(messages: Iterable[Message], rules: Rules) -> Iterator[Message]:
    begun = False
    for message in messages:
        if not is_system(message):
            begun = True
        elif begun and not rules.late_system:
            message = replace(
                message, role="user", content=prefixed(message.content, NOTE), name=None
            )
        yield message


def _one_of_users(row: Sequence[Message]) -> Message:
    if any(message.name != row[0].name for message in row):
        row = [speaking(message) for message in row]
    return replace(row[0], content=joined([message.content for message in row]))


def _one_of_assistants(row: Sequence[Message]) -> Iterator[Message]:
    """Only the last of them makes calls: results would stand behind any other."""
    meta: dict[str, JSON] = {}
    for message in row:
        meta.update(cast(Mapping[str, JSON], message.meta or {}))
    reasoning = [message.reasoning for message in row if message.reasoning]
    yield replace(
        row[-1],
        content=joined([message.content for message in row]),
        reasoning="\n\n".join(reasoning) or None,
        meta=meta or None,
        name=row[0].name,
    )


def _in_turn(messages: Iterable[Message], rules: Rules) -> Iterator[Message]:
    """The messages in an order that the provider takes."""
    before: str | None = None
    for message in messages:
        if not is_system(message):
            if before is None and message.role != "user":
                yield Message("user", OPENING)
            elif before == "tool" and message.role == "user" and not rules.user_after_result:
                yield Message("assistant", BRIDGE)
            before = message.role
        yield message
    if before is None:
        yield Message("user", OPENING)
    elif before == "assistant" and not rules.assistant_last:
        yield Message("user", CLOSING)
