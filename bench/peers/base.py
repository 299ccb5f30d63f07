"""The interface of a measured store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bench.workload import Conversation, WorkloadMessage

T = TypeVar("T")


class MeasuredStore:
    """A measured store, opened in `folder`. An adapter overrides what its store supports."""

    fresh = ""  # a whole program: import, open `path`, write one message

    def __init__(self, folder: Path) -> None:
        raise NotImplementedError

    def append(self, session: str, said: WorkloadMessage) -> None:
        """Store one message durably, as far as the store promises that."""
        raise NotImplementedError

    def finish(self, session: str) -> None:
        """Release what is kept open for a session, after its last message."""

    def load(self, session: str) -> int:
        """Load a session as the values that callers use; return the number of messages."""
        raise NotImplementedError

    def list_recent(self, limit: int) -> int:
        raise NotImplementedError

    def search(self, query: str, newest: bool, around: bool = True) -> int:
        """Count the 20 best or newest hits; `around`: load the adjacent messages too, if possible."""
        raise NotImplementedError

    def close(self) -> None: ...

    def append_together(self, streams: list[list[Conversation]], deadline: float) -> int:
        """Write the sessions of all streams at the same time; return the number of messages."""
        counts = [0] * len(streams)

        def write(number: int) -> None:
            for talk in streams[number]:
                for said in talk.messages:
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


class AsyncMeasuredStore(MeasuredStore):
    """A store with an asyncio API: one loop, with one task per concurrent stream."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if not hasattr(self, "_runner"):
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    async def write(self, session: str, said: WorkloadMessage) -> None:
        raise NotImplementedError

    def append(self, session: str, said: WorkloadMessage) -> None:
        self.run(self.write(session, said))

    def append_together(self, streams: list[list[Conversation]], deadline: float) -> int:
        async def write(stream: list[Conversation]) -> int:
            count = 0
            for talk in stream:
                for said in talk.messages:
                    if time.monotonic() > deadline:
                        return count
                    await self.write(talk.id, said)
                    count += 1
                self.finish(talk.id)
            return count

        async def write_all() -> int:
            return sum(await asyncio.gather(*(write(stream) for stream in streams)))

        return self.run(write_all())
