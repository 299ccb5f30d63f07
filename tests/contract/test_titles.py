from __future__ import annotations

from collections.abc import Callable

import pytest

from rekindle import Message, Session, Store
from rekindle.errors import InvalidInput, NotFound, TitleTaken
from rekindle.store import Filter
from tests.conftest import Clock
from tests.contract.messages import started, user

Reopened = Callable[[], Store]


def titled(store: Store, title: str, **fields: str) -> str | None:
    """The title that a session asking for `title` gets."""
    return started(store, title=title, **fields).title


def test_a_title_is_cleaned_of_what_cannot_be_seen(store: Store) -> None:
    assert titled(store, "  My\tPro\u200bject\x00\x1b \u202e plan\n") == "My Project plan"


def test_a_title_is_at_most_a_hundred_characters(store: Store) -> None:
    assert titled(store, "é" * 250) == "é" * 100


def test_a_title_without_anything_to_see_is_none(store: Store) -> None:
    assert titled(store, " \u200b\n") is None
    session = started(store)
    with pytest.raises(InvalidInput, match="visible character"):
        store.rename(session, "\u200b")


def test_a_title_is_renamed_and_taken_away_at_will(store: Store) -> None:
    session = started(store, title="One")
    assert store.rename(session, "Two").title == "Two"
    assert store.rename(session, "Two").title == "Two"
    assert store.session(session.id).title == "Two"
    assert store.rename(session, None).title is None
    assert titled(store, "Two") == "Two"


def test_renaming_to_a_taken_title_is_refused_and_says_what_is_free(store: Store) -> None:
    started(store, title="Plan")
    other = started(store, title="Other")
    with pytest.raises(TitleTaken, match=r"'Plan'.*'Plan #2' is free"):
        store.rename(other, "Plan")
    assert store.session(other.id).title == "Other"


def test_two_owners_may_use_the_same_title(store: Store) -> None:
    assert titled(store, "Plan", owner="ada") == "Plan"
    assert titled(store, "Plan", owner="eve") == "Plan"
    assert titled(store, "Plan") == "Plan"
    assert titled(store, "Plan", owner="ada") == "Plan #2"


def test_a_title_that_is_taken_continues_its_line(store: Store) -> None:
    assert [titled(store, "Plan") for _ in range(3)] == ["Plan", "Plan #2", "Plan #3"]
    assert titled(store, "Plan #2") == "Plan #4"


def test_a_begun_title_is_settled_when_the_first_message_is_written(store: Store) -> None:
    slow, fast = store.begin(title="Plan"), store.begin(title="Plan")
    store.append(fast, user("first to speak"))
    store.append(slow, user("second"))
    assert store.session(fast.id).title == "Plan"
    assert store.session(slow.id).title == "Plan #2"


def test_continuing_a_title_gives_the_next_number(store: Store) -> None:
    assert store.next_title("My Project") == "My Project #2"
    started(store, title="My Project")
    assert store.next_title("My Project") == "My Project #2"
    started(store, title="My Project #2")
    assert store.next_title("My Project") == "My Project #3"
    assert store.next_title("My Project #2") == "My Project #3"
    started(store, title="My Project #7")
    assert store.next_title("My Project") == "My Project #8"
    with pytest.raises(InvalidInput, match="visible character"):
        store.next_title("\u200b")


def test_asking_for_a_line_finds_its_newest_by_number(store: Store, clock: Clock) -> None:
    one = started(store, title="My Project")
    ten = started(store, title="My Project #10")
    two = started(store, title="My Project #2")
    clock.forward(10)
    store.append(one, user("the first is used again"))
    assert store.resolve("My Project").id == ten.id
    assert store.resolve("my project").id == ten.id
    assert store.resolve("My Project #2").id == two.id
    assert store.resolve("my project #2").id == two.id
    with pytest.raises(NotFound):
        store.resolve("My Project #3")


def test_a_number_that_does_not_count_belongs_to_the_title(store: Store) -> None:
    for title in ("Issue #0", "Issue #1", "Issue #01", "Issue#2", "#2", "Issue #1234567890"):
        assert titled(store, title) == title
        assert store.resolve(title).title == title
        assert titled(store, title) == f"{title} #2"


def test_a_long_title_is_shortened_before_its_number(store: Store) -> None:
    base = "b" * 99 + "c"
    assert titled(store, base) == base
    second = titled(store, base)
    assert second == "b" * 97 + " #2"
    assert [titled(store, base) for _ in range(8)][-1] == "b" * 96 + " #10"
    assert store.resolve(base).title == "b" * 96 + " #10"
    assert store.resolve(second).title == second
    assert store.next_title(second) == "b" * 96 + " #11"


def test_two_long_titles_that_differ_at_their_end_keep_their_own_lines(store: Store) -> None:
    one, two = "x" * 99 + "1", "x" * 99 + "2"
    assert [titled(store, one), titled(store, two)] == [one, two]
    continued = [started(store, title=one), started(store, title=two), started(store, title=one)]
    assert len({session.title for session in continued}) == 3
    assert all(len(session.title or "") <= 100 for session in continued)
    assert store.resolve(one).id == continued[2].id
    assert store.resolve(two).id == continued[1].id


def test_hundreds_of_titles_with_the_same_base_are_numbered_without_a_gap(store: Store) -> None:
    given = [titled(store, "Plan") for _ in range(300)]
    assert given == ["Plan", *(f"Plan #{number}" for number in range(2, 301))]
    assert store.resolve("Plan").title == "Plan #300"


def test_a_title_set_through_another_store_is_taken(store: Store, reopened: Reopened) -> None:
    titled(store, "Plan")
    other = reopened()
    assert titled(other, "Plan") == "Plan #2"
    assert titled(store, "Plan") == "Plan #3"


def test_the_title_of_a_pruned_session_is_free_again(store: Store) -> None:
    session = started(store, title="Plan")
    store.end(session, "done")
    store.prune(Filter())
    assert titled(store, "Plan") == "Plan"


def test_an_emoji_and_other_scripts_stay_in_a_title(store: Store) -> None:
    assert titled(store, "計画 🎉 Łódź") == "計画 🎉 Łódź"
    assert store.resolve("計画 🎉 łódź").title == "計画 🎉 Łódź"


# -- finding


def test_sessions_are_found_by_all_words_of_a_title_newest_first(store: Store) -> None:
    for number, title in enumerate(("Fix the login", "Login page: fix it", "Fix the build 100%")):
        add_titled(store, f"20260{number}", title, started=1_000.0 + number)
    add_titled(store, "other", None, started=5_000.0)
    assert [one.title for one in store.search_titles("FIX log")] == [
        "Login page: fix it",
        "Fix the login",
    ]
    assert [one.title for one in store.search_titles("100%")] == ["Fix the build 100%"]
    assert store.search_titles("fix %") == store.search_titles("100%")
    assert len(store.search_titles("fix", limit=2)) == 2
    assert store.search_titles(" ") == []


def test_an_id_that_is_pasted_is_found_as_well(store: Store) -> None:
    add_titled(store, "2026-abc", "One", started=1_000.0)
    add_titled(store, "2026-abd", None, started=2_000.0)
    assert {one.id for one in store.search_titles("2026-ab")} == {"2026-abc", "2026-abd"}
    assert [one.id for one in store.search_titles("2026-abd")] == ["2026-abd"]
    assert store.search_titles("202") == []


def test_one_session_can_be_archived_even_if_it_is_active_and_brought_back(store: Store) -> None:
    session = add_titled(store, "busy", "Busy", started=None)
    assert store.archive_session(session).archived is not None
    assert (store.count_sessions(), store.search_titles("busy")) == (0, [])
    assert store.archive_session(session).archived is not None
    store.restore("busy")
    assert [one.id for one in store.search_titles("busy")] == ["busy"]
    assert store.count_sessions() == 1


def add_titled(store: Store, id: str, title: str | None, started: float | None) -> Session:
    session = store.begin(id=id, title=title, started=started)
    store.append(session, Message("user", "hello", timestamp=started))
    return session
