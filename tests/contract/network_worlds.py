"""The worlds of the chat networks: their local servers, and a person there."""

from __future__ import annotations

import asyncio
import html
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.testing.networks.discord_server import DiscordServer
from rekindle.testing.networks.slack_server import SlackServer
from rekindle.testing.networks.telegram_server import TelegramSent, TelegramServer
from rekindle.testing.networks.whatsapp_server import WhatsAppServer
from rekindle.types import Source
from tests.waiting import until


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


class Discord:
    can_edit = True

    def __init__(self, server: DiscordServer, folder: Path) -> None:
        self.chat = Source("discord", "500", user_id="101", user_name="Ada")
        self.server, self._folder = server, folder

    def connect(self) -> Platform:
        from rekindle.platforms.discord import DiscordPlatform

        server = self.server
        return DiscordPlatform(
            server.token, self._folder, api_url=server.api_url, retry_seconds=0.02
        )

    def env(self, home: Path) -> dict[str, str]:
        shutil.copytree(self._folder, home / "platforms" / "discord")
        return {"DISCORD_BOT_TOKEN": self.server.token, "DISCORD_API_URL": self.server.api_url}

    async def begin(self) -> None:
        """Have one message acknowledged: the history of a chat is read from there on."""
        platform = self.connect()
        async with aclosing(platform.listen()) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await until(lambda: self.server.connections)
            self.say("earlier")
            await platform.acknowledge(await first)
        await platform.close()

    def has_draft(self) -> bool:
        return any(one.startswith("PATCH") for one in self.server.requests)

    def say(self, text: str) -> None:
        self.server.post_text(text)

    def seen(self) -> list[str]:
        return [sent.text for sent in self.server.sent]

    def disconnect(self) -> None:
        self.server.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.server.refuse = error


@contextmanager
def discord() -> Iterator[Discord]:
    with DiscordServer() as server, tempfile.TemporaryDirectory() as folder:
        world = Discord(server, Path(folder))
        asyncio.run(world.begin())
        yield world


class WhatsApp:
    can_edit = False

    def __init__(self, server: WhatsAppServer, folder: Path) -> None:
        self.chat = Source("whatsapp", "491701", user_id="491701", user_name="Ada")
        self.server, self._folder = server, folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._listen = f"127.0.0.1:{probe.getsockname()[1]}"
        server.webhook_url = f"http://{self._listen}/webhook"

    def connect(self) -> Platform:
        from rekindle.platforms.whatsapp import WhatsAppPlatform, WhatsAppSettings

        server = self.server
        settings = WhatsAppSettings(
            token=server.token,
            phone_number_id="555000",
            app_secret=server.secret,
            verify_token="verify",
            listen=self._listen,
            api_url=server.url,
        )
        return WhatsAppPlatform(settings, self._folder, retry_seconds=0.02)

    def env(self, home: Path) -> dict[str, str]:
        return {
            "WHATSAPP_TOKEN": self.server.token,
            "WHATSAPP_PHONE_NUMBER_ID": "555000",
            "WHATSAPP_APP_SECRET": self.server.secret,
            "WHATSAPP_VERIFY_TOKEN": "verify",
            "WHATSAPP_LISTEN": self._listen,
            "WHATSAPP_API_URL": self.server.url,
        }

    def say(self, text: str) -> None:
        self.server.post_text(text)

    def seen(self) -> list[str]:
        return [sent.text.replace("_not_", "*not*") for sent in self.server.sent]

    def disconnect(self) -> None:
        self.server.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.server.refuse = error


@contextmanager
def whatsapp() -> Iterator[WhatsApp]:
    with WhatsAppServer() as server, tempfile.TemporaryDirectory() as folder:
        yield WhatsApp(server, Path(folder))


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


NETWORKS = [telegram, slack, discord, whatsapp]
