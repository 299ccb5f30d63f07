"""Discord: its gateway with resuming, its REST API for messages, and its errors.

with DiscordServer() as server:
    server.post_text("hello")
    platform = DiscordPlatform(server.token, folder, api_url=server.api_url)
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from .web_server import WebServer

TOKEN = "local.discord.token"
BOT = {"id": "900", "username": "rekindle", "discriminator": "0", "bot": True, "avatar": None}
ADA = {"id": "101", "username": "ada", "global_name": "Ada", "discriminator": "0", "avatar": None}
BOB = {"id": "102", "username": "bob", "global_name": "Bob", "discriminator": "0", "avatar": None}
DIRECT, ROOM, THREAD = "500", "600", "601"
MAX_TEXT = 2000
MAX_NONCE = 25
_TIME = "2026-01-01T00:00:00.000000+00:00"


@dataclass(slots=True)
class DiscordSent:
    """A message of the bot."""

    id: str
    channel: str
    text: str
    edits: int = 0
    files: list[bytes] = field(default_factory=list[bytes])
    pings: bool = True  # whether the text may mention people


class DiscordServer(WebServer):
    """The network with one bot."""

    def __init__(self, *, port: int = 0) -> None:
        super().__init__(port=port)
        self.token = TOKEN
        self.sent: list[DiscordSent] = []
        self.reactions: set[tuple[str, str]] = set()
        self.files: dict[str, bytes] = {}
        self.messages: list[dict[str, Any]] = []
        self.channels: dict[str, dict[str, Any]] = {
            DIRECT: {"id": DIRECT, "type": 1},
            ROOM: {"id": ROOM, "type": 0, "name": "ops", "guild_id": "1"},
            THREAD: {"id": THREAD, "type": 11, "name": "deploy", "parent_id": ROOM},
        }
        self.max_upload = 10 << 20
        self.loses_answers = False  # of new messages: they are posted, and the connection dropped
        self.close_code = 0  # given to whoever identifies, such as 4014
        self.resumes = 0
        self._log: list[dict[str, Any]] = []  # events of the session, for resuming
        self._session = 0
        self._sockets: set[web.WebSocketResponse] = set()
        self._nonces: dict[tuple[str, str], dict[str, Any]] = {}
        self._last_id = 1000

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/v10"

    # -- the people's side

    def post_text(self, text: str, *, channel: str = DIRECT, **fields: Any) -> str:
        """Post a message, with any fields of a message, and return its id."""
        message = self.build_message(text, channel=channel, **fields)
        self.messages.append(message)
        self.post_event("MESSAGE_CREATE", message)
        return message["id"]

    def build_message(
        self, text: str, *, channel: str = DIRECT, author: Any = ADA, **fields: Any
    ) -> dict[str, Any]:
        """Build a message with the next id."""
        self._last_id += 1
        base: dict[str, Any] = {
            "id": str(self._last_id), "channel_id": channel, "author": author, "content": text,
            "timestamp": _TIME, "edited_timestamp": None, "tts": False, "mention_everyone": False,
            "mentions": [], "mention_roles": [], "attachments": [], "embeds": [], "pinned": False,
            "type": 0,
        }  # fmt: skip
        return {**base, **fields}

    def post_event(self, name: str, data: dict[str, Any]) -> None:
        """Send an event to the bot; who is not connected misses it, unless the session is resumed."""

        async def send() -> None:
            event = {"op": 0, "t": name, "s": len(self._log) + 1, "d": data}
            self._log.append(event)
            for socket in [*self._sockets]:
                await _send_event(socket, event)

        self.run(send())

    def drop_session(self) -> None:
        """Forget the session, so that it cannot be resumed."""
        self._session += 1

    @property
    def connections(self) -> int:
        return len(self._sockets)

    # -- the bot's side

    def list_routes(self) -> list[web.RouteDef]:
        channel = "/api/v10/channels/{channel}"
        return [
            web.get("/socket/", self._serve_socket),
            web.get("/files/{name}", self._serve_file),
            *(
                web.route(verb, path, self._check_request(handler))
                for verb, path, handler in (
                    ("GET", "/api/v10/users/@me", self._on_me),
                    ("GET", "/api/v10/oauth2/applications/@me", self._on_application),
                    ("GET", "/api/v10/gateway", self._on_gateway),
                    ("GET", channel, self._on_channel),
                    ("GET", f"{channel}/messages", self._on_history),
                    ("POST", f"{channel}/messages", self._on_send),
                    ("PATCH", f"{channel}/messages/{{id}}", self._on_edit),
                    ("POST", f"{channel}/typing", self._on_typing),
                    ("PUT", f"{channel}/messages/{{id}}/reactions/{{emoji}}/@me", self._on_react),
                    ("DELETE", f"{channel}/messages/{{id}}/reactions/{{emoji}}/@me", self._on_unreact),
                )
            ),
        ]  # fmt: skip

    def _check_request(self, handler: Any) -> Any:
        async def check(request: web.Request) -> web.Response:
            self.requests.append(f"{request.method} {request.path.removeprefix('/api/v10')}")
            if request.headers.get("Authorization") != f"Bot {self.token}":
                return _build_error(401, 0, "401: Unauthorized")
            if self.refuse is not None and handler == self._on_send:
                if (seconds := self.refuse.retry_after) is not None:
                    body = {"message": "You are being rate limited.", "retry_after": seconds}
                    headers = {"Via": "1.1 local", "Retry-After": str(int(seconds))}
                    return _build_answer({**body, "global": False}, status=429, headers=headers)
                return _build_error(403, 50007, str(self.refuse))
            return await handler(request)

        return check

    async def _on_me(self, request: web.Request) -> web.Response:
        return _build_answer(BOT)

    async def _on_application(self, request: web.Request) -> web.Response:
        application = {
            "id": BOT["id"], "name": "rekindle", "description": "", "icon": None, "owner": ADA,
            "bot_public": False, "bot_require_code_grant": False, "verify_key": "", "flags": 0,
            "rpc_origins": None,
        }  # fmt: skip
        return _build_answer(application)

    async def _on_gateway(self, request: web.Request) -> web.Response:
        return _build_answer({"url": f"{self.url.replace('http', 'ws')}/socket/"})

    async def _on_channel(self, request: web.Request) -> web.Response:
        channel = self.channels.get(request.match_info["channel"])
        if channel is None:
            return _build_error(404, 10003, "Unknown Channel")
        return _build_answer(channel)

    async def _on_history(self, request: web.Request) -> web.Response:
        after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
        found = [
            one for one in self.messages
            if one["channel_id"] == request.match_info["channel"] and int(one["id"]) > after
        ]  # fmt: skip
        return _build_answer(found[:limit][::-1])

    async def _on_send(self, request: web.Request) -> web.Response:
        files: list[bytes] = []
        if request.content_type == "multipart/form-data":
            form = await request.post()
            body = json.loads(str(form["payload_json"]))
            files = [one.file.read() for one in form.values() if isinstance(one, web.FileField)]
        else:
            body = await request.json()
        text, channel = body.get("content") or "", request.match_info["channel"]
        nonce = str(body.get("nonce") or "")
        if any(len(one) > self.max_upload for one in files):
            return _build_error(413, 40005, "Request entity too large")
        if not text and not files:
            return _build_error(400, 50006, "Cannot send an empty message")
        if len(text) > MAX_TEXT or len(nonce) > MAX_NONCE:
            return _build_error(400, 50035, "Invalid Form Body")
        known = self._nonces.get((channel, nonce)) if body.get("enforce_nonce") else None
        if known is None:
            known = self.build_message(text, channel=channel, author=BOT, nonce=nonce)
            self.messages.append(known)
            allowed: dict[str, Any] = body.get("allowed_mentions") or {}
            pings = allowed.get("parse") != []
            self.sent.append(DiscordSent(known["id"], channel, text, 0, files, pings))
            self._nonces[channel, nonce] = known
        if self.loses_answers and request.transport is not None:
            request.transport.abort()
        return _build_answer(known)

    async def _on_edit(self, request: web.Request) -> web.Response:
        body = await request.json()
        if len(body["content"]) > MAX_TEXT:
            return _build_error(400, 50035, "Invalid Form Body")
        for one in self.sent:
            if one.id == request.match_info["id"]:
                one.text, one.edits = body["content"], one.edits + 1
                message = self.build_message(one.text, channel=one.channel, author=BOT)
                return _build_answer({**message, "id": one.id})
        return _build_error(404, 10008, "Unknown Message")

    async def _on_typing(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _on_react(self, request: web.Request) -> web.Response:
        self.reactions.add((request.match_info["id"], request.match_info["emoji"]))
        return web.Response(status=204)

    async def _on_unreact(self, request: web.Request) -> web.Response:
        self.reactions.discard((request.match_info["id"], request.match_info["emoji"]))
        return web.Response(status=204)

    async def _serve_file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    # -- the gateway

    async def _serve_socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 40_000}})
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    await self._answer(socket, json.loads(message.data))
        finally:
            self._sockets.discard(socket)
        return socket

    async def _answer(self, socket: web.WebSocketResponse, sent: dict[str, Any]) -> None:
        if sent["op"] == 1:
            await socket.send_json({"op": 11})
        elif sent["op"] == 2:
            if sent["d"]["token"] != self.token:
                await socket.close(code=4004)
            elif self.close_code:
                await socket.close(code=self.close_code)
            else:
                await self._start_session(socket)
        elif sent["op"] == 6:
            data = sent["d"]
            if data["session_id"] != f"s{self._session}" or data["seq"] > len(self._log):
                await socket.send_json({"op": 9, "d": False})
                return
            self.resumes += 1
            self._sockets.add(socket)
            for event in self._log[data["seq"] :]:
                await _send_event(socket, event)
            await _send_event(socket, {"op": 0, "t": "RESUMED", "s": len(self._log), "d": {}})

    async def _start_session(self, socket: web.WebSocketResponse) -> None:
        self._session += 1
        ready: dict[str, Any] = {
            "v": 10, "user": BOT, "guilds": [], "session_id": f"s{self._session}",
            "resume_gateway_url": f"{self.url.replace('http', 'ws')}/socket/",
            "application": {"id": BOT["id"], "flags": 0},
        }  # fmt: skip
        self._log = [{"op": 0, "t": "READY", "s": 1, "d": ready}]
        self._sockets.add(socket)
        await _send_event(socket, self._log[0])


async def _send_event(socket: web.WebSocketResponse, event: dict[str, Any]) -> None:
    try:
        await socket.send_json(event)
    except (ConnectionError, RuntimeError, asyncio.CancelledError):
        pass  # it is in the log of the session


def _build_answer(
    data: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Answer with the bare type that Discord sends: its client compares it as a whole."""
    given = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=json.dumps(data).encode(), status=status, headers=given)


def _build_error(status: int, code: int, message: str) -> web.Response:
    return _build_answer({"message": message, "code": code}, status=status)
