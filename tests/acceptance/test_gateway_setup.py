"""`rekindle gateway setup` at a terminal and in a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.terminals import ENTER, Terminal
from tests.acceptance.test_cli import Rekindle

TOKEN = "a-secret-token"
QUESTIONS = (("Bot token:", TOKEN), ("App-level token:", TOKEN), ("API", ""))


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    return Rekindle(tmp_path)


def test_the_guide_asks_hides_the_token_and_lets_the_operator_in(rekindle: Rekindle) -> None:
    config = rekindle.home / "rekindle" / "config.toml"
    config.parent.mkdir()
    config.write_text('# mine\n[list]\nlimit = 7\n\n[gateway]\nplatforms = "one:connect"\n')
    terminal = Terminal(["gateway", "setup", "--no-check"], rekindle.env, rekindle.home)
    terminal.wait_for("Which platform")
    terminal.type("4" + ENTER)  # the fourth of the list
    for question, answer in QUESTIONS:
        terminal.wait_for(question)
        if answer == TOKEN:  # what is typed before it is hidden is shown, and thrown away
            terminal.wait(lambda: not terminal.is_echoing)
        terminal.type(answer + ENTER)
    terminal.wait_for("Your own id on Slack")
    terminal.type("42" + ENTER)
    assert terminal.left() == 0
    assert TOKEN not in terminal.seen
    settings = rekindle.home / "rekindle" / "platforms" / "slack.toml"
    assert TOKEN in settings.read_text()
    assert settings.stat().st_mode & 0o777 == 0o600
    assert config.read_text() == (
        '# mine\n[list]\nlimit = 7\n\n[gateway]\nplatforms = "one:connect slack"\n'
    )
    assert "slack:42" in rekindle("gateway", "list")
    assert "owner" in rekindle("gateway", "list")


def test_in_a_pipe_everything_comes_from_options(rekindle: Rekindle, tmp_path: Path) -> None:
    assert "name a platform: matrix" in rekindle.refusal("gateway", "setup")
    assert "is not a platform" in rekindle.refusal("gateway", "setup", "pigeon")
    setup = ["gateway", "setup", "slack", "--no-check"]
    assert "bot_token is missing; pass --set bot_token=VALUE" in rekindle.refusal(*setup)
    assert "No such file" in rekindle.refusal(*setup, "--set", "bot_token=@nothing")
    assert "expected NAME=VALUE" in rekindle.refusal(*setup, "--set", "tokn=x")
    assert "bot_token is empty" in rekindle.refusal(*setup, "--set", "bot_token=")
    (tmp_path / "token.txt").write_text(f"{TOKEN}\n")
    tokens = ["--set", "bot_token=@token.txt", "--set", "app_token=@token.txt"]
    said = rekindle(*setup, *tokens)
    assert TOKEN not in said
    assert "rekindle gateway pair" in said
    assert "already" not in rekindle(*setup), "again, with what the file has"
    assert rekindle("config").count("slack") == 1
