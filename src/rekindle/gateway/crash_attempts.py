"""A letter that ends the program each time it is worked on is given up, and the others go on.

An attempt is counted in the store before it is made: what kills us (no memory left, a crash inside a
tool) leaves nobody to count afterwards. A program counts a letter once, however often it turns to it,
and takes the attempt back when it leaves the letter to a later one in good order.

When a program dies, everything that it worked on has one attempt less left, the innocent too. So the
last attempt of a letter is made while no other letter in the same case is worked on: a second death
then counts against one of them alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from rekindle.store.conversations.inbox import Letter

from .context import Office

# Go on with it; it has ended meanwhile; or it was begun too often.
Verdict: TypeAlias = Literal["go on", "over", "hopeless"]


class Attempts:
    """The attempts of one program."""

    def __init__(self, office: Office) -> None:
        self._desk = office.desk
        self._mail = office.desk.store.mail
        self._limit = office.attempts
        self._begun: set[int] = set()
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, letter: Letter) -> AsyncGenerator[None]:
        """Wait until a letter may be worked on; only its last attempt has to."""
        if letter.num in self._begun or letter.attempts < max(1, self._limit - 1):
            yield
            return
        async with self._alone:
            yield

    async def begin(self, letter: Letter) -> Verdict:
        """Count that we begin with a letter, unless we did before."""
        if letter.num in self._begun:
            return "go on"
        attempts = await self._desk.ask(self._mail.attempt, letter)
        if attempts > self._limit:
            return "hopeless"
        if attempts:
            self._begun.add(letter.num)
        return "go on" if attempts else "over"

    def end(self, letters: Iterable[Letter]) -> None:
        """We are done with letters."""
        self._begun.difference_update(letter.num for letter in letters)

    async def leave(self, *letters: Letter) -> None:
        """Leave letters, or all, to somebody else: the program does not end because of them."""
        nums = {one.num for one in letters} & self._begun if letters else {*self._begun}
        self._begun -= nums
        if nums:
            await self._desk.ask(self._mail.spare, sorted(nums))
