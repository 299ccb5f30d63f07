"""A PostgreSQL server that is restarted, or a line to it that is cut: each message exactly once."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from soak.crash.writer_kills import kill_writers

from rekindle import Message, Store, open_store
from rekindle.errors import StoreFull, StoreUnavailable
from tests import servers
from tests.acceptance.faults import Line, line, run_command
from tests.command import start_python
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Postgres]:
    """A server of this file's own, since it is crashed here."""
    try:
        started = servers.Postgres()
    except servers.Missing as reason:
        pytest.skip(str(reason))
    yield started
    started.remove()


def restart(server: servers.Postgres) -> None:
    server.stop("immediate")
    server.start()


def contents(store: Store, session: str) -> list[str]:
    return [message.text for message in store.messages(session)]


def test_threads_that_write_while_the_server_crashes_go_on_and_lose_or_double_nothing(
    server: servers.Postgres,
) -> None:
    acknowledged: dict[str, list[str]] = {f"thread{number}": [] for number in range(6)}
    errors: list[Exception] = []
    done = threading.Event()

    def write(store: Store, name: str) -> None:
        session = store.begin(id=name)
        number = 0
        try:
            while not done.is_set():
                text = f"{name} says {number}"
                (position,) = store.append(session, Message(role="user", content=text))
                assert position == len(acknowledged[name])
                acknowledged[name].append(text)
                number += 1
        except Exception as error:  # noqa: BLE001  # told below
            errors.append(error)

    def wait_for_more() -> None:
        before = {name: len(texts) for name, texts in acknowledged.items()}
        wait_until(
            lambda: errors or all(len(acknowledged[name]) > before[name] + 5 for name in before)
        )

    with open_store(server.database()) as store:
        threads = [threading.Thread(target=write, args=(store, name)) for name in acknowledged]
        for thread in threads:
            thread.start()
        for _ in range(3):
            wait_for_more()
            restart(server)
        wait_for_more()
        done.set()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        for name, texts in acknowledged.items():
            assert contents(store, name) == texts
        assert store.verify() == []


def test_processes_killed_while_the_server_crashes_lose_or_double_nothing(
    server: servers.Postgres, tmp_path: Path
) -> None:
    report = kill_writers(
        server.database(),
        tmp_path,
        kills=8,
        writers=4,
        seed=5,
        restart=lambda: restart(server),
        restart_every=4,
        pause=0.1,
        start=start_python,
    )
    assert report.wrong == []
    assert report.restarts == 2
    assert report.acknowledged > 0


@pytest.fixture
def wire(server: servers.Postgres) -> Iterator[Line]:
    with line(server.port) as opened:
        yield opened


def through(wire: Line, server: servers.Postgres, url: str) -> str:
    return url.replace(f":{server.port}/", f":{wire.port}/")


@pytest.mark.parametrize("platform_id", [None, "m1"], ids=["one statement", "several"])
def test_an_append_whose_answer_was_lost_is_stored_once_and_acknowledged(
    server: servers.Postgres, wire: Line, platform_id: str | None
) -> None:
    url = server.database()
    once = Message(role="user", content="once", platform_message_id=platform_id)

    def commit_then_cut(pass_on: Callable[[], None]) -> None:
        pass_on()
        time.sleep(0.3)  # the server has committed and answered; nobody hears it

    with open_store(through(wire, server, url)) as store:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        wire.at_commit = commit_then_cut
        assert store.append("one", once) == [1]
        assert wire.at_commit is None
        assert store.append("one", Message(role="user", content="after")) == [2]
        assert contents(store, "one") == ["before", "once", "after"]
        assert store.verify() == []


def test_an_append_that_the_server_reads_after_it_was_sent_again_is_stored_once(
    server: servers.Postgres, wire: Line
) -> None:
    url = server.database()
    with (
        open_store(through(wire, server, url)) as store,
        psycopg.connect(url, autocommit=True) as watcher,
    ):

        def list_backends() -> set[int]:
            sql = (
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'rekindle' AND datname ="
            )
            return {pid for (pid,) in watcher.execute(f"{sql} current_database()")}

        store.append(store.begin(id="one"), Message(role="user", content="before"))
        stopped = list_backends()

        def stop_then_cut(pass_on: Callable[[], None]) -> None:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            pass_on()  # it stays in the socket

        wire.at_commit = stop_then_cut
        try:
            assert store.append("one", Message(role="user", content="once")) == [1]
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        assert wire.at_commit is None
        wait_until(lambda: not stopped & list_backends())
        assert store.append("one", Message(role="user", content="after")) == [2]
        assert contents(store, "one") == ["before", "once", "after"]
        assert store.verify() == []


def test_an_append_that_never_reached_the_server_is_sent_again(
    server: servers.Postgres, wire: Line
) -> None:
    with open_store(through(wire, server, server.database())) as store:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        wire.at_commit = lambda pass_on: None
        assert store.append("one", Message(role="user", content="once")) == [1]
        assert contents(store, "one") == ["before", "once"]
        assert store.verify() == []


SLOW_COMMIT = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF NEW.content LIKE ''slow%%'' THEN PERFORM pg_sleep(0.4); END IF; RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON messages DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow();
"""


def test_an_append_whose_line_was_cut_while_the_server_still_commits_is_stored_once(
    server: servers.Postgres, wire: Line
) -> None:
    url = server.database()
    with open_store(through(wire, server, url)) as store:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        with psycopg.connect(url) as connection:
            connection.execute(SLOW_COMMIT.replace("%%", "%"))
        wire.at_commit = lambda pass_on: pass_on()
        assert store.append("one", Message(role="user", content="slow")) == [1]
        assert wire.at_commit is None
        assert contents(store, "one") == ["before", "slow"]
        assert store.verify() == []


def test_an_append_lost_in_a_crash_is_not_taken_for_the_transaction_that_got_its_number(
    server: servers.Postgres, wire: Line
) -> None:
    """After a crash the server gives out again the numbers of transactions that left no trace."""
    url = server.database()
    with open_store(url) as other, open_store(through(wire, server, url)) as store:
        other.append(other.begin(id="other"), Message(role="user", content="begun"))
        store.append(store.begin(id="one"), Message(role="user", content="before"))

        def crash_and_let_the_other_write(pass_on: Callable[[], None]) -> None:
            restart(server)
            for number in range(5):
                other.append("other", Message(role="user", content=str(number)))

        wire.at_commit = crash_and_let_the_other_write
        assert store.append("one", Message(role="user", content="kept")) == [1]
        assert contents(store, "one") == ["before", "kept"]
        assert contents(store, "other") == ["begun", *map(str, range(5))]


def test_readers_go_on_at_once_when_the_server_is_back(server: servers.Postgres) -> None:
    with open_store(server.database()) as store:
        store.append(store.begin(id="one"), Message(role="user", content="an ember"))
        assert contents(store, "one") == ["an ember"]
        restart(server)
        assert contents(store, "one") == ["an ember"]
        assert [hit.session.id for hit in store.search("ember")] == ["one"]


def test_a_server_that_stays_away_is_a_clear_error_and_the_store_goes_on_once_it_is_back(
    server: servers.Postgres,
) -> None:
    url = server.database()
    with open_store(url, busy_seconds=0.3) as store:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        server.stop("immediate")
        try:
            for work in (
                lambda: store.append("one", Message(role="user", content="in vain")),
                lambda: store.messages("one"),
                lambda: open_store(url, busy_seconds=0.3),
            ):
                with pytest.raises(
                    StoreUnavailable, match=r"(?s)127\.0\.0\.1.*is the server running"
                ):
                    work()
            said = run_command(url, "sessions", "list", REKINDLE_STORE_BUSY_SECONDS="0.3")
            assert said.returncode == 1
            assert "is the server running" in said.stderr
            assert "Traceback" not in said.stderr
        finally:
            server.start()
        assert store.append("one", Message(role="user", content="after")) == [1]
        assert contents(store, "one") == ["before", "after"]
        assert store.verify() == []


def test_a_connection_ended_by_an_operator_costs_no_message(server: servers.Postgres) -> None:
    url = server.database()
    texts = [f"m{number}" for number in range(60)]
    with open_store(url) as store:
        session = store.begin(id="one")
        with psycopg.connect(url, autocommit=True) as operator:
            for number, text in enumerate(texts):
                if number % 10 == 5:
                    operator.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'rekindle' AND datname = current_database()"
                    )
                assert store.append(session, Message(role="user", content=text)) == [number]
        assert Counter(contents(store, "one")) == Counter(texts)
        assert contents(store, "one") == texts


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''53100''; END';
CREATE TRIGGER refuse BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def test_a_full_disk_of_the_server_is_told_at_once_and_writing_goes_on_with_space_again(
    server: servers.Postgres,
) -> None:
    url = server.database()
    with open_store(url) as store, psycopg.connect(url, autocommit=True) as operator:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        operator.execute(REFUSE)
        with pytest.raises(StoreFull, match="disk is full"):
            store.append("one", Message(role="user", content="in vain"))
        operator.execute("DROP TRIGGER refuse ON messages")
        assert store.append("one", Message(role="user", content="after")) == [1]
        assert contents(store, "one") == ["before", "after"]
        assert store.verify() == []
