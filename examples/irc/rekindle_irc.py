"""IRC for Rekindle's gateway: an example of a platform in one file.

IRC keeps no history and has no message ids: what people write while the bot is away is lost, and a
repeated message is not recognized. Everything else that the protocol asks for is here.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import ssl
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from rekindle.errors import PlatformError
from rekindle.platforms import BotIdentity, Feature, Platform, PlatformMessage
from rekindle.platforms.kind import PlatformField, PlatformKind
from rekindle.platforms.splitting import split_text
from rekindle.types import Message, Source

LINE_BYTES = 400  # of a text; a line has 512 with its prefix and command
ANSWER_SECONDS = 20.0
MAX_RETRY_SECONDS = 60.0
MAX_RECEIVED = 1000  # messages that wait for the gateway; then reading waits too
REFUSALS = ("464", "465")  # a wrong password, and a ban
_LINE = re.compile(r"(?::(?P<prefix>\S+) +)?(?P<command>\S+)(?P<rest>.*)")


class IrcPlatform(Platform):
    """One connection to one server, in some channels."""

    name = "irc"
    limit = LINE_BYTES
    can_edit = False
    is_idempotent = False
    is_always_shared = True
    lacks: frozenset[Feature] = frozenset(
        ("files", "threads", "quotes", "edits", "deletions", "replay", "ids")
    )

    def __init__(self, settings: Mapping[str, str], retry_seconds: float = 1.0) -> None:
        host, _, port = settings["server"].rpartition(":")
        self._address = (host, int(port))
        self._has_tls = settings["tls"] == "true"
        self._nick, self._password = settings["nick"], settings["password"]
        self._channels = settings["channels"].split()
        self._retry_seconds = retry_seconds
        self._writer: asyncio.StreamWriter | None = None
        self._is_ready = asyncio.Event()
        self._pongs: dict[str, asyncio.Event] = {}
        self._received = asyncio.Queue[PlatformMessage](MAX_RECEIVED)
        self._reading: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._is_closed = False

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield messages; connect again when the connection is lost.

        A task of its own reads the connection until `close`, since `send` needs the server's
        answers for as long as the gateway sends, which is longer than it listens.
        """
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        while True:
            received = asyncio.ensure_future(self._received.get())
            try:
                await asyncio.wait([received, self._reading], return_when=asyncio.FIRST_COMPLETED)
                if not received.done():
                    break
                yield received.result()
            finally:
                received.cancel()
        if not self._reading.cancelled():
            self._reading.result()  # why only the operator can help

    async def _read(self) -> None:
        delay = self._retry_seconds
        while not self._is_closed:
            try:
                reader = await self._connect()
                while line := await reader.readline():
                    if message := self._handle_line(line.decode("utf-8", "replace").rstrip("\r\n")):
                        delay = self._retry_seconds
                        await self._received.put(message)
            except OSError:
                pass  # try again below
            except PlatformError as error:
                if error.permanent:
                    raise
            self._is_ready.clear()
            if not self._is_closed:
                await asyncio.sleep(delay)
                delay = min(delay * 2, MAX_RETRY_SECONDS)

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        """Do nothing: the server keeps no messages."""

    async def send(self, target: Source, text: str, nonce: str) -> str:
        """Send the lines of a text; return when the server has taken them."""
        for line in filter(str.strip, text.splitlines()):
            await self._write(f"PRIVMSG {_clean_word(target.chat_id)} :{line}")
        token = f"rekindle-{next(self._numbers)}"
        pong = self._pongs[token] = asyncio.Event()
        try:
            await self._write(f"PING :{token}")
            await asyncio.wait_for(pong.wait(), ANSWER_SECONDS)
        except TimeoutError:
            raise PlatformError("the IRC server does not answer") from None
        finally:
            del self._pongs[token]
        return f"{time.time_ns()}"

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Raise an error: a line that was sent stays."""
        raise PlatformError("IRC cannot edit messages", permanent=True)

    async def identify(self) -> BotIdentity:
        """Connect once and return the nick that the server accepted."""
        reader = await self._connect()
        async with asyncio.timeout(ANSWER_SECONDS):
            while not self._is_ready.is_set():
                line = await reader.readline()
                if not line:
                    raise PlatformError("the IRC server closed the connection", permanent=True)
                self._handle_line(line.decode("utf-8", "replace").rstrip("\r\n"))
        return BotIdentity(self._nick, self._nick)

    def split(self, text: str) -> Sequence[str]:
        """Split a text into parts whose lines each fit."""
        pieces = (split_text(line, LINE_BYTES, _count_bytes) for line in text.splitlines() if line)
        return ["\n".join(one) for one in _group_lines([*itertools.chain(*pieces)])]

    async def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._writer is not None:
            self._writer.close()

    async def _connect(self) -> asyncio.StreamReader:
        context = ssl.create_default_context() if self._has_tls else None
        try:
            reader, self._writer = await asyncio.open_connection(*self._address, ssl=context)
        except OSError as error:
            raise PlatformError(f"the IRC server cannot be reached: {error}") from error
        if self._password:
            self._write_line(f"PASS {_clean_word(self._password)}")
        self._write_line(f"NICK {_clean_word(self._nick)}")
        self._write_line("USER rekindle 0 * :Rekindle")
        return reader

    def _handle_line(self, line: str) -> PlatformMessage | None:
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        command, rest = found["command"], found["rest"]
        middle, _, text = rest.partition(" :")
        words = middle.split()
        if command == "PING":
            self._write_line(f"PONG :{text or ' '.join(words)}")
        elif command == "PONG" and (pong := self._pongs.get(text or (words or [""])[-1])):
            pong.set()
        elif command == "001":  # welcome
            for channel in self._channels:
                self._write_line(f"JOIN {_clean_word(channel)}")
            self._is_ready.set()
        elif command in REFUSALS or (command == "ERROR" and "password" in text.lower()):
            raise PlatformError(f"the IRC server refuses the bot: {text}", permanent=True)
        elif command == "433":  # the nick is taken
            self._nick += "_"
            self._write_line(f"NICK {_clean_word(self._nick)}")
        elif command == "PRIVMSG" and words and found["prefix"]:
            return self._make_message(found["prefix"], words[0], text)
        return None

    def _make_message(self, prefix: str, target: str, text: str) -> PlatformMessage | None:
        nick = prefix.partition("!")[0]
        if nick == self._nick or text.startswith("\x01"):  # ourselves, or a command of a client
            return None
        if target == self._nick:
            source = Source(self.name, nick, chat_type="dm", user_id=prefix, user_name=nick)
            return PlatformMessage(source, Message("user", text))
        source = Source(self.name, target, target, "group", prefix, nick)
        name = re.escape(self._nick)
        is_addressed = re.search(rf"(?<!\w){name}(?!\w)", text, re.IGNORECASE) is not None
        text = re.sub(rf"^{name}[:,]\s*", "", text, flags=re.IGNORECASE)  # only addresses the bot
        return PlatformMessage(source, Message("user", text), is_addressed=is_addressed)

    async def _write(self, line: str) -> None:
        try:
            await asyncio.wait_for(self._is_ready.wait(), ANSWER_SECONDS)
            self._write_line(line)
            assert self._writer is not None
            await self._writer.drain()
        except (TimeoutError, OSError):
            raise PlatformError("not connected to the IRC server") from None

    def _write_line(self, line: str) -> None:
        assert self._writer is not None
        clean = line.replace("\r", " ").replace("\n", " ").replace("\0", "")
        self._writer.write(clean.encode("utf-8", "replace") + b"\r\n")


def _clean_word(word: str) -> str:
    """Return a word that cannot end a command or begin another."""
    return re.sub(r"[\s\0,]+", "", word).lstrip(":")


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _group_lines(lines: list[str], size: int = 8) -> list[list[str]]:
    """Return groups of a few lines: each is one message for the gateway."""
    return [lines[start : start + size] for start in range(0, len(lines), size)] or [[""]]


def connect(settings: Mapping[str, str], folder: Path) -> Platform:
    """Connect with the settings of `rekindle gateway setup irc`."""
    return IrcPlatform(settings)


PLATFORM = PlatformKind(
    "irc",
    "IRC",
    connect,
    fields=(
        PlatformField("server", "Server and port", default="irc.libera.chat:6697"),
        PlatformField("tls", "Use TLS (true or false)", default="true"),
        PlatformField("nick", "Nick of the bot"),
        PlatformField("password", "Password of the server", is_secret=True, default=""),
        PlatformField("channels", "Channels to join, separated by spaces", default=""),
    ),
    guide="Choose a nick for the bot. On IRC a nick is no proof of who someone is.",
)
