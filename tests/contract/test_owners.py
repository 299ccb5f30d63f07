from __future__ import annotations

import pytest

from rekindle import Store
from rekindle.errors import AmbiguousName, NotFound
from rekindle.store import Filter
from tests.contract.messages import found, started


@pytest.fixture
def two(store: Store) -> Store:
    started(store, "secret of ada", id="2026_ada", owner="ada", title="Diary")
    started(store, "secret of eve", id="2026_eve", owner="eve", title="Diary")
    started(store, "secret of nobody", id="2026_none", title="Diary")
    return store


def test_a_search_never_shows_another_owners_words(two: Store) -> None:
    assert found(two, "secret", owner="ada") == ["secret of ada"]
    assert found(two, "secret", owner="eve", role="user") == ["secret of eve"]
    assert found(two, "secret", owner="ada", where=Filter(owner="eve")) in ([], ["secret of ada"])
    assert found(two, "secret", owner="nobody") == []
    assert len(found(two, "secret")) == 3


def test_a_search_in_another_owners_session_finds_nothing(two: Store) -> None:
    assert two.search("secret", owner="ada", session="2026_eve") == []
    assert len(two.search("secret", owner="ada", session="2026_ada")) == 1


def test_the_messages_around_a_hit_are_the_owners(two: Store) -> None:
    (hit,) = two.search("secret", owner="eve", context=10)
    assert (hit.before, hit.after) == ((), ())


def test_a_session_of_another_owner_is_not_found(two: Store) -> None:
    assert two.session("2026_ada", owner="ada").owner == "ada"
    for name in ("2026_eve", "2026_none"):
        with pytest.raises(NotFound, match=name):
            two.session(name, owner="ada")


def test_a_begun_session_of_another_owner_is_not_found(store: Store) -> None:
    begun = store.begin(owner="ada")
    assert store.session(begun.id, owner="ada") == begun
    with pytest.raises(NotFound):
        store.session(begun.id, owner="eve")


def test_a_name_resolves_among_the_owners_sessions_only(two: Store) -> None:
    assert two.resolve("Diary", owner="ada").id == "2026_ada"
    assert two.resolve("2026", owner="eve").id == "2026_eve"
    assert two.resolve("2026_ada", owner="ada").id == "2026_ada"
    for name in ("2026_eve", "2026_none", "2026_e"):
        with pytest.raises(NotFound):
            two.resolve(name, owner="ada")
    for name in ("Diary", "2026"):
        with pytest.raises(AmbiguousName):
            two.resolve(name)


def test_another_owners_id_does_not_hide_ones_own_title(two: Store) -> None:
    mine = started(two, owner="ada", title="2026_eve")
    assert two.resolve("2026_eve", owner="ada").id == mine.id


def test_a_beginning_is_found_among_many_of_another_owner(store: Store) -> None:
    for number in range(20):
        started(store, id=f"2026_{number:02}", owner="eve")
    mine = started(store, id="2026_99", owner="ada")
    assert store.resolve("2026", owner="ada").id == mine.id


def test_a_list_is_limited_to_an_owner(two: Store) -> None:
    assert [session.id for session in two.recent(where=Filter(owner="ada"))] == ["2026_ada"]
    assert two.recent(where=Filter.parse("owner=nobody")) == []
    assert len(two.recent()) == 3


def test_pruning_is_limited_to_an_owner(two: Store) -> None:
    for name in ("ada", "eve", "none"):
        two.end(f"2026_{name}", "done")
    assert [session.id for session in two.prune(Filter(owner="ada"))] == ["2026_ada"]
    assert {session.id for session in two.recent()} == {"2026_eve", "2026_none"}


def test_an_owner_is_compared_exactly(store: Store) -> None:
    for owner in ("ada", "Ada", "ada ", "ad", "a%", "äda"):
        started(store, "secret", owner=owner)
    for owner in ("ada", "Ada", "ada ", "ad", "a%", "äda"):
        hits = store.search("secret", owner=owner)
        assert [hit.session.owner for hit in hits] == [owner]
    assert store.search("secret", owner="%") == []


def test_next_title_looks_at_the_owners_titles_only(two: Store) -> None:
    started(two, owner="ada", title="Diary #4")
    assert two.next_title("Diary", owner="ada") == "Diary #5"
    assert two.next_title("Diary", owner="eve") == "Diary #2"


def test_every_read_can_be_limited_to_an_owner(two: Store) -> None:
    child = two.fork("2026_ada")
    assert [session.id for session in two.recent(owner="ada")] == [child.id, "2026_ada"]
    assert [message.text for message in two.messages("2026_ada", owner="ada")] == ["secret of ada"]
    assert [session.id for session in two.children("2026_ada", owner="ada")] == [child.id]
    assert len(two.lineage("2026_ada", owner="ada")) == 2
    assert two.find_tip("2026_ada", owner="ada").id == "2026_ada"
    assert two.rewinds("2026_ada", owner="ada") == []
    assert b"secret of ada" in b"".join(two.dump(["2026_ada"], owner="ada"))
    assert b"secret of eve" in (everything := b"".join(two.dump(owner="eve")))
    assert b"secret of ada" not in everything

    assert [session.id for session in two.recent(owner="eve")] == ["2026_eve"]
    assert two.children("2026_ada", owner="eve") == []
    assert two.lineage("2026_ada", owner="eve") == []
    reads = (two.messages, two.find_tip, two.rewinds)
    for read in reads:
        with pytest.raises(NotFound):
            read("2026_ada", owner="eve")
    with pytest.raises(NotFound):
        list(two.dump(["2026_ada"], owner="eve"))
