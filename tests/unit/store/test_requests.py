from __future__ import annotations

from rekindle import Message
from rekindle.store.sessions.display_names import find_templates
from rekindle.store.sessions.requests import Requests, find_requests


def said(*contents: object) -> Requests:
    return find_requests([Message("user", content) for content in contents])  # pyright: ignore


def test_requests_are_the_first_and_last_user_texts_on_one_line() -> None:
    assert said("  a\n b ") == Requests("a b", None, "a b")
    assert said(None, "", "c", "d").first == "c"
    assert said("c", "d").last == "d"
    assert said([{"type": "text", "text": "part"}]).first == "part"
    assert said("a\0b").first == "a\ufffdb"
    assert find_requests([Message("assistant", "x")]) == Requests()


def test_messages_of_abandoned_branches_are_no_requests() -> None:
    kept, left = Message("user", "kept"), Message("user", "left", rewound=True)
    assert find_requests([kept, left]) == Requests("kept", None, "kept")


def test_a_command_of_the_interface_stands_in_until_something_is_asked() -> None:
    command = "<command-name>/model</command-name>\n<command-args>opus</command-args>"
    assert said(command) == Requests(None, "/model opus", None)
    assert said(command, "fix it").preview == "fix it"


def test_a_template_is_what_several_different_texts_begin_with() -> None:
    plan = "Implement the following plan: "
    texts = [f"{plan}{word}" for word in ("one", "two", "three", "four")]
    assert [*find_templates(texts)] == [plan]
    assert find_templates([texts[0]] * 9) == {}


def test_what_people_write_alike_is_no_template() -> None:
    asked = "can you review the changes in this branch "
    assert find_templates([f"{asked}{word}" for word in ("again", "twice", "now", "here")]) == {}
