"""Discord, by its gateway for what comes in and its REST API for what goes out."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Events are JSON: the library's objects differ between the gateway and the history.
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from rekindle.errors import PlatformError
from rekindle.types import Message, Source

from . import Attachment, BotIdentity, Change, Platform, PlatformMessage, Progress
from .common.backoff import Backoff
from .common.downloads import fetch_file
from .common.fields import build_url_field
from .common.markup import write_for_discord
from .common.mentions import replace_brackets
from .common.pending import PendingMessages, Positions
from .common.sending import SendJournal, check_file, check_length
from .common.state_file import StateFile
from .kind import PlatformField, PlatformKind
from .splitting import split_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

_API_URL = "https://discord.com/api/v10"
_MAX_WAIT = 1.0  # seconds that the library may wait for a rate limit; longer ones are ours
_MAX_CATCH_UP = 50  # channels that are read after an outage, the latest first
_MAX_RECENT = 2000
_PAGE = 100
_NONCE_CHARS = 25  # as many as Discord takes
_DIRECT, _THREADS = 1, (10, 11, 12)  # types of channels
_MESSAGE_TYPES = (0, 19, 20)  # a message, a reply, a command
_WORKING, _FAILED = "👀", "⚠️"
# aiohttp raises RuntimeError when the connection is dropped while something is sent.
_OUTAGES = (discord.DiscordServerError, aiohttp.ClientError, OSError, TimeoutError, RuntimeError)
_NEW_TOKEN = (
    "Discord does not accept the bot's token: reset it at https://discord.com/developers under Bot,"
    " then run `rekindle gateway setup discord`"
)
_NEEDS_INTENT = (
    "the bot may not read messages: turn on Message Content Intent at"
    " https://discord.com/developers under Bot"
)


class _Channel(NamedTuple):
    """A channel: its parent if it is a thread."""

    type: int
    name: str | None
    parent: str | None


class _Receipt(NamedTuple):
    """What to remember of a message once it is acknowledged."""

    key: str
    channel: str
    id: str  # empty for an edit or deletion


class DiscordPlatform(Platform):
    """A bot on Discord.

    The library resumes a lost connection. After a longer outage or a restart, the history of each
    known channel is read from the last acknowledged message on.
    """

    name = "discord"
    limit = 2000
    can_edit = True
    # Discord recognizes a nonce for some minutes, the journal one whose answer came. What lost its
    # answer is sent again if it is repeated later than that.
    is_idempotent = True

    def __init__(
        self, token: str, folder: Path, *, api_url: str = _API_URL, retry_seconds: float = 1.0
    ) -> None:
        self._token = token
        self._api_url = api_url.rstrip("/")
        self._backoff = Backoff(retry_seconds)
        self._journal = SendJournal(folder)
        self._receipts = StateFile(folder / "acknowledged.jsonl")
        self._positions = Positions(StateFile(folder / "positions.jsonl"))
        self._pending: PendingMessages[_Receipt] = PendingMessages()
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._channels: dict[str, _Channel] = {}
        self._recent: dict[str, Source] = {}  # who wrote what can still be deleted
        self._client: discord.Client | None = None
        self._login_lock = asyncio.Lock()
        self._closed = False

    # -- receiving

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield messages: those of the time without a connection first, then new ones."""
        self._pending.clear()
        self._positions.forget_waiting()
        while not self._closed:
            connection: asyncio.Task[None] | None = None
            try:
                client = await self._ensure_client()
                events = self._events = asyncio.Queue[tuple[str, Any]]()
                connection = asyncio.create_task(client.connect())
                connection.add_done_callback(partial(_end_events, events))
                while True:
                    event, data = await events.get()
                    if event == "END":
                        break
                    async for incoming in self._receive(event, data):
                        yield incoming
                        self._backoff.reset()
                await self._call(connection)
                raise PlatformError("the connection was closed")
            except PlatformError as error:
                await self._drop_client()
                if self._closed:
                    return
                if error.permanent:
                    raise
                logger.warning("discord: %s; trying again", error)
                await self._backoff.wait(error.retry_after)
            finally:
                if connection is not None:
                    connection.cancel()
                    await asyncio.gather(connection, return_exceptions=True)
                    await self._drop_client()

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Remember that a message is stored, and how far its channel is."""
        for receipt in self._pending.take(incoming):
            if self._receipts.find(receipt.key) is None:
                self._receipts.put(receipt.key, "")
            if receipt.id:
                self._positions.finish(receipt.channel, receipt.id)

    async def _receive(self, event: str, data: Any) -> AsyncGenerator[PlatformMessage]:
        messages: list[tuple[Change, dict[str, Any]]] = []
        if event == "READY":
            messages = [("new", one) for one in await self._read_missed()]
        elif event == "MESSAGE_CREATE":
            messages = [("new", data)]
        elif event == "MESSAGE_UPDATE" and data.get("edited_timestamp") and data.get("author"):
            messages = [("edited", data)]
        elif event == "MESSAGE_DELETE":
            messages = [("deleted", data)]
        elif event == "MESSAGE_DELETE_BULK":
            messages = [("deleted", {**data, "id": id}) for id in data["ids"]]
        for change, raw in messages:
            incoming = await self._parse_message(raw, change)
            if incoming is None:
                continue
            channel, id = str(raw["channel_id"]), str(raw["id"])
            moment = "" if change == "new" else f":{change}:{raw.get('edited_timestamp')}"
            receipt = _Receipt(f"{id}{moment}", channel, "" if moment else id)
            if self._receipts.find(receipt.key) is None and self._pending.add(incoming, receipt):
                if receipt.id:
                    self._positions.begin(channel, id)
                yield incoming

    async def _parse_message(
        self, raw: Mapping[str, Any], change: Change
    ) -> PlatformMessage | None:
        """Return a message, None if it is not one of a person."""
        id = str(raw["id"])
        if change == "deleted":
            source = self._recent.get(id)
            message = Message("user", "", platform_message_id=id)
            return source and PlatformMessage(source, message, change=change)
        author: dict[str, Any] = raw["author"]
        if author.get("bot") or raw.get("webhook_id") or raw.get("type", 0) not in _MESSAGE_TYPES:
            return None  # bots must not talk to each other without end
        channel = await self._find_channel(str(raw["channel_id"]))
        is_thread = channel.type in _THREADS and channel.parent is not None
        parent = await self._find_channel(channel.parent or "") if is_thread else channel
        nick = (raw.get("member") or {}).get("nick")
        source = Source(
            self.name,
            str(channel.parent if is_thread else raw["channel_id"]),
            parent.name,
            "dm" if channel.type == _DIRECT else "group",
            str(author["id"]),
            nick or author.get("global_name") or author.get("username"),
            str(raw["channel_id"]) if is_thread else None,
        )
        self._recent[id] = source
        if len(self._recent) > _MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        quoted: dict[str, Any] = raw.get("referenced_message") or {}
        own = self._get_own_id()
        mentioned = {str(one["id"]) for one in raw.get("mentions") or ()}
        is_reply = str((quoted.get("author") or {}).get("id")) == own
        attachments = tuple(
            Attachment(
                str(one.get("filename") or "file"),
                str(one.get("content_type") or "application/octet-stream"),
                one.get("size"),
                partial(fetch_file, str(one["url"])),
            )
            for one in raw.get("attachments") or ()
        )
        message = Message("user", await self._decode_text(raw), platform_message_id=id)
        is_addressed = source.chat_type == "dm" or own in mentioned or is_reply
        quote = str(quoted.get("content") or "")
        return PlatformMessage(source, message, attachments, change, is_addressed, quote)

    async def _decode_text(self, raw: Mapping[str, Any]) -> str:
        """Replace what Discord writes in angle brackets, such as mentions, by what people see."""
        text, own = str(raw.get("content") or ""), self._get_own_id()
        names = {
            str(one["id"]): one.get("global_name") or one.get("username")
            for one in raw.get("mentions") or ()
        }

        async def show(inside: str) -> str | None:
            if inside.startswith("@") and (name := names.get(inside.lstrip("@!"))):
                return f"@{name}"
            if inside.startswith("#") and inside[1:].isdigit():
                return f"#{(await self._find_channel(inside[1:])).name or inside[1:]}"
            if inside.startswith((":", "a:")) and inside.count(":") == 2:
                return f":{inside.split(':')[1]}:"
            return None

        for mention in (f"<@{own}>", f"<@!{own}>"):
            if text.startswith(mention) and text != mention:
                text = text.removeprefix(mention).lstrip()  # only addresses the bot
        return await replace_brackets(text, show)

    async def _find_channel(self, id: str) -> _Channel:
        """Return the known data of a channel: people can create threads at any time."""
        if (known := self._channels.get(id)) is not None:
            return known
        client = await self._ensure_client()
        try:
            raw: Any = await self._call(client.http.get_channel(int(id)))
        except PlatformError as error:
            if not error.permanent:
                raise
            return _Channel(0, None, None)
        parent = str(raw["parent_id"]) if raw.get("parent_id") else None
        self._channels[id] = _Channel(int(raw["type"]), raw.get("name"), parent)
        return self._channels[id]

    async def _read_missed(self) -> list[dict[str, Any]]:
        """Read the messages in known channels after the last acknowledged one."""
        missed: list[dict[str, Any]] = []
        client = await self._ensure_client()
        for channel, position in self._positions.list_channels()[-_MAX_CATCH_UP:]:
            last = position
            while True:
                try:
                    page: list[Any] = await self._call_patiently(
                        partial(client.http.logs_from, int(channel), _PAGE, after=int(last))
                    )
                except PlatformError as error:
                    if not error.permanent:
                        raise
                    logger.warning("discord: channel %s cannot be read: %s", channel, error)
                    break
                missed += page
                if len(page) < _PAGE:
                    break
                last = max((str(one["id"]) for one in page), key=int)
        return sorted(missed, key=lambda one: int(one["id"]))

    async def _call_patiently(self, request: Any) -> Any:
        """Call, and again when a rate limit is over."""
        while True:
            try:
                return await self._call(request())
            except PlatformError as error:
                if error.retry_after is None:
                    raise
                await asyncio.sleep(error.retry_after)

    # -- sending

    async def send(self, target: Source, text: str, nonce: str) -> str:
        shown = write_for_discord(text)
        check_length("discord", len(shown), self.limit)
        return await self._post(target, nonce, content=shown)

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        check_file(file)
        shown = write_for_discord(caption)
        check_length("discord", len(shown), self.limit)
        return await self._post(target, nonce, path=file, content=shown)

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        shown = write_for_discord(text)
        check_length("discord", len(shown), self.limit)
        client = await self._ensure_client()
        message = client.get_partial_messageable(_get_channel(target)).get_partial_message(
            int(message_id)
        )
        none = discord.AllowedMentions.none()
        await self._call(message.edit(content=shown, allowed_mentions=none))

    async def _post(
        self, target: Source, nonce: str, *, content: str, path: Path | None = None
    ) -> str:
        client = await self._ensure_client()
        channel = client.get_partial_messageable(_get_channel(target))
        options: dict[str, Any] = {"file": discord.File(path)} if path is not None else {}

        async def post() -> str:
            # A nonce that is too long is rejected, and no text may mention everybody.
            sent = await self._call(
                channel.send(
                    content,
                    nonce=sha256(nonce.encode()).hexdigest()[:_NONCE_CHARS],
                    allowed_mentions=discord.AllowedMentions.none(),
                    **options,
                )
            )
            return str(sent.id)

        return await self._journal.send_once(nonce, post)

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        """Show that the bot types, and a reaction to the message; the answer removes it."""
        channel = _get_channel(target)
        try:
            http = (await self._ensure_client()).http
            if progress == "working":
                await self._call(http.send_typing(channel))
                await self._call(http.add_reaction(channel, int(message_id), _WORKING))
                return
            if progress == "failed":
                await self._call(http.add_reaction(channel, int(message_id), _FAILED))
            await self._call(http.remove_own_reaction(channel, int(message_id), _WORKING))
        except (PlatformError, ValueError) as error:
            logger.debug("discord: progress not shown: %s", error)

    async def identify(self) -> BotIdentity:
        client = await self._ensure_client()
        raw: Any = await self._call(client.http.request(Route("GET", "/users/@me")))
        return BotIdentity(str(raw["id"]), str(raw.get("global_name") or raw["username"]))

    def split(self, text: str) -> Sequence[str]:
        return split_text(text, self.limit, lambda part: len(write_for_discord(part)))

    async def close(self) -> None:
        self._closed = True
        await self._drop_client()

    # -- the client

    async def _ensure_client(self) -> discord.Client:
        """Return a client that is logged in; one that was closed cannot be used again."""
        async with self._login_lock:
            if self._client is not None and not self._client.is_closed():
                return self._client
            if self._closed:
                raise PlatformError("discord is closed")
            intents = discord.Intents.none()
            intents.guilds = intents.messages = intents.message_content = True
            client = discord.Client(intents=intents, enable_debug_events=True, max_messages=None)
            client.http.max_ratelimit_timeout = _MAX_WAIT
            client.event(self._build_listener(client))
            Route.BASE = self._api_url
            try:
                await self._call(client.login(self._token))
                if self._api_url != _API_URL:
                    answer: Any = await self._call(client.http.request(Route("GET", "/gateway")))
                    DiscordWebSocket.DEFAULT_GATEWAY = URL(answer["url"])
            except PlatformError:
                await client.close()
                raise
            self._client = client
            return client

    def _build_listener(self, client: discord.Client) -> Any:
        async def on_socket_raw_receive(text: str) -> None:
            event: dict[str, Any] = json.loads(text)
            if event.get("t") and client is self._client:
                self._events.put_nowait((event["t"], event.get("d")))

        return on_socket_raw_receive

    async def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*_OUTAGES):
                await client.close()

    def _get_own_id(self) -> str:
        user = self._client.user if self._client is not None else None
        return str(user.id) if user is not None else ""

    async def _call(self, request: Awaitable[T]) -> T:
        """Await a request; errors become PlatformError."""
        try:
            return await request
        except (discord.DiscordException, *_OUTAGES) as error:
            raise _convert_error(error) from None


def _end_events(events: asyncio.Queue[tuple[str, Any]], _: object) -> None:
    events.put_nowait(("END", None))


def _convert_error(error: Exception) -> PlatformError:
    if isinstance(error, discord.RateLimited):
        return _build_limit_error(error.retry_after)
    if isinstance(error, discord.PrivilegedIntentsRequired):
        return PlatformError(_NEEDS_INTENT, permanent=True)
    if isinstance(error, discord.LoginFailure):
        return PlatformError(_NEW_TOKEN, permanent=True)
    if isinstance(error, discord.ConnectionClosed):
        if error.code == 4004:
            return PlatformError(_NEW_TOKEN, permanent=True)
        return PlatformError(f"the connection was closed with code {error.code}")
    if isinstance(error, _OUTAGES):
        return PlatformError(f"discord cannot be reached: {error or type(error).__name__}")
    if isinstance(error, discord.HTTPException):
        if error.status == 429:
            headers = cast(Mapping[str, str], error.response.headers)
            return _build_limit_error(float(headers.get("Retry-After", 60)))
        if error.status == 401:
            return PlatformError(_NEW_TOKEN, permanent=True)
        return PlatformError(f"Discord refuses: {error.text or error.status}", permanent=True)
    return PlatformError(f"discord: {error}")


def _build_limit_error(seconds: float) -> PlatformError:
    return PlatformError(f"Discord asks to slow down for {seconds:g} s", retry_after=seconds)


def _get_channel(target: Source) -> int:
    """Return the channel to write to: a thread is one of its own."""
    return int(target.thread_id or target.chat_id)


def _connect_bot(settings: Mapping[str, str], folder: Path) -> Platform:
    return DiscordPlatform(settings["token"], folder, api_url=settings["api_url"])


PLATFORM = PlatformKind(
    "discord",
    "Discord",
    _connect_bot,
    fields=(
        PlatformField(
            "token",
            "Token of the bot",
            "Bot → Reset Token",
            is_secret=True,
            env="DISCORD_BOT_TOKEN",
        ),
        build_url_field(_API_URL, "DISCORD_API_URL"),
    ),
    guide=(
        "Create an application at https://discord.com/developers/applications.\n"
        "Under Bot, turn on Message Content Intent and copy the token.\n"
        "Invite it with OAuth2 → URL Generator: scope bot; permissions View Channels, Send\n"
        "Messages, Send Messages in Threads, Read Message History, Add Reactions, Attach Files."
    ),
)
