"""Telegram, by the Bot API with long polling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    AiogramError,
    ClientDecodeError,
    TelegramAPIError,
    TelegramBadRequest,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.types import FSInputFile, MessageEntity, ReactionTypeEmoji, Update
from aiogram.types import Message as TelegramMessage
from aiogram.utils.token import TokenValidationError
from aiohttp import ClientError
from pydantic import ValidationError

from rekindle.errors import InvalidSetting, PlatformError
from rekindle.types import ChatType, Message, Source

from . import Attachment, BotIdentity, Change, Feature, Platform, PlatformMessage, Progress
from .common.backoff import Backoff
from .common.fields import build_url_field
from .common.markup import Style, count_utf16, list_runs, parse_markdown
from .common.pending import PendingMessages
from .common.sending import SendJournal, check_file, check_length
from .common.state_file import StateFile
from .kind import PlatformField, PlatformKind
from .splitting import split_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

_API_URL = "https://api.telegram.org"
_POLL_SECONDS = 25
_REQUEST_SECONDS = 60
_MAX_CAPTION = 1024
_UPDATES = ["message", "edited_message"]
_CHAT_TYPES: dict[str, ChatType] = {"private": "dm", "group": "group", "supergroup": "group"}
_ENTITIES: tuple[tuple[Style, str], ...] = (
    ("quote", "blockquote"),
    ("bold", "bold"),
    ("italic", "italic"),
    ("strike", "strikethrough"),
    ("code", "code"),
    ("block", "pre"),
)
_REACTIONS: dict[Progress, str] = {"working": "👀", "failed": "😢"}
_FAILURES = (AiogramError, ClientError, OSError, asyncio.TimeoutError)
_OUTAGES = (TelegramServerError, TelegramNetworkError)
_REFUSALS = (TelegramBadRequest, TelegramForbiddenError, TelegramEntityTooLarge)
_NEW_TOKEN = (
    "Telegram does not accept the bot's token: get a new one from @BotFather with /token,"
    " then run `rekindle gateway setup telegram`"
)


class TelegramPlatform(Platform):
    """A bot on Telegram. Updates are confirmed only after they are acknowledged."""

    name = "telegram"
    limit = 4096  # UTF-16 code units, counted after the Markdown is converted
    can_edit = True
    is_idempotent = False  # see SendJournal: a send with an unknown outcome is sent again
    lacks: frozenset[Feature] = frozenset(("deletions",))

    def __init__(
        self, token: str, folder: Path, *, api_url: str = _API_URL, retry_seconds: float = 1.0
    ) -> None:
        server = TelegramAPIServer.from_base(api_url.rstrip("/"))
        try:
            self._bot = Bot(token, session=AiohttpSession(api=server))
        except TokenValidationError as error:
            raise InvalidSetting(
                "token: not a token of a Telegram bot; copy it from @BotFather"
            ) from error
        self._token = token
        self._backoff = Backoff(retry_seconds)
        self._journal = SendJournal(folder)
        # Ids and not a position: after a quiet week Telegram goes on with a random, perhaps lower id.
        self._acknowledged = StateFile(folder / "acknowledged.jsonl", max_keys=1000)
        self._pending: PendingMessages[int] = PendingMessages()
        self._identity: BotIdentity | None = None
        self._username = ""
        self._closed = False

    # -- receiving

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield messages; ask for more when all are acknowledged, as this confirms them."""
        self._pending.clear()
        offset: int | None = None
        while not self._closed:
            try:
                await self._ensure_identity()
                updates = await self._poll(offset)
                self._backoff.reset()
            except PlatformError as error:
                if self._closed:
                    return
                if error.permanent:
                    raise
                offset = None  # perhaps confirmed: what is not will be recognized
                logger.warning("telegram: %s; trying again", error)
                await self._backoff.wait(error.retry_after)
                continue
            for update in sorted(updates, key=lambda one: one.update_id):
                incoming = self._parse_update(update)
                if incoming is not None and self._pending.add(incoming, update.update_id):
                    yield incoming
            await self._pending.wait_until_empty()
            # Once confirmed, nothing is asked for by number: the next one may be lower.
            offset = max((one.update_id for one in updates), default=-1) + 1 or None

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Remember that the updates with this message need not be handled again."""
        for update_id in self._pending.take(incoming):
            self._acknowledged.put(str(update_id), "")

    async def _poll(self, offset: int | None) -> Sequence[Update]:
        try:
            return await self._call(
                self._bot.get_updates(
                    offset=offset,
                    timeout=_POLL_SECONDS,
                    allowed_updates=_UPDATES,
                    request_timeout=_REQUEST_SECONDS,
                )
            )
        except ClientDecodeError as error:
            return _decode_updates(error.data)

    def _parse_update(self, update: Update) -> PlatformMessage | None:
        """Return the message of an update, None if there is none for us."""
        if self._acknowledged.find(str(update.update_id)) is not None:
            return None
        change: Change = "edited" if update.edited_message else "new"
        message = update.message or update.edited_message
        if message is None or message.chat.type not in _CHAT_TYPES:
            return None
        sender = message.from_user
        if sender is None or sender.is_bot or message.is_automatic_forward:
            return None  # bots must not talk to each other without end
        attachments = tuple(self._list_attachments(message))
        text = self._remove_own_name(message.text or message.caption or "")
        if not text and not attachments:
            return None  # a service message, such as that somebody joined
        replied = message.reply_to_message
        if replied is not None and replied.forum_topic_created is not None:
            replied = None  # every message in a topic replies to its first one
        quote = (message.quote and message.quote.text) or (
            (replied.text or replied.caption or "") if replied else ""
        )
        source = Source(
            self.name,
            str(message.chat.id),
            message.chat.title,
            _CHAT_TYPES[message.chat.type],
            str(sender.id),
            sender.full_name,
            str(message.message_thread_id) if message.is_topic_message else None,
        )
        stored = Message("user", text, platform_message_id=str(message.message_id))
        is_addressed = message.chat.type == "private" or self._is_addressed(message, replied)
        return PlatformMessage(source, stored, attachments, change, is_addressed, quote)

    def _is_addressed(self, message: TelegramMessage, replied: TelegramMessage | None) -> bool:
        identity = self._identity
        if identity is None:
            return False
        if replied is not None and replied.from_user and str(replied.from_user.id) == identity.id:
            return True
        text = message.text or message.caption or ""
        name = f"@{self._username}".lower()
        for entity in message.entities or message.caption_entities or ():
            marked = entity.extract_from(text).lower()
            if entity.type == "mention" and marked == name:
                return True
            if entity.type == "bot_command" and marked.endswith(name):
                return True
            if entity.type == "text_mention" and str(entity.user and entity.user.id) == identity.id:
                return True
        return False

    def _remove_own_name(self, text: str) -> str:
        """Remove the bot's name from where it only addresses it: at the start, and in a command."""
        name = f"@{self._username}"
        first, blank, rest = text.partition(" ")
        if len(name) == 1 or not first.lower().endswith(name.lower()):
            return text
        kept = first[: -len(name)]
        if kept.startswith("/"):
            return kept + blank + rest
        return rest.lstrip() if not kept and rest.strip() else text

    def _list_attachments(self, message: TelegramMessage) -> Sequence[Attachment]:
        found: list[Attachment] = []

        def add(file: Any, name: str, media_type: str) -> None:
            found.append(
                Attachment(
                    getattr(file, "file_name", None) or name,
                    getattr(file, "mime_type", None) or media_type,
                    file.file_size,
                    partial(self._fetch, file.file_id),
                )
            )

        if message.photo:
            add(message.photo[-1], "photo.jpg", "image/jpeg")  # the last is the largest
        for file, name, media_type in (
            (message.document if message.animation is None else None, "file", ""),
            (message.animation, "animation.mp4", "video/mp4"),
            (message.audio, "audio.mp3", "audio/mpeg"),
            (message.voice, "voice.ogg", "audio/ogg"),
            (message.video, "video.mp4", "video/mp4"),
            (message.video_note, "video.mp4", "video/mp4"),
        ):
            if file is not None:
                add(file, name, media_type or "application/octet-stream")
        return found

    async def _fetch(self, file_id: str, max_bytes: int) -> bytes:
        file = await self._call(self._bot.get_file(file_id))
        if (file.file_size or 0) > max_bytes:
            raise PlatformError(f"the file is larger than {max_bytes} bytes", permanent=True)
        url = self._bot.session.api.file_url(self._bot.token, file.file_path or "")
        content = bytearray()

        async def download() -> bytes:
            stream = self._bot.session.stream_content(url, raise_for_status=True)
            async for chunk in stream:
                content.extend(chunk)
                if len(content) > max_bytes:
                    raise PlatformError(
                        f"the file is larger than {max_bytes} bytes", permanent=True
                    )
            return bytes(content)

        return await self._call(download())

    # -- sending

    async def send(self, target: Source, text: str, nonce: str) -> str:
        shown, entities = convert_markdown(text)
        check_length("telegram", count_utf16(shown), self.limit)

        async def post() -> str:
            return await self._call_with_fallback(
                target, lambda chat, plain: self._bot.send_message(
                    chat,
                    text if plain else shown,
                    entities=None if plain else entities,
                    parse_mode=None,
                    message_thread_id=_get_thread(target),
                )
            )  # fmt: skip

        return await self._journal.send_once(nonce, post)

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        shown, entities = convert_markdown(text)
        check_length("telegram", count_utf16(shown), self.limit)
        try:
            await self._call_with_fallback(
                target, lambda chat, plain: self._bot.edit_message_text(
                    text if plain else shown,
                    chat_id=chat,
                    message_id=int(message_id),
                    entities=None if plain else entities,
                    parse_mode=None,
                )
            )  # fmt: skip
        except PlatformError as error:
            if "message is not modified" not in str(error):
                raise

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        """Send a file, as an image if it is one; the rest of a long caption follows as text."""
        check_file(file)
        head, *rest = split_text(caption, _MAX_CAPTION, _count_shown) if caption else [""]
        shown, entities = convert_markdown(head)
        thread = _get_thread(target)
        is_image = file.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")
        post = self._bot.send_photo if is_image else self._bot.send_document

        async def upload() -> str:
            return await self._call_with_fallback(
                target, lambda chat, plain: post(
                    chat,
                    FSInputFile(file),
                    caption=head if plain else shown,
                    caption_entities=None if plain else entities,
                    parse_mode=None,
                    message_thread_id=thread,
                    request_timeout=5 * _REQUEST_SECONDS,
                )
            )  # fmt: skip

        id = await self._journal.send_once(nonce, upload)
        for number, part in enumerate(rest):
            await self.send(target, part, f"{nonce}-{number}")
        return id

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        """Show that the bot types, and a reaction to the message; the answer removes it."""
        chat = int(target.chat_id)
        emoji = _REACTIONS.get(progress)
        reaction = [ReactionTypeEmoji(emoji=emoji)] if emoji else []
        try:
            if progress == "working":
                await self._call(
                    self._bot.send_chat_action(
                        chat, "typing", message_thread_id=_get_thread(target)
                    )
                )
            if message_id:
                await self._call(
                    self._bot.set_message_reaction(chat, int(message_id), reaction=list(reaction))
                )
        except (PlatformError, ValueError) as error:
            logger.debug("telegram: progress not shown: %s", error)

    async def identify(self) -> BotIdentity:
        me = await self._call(self._bot.get_me())
        self._username = me.username or ""
        self._identity = BotIdentity(str(me.id), self._username or me.full_name)
        return self._identity

    def split(self, text: str) -> Sequence[str]:
        return split_text(text, self.limit, _count_shown)

    async def close(self) -> None:
        self._closed = True
        self._pending.clear()
        await self._bot.session.close()

    async def _ensure_identity(self) -> None:
        if self._identity is None:
            await self.identify()

    async def _call_with_fallback(
        self, target: Source, build: Callable[[int, bool], Awaitable[Any]]
    ) -> str:
        """Call a method with the markup, without it if it is rejected, and in a chat that moved."""
        chat, plain = int(target.chat_id), False
        for _ in range(2):
            try:
                sent = await build(chat, plain)
                return str(getattr(sent, "message_id", ""))
            except TelegramMigrateToChat as error:
                chat = error.migrate_to_chat_id
            except TelegramBadRequest as error:
                if "entit" not in error.message.lower() or plain:
                    raise self._convert_error(error) from None
                plain = True
            except _FAILURES as error:
                raise self._convert_error(error) from None
        raise PlatformError("Telegram rejects the message", permanent=True)

    async def _call(self, request: Awaitable[T]) -> T:
        """Await a request; errors become PlatformError, without the token that is in every address."""
        try:
            return await request
        except ClientDecodeError:
            raise
        except _FAILURES as error:
            raise self._convert_error(error) from None

    def _convert_error(self, error: Exception) -> PlatformError:
        message = error.message if isinstance(error, TelegramAPIError) else str(error)
        message = (message or type(error).__name__).replace(self._token, "…")
        if isinstance(error, TelegramRetryAfter):
            seconds = float(error.retry_after)
            return PlatformError(
                f"Telegram asks to slow down for {seconds:g} s", retry_after=seconds
            )
        if isinstance(error, (TelegramUnauthorizedError, TelegramNotFound)):
            return PlatformError(_NEW_TOKEN, permanent=True)
        if isinstance(error, TelegramConflictError):
            return PlatformError(
                "another program receives this bot's messages; stop it, or remove its webhook"
                f" ({message})"
            )
        if isinstance(error, _REFUSALS):
            return PlatformError(f"Telegram refuses: {message}", permanent=True)
        if not isinstance(error, TelegramAPIError) or isinstance(error, _OUTAGES):
            return PlatformError(f"telegram cannot be reached: {message}")
        return PlatformError(f"telegram: {message}")


def convert_markdown(text: str) -> tuple[str, list[MessageEntity]]:
    """Convert Markdown to what Telegram shows, and the entities that style it."""
    spans = parse_markdown(text)
    shown = "".join(span.text for span in spans)
    if not shown.strip():
        return text, []
    entities: list[MessageEntity] = []
    for style, kind in _ENTITIES:
        entities += [
            MessageEntity(type=kind, offset=offset, length=length, language=language or None)
            for offset, length, language in list_runs(spans, style)
        ]
    offset = 0
    for span in spans:
        size = count_utf16(span.text)
        if span.url and span.url != span.text:
            entities.append(
                MessageEntity(type="text_link", offset=offset, length=size, url=span.url)
            )
        offset += size
    return shown, sorted(entities, key=lambda entity: (entity.offset, -entity.length))


def _count_shown(text: str) -> int:
    return count_utf16("".join(span.text for span in parse_markdown(text)))


def _get_thread(target: Source) -> int | None:
    return int(target.thread_id) if target.thread_id else None


def _decode_updates(data: Any) -> list[Update]:
    """Decode updates one by one, so that one of a new kind does not block those after it."""
    updates: list[Update] = []
    answer = cast(dict[str, list[dict[str, Any]]], data if isinstance(data, dict) else {})
    for raw in answer.get("result", []):
        try:
            updates.append(Update.model_validate(raw))
        except ValidationError:
            logger.warning("telegram: update %s cannot be read", raw.get("update_id"))
            updates.append(Update(update_id=raw["update_id"]))
    return updates


def _connect_bot(settings: Mapping[str, str], folder: Path) -> Platform:
    return TelegramPlatform(settings["token"], folder, api_url=settings["api_url"])


PLATFORM = PlatformKind(
    "telegram",
    "Telegram",
    _connect_bot,
    fields=(
        PlatformField(
            "token",
            "Token of the bot",
            "from @BotFather, such as 123456:ABC…",
            is_secret=True,
            env="TELEGRAM_BOT_TOKEN",
        ),
        build_url_field(_API_URL, "TELEGRAM_API_URL"),
    ),
    guide=(
        "In Telegram, write /newbot to @BotFather and copy the token.\n"
        "For groups: /setprivacy → Disable lets the bot see messages that do not mention it;\n"
        "without it, it sees commands, mentions and replies only."
    ),
)
