"""The access rules in the settings."""

from decimal import Decimal

import pytest

from rekindle.errors import InvalidSetting
from rekindle.gateway.access.rules import AccessRules, DailyLimits, get_rank, parse_allowed
from rekindle.store.conversations.people import DailyUsage


def test_ids_with_colons_and_equals_signs_are_read() -> None:
    assert parse_allowed("matrix:@ada:example.org=owner telegram:7 x:a=b memory:*=guest") == {
        ("matrix", "@ada:example.org"): "owner",
        ("telegram", "7"): "user",
        ("x", "a=b"): "user",
        ("memory", "*"): "guest",
    }


@pytest.mark.parametrize("text", ["ada", ":7", "telegram:", "=owner"])
def test_what_names_no_user_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"gateway\.allow"):
        parse_allowed(text)


def test_a_name_goes_before_everyone() -> None:
    rules = AccessRules(parse_allowed("memory:*=guest memory:7=owner"))
    assert rules.find_role("memory", "7") == "owner"
    assert rules.find_role("memory", "8") == "guest"
    assert rules.find_role("memory", None) == "guest"
    assert rules.find_role("matrix", "7") is None


def test_owners_rank_above_users_and_users_above_guests() -> None:
    assert get_rank("owner") > get_rank("user") > get_rank("guest")


def test_a_limit_is_named_when_it_is_used_up() -> None:
    limits = DailyLimits(3, 1000, Decimal(2))
    assert limits.find_exceeded(DailyUsage(2, 999, Decimal("1.99"))) is None
    assert limits.find_exceeded(DailyUsage(3)) == "3 messages"
    assert limits.find_exceeded(DailyUsage(0, 1000)) == "1,000 tokens"
    assert limits.find_exceeded(DailyUsage(0, 0, Decimal(2))) == "a cost of 2"
    assert DailyLimits().find_exceeded(DailyUsage(9999, 10**9)) is None
