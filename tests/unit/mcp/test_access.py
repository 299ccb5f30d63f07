"""What a client may read, and how the store is opened for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import Message, Store, open_store
from rekindle.errors import NotFound, StoreReadOnly
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.mcp.access import Library, Scope, StoreOpener, open_library
from rekindle.mcp.quoting import Quoter
from rekindle.mcp.uris import decode_name, make_session_uri, read_session_id
from rekindle.redaction.redactor import Redactor
from tests.new_store import open_new_store

QUOTER = Quoter(Redactor())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a session in each of two folders, and one in none."""
    file = tmp_path / "sessions.db"
    with open_new_store(file) as store:
        for name, cwd in (("shop-a", "/gone/shop"), ("bank-b", "/gone/bank"), ("none-c", None)):
            store.append(store.begin(id=name, cwd=cwd), Message("user", f"hello {name}"))
        learn_from_sessions(store)
    return file


def find_visible(library: Library) -> set[str]:
    visible, refusals = set[str](), set[str]()
    for id in ("shop-a", "bank-b", "none-c", "missing"):
        try:
            visible.add(library.get_session(id).id)
        except NotFound as error:
            refusals.add(str(error).replace(id, "ID", 1))
    assert refusals == {"Session not found: ID. Find sessions with search_sessions."}
    assert {one.id for one in library.store.recent(where=library.filter)} == visible
    return visible


@pytest.mark.parametrize(
    ("scope", "visible"),
    [
        (Scope("/gone/shop"), {"shop-a"}),
        (Scope("/gone/shop", "bank"), {"bank-b"}),
        (Scope("/gone/shop", None, True), {"shop-a", "bank-b", "none-c"}),
    ],
)
def test_a_library_shows_its_scope_and_nothing_else(
    file: Path, scope: Scope, visible: set[str]
) -> None:
    with open_store(file) as store:
        assert find_visible(open_library(store, scope, QUOTER)) == visible


def test_a_named_project_has_a_folder_of_its_own(file: Path) -> None:
    with open_store(file) as store:
        library = open_library(store, Scope("/gone/shop", "bank"), QUOTER)
        assert library.folder == "/gone/bank"
        assert library.require_project(library.folder) == library.project
        with pytest.raises(NotFound, match="another project"):
            library.require_project("/gone/shop")


def test_the_folders_of_a_client_count_only_without_a_project_of_our_own(file: Path) -> None:
    with open_store(file) as store:
        theirs = ["/gone/none", "/gone/bank"]
        assert find_visible(open_library(store, Scope("/gone/else"), QUOTER, theirs)) == {"bank-b"}
        assert find_visible(open_library(store, Scope("/gone/shop"), QUOTER, theirs)) == {"shop-a"}
        with pytest.raises(NotFound, match="No sessions are known"):
            open_library(store, Scope("/gone/else"), QUOTER, ["/gone/none"])


def test_the_store_is_opened_for_writing_once_per_file_and_then_read_only(file: Path) -> None:
    opened: list[bool] = []

    def connect(readonly: bool) -> Store:
        opened.append(readonly)
        return open_store(file, readonly=readonly)

    opener = StoreOpener(connect, str(file))
    for _ in range(3):
        with opener.open() as store:
            assert store.session("shop-a").id == "shop-a"
    assert opened == [False, True, True]
    with opener.open() as store, pytest.raises(StoreReadOnly):
        store.append("shop-a", Message("user", "more"))
    with opener.open(writing=True) as store:
        store.append("shop-a", Message("user", "more"))


def test_a_store_that_cannot_be_written_is_read(file: Path) -> None:
    def connect(readonly: bool) -> Store:
        if not readonly:
            raise StoreReadOnly("no")
        return open_store(file, readonly=True)

    opener = StoreOpener(connect, str(file))
    with opener.open() as store:
        assert store.session("shop-a").id == "shop-a"
    with pytest.raises(StoreReadOnly), opener.open(writing=True):
        pass


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    opener = StoreOpener(lambda readonly: open_store(file, readonly=readonly), str(file))
    with pytest.raises(NotFound, match="rekindle import"), opener.open():
        pass
    assert not file.exists()


@pytest.mark.parametrize("id", ["plain", "a/b c?d#e", "ünï", "%41", "lone \udc80"])
def test_a_session_can_be_named_by_its_uri(id: str) -> None:
    assert read_session_id(make_session_uri(id)) == id
    assert make_session_uri(id).isascii()


def test_an_invalid_uri_is_a_name_that_nothing_has() -> None:
    assert decode_name("%FF") == "\ufffd"
