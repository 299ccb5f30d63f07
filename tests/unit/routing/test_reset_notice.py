"""What is said after an automatic reset."""

import pytest

from rekindle.routing.reset_notice import BACK_COMMAND, build_model_notice, build_user_notice
from rekindle.types import ResetPolicy


def test_the_user_is_told_in_one_short_line_why_and_the_one_word_that_leads_back() -> None:
    assert build_user_notice("idle", ResetPolicy()) == (
        "New conversation: no messages for 24 hours. Send /back to return to the last one."
    )
    assert build_user_notice(
        "daily", ResetPolicy(hour=4, time_zone="Europe/Berlin"), "My Project"
    ) == (
        "New conversation: daily reset at 04:00 (Europe/Berlin). "
        "Send /back to return to “My Project”."
    )
    assert BACK_COMMAND == "/back"


def test_a_title_cannot_make_the_notice_long_or_break_its_line() -> None:
    said = build_user_notice("idle", ResetPolicy(), "a\nb " * 10_000)
    assert len(said) < 200
    assert "\n" not in said
    assert "return to the last one" in build_user_notice("idle", ResetPolicy(), "\u200b")


def test_the_model_is_told_that_it_starts_anew_and_what_the_user_was_told() -> None:
    said = build_model_notice("daily", ResetPolicy(hour=4))
    assert "This is a new conversation" in said
    assert "at 04:00 (UTC)" in said
    assert "do not act as if you remember it" in said
    assert BACK_COMMAND in said


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (1, "a minute"),
        (45, "45 minutes"),
        (60, "an hour"),
        (90, "90 minutes"),
        (120, "2 hours"),
        (1440, "24 hours"),
        (1500, "25 hours"),
        (2880, "2 days"),
    ],
)
def test_minutes_are_said_as_people_say_them(minutes: int, words: str) -> None:
    assert f"no messages for {words}." in build_user_notice(
        "idle", ResetPolicy(idle_minutes=minutes)
    )
