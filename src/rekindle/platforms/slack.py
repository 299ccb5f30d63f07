"""Slack, by socket mode: events come through a socket, and answers go to the Web API."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# slack_sdk is typed in part, and its events are JSON.
from __future__ import annotations

import asyncio
import html
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from rekindle.errors import InvalidSetting, PlatformError
from rekindle.types import Message, Source

from . import Attachment, BotIdentity, Change, Platform, PlatformMessage, Progress
from .common.backoff import Backoff
from .common.downloads import fetch_file
from .common.fields import build_url_field
from .common.markup import parse_markdown, render_marks
from .common.mentions import replace_brackets
from .common.pending import PendingMessages, Positions, is_later
from .common.sending import SendJournal, check_file, check_length
from .common.state_file import StateFile
from .kind import PlatformField, PlatformKind
from .splitting import split_text

logger = logging.getLogger(__name__)

_API_URL = "https://slack.com/api/"
_CONNECT_SECONDS = 20.0
_MAX_CATCH_UP = 50  # conversations that are read after an outage, the latest first
_PAGE = 200
_TOKEN_ERRORS = {
    "invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive",
    "not_allowed_token_type",
}  # fmt: skip
_PASSING_ERRORS = {
    "internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited",
}  # fmt: skip
_EVENT_TYPES = ("message", "app_mention")
_KNOWN_SUBTYPES = {None, "file_share", "thread_broadcast", "me_message"}
_URL_ESCAPES = str.maketrans({"<": "%3C", ">": "%3E", "|": "%7C", "&": "&amp;"})
_NEW_TOKEN = (
    "Slack does not accept a token of the app: install the app to the workspace again, then run"
    " `rekindle gateway setup slack`"
)


class _Delivery(NamedTuple):
    """What confirms a message: the receipt to keep, its conversation, and the envelope."""

    receipt: str
    conversation: str
    ts: str
    envelope_id: str | None


class SlackPlatform(Platform):
    """An app in a workspace. Envelopes are confirmed only after they are acknowledged.

    Slack gives up on what nobody confirms within minutes, so the history is read after an outage.
    """

    name = "slack"
    limit = 4000
    can_edit = True

    def __init__(
        self,
        bot_token: str,
        app_token: str,
        folder: Path,
        *,
        api_url: str = _API_URL,
        retry_seconds: float = 1.0,
    ) -> None:
        if not bot_token.startswith("xoxb-"):
            raise InvalidSetting("bot_token: expected one that begins with xoxb-")
        if not app_token.startswith("xapp-"):
            raise InvalidSetting("app_token: expected one that begins with xapp-")
        self._web = AsyncWebClient(bot_token, base_url=api_url, retry_handlers=[])
        self._hosts = {urlsplit(api_url).netloc, "files.slack.com"}
        self._bot_token, self._app_token = bot_token, app_token
        self._retry_seconds = retry_seconds
        self._backoff = Backoff(retry_seconds)
        self._journal = SendJournal(folder)
        self._receipts = StateFile(folder / "acknowledged.jsonl")
        self._positions = Positions(StateFile(folder / "positions.jsonl"))
        self._pending: PendingMessages[_Delivery] = PendingMessages()
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._socket: SocketModeClient | None = None
        self._identity: BotIdentity | None = None
        self._names: dict[str, str] = {}
        self._closed = False

    # -- receiving

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield messages: those of the time without a connection first, then new ones."""
        self._pending.clear()
        self._positions.forget_waiting()
        while not self._closed:
            try:
                await self._open_socket()
                for event in await self._read_missed():
                    if (incoming := await self._receive(event)) is not None:
                        yield incoming
                self._backoff.reset()
                while self._is_connected() or not self._events.empty():
                    if (envelope := await self._next_envelope()) is None:
                        continue
                    if (incoming := await self._receive_envelope(envelope)) is not None:
                        yield incoming
            except PlatformError as error:
                if self._closed:
                    return
                if error.permanent:
                    raise
                logger.warning("slack: %s; trying again", error)
                await self._backoff.wait(error.retry_after)

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Remember that a message is stored, and confirm its envelopes."""
        for delivery in self._pending.take(incoming):
            if self._receipts.find(delivery.receipt) is None:
                self._receipts.put(delivery.receipt, "")
            if delivery.ts:
                self._positions.finish(delivery.conversation, delivery.ts)
            await self._acknowledge_envelope(delivery.envelope_id)

    async def _acknowledge_envelope(self, envelope_id: str | None) -> None:
        if envelope_id is None or self._socket is None:
            return
        try:
            await self._socket.send_message(json.dumps({"envelope_id": envelope_id}))
        except (ConnectionError, AttributeError, RuntimeError) as error:
            logger.debug("slack: not confirmed, it will come again: %s", error)

    async def _open_socket(self) -> None:
        """Connect with a new socket; one address serves for one connection."""
        await self._close_socket()
        if self._identity is None:
            await self.identify()
        socket = SocketModeClient(self._app_token, web_client=self._web)
        socket.auto_reconnect_enabled = socket.default_auto_reconnect_enabled = False
        socket.logger = logging.getLogger("slack_sdk.socket_mode")
        self._socket = socket
        socket.socket_mode_request_listeners.append(self._on_request)
        answer = await self._call(self._web.apps_connections_open(app_token=self._app_token))
        socket.wss_uri = answer["url"]
        try:
            await asyncio.wait_for(socket.connect(), _CONNECT_SECONDS)
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            raise PlatformError(f"slack cannot be reached: {error}") from None

    async def _on_request(self, socket: Any, request: SocketModeRequest) -> None:
        if socket is self._socket:
            event = {"envelope_id": request.envelope_id, "payload": request.payload}
            self._events.put_nowait({**event, "type": request.type})

    def _is_connected(self) -> bool:
        session = self._socket.current_session if self._socket is not None else None
        return session is not None and not session.closed and not self._closed

    async def _next_envelope(self) -> dict[str, Any] | None:
        try:
            return await asyncio.wait_for(self._events.get(), max(self._retry_seconds, 0.05))
        except TimeoutError:
            return None

    async def _receive_envelope(self, envelope: Mapping[str, Any]) -> PlatformMessage | None:
        payload: dict[str, Any] = envelope["payload"] or {}
        event: dict[str, Any] = payload.get("event") or {}
        event["event_id"] = payload.get("event_id") or envelope["envelope_id"]
        is_message = envelope["type"] == "events_api" and event.get("type") in _EVENT_TYPES
        return await self._receive(event if is_message else {}, envelope["envelope_id"])

    async def _receive(
        self, event: Mapping[str, Any], envelope_id: str | None = None
    ) -> PlatformMessage | None:
        """Return the message of an event, None if it is not for us or was given already."""
        change: Change = "new"
        channel, message = event.get("channel", ""), event
        if event.get("subtype") == "message_changed":
            change, message = "edited", event.get("message") or {}
            if message.get("text") == (event.get("previous_message") or {}).get("text"):
                message = {}  # only a preview of a link was added
        elif event.get("subtype") == "message_deleted":
            previous = event.get("previous_message") or {}
            change, message = "deleted", {**previous, "ts": event.get("deleted_ts"), "text": ""}
        ts, thread = message.get("ts") or "", message.get("thread_ts")
        receipt = f"{channel}:{ts}" if change == "new" else str(event.get("event_id"))
        if not self._is_from_person(message) or self._receipts.find(receipt) is not None:
            await self._acknowledge_envelope(envelope_id)
            return None
        incoming = await self._parse_message(channel, message, change)
        conversation = f"{channel}:{thread}" if thread else channel
        position = ts if change == "new" else ""
        if not self._pending.add(incoming, _Delivery(receipt, conversation, position, envelope_id)):
            return None
        if position:
            self._positions.begin(conversation, position)
        return incoming

    def _is_from_person(self, message: Mapping[str, Any]) -> bool:
        """Return whether a person wrote it: bots must not talk to each other without end."""
        user = message.get("user")
        is_own = self._identity is not None and user == self._identity.id
        is_known = message.get("subtype") in _KNOWN_SUBTYPES
        has_content = message.get("text") is not None or message.get("files")
        return bool(user and is_known and has_content) and not is_own and not message.get("bot_id")

    async def _parse_message(
        self, channel: str, message: Mapping[str, Any], change: Change
    ) -> PlatformMessage:
        text = str(message.get("text") or "")
        is_direct = channel.startswith("D")
        own = self._identity.id if self._identity else ""
        is_addressed = (
            is_direct or f"<@{own}" in text or (bool(own) and message.get("parent_user_id") == own)
        )
        if text.startswith(f"<@{own}") and (rest := text.partition(">")[2].strip()):
            text = rest  # only addresses the bot
        user = str(message["user"])
        source = Source(
            self.name,
            channel,
            None if is_direct else await self._find_name(channel),
            "dm" if is_direct else "group",
            user,
            await self._find_name(user),
            message.get("thread_ts"),
        )
        files: list[dict[str, Any]] = message.get("files") or []
        attachments = tuple(
            Attachment(
                one.get("name") or "file",
                one.get("mimetype") or "application/octet-stream",
                one.get("size"),
                partial(self._fetch, one.get("url_private_download") or one["url_private"]),
            )
            for one in files
            if one.get("url_private") and not one.get("is_external")
        )
        shared: list[dict[str, Any]] = message.get("attachments") or []
        quote = "\n".join(str(one.get("text")) for one in shared if one.get("is_share"))
        shown = html.unescape(await replace_brackets(text, self._show_bracket))
        stored = Message("user", shown, platform_message_id=str(message["ts"]))
        return PlatformMessage(source, stored, attachments, change, is_addressed, quote)

    async def _show_bracket(self, inside: str) -> str:
        """Return what people see of a mention, a channel or a link."""
        target, _, label = inside.partition("|")
        if target.startswith(("@", "#")):
            return target[0] + (label or await self._find_name(target[1:]))
        if target.startswith("!"):
            return f"@{label or target[1:].partition('^')[0]}"
        return target if label in ("", target) else f"{label} ({target})"

    async def _find_name(self, id: str) -> str:
        """Return the name of a user or channel, its id if it cannot be had."""
        if (known := self._names.get(id)) is not None:
            return known
        try:
            if id.startswith(("U", "W")):
                user = (await self._call(self._web.users_info(user=id)))["user"]
                profile = user.get("profile") or {}
                name = profile.get("display_name") or user.get("real_name") or user.get("name")
            else:
                answer = await self._call(self._web.conversations_info(channel=id))
                name = answer["channel"].get("name")
        except PlatformError as error:
            logger.debug("slack: the name of %s cannot be had: %s", id, error)
            if not error.permanent:
                return id
            name = id
        return self._names.setdefault(id, name or id)

    async def _fetch(self, url: str, max_bytes: int) -> bytes:
        if urlsplit(url).netloc not in self._hosts:
            raise PlatformError("Slack does not store this file", permanent=True)
        return await fetch_file(url, max_bytes, {"Authorization": f"Bearer {self._bot_token}"})

    # -- after an outage

    async def _read_missed(self) -> list[dict[str, Any]]:
        """Read the messages in known conversations after the last acknowledged one."""
        missed: list[dict[str, Any]] = []
        for conversation, position in self._positions.list_channels()[-_MAX_CATCH_UP:]:
            channel, _, thread = conversation.partition(":")
            try:
                found = await self._read_history(channel, thread, position)
            except PlatformError as error:
                if not error.permanent or str(error) == _NEW_TOKEN:
                    raise
                logger.warning("slack: the history of %s cannot be read: %s", channel, error)
                continue
            # A reply that is also shown in the channel is in both histories.
            missed += [
                {**one, "channel": channel}
                for one in found
                if is_later(one["ts"], position)
                and one.get("thread_ts") in (thread or None, one["ts"])
            ]
        return sorted(missed, key=lambda one: float(one["ts"]))

    async def _read_history(
        self, channel: str, thread: str, oldest: str, **options: Any
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            if thread:
                request = self._web.conversations_replies(
                    channel=channel, ts=thread, oldest=oldest, limit=_PAGE, cursor=cursor, **options
                )
            else:
                request = self._web.conversations_history(
                    channel=channel, oldest=oldest, limit=_PAGE, cursor=cursor, **options
                )
            answer = await self._call(request)
            found += answer["messages"]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return found

    # -- sending

    async def send(self, target: Source, text: str, nonce: str) -> str:
        shown = convert_markdown(text)
        check_length("slack", len(shown), self.limit)

        async def post() -> str:
            answer = await self._call(
                self._web.chat_postMessage(
                    channel=target.chat_id,
                    text=shown,
                    thread_ts=target.thread_id,
                    unfurl_links=False,
                    metadata={"event_type": "rekindle", "event_payload": {"nonce": nonce}},
                )
            )
            return str(answer["ts"])

        async def find_sent() -> str | None:
            """Look for a message with the nonce among those of the last day."""
            messages = await self._read_history(
                target.chat_id,
                target.thread_id or "",
                f"{time.time() - 86_400:.6f}",
                include_all_metadata=True,
            )
            for one in messages:
                payload = (one.get("metadata") or {}).get("event_payload") or {}
                if payload.get("nonce") == nonce:
                    return str(one["ts"])
            return None

        return await self._journal.send_once(nonce, post, find_sent)

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        shown = convert_markdown(text)
        check_length("slack", len(shown), self.limit)
        await self._call(self._web.chat_update(channel=target.chat_id, ts=message_id, text=shown))

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        check_file(file)

        async def upload() -> str:
            answer = await self._call(
                self._web.files_upload_v2(
                    channel=target.chat_id,
                    file=str(file),
                    filename=file.name,
                    initial_comment=convert_markdown(caption) or None,
                    thread_ts=target.thread_id,
                )
            )
            return str(answer["files"][0]["id"])

        return await self._journal.send_once(nonce, upload)

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        """Show a reaction: Slack has no typing notice for apps."""
        place = {"channel": target.chat_id, "timestamp": message_id}
        try:
            if progress == "working":
                await self._call(self._web.reactions_add(name="eyes", **place))
                return
            if progress == "failed":
                await self._call(self._web.reactions_add(name="warning", **place))
            await self._call(self._web.reactions_remove(name="eyes", **place))
        except PlatformError as error:
            logger.debug("slack: progress not shown: %s", error)

    async def identify(self) -> BotIdentity:
        answer = await self._call(self._web.auth_test())
        self._identity = BotIdentity(str(answer["user_id"]), str(answer["user"]))
        return self._identity

    def split(self, text: str) -> Sequence[str]:
        return split_text(text, self.limit, lambda part: len(convert_markdown(part)))

    async def close(self) -> None:
        self._closed = True
        await self._close_socket()

    async def _close_socket(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            try:
                await socket.close()
            except (OSError, aiohttp.ClientError, RuntimeError) as error:
                logger.debug("slack: closing failed: %s", error)

    async def _call(self, request: Awaitable[Any]) -> Any:
        """Await a request and return its answer; errors become PlatformError."""
        try:
            return await request
        except SlackApiError as error:
            raise _convert_error(error) from None
        except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
            said = f"slack cannot be reached: {error or type(error).__name__}"
            raise PlatformError(said) from None


def _convert_error(error: SlackApiError) -> PlatformError:
    response: Any = error.response
    data: Any = response.data if isinstance(response.data, dict) else {}
    code = str(data.get("error") or f"HTTP status {response.status_code}")
    if response.status_code == 429 or code == "ratelimited":
        seconds = float(response.headers.get("Retry-After", 30))
        return PlatformError(f"Slack asks to slow down for {seconds:g} s", retry_after=seconds)
    if code in _TOKEN_ERRORS:
        return PlatformError(_NEW_TOKEN, permanent=True)
    if code == "missing_scope":
        problem = f"the Slack app lacks the scope {data.get('needed')}: add it and install it again"
        return PlatformError(problem, permanent=True)
    is_passing = code in _PASSING_ERRORS or response.status_code >= 500
    return PlatformError(f"Slack refuses: {code}", permanent=not is_passing)


def convert_markdown(text: str) -> str:
    """Convert Markdown to Slack's own markup; nothing in the text can mention anyone."""
    return render_marks(
        parse_markdown(text),
        escape=lambda plain: html.escape(plain, quote=False),
        link=lambda label, url: f"<{url.translate(_URL_ESCAPES)}|{label}>",
    )


def _connect_app(settings: Mapping[str, str], folder: Path) -> Platform:
    return SlackPlatform(
        settings["bot_token"], settings["app_token"], folder, api_url=settings["api_url"]
    )


PLATFORM = PlatformKind(
    "slack",
    "Slack",
    _connect_app,
    fields=(
        PlatformField(
            "bot_token",
            "Bot token",
            "OAuth & Permissions → Bot User OAuth Token, begins with xoxb-",
            is_secret=True,
            env="SLACK_BOT_TOKEN",
        ),
        PlatformField(
            "app_token",
            "App-level token",
            "Basic Information → App-Level Tokens, with connections:write, begins with xapp-",
            is_secret=True,
            env="SLACK_APP_TOKEN",
        ),
        build_url_field(_API_URL, "SLACK_API_URL"),
    ),
    guide=(
        "Create an app at https://api.slack.com/apps and turn on Socket Mode.\n"
        "Scopes of the bot: chat:write, im:history, channels:history, groups:history,\n"
        "mpim:history, channels:read, groups:read, users:read, files:read, files:write,\n"
        "reactions:write.\n"
        "Events: message.im, message.channels, message.groups, message.mpim.\n"
        "Under App Home, allow messages to the app. Then install it to the workspace."
    ),
)
