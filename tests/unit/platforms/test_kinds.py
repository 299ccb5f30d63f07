"""What the kinds of the networks ask for, and what the page says to paste."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rekindle.platforms.plugins import connect_platforms, find_kind
from rekindle.platforms.settings_file import get_settings_path, load_settings

PAGE = Path(__file__).parents[3] / "docs" / "platforms.md"
NAMES = ("telegram", "slack", "discord", "whatsapp")


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_says_to_paste_is_what_the_kind_needs(name: str, tmp_path: Path) -> None:
    page, kind = PAGE.read_text("utf-8"), find_kind(name)
    block = re.search(rf"```text\n(# platforms/{name}\.toml.*?)```", page, re.S)
    assert block is not None
    path = get_settings_path(name, tmp_path)
    path.parent.mkdir()
    path.write_text(block[1].replace("…", "x"), "utf-8")
    (platform,) = connect_platforms(name, tmp_path)
    assert (platform.name, kind.name) == (name, name)
    for field in kind.fields:
        assert field.env
        if field.default is None:
            assert field.env in block[1]
            assert field.name in load_settings(kind, tmp_path, {})
    assert kind.guide


@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_secrets_are_not_shown(name: str) -> None:
    secret = {field.name for field in find_kind(name).fields if field.is_secret}
    named = {
        field.name for field in find_kind(name).fields if field.name.endswith(("token", "secret"))
    }
    assert secret == named != set()
