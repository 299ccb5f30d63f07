"""The worlds of the chat networks: their local servers, and a person there."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.testing.networks.slack_server import SlackServer
from rekindle.testing.networks.telegram_server import TelegramSent, TelegramServer
from rekindle.types import Source


class Telegram:
    can_edit = True

    def __init__(self, server: TelegramServer, folder: Path) -> None:
        self.chat = Source("telegram", "1001", user_id="1001", user_name="Ada")
        self.server, self._folder = server, folder

    def connect(self) -> Platform:
        from rekindle.platforms.telegram import TelegramPlatform

        server = self.server
        return TelegramPlatform(server.token, self._folder, api_url=server.url, retry_seconds=0.02)

    def env(self, home: Path) -> dict[str, str]:
        return {"TELEGRAM_BOT_TOKEN": self.server.token, "TELEGRAM_API_URL": self.server.url}

    def has_draft(self) -> bool:
        """Whether the bot edits: then it knows that what it edits was sent."""
        return "editMessageText" in self.server.requests

    def say(self, text: str) -> None:
        self.server.post_text(text)

    def seen(self) -> list[str]:
        return [write_markdown(sent) for sent in self.server.sent]

    def disconnect(self) -> None:
        self.server.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.server.refuse = error


class Slack:
    can_edit = True

    def __init__(self, server: SlackServer, folder: Path) -> None:
        self.chat = Source("slack", "DADA", user_id="UADA", user_name="Ada")
        self.server, self._folder = server, folder

    def connect(self) -> Platform:
        from rekindle.platforms.slack import SlackPlatform

        server = self.server
        return SlackPlatform(
            server.bot_token,
            server.app_token,
            self._folder,
            api_url=server.api_url,
            retry_seconds=0.02,
        )

    def env(self, home: Path) -> dict[str, str]:
        return {
            "SLACK_BOT_TOKEN": self.server.bot_token,
            "SLACK_APP_TOKEN": self.server.app_token,
            "SLACK_API_URL": self.server.api_url,
        }

    def has_draft(self) -> bool:
        return "chat.update" in self.server.requests

    def say(self, text: str) -> None:
        self.server.post_text(text)

    def seen(self) -> list[str]:
        return [html.unescape(sent.text).replace("_not_", "*not*") for sent in self.server.sent]

    def disconnect(self) -> None:
        self.server.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.server.refuse = error


@contextmanager
def slack() -> Iterator[Slack]:
    with SlackServer() as server, tempfile.TemporaryDirectory() as folder:
        yield Slack(server, Path(folder))


def write_markdown(sent: TelegramSent) -> str:
    """The text with its italics as they are written in Markdown."""
    units = sent.text.encode("utf-16-le")
    for entity in reversed(sent.entities):
        assert entity["type"] == "italic"
        start, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
        star = "*".encode("utf-16-le")
        units = units[:start] + star + units[start:end] + star + units[end:]
    return units.decode("utf-16-le")


@contextmanager
def telegram() -> Iterator[Telegram]:
    with TelegramServer() as server, tempfile.TemporaryDirectory() as folder:
        yield Telegram(server, Path(folder))


NETWORKS = [telegram, slack]
