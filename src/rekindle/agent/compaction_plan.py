"""Decide which parts of a conversation are kept, shortened or summarized to save tokens.

Always kept: the last message and the last request of the user. Then, in this order, as far as there
is room: results that the model has not seen; calls without a result; the first messages; the last
ones. A call and its results stay together. Everything else is summarized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rekindle.agent.tools.truncate import truncate_middle
from rekindle.errors import CompressionFailed
from rekindle.types import Message, replace_fields

from .context_space import ContextSpace

SUMMARY_OF = "summary_of"  # in the meta of a summary: the session that it summarizes

_KEEP_FIRST = 2  # groups
_MIN_MIDDLE = 4  # messages; on request, fewer are not worth a summary
_GOAL_SHARE = 0.6  # of the space, so that the next messages fit as well
_REQUEST_SHARE = 0.3  # of the conversation, if it is compressed on request
_ENOUGH_SHARE = 0.75  # of the space: if shortened results get there, nothing is summarized
_MIN_RESULT_CHARS, _MAX_RESULT_CHARS = 120, 600  # of a shortened result
_LEAST_CHARS = 40
_CHARS_PER_TOKEN = 3.5


class CompressionPlan(NamedTuple):
    """The messages to keep before and after the summary, and those to summarize, if any."""

    before: Sequence[Message]
    middle: Sequence[Message] = ()
    after: Sequence[Message] = ()
    summary_tokens: int = 0  # the room for the summary


class _KeptTogether(NamedTuple):
    """The positions of a message and of the results of its calls."""

    positions: Sequence[int]
    is_unfinished: bool

    @property
    def last(self) -> int:
        return self.positions[-1]


def plan_compression(
    messages: Sequence[Message], space: ContextSpace, *, on_request: bool = False
) -> CompressionPlan | None:
    """Plan how the messages fit into a space; raise `CompressionFailed` if they cannot.

    On request, plan a summary although the messages fit; return None if it is not worthwhile.
    """
    planner = _Planner(list(messages), space)
    if not on_request:
        planner.shorten_old_results(int(space.tokens * _ENOUGH_SHARE))
        if planner.total <= space.tokens * _ENOUGH_SHARE:
            return CompressionPlan(planner.messages)
    kept = planner.choose_kept(on_request=on_request)
    middle = [n for n in range(len(messages)) if n not in kept]
    if on_request and len(middle) < _MIN_MIDDLE:
        return None
    if not middle:
        return CompressionPlan(planner.messages)
    before, after = (
        [planner.messages[n] for n in sorted(kept) if (n < middle[0]) is is_before]
        for is_before in (True, False)
    )
    room = space.summary_tokens
    if space.tokens > 0:
        room = min(room, space.tokens - sum(planner.sizes[n] for n in kept))
    return CompressionPlan(before, [messages[n] for n in middle], after, room)


def shorten_result(message: Message, limit: int) -> Message:
    """Return a tool result with at most about `limit` characters; images are left out."""
    return replace_fields(message, content=truncate_middle(message.text, limit))


def group_messages(messages: Sequence[Message]) -> list[_KeptTogether]:
    """Group each message with the results of its calls, in the order of the messages."""
    groups: list[list[int]] = []
    callers: dict[str, int] = {}  # the group of each call, the newest one with its id
    newest: int | None = None  # the newest group with calls
    for position, message in enumerate(messages):
        group = None
        if message.role == "tool":
            group = callers.get(message.tool_call_id) if message.tool_call_id else newest
        if group is not None:
            groups[group].append(position)
            continue
        groups.append([position])
        if message.tool_calls:
            newest = len(groups) - 1
            callers.update((call.id, newest) for call in message.tool_calls)
    return [_KeptTogether(one, _is_unfinished(messages, one)) for one in groups]


def _is_unfinished(messages: Sequence[Message], positions: Sequence[int]) -> bool:
    answered = [messages[n].tool_call_id for n in positions[1:]]
    missing = [call for call in messages[positions[0]].tool_calls if call.id not in answered]
    return len(missing) > answered.count(None) + answered.count("")


@dataclass(slots=True)
class _Planner:
    """The messages, some of them shortened, and their sizes."""

    messages: list[Message]
    space: ContextSpace
    sizes: list[int] = field(init=False)
    groups: list[_KeptTogether] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [self.space.estimate((message,)) for message in self.messages]
        self.groups = group_messages(self.messages)

    @property
    def total(self) -> int:
        return sum(self.sizes)

    def shorten_old_results(self, goal: int) -> None:
        """Shorten results that the model has seen, oldest first, until the goal is met."""
        unseen = {n for group in self._find_unseen() for n in group.positions}
        limit = self.space.tokens * _CHARS_PER_TOKEN / 50
        chars = int(min(_MAX_RESULT_CHARS, max(_MIN_RESULT_CHARS, limit)))
        total = self.total
        for position, message in enumerate(self.messages):
            if total <= goal:
                return
            if message.role == "tool" and position not in unseen:
                total -= self._shorten(position, chars)

    def _shorten(self, position: int, chars: int) -> int:
        """Shorten one result and return the tokens that this saves."""
        shortened = shorten_result(self.messages[position], chars)
        size = self.space.estimate((shortened,))
        saved = self.sizes[position] - size
        if saved <= 0:
            return 0
        self.messages[position], self.sizes[position] = shortened, size
        return saved

    def _find_unseen(self) -> list[_KeptTogether]:
        """Return the last calls of the model, whose results it has not seen yet."""
        last = [n for n, message in enumerate(self.messages) if message.role == "assistant"][-1:]
        return [one for one in self.groups if one.positions[0] in last and len(one.positions) > 1]

    def choose_kept(self, *, on_request: bool) -> set[int]:
        """Choose the positions of the messages to keep."""
        limit, goal = self._compute_room(on_request=on_request)
        required = self._find_required()
        kept = required | {n for group in self._find_unseen() for n in group.positions}
        if self._measure(kept) > limit:
            self._shorten_results(kept, limit)
        if self._measure(kept) > limit:
            kept = required
        if self._measure(kept) > limit:
            raise CompressionFailed(self._describe_excess(kept, limit))
        unfinished = [group for group in self.groups if group.is_unfinished]
        self._add(kept, reversed(unfinished), min(limit, self._measure(kept) + limit // 4))
        first = [group for group in self.groups[:_KEEP_FIRST] if not self._is_summary(group)]
        self._add(kept, first, min(limit, self._measure(kept) + limit // 6))
        newest = sorted(self.groups, key=lambda group: -group.last)
        self._add(kept, newest, min(limit, goal), must_adjoin=True)
        return kept

    def _compute_room(self, *, on_request: bool) -> tuple[int, int]:
        """Return the most tokens that may be kept, and how many to aim at."""
        total, space = self.total, self.space
        if space.tokens <= space.summary_tokens and space.context and not on_request:
            raise CompressionFailed(
                f"The instructions and tools take about {space.overhead:,} tokens, and the context of"
                f" the model has {space.context:,}. Enable fewer tools, or set the context of the"
                " model if it has more."
            )
        limit = space.tokens - space.summary_tokens if space.tokens > 0 else total
        goal = int(limit * _GOAL_SHARE)
        return limit, min(goal, int(total * _REQUEST_SHARE)) if on_request else goal

    def _find_required(self) -> set[int]:
        """Return the last message and the last request of the user, with the results of their calls."""
        users = [n for n, message in enumerate(self.messages) if message.role == "user"]
        ends = {len(self.messages) - 1, *users[-1:]}
        required = [group for group in self.groups if ends & {*group.positions}]
        return {n for group in required for n in group.positions}

    def _shorten_results(self, kept: Collection[int], limit: int) -> None:
        """Shorten results to keep to a limit; as a last resort, since the model has not seen them."""
        unfinished = {n for one in self.groups if one.is_unfinished for n in one.positions}
        results = [n for n in kept if self.messages[n].role == "tool" and n not in unfinished]
        others = self._measure(kept) - self._measure(results)
        chars = int((limit - others) * _CHARS_PER_TOKEN / self.space.ratio / max(1, len(results)))
        while self._measure(kept) > limit and chars >= _LEAST_CHARS:
            for position in results:
                self._shorten(position, chars)
            chars = chars * 3 // 4

    def _describe_excess(self, kept: Collection[int], limit: int) -> str:
        largest = max(kept, key=lambda n: self.sizes[n])
        name, size = _describe_message(self.messages[largest], largest), self.sizes[largest]
        room = f"the context of {self.space.context:,} tokens has room for {max(0, limit):,}."
        text = f"{name} is too large for the model: about {size:,} tokens, where {room}"
        if size <= limit:
            text = (
                f"The last messages do not fit: about {self._measure(kept):,} tokens, where {room}"
            )
            text += f" The largest is {name[0].lower()}{name[1:]} with about {size:,} tokens."
        if self.messages[largest].role == "user":
            return f"{text} Send a smaller message; /undo removes this one."
        return f"{text} Use /undo to remove it, or send another message to go on without it."

    def _add(
        self,
        kept: set[int],
        groups: Iterable[_KeptTogether],
        limit: int,
        *,
        must_adjoin: bool = False,
    ) -> None:
        """Keep those of the groups that fit; with `must_adjoin`, none after one that does not."""
        size = self._measure(kept)
        for group in groups:
            added = [n for n in group.positions if n not in kept]
            if size + self._measure(added) <= limit:
                kept.update(added)
                size += self._measure(added)
            elif must_adjoin:
                return

    def _measure(self, positions: Iterable[int]) -> int:
        return sum(self.sizes[n] for n in positions)

    def _is_summary(self, group: _KeptTogether) -> bool:
        return SUMMARY_OF in (self.messages[group.positions[0]].meta or {})


def _describe_message(message: Message, position: int) -> str:
    match message.role:
        case "user":
            return f"Message {position + 1} (from the user)"
        case "tool":
            return f"Message {position + 1} (the result of {message.name or 'a tool'})"
        case "assistant" if message.tool_calls:
            names = ", ".join(sorted({call.name for call in message.tool_calls}))
            return f"Message {position + 1} (a call of {names})"
        case _:
            return f"Message {position + 1} (from the model)"
