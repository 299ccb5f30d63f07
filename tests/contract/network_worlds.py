"""The worlds of the chat networks: their local servers, and a person there."""

from __future__ import annotations

import asyncio
import html
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from rekindle.errors import PlatformError
from rekindle.platforms import Feature, Platform
from rekindle.testing.networks import discord_server, slack_server, telegram_server
from rekindle.testing.networks.discord_server import DiscordServer
from rekindle.testing.networks.slack_server import SlackServer
from rekindle.testing.networks.telegram_server import TelegramSent, TelegramServer
from rekindle.testing.networks.whatsapp_server import WhatsAppServer
from rekindle.types import Source
from tests.contract.platform_world import Upload
from tests.ports import find_port
from tests.waiting import until


class Telegram:
    can_edit = True
    lacks: frozenset[Feature] = frozenset(("deletions",))
    limits_rate = True

    def __init__(self, server: TelegramServer, folder: Path) -> None:
        self.chat = Source("telegram", "1001", user_id="1001", user_name="Ada")
        self.server, self._folder = server, folder
        self._updates: dict[str, tuple[int, dict[str, Any]]] = {}

    def connect(self) -> Platform:
        from rekindle.platforms.telegram import TelegramPlatform

        server = self.server
        return TelegramPlatform(server.token, self._folder, api_url=server.url, retry_seconds=0.02)

    def env(self, home: Path) -> dict[str, str]:
        return {"TELEGRAM_BOT_TOKEN": self.server.token, "TELEGRAM_API_URL": self.server.url}

    def has_draft(self) -> bool:
        """Whether the bot edits: then it knows that what it edits was sent."""
        return "editMessageText" in self.server.requests

    def say(self, text: str, **fields: Any) -> str:
        message = self.server.build_message(text=text, **fields)
        update_id = self.server.post_update({"message": message})
        id = str(message["message_id"])
        self._updates[id] = update_id, message
        return id

    def seen(self) -> list[str]:
        shown = [one for one in self.server.sent if one.chat == 1001 and one.file is None]
        return [write_markdown(sent) for sent in shown]

    def revoke(self) -> None:
        self.server.token = "654321:another"
        self.server.disconnect()

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        fields: dict[str, Any] = {"chat": telegram_server.GROUP, "sender": telegram_server.BOB_USER}
        if thread:
            fields |= {"message_thread_id": 7, "is_topic_message": True}
        if mentions:
            text = f"@rekindle_bot {text}"
            fields["entities"] = [{"type": "mention", "offset": 0, "length": 13}]
        return self.say(text, **fields)

    def say_as_bot(self, text: str) -> None:
        self.say(text, sender={**telegram_server.ADA_USER, "is_bot": True})

    def reply(self, text: str, to: str) -> None:
        self.say(text, reply_to_message=self._updates[to][1])

    def edit(self, id: str, text: str) -> None:
        message = {**self._updates[id][1], "text": text, "edit_date": 1700000000}
        self.server.post_update({"edited_message": message})

    def delete(self, id: str) -> None:
        """Telegram tells bots nothing about it."""

    def send_file(self, file: Upload) -> None:
        id, size = self.server.add_file(file.data), len(file.data)
        about: dict[str, Any] = {"file_id": id, "file_unique_id": id, "file_size": size}
        if file.media_type.startswith("image/"):
            fields: dict[str, Any] = {"photo": [{**about, "width": 1, "height": 1}]}
        else:
            fields = {"document": {**about, "file_name": file.name, "mime_type": file.media_type}}
        message = self.server.build_message(caption=file.caption, **fields)
        self.server.post_update({"message": message})

    def repeat(self, id: str) -> None:
        update_id, message = self._updates[id]
        self.server.post_update({"message": message}, update_id=update_id)

    def say_swapped(self, first: str, second: str) -> None:
        one, two = (self.server.build_message(text=text) for text in (first, second))
        self.server.post_updates(
            {"message": two, "update_id": 5002}, {"message": one, "update_id": 5001}
        )

    def limit_uploads(self, max_bytes: int) -> None:
        self.server.max_upload = max_bytes

    def seen_files(self) -> list[bytes]:
        return [one.file for one in self.server.sent if one.file is not None]

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        place = (telegram_server.GROUP["id"], 7 if thread else None)
        return [one.text for one in self.server.sent if (one.chat, one.thread) == place]

    def disconnect(self) -> None:
        self.server.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self.server.refuse = error


class Slack:
    can_edit = True
    lacks: frozenset[Feature] = frozenset()
    limits_rate = True

    def __init__(self, server: SlackServer, folder: Path) -> None:
        self.chat = Source("slack", "DADA", user_id="UADA", user_name="Ada")
        self.server, self._folder = server, folder
        self._thread = ""  # a message of the group on which there is a thread

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

    def say(self, text: str, **fields: Any) -> str:
        return self.server.post_text(text, **fields)

    def seen(self) -> list[str]:
        shown = [sent.text for sent in self.server.sent if sent.channel == slack_server.DIRECT]
        return [html.unescape(text).replace("_not_", "*not*") for text in shown]

    def revoke(self) -> None:
        self.server.bot_token = self.server.app_token = "another"
        self.server.disconnect()

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        fields: dict[str, Any] = {"channel": "COPS", "user": "UBOB"}
        if thread:
            self._thread = self._thread or self.server.post_text("a thread", **fields)
            fields["thread_ts"] = self._thread
        return self.say(text, raw_text=f"<@UBOT> {text}" if mentions else text, **fields)

    def say_as_bot(self, text: str) -> None:
        self.say(text, bot_id="B77")

    def reply(self, text: str, to: str) -> None:
        self.say(text, attachments=[{"is_share": True, "text": self._find(to)["text"]}])

    def edit(self, id: str, text: str) -> None:
        before = self._find(id)
        self.server.post_event({
            "type": "message", "subtype": "message_changed", "channel": before["channel"],
            "message": {**before, "text": text, "edited": {"user": "UADA", "ts": id}},
            "previous_message": before,
        })  # fmt: skip

    def delete(self, id: str) -> None:
        before = self._find(id)
        self.server.post_event({
            "type": "message", "subtype": "message_deleted", "channel": before["channel"],
            "deleted_ts": id, "previous_message": before,
        })  # fmt: skip

    def send_file(self, file: Upload) -> None:
        key = f"in-{len(self.server.files)}"
        self.server.files[key] = file.data
        url = f"{self.server.url}/files/{key}"
        about = {"name": file.name, "mimetype": file.media_type, "size": len(file.data)}
        self.say(file.caption, subtype="file_share", files=[{**about, "url_private": url}])

    def repeat(self, id: str) -> None:
        self.server.post_event(self._find(id))

    def say_swapped(self, first: str, second: str) -> None:
        about = {"type": "message", "channel": slack_server.DIRECT, "user": "UADA"}
        for ts, text in (("1700000001.000002", second), ("1700000001.000001", first)):
            message = {**about, "ts": ts, "text": text}
            self.server.messages.append(message)
            self.server.post_event(message)

    def limit_uploads(self, max_bytes: int) -> None:
        self.server.max_upload = max_bytes

    def seen_files(self) -> list[bytes]:
        return [content for _, content in self.server.uploads]

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        place = ("COPS", self._thread if thread else None)
        return [one.text for one in self.server.sent if (one.channel, one.thread) == place]

    def _find(self, ts: str) -> dict[str, Any]:
        (found,) = [one for one in self.server.messages if one["ts"] == ts]
        return found

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
    lacks: frozenset[Feature] = frozenset()
    limits_rate = True

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
        """Have a message of each chat acknowledged: the history is read from there on."""
        platform = self.connect()
        async with aclosing(platform.listen()) as arriving:
            first = asyncio.ensure_future(anext(arriving))
            await until(lambda: self.server.connections)
            channels = (discord_server.DIRECT, discord_server.ROOM, discord_server.THREAD)
            for channel in channels:
                self.say("earlier", channel=channel)
            await platform.acknowledge(await first)
            for _ in channels[1:]:
                await platform.acknowledge(await anext(arriving))
        await platform.close()

    def has_draft(self) -> bool:
        return any(one.startswith("PATCH") for one in self.server.requests)

    def say(self, text: str, **fields: Any) -> str:
        return self.server.post_text(text, **fields)

    def seen(self) -> list[str]:
        return self._list_texts(discord_server.DIRECT)

    def revoke(self) -> None:
        self.server.token = "another"
        self.server.drop_session()
        self.server.disconnect()

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        channel = discord_server.THREAD if thread else discord_server.ROOM
        mentioned = [discord_server.BOT] if mentions else []
        text = f"<@{discord_server.BOT['id']}> {text}" if mentions else text
        return self.say(text, channel=channel, author=discord_server.BOB, mentions=mentioned)

    def say_as_bot(self, text: str) -> None:
        self.say(text, author={**discord_server.ADA, "id": "777", "bot": True})

    def reply(self, text: str, to: str) -> None:
        self.say(text, type=19, referenced_message=self._find(to))

    def edit(self, id: str, text: str) -> None:
        edited = {
            **self._find(id),
            "content": text,
            "edited_timestamp": "2026-01-02T00:00:00+00:00",
        }
        self.server.post_event("MESSAGE_UPDATE", edited)

    def delete(self, id: str) -> None:
        channel = self._find(id)["channel_id"]
        self.server.post_event("MESSAGE_DELETE", {"id": id, "channel_id": channel})

    def send_file(self, file: Upload) -> None:
        key = f"in-{len(self.server.files)}"
        self.server.files[key] = file.data
        url = f"{self.server.url}/files/{key}"
        about = {"filename": file.name, "content_type": file.media_type, "size": len(file.data)}
        self.say(file.caption, attachments=[{"id": "1", **about, "url": url}])

    def repeat(self, id: str) -> None:
        self.server.post_event("MESSAGE_CREATE", self._find(id))

    def say_swapped(self, first: str, second: str) -> None:
        one, two = self.server.build_message(first), self.server.build_message(second)
        self.server.messages += [one, two]
        self.server.post_event("MESSAGE_CREATE", two)
        self.server.post_event("MESSAGE_CREATE", one)

    def limit_uploads(self, max_bytes: int) -> None:
        self.server.max_upload = max_bytes

    def seen_files(self) -> list[bytes]:
        return [file for one in self.server.sent for file in one.files]

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        return self._list_texts(discord_server.THREAD if thread else discord_server.ROOM)

    def _list_texts(self, channel: str) -> list[str]:
        return [one.text for one in self.server.sent if one.channel == channel and not one.files]

    def _find(self, id: str) -> dict[str, Any]:
        (found,) = [one for one in self.server.messages if one["id"] == id]
        return found

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
    lacks: frozenset[Feature] = frozenset(("groups", "threads", "edits", "deletions"))
    limits_rate = True

    def __init__(self, server: WhatsAppServer, folder: Path) -> None:
        self.chat = Source("whatsapp", "491701", user_id="491701", user_name="Ada")
        self.server, self._folder = server, folder
        self._listen = f"127.0.0.1:{find_port()}"
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

    def say(self, text: str, **fields: Any) -> str:
        return self.server.post_text(text, **fields)

    def seen(self) -> list[str]:
        shown = [sent.text for sent in self.server.sent if sent.file is None]
        return [text.replace("_not_", "*not*") for text in shown]

    def revoke(self) -> None:
        self.server.token = "another"
        self.say("anyone?")  # it is noticed when an answer is sent

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        """A number in a group is not for bots; its messages may come all the same."""
        return self.say(text, group_id="g1")

    def say_as_bot(self, text: str) -> None:
        message = {"type": "text", "text": {"body": text}}
        self.server.post_message(message, sender="15550001")

    def reply(self, text: str, to: str) -> None:
        self.say(text, context={"from": "491701", "id": to})

    def edit(self, id: str, text: str) -> None:
        """The Cloud API says nothing about it."""

    def delete(self, id: str) -> None:
        """The Cloud API says nothing about it."""

    def send_file(self, file: Upload) -> None:
        id = f"in{len(self.server.files)}"
        self.server.files[id] = file.data
        kind = "image" if file.media_type.startswith("image/") else "document"
        about = {"id": id, "mime_type": file.media_type, "caption": file.caption}
        if kind == "document":
            about["filename"] = file.name
        self.server.post_message({"type": kind, kind: about})

    def repeat(self, id: str) -> None:
        self.say("repeated", id=id)

    def say_swapped(self, first: str, second: str) -> None:
        self.say(second, timestamp="1700000002")
        self.say(first, timestamp="1700000001")

    def limit_uploads(self, max_bytes: int) -> None:
        self.server.max_upload = max_bytes

    def seen_files(self) -> list[bytes]:
        return [one.file for one in self.server.sent if one.file is not None]

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        return []

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
        if entity["type"] == "pre":
            continue
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
