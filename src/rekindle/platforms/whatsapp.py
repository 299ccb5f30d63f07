"""WhatsApp, by the Cloud API: a webhook for what comes in, the Graph API for what goes out."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Webhooks and answers are JSON.
from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import mimetypes
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiohttp
from aiohttp import web

from rekindle.errors import InvalidSetting, PlatformError
from rekindle.types import Message, Source

from . import Attachment, BotIdentity, Feature, Platform, PlatformMessage, Progress
from .common.backoff import Backoff
from .common.downloads import fetch_file
from .common.fields import build_url_field
from .common.markup import parse_markdown, render_marks
from .common.pending import PendingMessages
from .common.sending import SendJournal, check_length
from .common.state_file import StateFile
from .kind import PlatformField, PlatformKind
from .splitting import split_text

logger = logging.getLogger(__name__)

_API_URL = "https://graph.facebook.com/v23.0"
_LISTEN = "127.0.0.1:8087"
_PATH = "/webhook"
_MAX_BODY = 4 << 20
_MAX_CAPTION = 1024
_MAX_IMAGE = 5 << 20  # larger ones are sent as documents
_ACKNOWLEDGE_SECONDS = 15.0  # then the webhook is answered with an error, and comes again
_MEDIA = ("image", "document", "audio", "video", "sticker")
_MAX_RECENT = 1000
_TOKEN_CODES = {0, 190}
_LIMIT_SECONDS = {4: 60.0, 80007: 60.0, 130429: 10.0, 131048: 60.0, 131056: 6.0}  # by code
_PASSING_CODES = {1, 2, 131000, 131016, 133004}
_WINDOW_CODE = 131047
_NEW_TOKEN = (
    "WhatsApp does not accept the access token: make a new one for a system user in the Meta"
    " Business settings, then run `rekindle gateway setup whatsapp`"
)
_WINDOW = (
    "WhatsApp allows answers only within 24 hours of a person's last message, and these are over:"
    " they must write again"
)


class WhatsAppSettings(NamedTuple):
    """What the Cloud API needs. `listen` is the address of the webhook on this machine."""

    token: str
    phone_number_id: str
    app_secret: str
    verify_token: str
    listen: str = _LISTEN
    api_url: str = _API_URL


class _Arrival(NamedTuple):
    """A message of a webhook that waits for its answer."""

    id: str
    is_stored: asyncio.Future[bool]


class WhatsAppPlatform(Platform):
    """A phone number of the Cloud API. A webhook is answered only when its messages are stored."""

    name = "whatsapp"
    limit = 4096
    can_edit = False
    # There is no nonce. A send whose answer is lost is recognized by the report of its delivery, which
    # carries our nonce; if it is repeated before that comes, it is sent again.
    is_idempotent = False
    is_always_shared = True
    lacks: frozenset[Feature] = frozenset(("groups", "threads", "edits", "deletions"))

    def __init__(
        self, settings: WhatsAppSettings, folder: Path, *, retry_seconds: float = 1.0
    ) -> None:
        host, _, port = settings.listen.rpartition(":")
        if not port.isdigit():
            raise InvalidSetting("listen: expected an address such as 127.0.0.1:8087")
        self._settings = settings
        self._address = (host or "127.0.0.1", int(port))
        self._api_url = settings.api_url.rstrip("/")
        self._backoff = Backoff(retry_seconds)
        self._journal = SendJournal(folder)
        self._receipts = StateFile(folder / "acknowledged.jsonl")
        self._pending: PendingMessages[_Arrival] = PendingMessages()
        self._arrivals: asyncio.Queue[tuple[PlatformMessage, _Arrival] | PlatformError] = (
            asyncio.Queue()
        )
        self._open: set[asyncio.Future[bool]] = set()
        self._texts: dict[
            str, str
        ] = {}  # recent ones, for quotes: only their id comes with a reply
        self._closed = False

    # -- receiving

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield messages while the webhook is served; raise PlatformError if the token is useless."""
        await self._check_token()
        self._pending.clear()
        self._arrivals = asyncio.Queue()
        app = web.Application(client_max_size=_MAX_BODY)
        app.add_routes([web.get(_PATH, self._verify), web.post(_PATH, self._accept)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await self._start_site(runner)
            while not self._closed:
                arrived = await self._arrivals.get()
                if isinstance(arrived, PlatformError):
                    raise arrived
                incoming, arrival = arrived
                if self._receipts.find(arrival.id) is not None:
                    _settle_arrival(arrival, True)
                elif self._pending.add(incoming, arrival):
                    yield incoming
        finally:
            self._pending.clear()
            for future in [*self._open]:
                if not future.done():
                    future.set_result(False)
            await runner.cleanup()

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Remember that a message is stored, and let its webhook be answered."""
        for arrival in self._pending.take(incoming):
            if self._receipts.find(arrival.id) is None:
                self._receipts.put(arrival.id, "")
            _settle_arrival(arrival, True)

    async def _check_token(self) -> None:
        """Raise PlatformError if the number cannot be used; an outage does not stop the webhook."""
        try:
            await self.identify()
        except PlatformError as error:
            if error.permanent:
                raise

    async def _start_site(self, runner: web.AppRunner) -> None:
        while not self._closed:
            try:
                await web.TCPSite(runner, *self._address).start()
                self._backoff.reset()
                return
            except OSError as error:
                logger.warning("whatsapp: cannot listen on %s: %s", self._settings.listen, error)
                await self._backoff.wait()

    async def _verify(self, request: web.Request) -> web.Response:
        """Answer the question by which Meta checks who owns the webhook."""
        query = request.query
        given, expected = query.get("hub.verify_token", ""), self._settings.verify_token
        if query.get("hub.mode") != "subscribe" or not _is_equal(given, expected):
            return web.Response(status=403)
        return web.Response(text=query.get("hub.challenge", ""))

    async def _accept(self, request: web.Request) -> web.Response:
        """Take the messages of a webhook, and answer when all are stored."""
        body = await request.read()
        digest = hmac.new(self._settings.app_secret.encode(), body, hashlib.sha256).hexdigest()
        if not _is_equal(request.headers.get("X-Hub-Signature-256", ""), f"sha256={digest}"):
            return web.Response(status=403)
        try:
            messages = self._parse_body(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("whatsapp: a webhook cannot be read: %r", error)
            return web.Response(status=200)  # it would be the same the next time
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[bool]] = []
        for incoming in messages:
            future: asyncio.Future[bool] = loop.create_future()
            futures.append(future)
            self._open.add(future)
            id = str(incoming.message.platform_message_id)
            self._arrivals.put_nowait((incoming, _Arrival(id, future)))
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                is_stored = all([await future for future in futures])
        except TimeoutError:
            is_stored = False
        finally:
            self._open.difference_update(futures)
        return web.Response(status=200 if is_stored else 503)

    def _parse_body(self, body: Any) -> list[PlatformMessage]:
        messages: list[PlatformMessage] = []
        for entry in body["entry"]:
            for change in entry["changes"]:
                value: dict[str, Any] = change["value"]
                about: dict[str, Any] = value.get("metadata") or {}
                number = about.get("phone_number_id")
                if change.get("field") != "messages" or number != self._settings.phone_number_id:
                    continue
                own = _get_digits(about.get("display_phone_number"))
                for status in value.get("statuses") or ():
                    self._record_status(status)
                names = {
                    str(one["wa_id"]): str(one["profile"]["name"])
                    for one in value.get("contacts") or ()
                }
                for raw in value.get("messages") or ():
                    # Not what we wrote ourselves, nor in a group: it would be answered in private.
                    if _get_digits(raw["from"]) == own or raw.get("group_id"):
                        continue
                    if (incoming := self._parse_message(raw, names)) is not None:
                        messages.append(incoming)
        return messages

    def _record_status(self, status: Mapping[str, Any]) -> None:
        """Record the delivery status that a lost response would have reported."""
        nonce = status.get("biz_opaque_callback_data")
        if status.get("status") != "failed" and nonce:
            self._journal.record_sent(str(nonce), str(status["id"]))
        for error in status.get("errors") or ():
            said = _WINDOW if error.get("code") == _WINDOW_CODE else error.get("title")
            logger.warning("whatsapp: a message was not delivered: %s", said)

    def _parse_message(
        self, raw: Mapping[str, Any], names: Mapping[str, str]
    ) -> PlatformMessage | None:
        """Return a message, None if it is of a kind that says nothing, such as a reaction."""
        kind, sender, id = str(raw["type"]), str(raw["from"]), str(raw["id"])
        content: dict[str, Any] = raw.get(kind) or {}
        text, attachments = "", ()
        if kind == "text":
            text = str(content["body"])
        elif kind == "button":
            text = str(content.get("text") or "")
        elif kind == "interactive":
            reply: dict[str, Any] = content.get("button_reply") or content.get("list_reply") or {}
            text = str(reply.get("title") or "")
        elif kind == "location":
            place = content.get("name") or content.get("address") or ""
            text = (
                f"Location: {content.get('latitude')}, {content.get('longitude')} {place}".strip()
            )
        elif kind in _MEDIA:
            media_type = str(content.get("mime_type") or "").partition(";")[0]
            name = content.get("filename") or f"{kind}{mimetypes.guess_extension(media_type) or ''}"
            fetch = partial(self._fetch, str(content["id"]))
            text = str(content.get("caption") or "")
            attachments = (Attachment(str(name), media_type, None, fetch),)
        if not text and not attachments:
            return None
        self._remember_text(id, text)
        source = Source(self.name, sender, user_id=sender, user_name=names.get(sender))
        quote = self._texts.get(str((raw.get("context") or {}).get("id")), "")
        message = Message("user", text, platform_message_id=id)
        return PlatformMessage(source, message, attachments, quote=quote)

    def _remember_text(self, id: str, text: str) -> None:
        self._texts[id] = text
        if len(self._texts) > _MAX_RECENT:
            del self._texts[next(iter(self._texts))]

    async def _fetch(self, media_id: str, max_bytes: int) -> bytes:
        media = await self._call("GET", media_id)
        if int(media.get("file_size") or 0) > max_bytes:
            raise PlatformError(f"the file is larger than {max_bytes} bytes", permanent=True)
        return await fetch_file(str(media["url"]), max_bytes, self._build_headers())

    # -- sending

    async def send(self, target: Source, text: str, nonce: str) -> str:
        shown = convert_markdown(text)
        check_length("whatsapp", len(shown), self.limit)
        body = {"type": "text", "text": {"preview_url": False, "body": shown}}
        id = await self._journal.send_once(nonce, partial(self._post, target, body, nonce))
        self._remember_text(id, text)
        return id

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        raise PlatformError("whatsapp cannot edit messages", permanent=True)

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        """Send a file, as an image if it is one; the rest of a long caption follows as text."""
        head, *rest = split_text(caption, _MAX_CAPTION, _count_shown) if caption else [""]
        media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"

        async def upload() -> str:
            form = aiohttp.FormData({"messaging_product": "whatsapp", "type": media_type})
            content = await asyncio.to_thread(file.read_bytes)
            is_image = media_type in ("image/jpeg", "image/png") and len(content) <= _MAX_IMAGE
            kind = "image" if is_image else "document"
            form.add_field("file", content, filename=file.name, content_type=media_type)
            media = await self._call("POST", f"{self._settings.phone_number_id}/media", data=form)
            details = {"id": media["id"], "caption": convert_markdown(head)}
            if kind == "document":
                details["filename"] = file.name
            return await self._post(target, {"type": kind, kind: details}, nonce)

        try:
            id = await self._journal.send_once(nonce, upload)
        except OSError as error:
            raise PlatformError(f"the file cannot be read: {error}", permanent=True) from None
        for number, part in enumerate(rest):
            await self.send(target, part, f"{nonce}-{number}")
        return id

    async def _post(self, target: Source, content: Mapping[str, Any], nonce: str) -> str:
        answer = await self._call(
            "POST",
            f"{self._settings.phone_number_id}/messages",
            json={
                "messaging_product": "whatsapp",
                "recipient_type": "individual",
                "to": target.chat_id,
                "biz_opaque_callback_data": nonce,
                **content,
            },
        )
        return str(answer["messages"][0]["id"])

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        """Mark the message as read, and show that the bot types."""
        if progress != "working":
            return
        body = {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message_id,
            "typing_indicator": {"type": "text"},
        }
        try:
            await self._call("POST", f"{self._settings.phone_number_id}/messages", json=body)
        except PlatformError as error:
            logger.debug("whatsapp: progress not shown: %s", error)

    async def identify(self) -> BotIdentity:
        fields = "verified_name,display_phone_number"
        answer = await self._call("GET", f"{self._settings.phone_number_id}?fields={fields}")
        name = answer.get("verified_name") or answer.get("display_phone_number")
        return BotIdentity(self._settings.phone_number_id, str(name))

    def split(self, text: str) -> Sequence[str]:
        return split_text(text, self.limit, _count_shown)

    async def close(self) -> None:
        self._closed = True

    def _build_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._settings.token}"}

    async def _call(self, verb: str, path: str, **options: Any) -> dict[str, Any]:
        """Call the Graph API; errors become PlatformError."""
        timeout = aiohttp.ClientTimeout(total=60)
        try:
            async with (
                aiohttp.ClientSession(headers=self._build_headers(), timeout=timeout) as session,
                session.request(verb, f"{self._api_url}/{path}", **options) as answer,
            ):
                text = await answer.text()
                retry_after = answer.headers.get("Retry-After")
                status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PlatformError(
                f"whatsapp cannot be reached: {error or type(error).__name__}"
            ) from None
        body: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            body = cast(dict[str, Any], json.loads(text))
        if status != 200 or "error" in body:
            error = _convert_error(status, body.get("error") or {}, retry_after)
            if str(error) == _NEW_TOKEN:  # whoever listens is to know, since no answer can be sent
                self._arrivals.put_nowait(error)
            raise error
        return body


def _convert_error(status: int, error: Mapping[str, Any], retry_after: str | None) -> PlatformError:
    code = error.get("code")
    details = (error.get("error_data") or {}).get("details")
    said = str(details or error.get("message") or f"HTTP status {status}")
    if status == 429 or code in _LIMIT_SECONDS:
        seconds = float(retry_after or _LIMIT_SECONDS.get(code or 0, 60.0))
        return PlatformError(f"WhatsApp asks to slow down for {seconds:g} s", retry_after=seconds)
    if status == 401 or code in _TOKEN_CODES:
        return PlatformError(_NEW_TOKEN, permanent=True)
    if code == _WINDOW_CODE:
        return PlatformError(_WINDOW, permanent=True)
    is_passing = status >= 500 or code in _PASSING_CODES
    return PlatformError(f"WhatsApp refuses: {said}", permanent=not is_passing)


def convert_markdown(text: str) -> str:
    """Convert Markdown to WhatsApp's own markup."""

    def link(label: str, url: str) -> str:
        return url if label == url else f"{label} ({url})"

    return render_marks(parse_markdown(text), link=link)


def _count_shown(text: str) -> int:
    return len(convert_markdown(text))


def _get_digits(number: object) -> str:
    return "".join(filter(str.isdigit, str(number or "")))


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _settle_arrival(arrival: _Arrival, is_stored: bool) -> None:
    if not arrival.is_stored.done():
        arrival.is_stored.set_result(is_stored)


def _connect_number(settings: Mapping[str, str], folder: Path) -> Platform:
    return WhatsAppPlatform(WhatsAppSettings(**settings), folder)


PLATFORM = PlatformKind(
    "whatsapp",
    "WhatsApp",
    _connect_number,
    fields=(
        PlatformField(
            "token",
            "Access token",
            "of a system user with whatsapp_business_messaging",
            is_secret=True,
            env="WHATSAPP_TOKEN",
        ),
        PlatformField(
            "phone_number_id",
            "Phone number ID",
            "WhatsApp → API Setup; not the number itself",
            env="WHATSAPP_PHONE_NUMBER_ID",
        ),
        PlatformField(
            "app_secret",
            "App secret",
            "App settings → Basic",
            is_secret=True,
            env="WHATSAPP_APP_SECRET",
        ),
        PlatformField(
            "verify_token",
            "Verify token",
            "any word of yours; enter the same one at the webhook",
            is_secret=True,
            env="WHATSAPP_VERIFY_TOKEN",
        ),
        PlatformField(
            "listen",
            "Address of the webhook on this machine",
            "your reverse proxy hands https://your-host/webhook to it",
            default=_LISTEN,
            env="WHATSAPP_LISTEN",
        ),
        build_url_field(_API_URL, "WHATSAPP_API_URL"),
    ),
    guide=(
        "Create an app of the type Business at https://developers.facebook.com and add WhatsApp.\n"
        "Add a phone number, and make a permanent token for a system user.\n"
        "Under WhatsApp → Configuration, set the webhook to https://your-host/webhook with your\n"
        "verify token, and subscribe to messages."
    ),
)
