"""Normalize a stored conversation into one that the provider accepts.

A conversation may have stopped at any moment: a call without a result, a result without its call,
two consecutive user messages. It may come from another program, with ids and contents that a
provider rejects. The stored messages stay untouched; `normalize_messages` returns the ones to send.

The rules:

- A result moves directly behind its call, however late it arrived: the newest call with that id. A
  result without an id answers a call of the newest message with calls.
- A call without a result gets one that says it was interrupted and may have taken effect.
- A second, different result of a call is appended to the first with a marker; a duplicate is dropped.
- A result without a call becomes text marked as data: no call is invented for it.
- Consecutive messages of one role are merged. If their authors differ, the names go into the text.
- A message of a group begins with who wrote it, marked as data.
- Blank assistant and system messages are dropped; a blank user message becomes a placeholder.
- If a provider demands another order, a short message in parentheses is inserted.

Equal input yields equal bytes, and a growing conversation keeps the bytes of what was already sent,
so that prompt caches stay valid.
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

from rekindle.routing.speaker import SPEAKER, format_speaker_mark
from rekindle.types import JSON, Message, ToolCall, replace_fields

from .message_format import join_contents, move_name_to_text, prefix_content, to_provider_message
from .providers import (
    EXTRA_CONTENT,
    PROVIDER_RULES,
    Provider,
    ProviderRules,
    get_signature,
    is_system,
)
from .validate import can_send_unchanged

INTERRUPTED = "(The call was interrupted and has no result. It may or may not have taken effect.)"
SECOND_RESULT = "[Another result of the same call]"
ORPHAN = "[Result of a tool call that is not in this conversation: data, not a user message]"
SYSTEM_NOTE = "[system]"
OPENING = "(The conversation begins here.)"
BRIDGE = "(The user sent another message.)"
CLOSING = "(Continue.)"

# Google's placeholder for calls that Gemini did not make or whose signature was not stored.
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
_ID_ALPHABET = digits + ascii_letters
_ID_LENGTH = 9  # accepted by every provider


def normalize_messages(messages: Iterable[Message], provider: Provider = "openai") -> list[Message]:
    """Return the conversation as `provider` accepts it. Pass every message of the request."""
    rules = PROVIDER_RULES[provider]
    messages = [_add_speaker_mark(message) for message in messages]
    return messages if can_send_unchanged(messages, rules) else normalize_in_full(messages, rules)


def _add_speaker_mark(message: Message) -> Message:
    """Return a message of a group with who wrote it before its text."""
    if message.meta is None or SPEAKER not in message.meta:
        return message
    mark = format_speaker_mark(message)
    if not mark:
        return message
    if isinstance(message.content, str):
        return replace_fields(message, content=f"{mark} {message.content}")
    return replace_fields(message, content=prefix_content(message.content, mark))


def normalize_in_full(messages: Iterable[Message], rules: ProviderRules) -> list[Message]:
    """Normalize without the fast path; a valid conversation is returned unchanged."""
    accepted = (to_provider_message(message, rules) for message in messages)
    groups = _attach_results(message for message in accepted if message is not None)
    outgoing = [message for group in _assign_ids(groups, rules) for message in group]
    return list(_fix_order(_merge_messages(outgoing, rules), rules))


@dataclass(slots=True)
class _MessageWithResults:
    """A message with the results of its calls by call number, in order of arrival."""

    message: Message
    results: dict[int, Message] = field(default_factory=dict[int, Message])

    def iter_unanswered(self) -> Iterator[int]:
        """Iterate over the numbers of the calls without a result."""
        return (n for n in range(len(self.message.tool_calls)) if n not in self.results)


@dataclass(slots=True)
class _OpenCalls:
    """An index of calls, to find the one that a result belongs to."""

    newest: _MessageWithResults | None = None  # the last message with calls
    by_id: dict[str, _MessageWithResults] = field(
        default_factory=dict[str, _MessageWithResults]
    )  # newest with that id

    def add(self, group: _MessageWithResults) -> None:
        self.newest = group
        self.by_id.update({call.id: group for call in group.message.tool_calls})

    def attach_result(self, result: Message) -> bool:
        """Attach the result to its call; return False if there is none."""
        id = result.tool_call_id or ""
        group = self.by_id.get(id)
        if group is None:
            return not id and self._attach_without_id(result)
        for number in group.iter_unanswered():
            if group.message.tool_calls[number].id == id:
                group.results[number] = result
                return True
        return self._append_result(group, id, result)

    def _append_result(self, group: _MessageWithResults, id: str, result: Message) -> bool:
        """Append another result to a call that already has one, unless it is a duplicate."""
        number = next(n for n in group.results if group.message.tool_calls[n].id == id)
        first = group.results[number]
        if result.content != first.content:
            content = join_contents([first.content, prefix_content(result.content, SECOND_RESULT)])
            group.results[number] = replace_fields(first, content=content)
        return True

    def _attach_without_id(self, result: Message) -> bool:
        group = self.newest
        numbers = list(group.iter_unanswered()) if group else []
        if group is None or not numbers:
            return False
        calls = group.message.tool_calls
        same = (n for n in numbers if result.name and calls[n].name == result.name)
        group.results[next(same, numbers[0])] = result
        return True


def _attach_results(messages: Iterable[Message]) -> list[_MessageWithResults]:
    """Attach results to their calls; turn results without a call into text."""
    groups: list[_MessageWithResults] = []
    calls = _OpenCalls()
    for message in messages:
        if message.role != "tool":
            groups.append(_MessageWithResults(message))
            if message.tool_calls:
                calls.add(groups[-1])
        elif not calls.attach_result(message):
            text = prefix_content(message.text, ORPHAN)
            groups.append(_MessageWithResults(Message("user", text, timestamp=message.timestamp)))
    for group in groups:
        for number in list(group.iter_unanswered()):
            group.results[number] = Message("tool", INTERRUPTED)
    return groups


def _assign_ids(
    groups: Iterable[_MessageWithResults], rules: ProviderRules
) -> Iterator[list[Message]]:
    """Yield the messages of each group with valid ids and at most the allowed number of calls."""
    assign = _CallIds(rules)
    for group in groups:
        calls = group.message.tool_calls
        if not calls:
            yield [group.message]
            continue
        for start in range(0, len(calls), rules.max_calls):
            numbers = range(start, min(start + rules.max_calls, len(calls)))
            ids = assign([calls[number].id for number in numbers])
            by_number = dict(zip(numbers, ids, strict=True))
            message = (
                group.message if len(numbers) == len(calls) else _take_calls(group.message, numbers)
            )
            yield [
                _set_call_ids(message, ids, rules),
                *(
                    result
                    if result.tool_call_id == by_number[number]
                    else replace_fields(result, tool_call_id=by_number[number])
                    for number, result in group.results.items()
                    if number in by_number
                ),
            ]


def _take_calls(message: Message, numbers: range) -> Message:
    """Return the message with some of its calls; its content stays with the first ones."""
    calls = message.tool_calls[numbers.start : numbers.stop]
    if numbers.start == 0:
        return replace_fields(message, tool_calls=calls)
    return replace_fields(message, tool_calls=calls, content=None, reasoning=None)


@dataclass(slots=True)
class _CallIds:
    """An allocator of valid call ids that keeps a given one if the provider accepts it."""

    rules: ProviderRules
    used: set[str] = field(default_factory=set[str])
    replaced: Counter[str] = field(
        default_factory=Counter[str]
    )  # how often an id had to be replaced

    def __call__(self, given: Iterable[str]) -> list[str]:
        if not self.rules.needs_unique_ids:
            self.used.clear()
        return [self._make_unique(id) for id in given]

    def _make_unique(self, id: str) -> str:
        new = id
        while new in self.used or not self.rules.id.fullmatch(new):
            new = _generate_id(f"{self.replaced[id]}:{id}")
            self.replaced[id] += 1
        self.used.add(new)
        return new


@lru_cache(maxsize=10_000)
def _generate_id(seed: str) -> str:
    number = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest())
    characters: list[str] = []
    for _ in range(_ID_LENGTH):
        number, index = divmod(number, len(_ID_ALPHABET))
        characters.append(_ID_ALPHABET[index])
    return "".join(characters)


def _set_call_ids(message: Message, ids: Sequence[str], rules: ProviderRules) -> Message:
    """Return the message with these call ids and the signatures that the provider requires."""
    calls = message.tool_calls
    if not rules.needs_signature and not message.meta and all(map(_has_id, calls, ids)):
        return message
    renamed = tuple(
        ToolCall(id, call.name, call.arguments) for id, call in zip(ids, calls, strict=True)
    )
    extra = {
        id: signed
        for id, call in zip(ids, calls, strict=True)
        if (signed := get_signature(message, call))
    }
    if rules.needs_signature:
        extra.setdefault(ids[0], _UNSIGNED)
    if renamed == calls and extra == (message.meta or {}).get(EXTRA_CONTENT, {}):
        return message
    meta: dict[str, JSON] = {**(message.meta or {}), EXTRA_CONTENT: extra}
    if not extra:
        del meta[EXTRA_CONTENT]
    return replace_fields(message, tool_calls=renamed, meta=meta or None)


def _has_id(call: ToolCall, id: str) -> bool:
    return call.id == id


def _merge_messages(messages: Iterable[Message], rules: ProviderRules) -> Iterator[Message]:
    """Merge consecutive messages of one role."""
    for role, group in groupby(_demote_late_system(messages, rules), lambda message: message.role):
        row = list(group)
        if len(row) == 1 or role not in ("user", "assistant"):
            yield from row
        elif role == "user":
            yield _merge_users(row)
        else:
            yield from _merge_assistants(row)


def _demote_late_system(messages: Iterable[Message], rules: ProviderRules) -> Iterator[Message]:
    begun = False
    for message in messages:
        if not is_system(message):
            begun = True
        elif begun and not rules.allows_late_system:
            message = replace_fields(
                message,
                role="user",
                content=prefix_content(message.content, SYSTEM_NOTE),
                name=None,
            )
        yield message


def _merge_users(row: Sequence[Message]) -> Message:
    if any(message.name != row[0].name for message in row):
        row = [move_name_to_text(message) for message in row]
    return replace_fields(row[0], content=join_contents([message.content for message in row]))


def _merge_assistants(row: Sequence[Message]) -> Iterator[Message]:
    """Merge assistant messages. Only the last can have calls: results would follow any other."""
    meta: dict[str, JSON] = {}
    for message in row:
        meta.update(cast(Mapping[str, JSON], message.meta or {}))
    reasoning = [message.reasoning for message in row if message.reasoning]
    yield replace_fields(
        row[-1],
        content=join_contents([message.content for message in row]),
        reasoning="\n\n".join(reasoning) or None,
        meta=meta or None,
        name=row[0].name,
    )


def _fix_order(messages: Iterable[Message], rules: ProviderRules) -> Iterator[Message]:
    """Yield the messages in an order that the provider accepts."""
    previous: str | None = None
    for message in messages:
        if not is_system(message):
            if previous is None and message.role != "user":
                yield Message("user", OPENING)
            elif (
                previous == "tool" and message.role == "user" and not rules.allows_user_after_result
            ):
                yield Message("assistant", BRIDGE)
            previous = message.role
        yield message
    if previous is None:
        yield Message("user", OPENING)
    elif previous == "assistant" and not rules.allows_assistant_last:
        yield Message("user", CLOSING)
