"""The store against a model that is nothing but lists: whatever happens, both say the same."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from rekindle import Message, Store, ToolCall, open_store
from rekindle.errors import InvalidInput, NotFound, TitleTaken
from rekindle.store import Filter
from tests.conftest import Clock, is_looking
from tests.servers import Postgres, find_quick_folder

ROLES = st.sampled_from(["user", "user", "assistant", "tool"])
TEXTS = st.one_of(st.sampled_from(["needle", "x", ""]), st.text(max_size=8))


class Entry:
    def __init__(self, message: Message, position: int) -> None:
        self.message = message
        self.position = position
        self.rewind: Taken | None = None


class Taken:
    """A rewind, as the model knows it."""

    def __init__(self, kind: str, since: int, entries: list[Entry]) -> None:
        self.kind = kind
        self.since = since
        self.entries = entries
        self.restored = False


class Talk:
    """A session, as the model knows it."""

    def __init__(self, id: str, title: str | None) -> None:
        self.id = id
        self.title = title
        self.entries: list[Entry] = []
        self.rewinds: list[Taken] = []
        self.reason: str | None = None
        self.pruned = False

    @property
    def current(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.rewind is None]

    def add(self, message: Message) -> int:
        name = message.platform_message_id
        for entry in self.entries:
            if name is not None and entry.message.platform_message_id == name:
                return entry.position
        self.entries.append(Entry(message, len(self.entries)))
        return len(self.entries) - 1

    def take_out(self, kind: str, since: int) -> None:
        taken = [entry for entry in self.current if entry.position >= since]
        if taken:
            self.rewinds.append(Taken(kind, since, taken))
            for entry in taken:
                entry.rewind = self.rewinds[-1]

    def asked(self) -> list[Entry]:
        return [entry for entry in self.current if entry.message.role == "user"]


@st.composite
def messages(draw: st.DrawFn, platform: bool = True) -> Message:
    calls = draw(st.integers(0, 2))
    name = draw(st.sampled_from([None, None, "p1", "p2", "p3"])) if platform else None
    return Message(
        role=draw(ROLES),
        content=draw(TEXTS),
        tool_calls=tuple(ToolCall(str(number), "ls") for number in range(calls)),
        platform_message_id=name,
    )


class Conversations(RuleBasedStateMachine):
    opened: ClassVar[Callable[[Clock], Store]]
    removed: ClassVar[Callable[[], None]]
    talks = Bundle("talks")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = type(self).opened(self.clock)
        self.known: list[Talk] = []

    def teardown(self) -> None:
        try:
            assert self.store.verify() == []
            for talk in self.known:
                if talk.pruned:
                    with pytest.raises(NotFound):
                        self.store.messages(talk.id)
        finally:
            self.store.close()
            type(self).removed()

    def refused(self, talk: Talk, act: Callable[[], Any]) -> bool:
        """A pruned session refuses everything."""
        self.clock.forward(1)
        if talk.pruned:
            with pytest.raises(NotFound):
                act()
        return talk.pruned

    @rule(target=talks, first=st.lists(messages(), min_size=1, max_size=4), titled=st.booleans())
    def begin(self, first: list[Message], titled: bool) -> Talk:
        self.clock.forward(1)
        session = self.store.begin(title=f"Talk {len(self.known)}" if titled else None)
        talk = Talk(session.id, session.title)
        assert self.store.append(session, *first) == [talk.add(message) for message in first]
        self.known.append(talk)
        return talk

    @rule(talk=talks, said=st.lists(messages(), max_size=4))
    def append(self, talk: Talk, said: list[Message]) -> None:
        if not said or self.refused(talk, lambda: self.store.append(talk.id, *said)):
            return
        expected = [talk.add(message) for message in said]
        assert self.store.append(talk.id, *said) == expected

    @rule(talk=talks, turns=st.integers(1, 4))
    def undo(self, talk: Talk, turns: int) -> None:
        if self.refused(talk, lambda: self.store.undo(talk.id, turns)):
            return
        asked = talk.asked()
        if not asked:
            with pytest.raises(InvalidInput):
                self.store.undo(talk.id, turns)
            return
        undone = self.store.undo(talk.id, turns)
        talk.take_out("undo", asked[-turns:][0].position)
        assert undone.messages == len(talk.rewinds[-1].entries)

    @rule(talk=talks)
    def retry(self, talk: Talk) -> None:
        if self.refused(talk, lambda: self.store.retry(talk.id)):
            return
        asked = talk.asked()
        if not asked:
            with pytest.raises(InvalidInput):
                self.store.retry(talk.id)
            return
        assert self.store.retry(talk.id) == asked[-1].message
        talk.take_out("retry", asked[-1].position + 1)

    @rule(talk=talks, said=st.lists(messages(platform=False), max_size=3))
    def rewrite(self, talk: Talk, said: list[Message]) -> None:
        if self.refused(talk, lambda: self.store.rewrite(talk.id, *said)):
            return
        self.store.rewrite(talk.id, *said)
        talk.take_out("rewrite", 0)
        for message in said:
            talk.add(message)

    @rule(talk=talks, which=st.one_of(st.none(), st.integers(0, 5)))
    def redo(self, talk: Talk, which: int | None) -> None:
        if self.refused(talk, lambda: self.store.redo(talk.id)):
            return
        waiting = [taken for taken in talk.rewinds if not taken.restored]
        if not waiting:
            with pytest.raises(NotFound):
                self.store.redo(talk.id)
            return
        chosen = waiting[-1] if which is None else waiting[which % len(waiting)]
        number = self.store.rewinds(talk.id)[talk.rewinds.index(chosen)].id
        self.store.redo(talk.id, None if which is None else number)
        talk.take_out("redo", chosen.since)
        chosen.restored = True
        for entry in chosen.entries:
            if entry.rewind is chosen:
                entry.rewind = None

    @rule(target=talks, talk=talks, at=st.one_of(st.none(), st.integers(0, 9)))
    def fork(self, talk: Talk, at: int | None) -> Talk:
        if self.refused(talk, lambda: self.store.fork(talk.id, at=at)):
            return talk
        here = [entry for entry in talk.current if at is None or entry.position <= at]
        if not here or (at is not None and here[-1].position != at):
            with pytest.raises(InvalidInput):
                self.store.fork(talk.id, at=at)
            return talk
        session = self.store.fork(talk.id, at=at)
        child = Talk(session.id, session.title)
        child.entries = [Entry(entry.message, n) for n, entry in enumerate(here)]
        assert (session.parent, session.forked_at) == (talk.id, here[-1].position)
        self.known.append(child)
        return child

    @rule(talk=talks, reason=st.sampled_from(["done", "crash"]))
    def end(self, talk: Talk, reason: str) -> None:
        if not self.refused(talk, lambda: self.store.end(talk.id, reason)):
            talk.reason = talk.reason or reason
            assert self.store.end(talk.id, reason).end_reason == talk.reason

    @rule(talk=talks)
    def reopen(self, talk: Talk) -> None:
        if not self.refused(talk, lambda: self.store.reopen(talk.id)):
            self.store.reopen(talk.id)
            talk.reason = None

    @rule(talk=talks, title=st.sampled_from(["Plan", "plan", "Plan #2", "Plan #3", None]))
    def rename(self, talk: Talk, title: str | None) -> None:
        if self.refused(talk, lambda: self.store.rename(talk.id, title)):
            return
        others = {other.title for other in self.known if other is not talk and not other.pruned}
        if title is not None and title in others:
            with pytest.raises(TitleTaken):
                self.store.rename(talk.id, title)
        else:
            self.store.rename(talk.id, title)
            talk.title = title

    @rule()
    def prune(self) -> None:
        self.clock.forward(1)
        ended = {talk.id for talk in self.known if talk.reason and not talk.pruned}
        assert {session.id for session in self.store.prune(Filter(ended="yes"))} == ended
        for talk in self.known:
            talk.pruned = talk.pruned or talk.id in ended

    @rule(talk=talks)
    def restore(self, talk: Talk) -> None:
        others = {other.title for other in self.known if other is not talk and not other.pruned}
        (session,) = self.store.restore(talk.id)
        if talk.pruned and talk.title in others and talk.title is not None:
            assert session.title not in others
            talk.title = session.title
        assert session.title == talk.title
        talk.pruned = False

    @invariant()
    def says_the_same(self) -> None:
        there = [talk for talk in self.known if not talk.pruned]
        assert {s.id for s in self.store.recent(1000)} == {talk.id for talk in there}
        for talk in there[-4:]:
            current = talk.current
            assert self.store.messages(talk.id) == [entry.message for entry in current]
            everything = self.store.messages(talk.id, rewound=True)
            assert [(m, m.position, m.rewound) for m in everything] == [
                (e.message, e.position, e.rewind is not None) for e in talk.entries
            ]
            session = self.store.session(talk.id)
            assert session.message_count == len(current)
            assert session.tool_call_count == sum(len(e.message.tool_calls) for e in current)
            assert (session.title, session.end_reason) == (talk.title, talk.reason)
            hits = self.store.search("needle", session=talk.id, limit=1000)
            assert {hit.message.position for hit in hits} == {
                e.position for e in current if "needle" in (e.message.text.split())
            }


def run(machine: type[Conversations], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_sqlite_says_what_the_model_says(empty_file: Path) -> None:
    class OnSqlite(Conversations):
        @staticmethod
        def opened(clock: Clock) -> Store:
            quick = find_quick_folder()
            OnSqlite.folder = Path(tempfile.mkdtemp(prefix="rekindle-model-", dir=quick))
            file = shutil.copy(empty_file, OnSqlite.folder / "s.db")
            return open_store(file, durability="relaxed", clock=clock)

        @staticmethod
        def removed() -> None:
            shutil.rmtree(OnSqlite.folder)

    run(OnSqlite, examples=60 if is_looking() else 15, steps=30)


def test_whatever_happens_postgresql_says_what_the_model_says(
    postgres: Postgres, schema: Callable[[], str]
) -> None:
    original, _, options = (url := schema()).partition("?")
    open_store(url).close()

    class OnPostgres(Conversations):
        @staticmethod
        def opened(clock: Clock) -> Store:
            OnPostgres.database = postgres.copy_database(original)
            target = f"{OnPostgres.database}?{options}"
            return open_store(target, durability="relaxed", clock=clock)

        @staticmethod
        def removed() -> None:
            postgres.drop(OnPostgres.database)

    run(OnPostgres, examples=12 if is_looking() else 6, steps=20)
