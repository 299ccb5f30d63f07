"""PostgreSQL through pgbouncer in transaction mode, and a server that has no free connection.

`REKINDLE_TEST_POOLER=1 pytest tests/contract` runs the whole suite through it.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from rekindle import Message, Store, open_store
from rekindle.errors import StoreBusy
from rekindle.store.conversations.session_leases import LeaseHolder
from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import Source
from tests import command
from tests.contract.messages import texts, user
from tests.contract.test_writers import together
from tests.servers import Missing, Pgbouncer, Postgres
from tests.waiting import wait_until


@contextmanager
def open_pooler(postgres: Postgres, **options: int) -> Iterator[Pgbouncer]:
    try:
        pooler = Pgbouncer(postgres, **options)
    except Missing as reason:
        warnings.warn(f"PGBOUNCER IS NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))
    try:
        yield pooler
    finally:
        pooler.remove()


@pytest.fixture(scope="module")
def pooler(postgres: Postgres) -> Iterator[Pgbouncer]:
    with open_pooler(postgres) as started:
        yield started


@pytest.fixture
def url(pooler: Pgbouncer, store_database: Callable[[], str]) -> str:
    return pooler.route(store_database())


def test_stores_that_share_connections_write_read_list_and_search(url: str) -> None:
    with open_store(url) as first, open_store(url) as second:

        def talk(store: Store, name: str) -> None:
            session = store.begin(id=name, title=f"Talk {name}")
            for number in range(12):  # more often than a statement is run before it is prepared
                store.append(session, Message("user", f"{name} says needle{number}"))
                assert len(store.messages(session)) == number + 1
                (hit,) = store.search(f'"{name} says needle{number}"', limit=5)
                assert hit.session.id == name
                store.recent(5)

        together(
            *[lambda name=name: talk(first, name) for name in ("a", "b", "c")],
            *[lambda name=name: talk(second, name) for name in ("d", "e", "f")],
        )
        for name in "abcdef":
            assert texts(first, name) == [f"{name} says needle{number}" for number in range(12)]
        second.undo("a")
        assert len(first.messages("a")) == 11
        assert first.verify() == []


def test_what_a_store_sets_is_not_left_to_the_next_user_of_a_connection(
    postgres: Postgres, store_database: Callable[[], str]
) -> None:
    def show(url: str) -> list[str]:
        names = ("lock_timeout", "synchronous_commit", "tcp_keepalives_idle")
        with psycopg.connect(url, autocommit=True) as connection:
            cursors = [connection.execute(f"SHOW {name}") for name in names]  # pyright: ignore
            return [row[0] for cursor in cursors if (row := cursor.fetchone())]

    with open_pooler(postgres, pool_size=1) as alone:
        url = alone.route(store_database())
        before = show(url)
        with open_store(url, durability="relaxed", busy_seconds=5) as store:
            store.append(store.begin(id="one"), user("hello"))
            assert texts(store, "one") == ["hello"]
            assert show(url) == before


def test_a_writer_waits_for_a_lock_no_longer_than_it_is_told(url: str) -> None:
    with open_store(url) as store:
        store.append(store.begin(id="one"), user("hello"))
    with (
        psycopg.connect(url) as other,
        open_store(url, busy_seconds=0.2) as store,
    ):
        other.execute("LOCK TABLE sessions IN EXCLUSIVE MODE")
        with pytest.raises(StoreBusy, match="another program has been writing"):
            store.append("one", user("too late"))
        other.rollback()
        store.append("one", user("in time"))
        assert texts(store, "one") == ["hello", "in time"]


def test_a_session_has_one_holder_among_stores_behind_a_pooler(url: str) -> None:
    holders = [LeaseHolder(f"chat-{n}", "terminal", "host", n, f"boot {n}") for n in range(8)]
    with open_store(url) as first, open_store(url) as second:
        won: list[str] = []
        together(
            *[
                lambda holder=holder, store=store: won.append(
                    store.session_leases.acquire("s", holder, 60).name
                )
                for holder, store in zip(holders, [first, second] * 4, strict=True)
            ]
        )
        assert len(set(won)) == 1


@pytest.mark.scale
def test_two_gateways_behind_a_pooler_answer_each_message_once(url: str, tmp_path: Path) -> None:
    """`python -m soak gateway` with the URL of a pooler does more of it."""
    chats = [Source("memory", f"chat{number}", user_id="1") for number in range(8)]
    with (
        ScriptedModel({"turns": []}) as model,
        ChatServer() as server,
        ExitStack() as stack,
    ):
        env = {
            **{name: value for name, value in os.environ.items() if "REKINDLE" not in name},
            "REKINDLE_HOME": str(tmp_path),
            "REKINDLE_STORE": url,
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
            "REKINDLE_MODEL": "scripted",
            "REKINDLE_GATEWAY_PLATFORMS": f"rekindle.testing:connect={server.address}",
            "REKINDLE_GATEWAY_ALLOW": "memory:*=owner",
        }
        for _ in range(2):
            process = command.start(["gateway", "run", "--quiet"], env=env)
            stack.callback(process.wait)
            stack.callback(process.kill)
        wait_until(lambda: server.listeners == 2)
        for number in (1, 2, 3):
            for chat in chats:
                server.post_message(chat, f"message {number}")
            wait_until(lambda: len(server.list_sent()) >= len(chats) * number)  # noqa: B023
        wait_until(lambda: not server.unacknowledged)
        for chat in chats:
            said = [sent.text for sent in server.list_sent(chat.chat_id)]
            assert said == [f"You said: message {number}" for number in (1, 2, 3)]


# -- a server that has no free connection


@pytest.fixture
def limited(
    postgres: Postgres, store_database: Callable[[], str]
) -> Iterator[Callable[[int], str]]:
    """Call it for the URL of a store whose user may have only so many connections."""
    url = store_database()
    user_url = url.replace("//rekindle@", "//few@")

    def limit(connections: int) -> str:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE few LOGIN CONNECTION LIMIT {connections}")  # pyright: ignore
            connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO few")
        return user_url

    yield limit
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY few")
        connection.execute("DROP ROLE few")


def test_a_full_server_is_a_plain_error_after_the_time_to_wait(
    limited: Callable[[int], str],
) -> None:
    url = limited(1)
    with (
        closing(psycopg.connect(url)),
        pytest.raises(StoreBusy, match=r"no free connection for 0\.2 s; raise its max_connections"),
    ):
        open_store(url, busy_seconds=0.2)


def test_a_full_pooler_is_a_plain_error_too(
    postgres: Postgres, store_database: Callable[[], str]
) -> None:
    with open_pooler(postgres, max_clients=1) as small:
        url = small.route(store_database())
        with closing(psycopg.connect(url)), pytest.raises(StoreBusy, match="no free connection"):
            open_store(url, busy_seconds=0.2)


def test_a_store_opens_as_soon_as_a_connection_is_free(limited: Callable[[int], str]) -> None:
    url = limited(2)
    held = [psycopg.connect(url) for _ in range(2)]
    opened: list[Store] = []
    thread = threading.Thread(target=lambda: opened.append(open_store(url)))
    thread.start()
    for connection in held:
        connection.close()
    thread.join()
    with opened[0] as store:
        wait_until(lambda: store.append(store.begin(id="one"), user("hello")) == [0])


def test_readers_share_the_connections_that_a_store_could_open(
    limited: Callable[[int], str],
) -> None:
    with open_store(limited(2)) as store:  # one to write and one to read
        store.append(store.begin(id="one"), user("hello"))
        together(*[lambda: [texts(store, "one") for _ in range(5)] for _ in range(6)])  # pyright: ignore
        assert texts(store, "one") == ["hello"]
