"""Where results go."""

import pytest

from rekindle.errors import InvalidInput
from rekindle.routing.delivery_target import resolve_target
from rekindle.types import Source

ORIGIN = Source("memory", "ada", user_id="1")
HOME = Source("matrix", "!home:x")


def resolve(text: str, origin: Source | None = ORIGIN) -> Source:
    homes = {"matrix": HOME}
    return resolve_target(text, origin=origin, homes=homes, platforms=["memory", "matrix"])


def test_targets_name_chats() -> None:
    assert resolve("origin") == ORIGIN
    assert resolve("matrix") == HOME
    assert resolve("memory:7") == Source("memory", "7", chat_type="group")
    assert resolve("memory:7:42").thread_id == "42"
    assert resolve("matrix:!room:example.org").chat_id == "!room:example.org"
    assert resolve("matrix:!room:example.org:$1").thread_id == "$1"


def test_what_has_no_chat_to_go_to_stays_on_this_machine() -> None:
    assert resolve("local").platform == "folder"
    assert resolve("origin", None).platform == "folder"
    assert resolve("origin", Source("local", "terminal")).platform == "folder"


@pytest.mark.parametrize("text", ["telegram", "telegram:7", "memory", "memory:", "", "folder"])
def test_an_unknown_target_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInput, match="target"):
        resolve(text)
