"""What the rows ask of a store, whoever made it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bench.workload import Said, Talk

T = TypeVar("T")


class Contestant:
    """A store under measurement, opened in `folder`. An adapter overrides what its store can do."""

    fresh = ""  # a whole program: import, open `path`, write one message

    def __init__(self, folder: Path) -> None:
        raise NotImplementedError

    def append(self, session: str, said: Said) -> None:
        """Store one message, durable on return as far as the store promises that."""
        raise NotImplementedError

    def finish(self, session: str) -> None:
        """Called after a session's last message, for stores that keep something open for it."""

    def load(self, session: str) -> int:
        """Load a session into the values its callers use; return how many messages came."""
        raise NotImplementedError

    def recent(self, limit: int) -> int:
        raise NotImplementedError

    def search(self, query: str, newest: bool, around: bool = True) -> int:
        """The 20 best or newest hits; `around`: with the messages next to each, where it can."""
        raise NotImplementedError

    def close(self) -> None: ...

    def append_together(self, streams: list[list[Talk]], deadline: float) -> int:
        """Let every stream write its sessions at the same time; return how many messages."""
        counts = [0] * len(streams)

        def write(number: int) -> None:
            for talk in streams[number]:
                for said in talk.said:
                    if time.monotonic() > deadline:
                        return
                    self.append(talk.id, said)
                    counts[number] += 1
                self.finish(talk.id)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(len(streams))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)


class AsyncContestant(Contestant):
    """A store with an asyncio API: one loop, and one task per stream where many write at once."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if not hasattr(self, "_runner"):
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    async def write(self, session: str, said: Said) -> None:
        raise NotImplementedError

    def append(self, session: str, said: Said) -> None:
        self.run(self.write(session, said))

    def append_together(self, streams: list[list[Talk]], deadline: float) -> int:
        async def write(stream: list[Talk]) -> int:
            count = 0
            for talk in stream:
                for said in talk.said:
                    if time.monotonic() > deadline:
                        return count
                    await self.write(talk.id, said)
                    count += 1
                self.finish(talk.id)
            return count

        async def write_all() -> int:
            return sum(await asyncio.gather(*(write(stream) for stream in streams)))

        return self.run(write_all())
