"""Find the messages of a Claude Code transcript that its user left behind.

Every line names its parent. A user who goes back and writes another prompt starts a second branch at
the same message; Claude Code continues from the last line of the file and forgets the other one.
Most forks in this tree are no branches: parallel calls give a line several children, hooks and
notices hang beside the answer, and a resumed session may be a copy of its own lines. So a branch is
left behind only if it and the one that was continued both begin with a prompt, at different times,
after the same message. A line without a parent begins nothing anew but the model's context: users
who accept a plan may clear it, and what they asked before stays what they asked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

_NO_PARENT = -1  # in this file


class BranchTree:
    """The lines of a file and their parents; a line is added after its parent."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parents = array("q")
        self._is_message = bytearray()
        self._ids: list[Sequence[str]] = []  # of the messages that a line belongs to
        self._prompts: dict[int, float] = {}  # the times of prompts
        self._last: dict[str, int] = {}  # message of each session

    def add_line(
        self,
        session: str,
        uuid: str,
        parent: str | None,
        ids: Sequence[str] = (),
        prompt_time: float | None = None,
    ) -> None:
        """Add a line with the ids of its messages; a prompt has a time."""
        if uuid in self._numbers:
            return
        number = self._numbers[uuid] = len(self._parents)
        self._parents.append(self._numbers.get(parent or "", _NO_PARENT))
        self._is_message.append(bool(ids))
        self._ids.append(ids)
        if prompt_time is not None:
            self._prompts[number] = prompt_time
        if ids:
            self._last[session] = number

    def find_abandoned(self) -> frozenset[str]:
        """Return the ids of messages that stand only on branches which were left behind."""
        forks = [prompts for prompts in self._group_prompts() if len(prompts) > 1]
        if not forks:
            return frozenset()
        active = self._find_active()
        roots = {left for prompts in forks for left in self._find_left(prompts, active)}
        if not roots:
            return frozenset()
        left = bytearray(len(self._parents))
        kept: set[str] = set()
        dropped: set[str] = set()
        for number, parent in enumerate(self._parents):
            is_left = number in roots or (parent >= 0 and left[parent])
            left[number] = bool(is_left and not active[number])
            (dropped if left[number] else kept).update(self._ids[number])
        return frozenset(dropped - kept)

    def _group_prompts(self) -> Iterator[list[int]]:
        """Yield the prompts that follow the same message."""
        groups: dict[int, list[int]] = {}
        for prompt in self._prompts:
            above = self._parents[prompt]
            while above >= 0 and not self._is_message[above]:
                above = self._parents[above]
            if above >= 0:
                groups.setdefault(above, []).append(prompt)
        yield from groups.values()

    def _find_active(self) -> bytearray:
        """Mark the lines from which the sessions were continued last, up to their first ones."""
        active = bytearray(len(self._parents))
        for number in self._last.values():
            while number >= 0 and not active[number]:
                active[number] = True
                number = self._parents[number]
        return active

    def _find_left(self, prompts: Sequence[int], active: bytearray) -> Iterator[int]:
        times = {self._prompts[prompt] for prompt in prompts if active[prompt]}
        if times:
            yield from (
                one for one in prompts if not active[one] and self._prompts[one] not in times
            )
