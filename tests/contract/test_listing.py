from __future__ import annotations

import time
from datetime import datetime

import pytest

from rekindle import Store
from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.store import Filter
from rekindle.store.learning.projects import SELECT_KEYS
from tests.conftest import Clock
from tests.contract.messages import call, started, user

DAY = 86_400


def ids(store: Store, where: str = "", **options: int) -> list[str]:
    return [session.id for session in store.recent(where=Filter.parse(where), **options)]


def test_recent_sessions_come_by_last_activity_newest_first(store: Store, clock: Clock) -> None:
    for name in "abc":
        started(store, id=name)
        clock.forward(10)
    store.append("a", user("more"))
    assert ids(store) == ["a", "c", "b"]


def test_a_listed_session_has_title_preview_counts_and_activity(store: Store, clock: Clock) -> None:
    session = store.begin(title="Plan")
    store.append(session, user("how are you"), call("ls"))
    (listed,) = store.recent()
    assert (listed.title, listed.preview) == ("Plan", "how are you")
    assert (listed.message_count, listed.tool_call_count) == (2, 1)
    assert listed.last_active == clock.now
    assert listed == store.session(session.id)


def test_pages_hold_every_session_once(store: Store, clock: Clock) -> None:
    for number in range(30):
        clock.forward(number % 3 == 0)  # three of each share their time
        started(store, id=f"s{number:02}")
    pages = [ids(store, limit=7, offset=start) for start in range(0, 35, 7)]
    assert [len(page) for page in pages] == [7, 7, 7, 7, 2]
    assert [name for page in pages for name in page] == [f"s{n:02}" for n in reversed(range(30))]
    assert ids(store, limit=0) == []
    for wrong in ({"limit": -1}, {"offset": -1}):
        with pytest.raises(InvalidInput, match="limit and offset"):
            store.recent(**wrong)


def test_every_term_of_a_filter_limits_the_list(store: Store, clock: Clock) -> None:
    clock.now = datetime(2026, 3, 10, 12).timestamp()
    old = started(store, id="old", source="telegram", owner="ada", model="gpt", title="Deploy 100%")
    store.append(old, call("ls"), call("cat", id="2"))
    store.end(old, "compression")
    clock.forward(5 * DAY)
    started(store, id="new", source="cli", arm="warm", template="review")
    store.fork("new", title="Deployed")
    child = store.children("new")[0].id
    clock.forward(60)
    for where, expected in {
        "": {"old", "new", child},
        "source=telegram": {"old"},
        "source=tele": set(),
        "owner=ada": {"old"},
        "model=gpt": {"old"},
        "title~deploy": {"old", child},
        "title~DEPLOY": {"old", child},
        "title~100%": {"old"},
        "title~d_ploy": set(),
        "titled=yes": {"old", child},
        "titled=no": {"new"},
        "parent=yes": {child},
        "parent=no": {"old", "new"},
        "ended=yes": {"old"},
        "ended=no": {"new", child},
        "ended=compression": {"old"},
        "ended=done": set(),
        "idle>4d": {"old"},
        "idle<2h": {"new", child},
        "idle>=1m": {"old", "new", child},
        "idle>1m": {"old"},
        "idle<=60m": {"new", child},
        "idle>1w": set(),
        "messages>1": {"old"},
        "messages>=1 messages<3": {"new", child},
        "messages=3": {"old"},
        "calls>0": {"old"},
        "calls<=0": {"new", child},
        "arm=warm": {"new", child},
        "template=review": {"new", child},
        "since=2026-03-11": {"new", child},
        "since=2026-03-10T12:00 until=2026-03-10T12:00": set(),
        "until=2026-03-10": {"old"},
        "until=2026-03-09": set(),
        "until=2026-03-15": {"old", "new", child},
        "since=2026-03-10 until=2026-03-14": {"old"},
        "archived=no": {"old", "new", child},
        "archived=yes": set(),
        "archived=any": {"old", "new", child},
        "source=cli titled=no": {"new"},
        "source=cli owner=ada": set(),
    }.items():
        assert set(ids(store, where)) == expected, where


def test_models_and_branches_are_found_by_a_part(store: Store) -> None:
    started(store, id="a", model="claude-Opus-4", git_branch="fix/Login_form")
    started(store, id="b", model="gpt-5", git_branch="main")
    started(store, id="c")
    for where, expected in {
        "model~opus": {"a"},
        "model~GPT": {"b"},
        "model~%": set(),
        "branch=main": {"b"},
        "branch=mai": set(),
        "branch~login": {"a"},
        "branch~gin_f": {"a"},
        "branch~gin.f": set(),
    }.items():
        assert set(ids(store, where)) == expected, where


def test_sessions_are_listed_by_project_before_and_after_it_was_learned(
    store: Store, clock: Clock
) -> None:
    for number, (name, fields) in enumerate(
        {
            "learned": {"cwd": "/w/api", "repository": "github.com/old/api"},
            "named": {"repository": "github.com/acme/api"},
            "folder": {"cwd": "/w/api/sub"},
            "other": {"cwd": "/w/web"},
            "none": {},
        }.items()
    ):
        clock.now = 1_000_000.0 + number
        cwd, repository = fields.get("cwd"), fields.get("repository")
        store.update(started(store, id=name, cwd=cwd), repository=repository)
    store.observations.assign_project("/w/api", "github.com/acme/api")
    keys = ("github.com/acme/api", "folder:/w/api/sub")
    assert ids(store, "project=github.com/acme/api") == ["named", "learned"]
    where = Filter().with_(projects=keys)
    pages = [store.recent(2, offset=at, where=where) for at in (0, 2, 4)]
    assert [[one.id for one in page] for page in pages] == [["folder", "named"], ["learned"], []]
    many = Filter().with_(projects=(*keys, *(f"folder:/x/{n}" for n in range(60))))
    assert [one.id for one in store.recent(where=many)] == ["folder", "named", "learned"]
    assert store.recent(where=Filter().with_(projects=())) == []
    assert sorted(store.load_projects().projects) == ["folder:/w/api/sub", "folder:/w/web", keys[0]]
    counts = {(one.key, one.sessions) for one in store.count_by_project()}
    assert counts == {(keys[0], 2), (keys[1], 1), ("folder:/w/web", 1), (None, 1)}


def test_starts_are_counted_by_project_and_hour(store: Store, clock: Clock) -> None:
    for hour, folder in ((0, "/w/a"), (1, "/w/a"), (1, "/w/a"), (1, "/w/b"), (1, None)):
        clock.now = 7_200.0 + hour * 3_600
        started(store, cwd=folder)
    assert {*store.count_starts(10_800.0)} == {("folder:/w/a", 3, 2), ("folder:/w/b", 3, 1)}
    assert sum(one.sessions for one in store.count_starts(0.0)) == 4


def test_an_index_has_the_sessions_of_a_project_in_order(store: Store) -> None:
    where, params = Filter(projects=("github.com/acme/api",)).to_sql(0.0)
    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        explain = "EXPLAIN QUERY PLAN"
        if store.stats().engine != "sqlite":
            explain = "EXPLAIN"
            tx.run("SET LOCAL enable_seqscan = off")  # a small table is read as a whole
        order = "ORDER BY s.last_active DESC, s.source DESC, s.num DESC LIMIT 9"
        sql = f"{explain} SELECT s.num FROM sessions s WHERE {where} {order}"
        plan = " ".join(str(row[-1]) for row in tx.run(sql, params))
        keys = " ".join(str(row[-1]) for row in tx.run(f"{explain} {SELECT_KEYS}"))
    assert "sessions_scope" in plan
    assert "TEMP B-TREE" not in plan
    assert "sessions_scope" in keys


def test_the_projects_of_an_owner_are_those_of_the_owners_sessions(store: Store) -> None:
    started(store, id="a", owner="ada", cwd="/w/api")
    started(store, id="b", owner="bob", cwd="/w/secret")
    assert store.load_projects(owner="ada").projects == ["folder:/w/api"]
    assert store.load_projects(owner="eve").projects == []
    store.end("b", "done")
    store.prune(Filter.parse("owner=bob"))
    assert store.load_projects().projects == ["folder:/w/api"]


def test_a_value_with_spaces_goes_in_quotes(store: Store) -> None:
    started(store, id="a", title="Big plan", source="my bot")
    started(store, id="b", title="Bigplan")
    assert ids(store, 'title~"big plan"') == ["a"]
    assert ids(store, "source='my bot'") == ["a"]


def test_a_title_filter_sees_the_number_in_a_title(store: Store) -> None:
    for name in "ab":
        started(store, id=name, title="Plan")
    assert ids(store, 'title~"plan #2"') == ["b"]
    assert ids(store, "title~#2") == ["b"]


def test_a_filter_with_text_that_no_engine_holds_finds_nothing(store: Store) -> None:
    started(store, title="Plan")
    for odd in ("\0", "\ud800", "\U0010fffe"):
        for field in ("source", "owner", "model", "title", "ended", "arm", "template"):
            assert store.recent(where=Filter(**{field: odd})) == [], (field, odd)


def test_archived_sessions_are_listed_when_asked_for(store: Store) -> None:
    for name in "ab":
        started(store, id=name, source=name)
        store.end(name, "done")
    store.archive(Filter(source="a"))
    assert ids(store) == ["b"]
    assert ids(store, "archived=yes") == ["a"]
    assert set(ids(store, "archived=any")) == {"a", "b"}


# -- resolving


def test_a_session_is_resolved_by_id_title_or_the_beginning_of_its_id(store: Store) -> None:
    started(store, id="20260101_aaa", title="Plan")
    started(store, id="20260202_bbb")
    assert store.resolve("20260101_aaa").id == "20260101_aaa"
    assert store.resolve("plan").id == "20260101_aaa"
    assert store.resolve("202602").id == "20260202_bbb"


def test_an_id_comes_before_a_title_and_a_title_before_a_beginning(store: Store) -> None:
    started(store, id="plan")
    started(store, id="x1", title="plan")
    started(store, id="x2", title="pla")
    assert store.resolve("plan").id == "plan"
    assert store.resolve("pla").id == "x2"


def test_a_beginning_that_fits_several_names_them(store: Store) -> None:
    for name in ("2026_a", "2026_b"):
        started(store, f"about {name}", id=name)
    with pytest.raises(AmbiguousName, match=r"2026_a .*2026_b"):
        store.resolve("2026")


def test_a_title_of_two_owners_is_ambiguous_until_an_owner_is_named(store: Store) -> None:
    started(store, id="a", owner="ada", title="Plan")
    started(store, id="e", owner="eve", title="Plan")
    started(store, id="a2", owner="ada", title="Plan #2")
    with pytest.raises(AmbiguousName) as caught:
        store.resolve("Plan")
    assert "a2" in str(caught.value)
    assert "e (Plan)" in str(caught.value)
    assert store.resolve("Plan", owner="ada").id == "a2"
    assert store.resolve("Plan", owner="eve").id == "e"


def test_what_is_not_there_is_not_found(store: Store) -> None:
    started(store, id="abc", title="Plan")
    for name in ("", "x", "abcd", "lan", "%", "a_c", "\0", "\ud800", "\u200b", "x" * 10_000):
        with pytest.raises(NotFound):
            store.resolve(name)


def test_a_begun_session_is_resolved_after_its_first_message(store: Store) -> None:
    begun = store.begin(title="Plan")
    with pytest.raises(NotFound):
        store.resolve("Plan")
    store.append(begun, user("hello"))
    assert store.resolve("Plan").id == begun.id


# -- stats


def test_stats_say_what_is_stored(store: Store, clock: Clock) -> None:
    first = clock.now
    one = started(store, "a", "b", "c", id="one", source="cli")
    started(store, "d", id="two", source="telegram")
    started(store, "e", id="three", source="cli")
    clock.forward(50)
    store.append("two", user("f" * 1000))
    store.undo(one)
    store.end("three", "done")
    store.archive(Filter(ended="done"))
    stats = store.stats()
    assert (stats.sessions, stats.archived, stats.pruned) == (3, 1, 0)
    assert (stats.messages, stats.rewound) == (6, 1)
    assert stats.by_source == {"cli": 2, "telegram": 1}
    assert (stats.first, stats.last) == (first, clock.now)
    assert stats.text_bytes == 1005
    assert stats.disk_bytes > stats.index_bytes > 0
    assert stats.engine in ("sqlite", "postgresql")
    assert stats.location == store.location


def test_a_location_never_shows_a_password(store: Store) -> None:
    assert "secret" not in store.location
    from rekindle.errors import StoreUnavailable
    from rekindle.store import open_store

    with pytest.raises(StoreUnavailable) as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/none", busy_seconds=0.1)
    assert "secret" not in str(caught.value)


def test_the_local_zone_decides_what_a_day_is(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        clock.now = 1_767_225_600.0  # 2026-01-01 00:00 UTC, 09:00 in Tokyo
        started(store, id="a")
        assert ids(store, "since=2026-01-01T08:59 until=2026-01-01T09:01") == ["a"]
        assert ids(store, "since=2026-01-01T00:00+00:00") == ["a"]
        assert ids(store, "until=2025-12-31") == []
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_refused_term_names_itself(store: Store) -> None:
    for where in (
        "colour=red",
        "source",
        "idle>soon",
        "messages<few",
        "titled=maybe",
        "since=someday",
        "since=3m",
    ):
        with pytest.raises(InvalidInput) as caught:
            ids(store, where)
        assert where in str(caught.value) or where.partition("=")[2] in str(caught.value)
