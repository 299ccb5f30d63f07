"""A Slack workspace: socket mode with envelopes, the Web API, files, and its errors.

    with SlackServer() as server:
        server.post_text("hello")
        platform = SlackPlatform(server.bot_token, server.app_token, folder, api_url=server.api_url)

An event is delivered until its envelope is confirmed, on every connection, as long as `retries` last.
"""

from __future__ import annotations

import asyncio
import html
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from .web_server import WebServer

BOT_TOKEN = "xoxb-local"
APP_TOKEN = "xapp-local"
BOT_USER = "UBOT"
USERS = {"UADA": "Ada", "UBOB": "Bob", BOT_USER: "rekindle"}
CHANNELS = {"COPS": "ops"}
DIRECT = "DADA"
MAX_TEXT = 40_000


@dataclass(slots=True)
class SlackSent:
    """A message of the bot."""

    ts: str
    channel: str
    text: str
    thread: str | None = None
    edits: int = 0
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class SlackServer(WebServer):
    """The workspace with one app."""

    def __init__(self, *, port: int = 0, redeliver_seconds: float = 0.1) -> None:
        super().__init__(port=port)
        self.bot_token, self.app_token = BOT_TOKEN, APP_TOKEN
        self.sent: list[SlackSent] = []
        self.files: dict[str, bytes] = {}
        self.uploads: list[tuple[str, bytes]] = []
        self.reactions: set[tuple[str, str]] = set()  # timestamp and name
        self.messages: list[dict[str, Any]] = []  # of people and the bot, as the history has them
        self.max_upload = 1 << 30
        self.loses_answers = False  # of chat.postMessage: it is posted, and the connection dropped
        self.forgets_events = False  # as Slack does with what nobody confirms for some minutes
        self._redeliver_seconds = redeliver_seconds
        self._events: dict[str, dict[str, Any]] = {}  # not confirmed, by event id
        self._envelopes: dict[str, str] = {}  # envelope id to event id
        self._sockets: set[web.WebSocketResponse] = set()
        self._tickets: set[str] = set()
        self._counter = 0

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/"

    # -- the people's side

    def post_text(
        self, text: str, *, channel: str = DIRECT, user: str = "UADA", **fields: Any
    ) -> str:
        """Post a message, with any fields of the event, and return its timestamp."""
        ts = self._next_ts()
        message = {
            "type": "message", "channel": channel, "user": user, "ts": ts,
            "text": fields.pop("raw_text", html.escape(text, quote=False)), **fields,
        }  # fmt: skip
        self.messages.append(message)
        if not self.forgets_events:
            self.post_event(message)
        return ts

    def post_event(self, event: dict[str, Any], *, event_id: str | None = None) -> str:
        """Post an event and return its id; with a known id it comes twice."""
        id = event_id or f"Ev{self._next_number()}"

        def add() -> None:
            self._events[id] = event

        self.call(add)
        self.run(self._deliver_to_all(id))
        return id

    @property
    def unconfirmed(self) -> list[str]:
        """The ids of events without a confirmed envelope."""
        return [*self._events]

    @property
    def connections(self) -> int:
        return len(self._sockets)

    def ask_to_reconnect(self) -> None:
        """Ask the app to reconnect, as Slack does every few hours."""
        notice = {"type": "disconnect", "reason": "refresh_requested"}

        async def send() -> None:
            for socket in [*self._sockets]:
                await socket.send_json(notice)

        self.run(send())

    def _next_number(self) -> int:
        self._counter += 1
        return self._counter

    def _next_ts(self) -> str:
        return f"1700000000.{self._next_number():06d}"

    # -- the app's side

    def list_routes(self) -> list[web.RouteDef]:
        return [
            web.route("*", "/api/{method}", self._serve_method),
            web.get("/socket", self._serve_socket),
            web.post("/upload/{name}", self._serve_upload),
            web.get("/files/{name}", self._serve_file),
        ]

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=403)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.add(socket)
        await socket.send_json({"type": "hello", "num_connections": len(self._sockets)})
        redelivery = asyncio.ensure_future(self._redeliver_forever(socket))
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    envelope = json.loads(message.data).get("envelope_id", "")
                    self._events.pop(self._envelopes.get(envelope, ""), None)
        finally:
            redelivery.cancel()
            self._sockets.discard(socket)
        return socket

    async def _redeliver_forever(self, socket: web.WebSocketResponse) -> None:
        attempt = 0
        while not socket.closed:
            for id in [*self._events]:
                await self._deliver(socket, id, attempt)
            attempt += 1
            await asyncio.sleep(self._redeliver_seconds)

    async def _deliver_to_all(self, id: str) -> None:
        for socket in [*self._sockets]:
            await self._deliver(socket, id)

    async def _deliver(self, socket: web.WebSocketResponse, id: str, attempt: int = 0) -> None:
        event = self._events.get(id)
        if event is None:
            return
        envelope = f"envelope-{self._next_number()}"
        self._envelopes[envelope] = id
        payload = {"type": "event_callback", "event_id": id, "event": event}
        body = {
            "type": "events_api", "envelope_id": envelope, "payload": payload,
            "accepts_response_payload": False, "retry_attempt": attempt,
            "retry_reason": "timeout" if attempt else "",
        }  # fmt: skip
        try:
            await socket.send_json(body)
        except (ConnectionError, RuntimeError):
            pass  # it comes again on the next connection

    async def _serve_method(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        self.requests.append(method)
        form = await _read_form(request)
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = self.app_token if method == "apps.connections.open" else self.bot_token
        if (form.get("token") or given) != token:
            return _build_error("invalid_auth")
        if self.refuse is not None and method in ("chat.postMessage", "files.getUploadURLExternal"):
            if (seconds := self.refuse.retry_after) is not None:
                headers = {"Retry-After": str(int(seconds))}
                return _build_error("ratelimited", status=429, headers=headers)
            return _build_error(str(self.refuse))
        handler = getattr(self, "_on_" + method.replace(".", "_").lower(), None)
        if handler is None:
            return _build_error("unknown_method")
        answer = handler(form)
        if self.loses_answers and method == "chat.postMessage" and request.transport is not None:
            request.transport.abort()
        return answer if isinstance(answer, web.Response) else web.json_response(answer)

    def _on_apps_connections_open(self, form: dict[str, Any]) -> Any:
        ticket = f"t{self._next_number()}"
        self._tickets.add(ticket)
        return {"ok": True, "url": f"{self.url.replace('http', 'ws')}/socket?ticket={ticket}"}

    def _on_auth_test(self, form: dict[str, Any]) -> Any:
        return {"ok": True, "user_id": BOT_USER, "user": "rekindle", "team": "Local"}

    def _on_users_info(self, form: dict[str, Any]) -> Any:
        name = USERS.get(form["user"])
        if name is None:
            return _build_error("user_not_found")
        return {"ok": True, "user": {"id": form["user"], "name": name, "real_name": name}}

    def _on_conversations_info(self, form: dict[str, Any]) -> Any:
        name = CHANNELS.get(form["channel"])
        if name is None:
            return _build_error("channel_not_found")
        return {"ok": True, "channel": {"id": form["channel"], "name": name}}

    def _on_conversations_history(self, form: dict[str, Any]) -> Any:
        return self._build_page(form, [
            one for one in self.messages
            if one["channel"] == form["channel"] and one.get("thread_ts") in (None, one["ts"])
        ][::-1])  # fmt: skip

    def _on_conversations_replies(self, form: dict[str, Any]) -> Any:
        return self._build_page(form, [
            one for one in self.messages
            if one["channel"] == form["channel"] and form["ts"] in (one["ts"], one.get("thread_ts"))
        ])  # fmt: skip

    def _build_page(self, form: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
        found = [one for one in messages if float(one["ts"]) > float(form.get("oldest") or 0)]
        if form.get("include_all_metadata") not in ("1", "true", "True", True):
            found = [{k: v for k, v in one.items() if k != "metadata"} for one in found]
        start, limit = int(form.get("cursor") or 0), int(form.get("limit") or 100)
        following = str(start + limit) if start + limit < len(found) else ""
        return {
            "ok": True,
            "messages": found[start : start + limit],
            "has_more": bool(following),
            "response_metadata": {"next_cursor": following},
        }

    def _on_chat_postmessage(self, form: dict[str, Any]) -> Any:
        text = form.get("text") or ""
        if not text:
            return _build_error("no_text")
        if len(text) > MAX_TEXT:
            return _build_error("msg_too_long")
        given: Any = form.get("metadata") or "{}"
        metadata: dict[str, Any] = json.loads(given) if isinstance(given, str) else given
        ts, thread = self._next_ts(), form.get("thread_ts")
        self.sent.append(SlackSent(ts, form["channel"], text, thread, 0, metadata))
        message = {
            "type": "message", "channel": form["channel"], "user": BOT_USER, "bot_id": "B1",
            "ts": ts, "text": text, "metadata": metadata,
        }  # fmt: skip
        self.messages.append({**message, "thread_ts": thread} if thread else message)
        return {"ok": True, "channel": form["channel"], "ts": ts, "message": message}

    def _on_chat_update(self, form: dict[str, Any]) -> Any:
        for one in self.sent:
            if (one.ts, one.channel) == (form["ts"], form["channel"]):
                one.text, one.edits = form["text"], one.edits + 1
                return {"ok": True, "ts": one.ts, "channel": one.channel, "text": one.text}
        return _build_error("message_not_found")

    def _on_reactions_add(self, form: dict[str, Any]) -> Any:
        reaction = (form["timestamp"], form["name"])
        if reaction in self.reactions:
            return _build_error("already_reacted")
        self.reactions.add(reaction)
        return {"ok": True}

    def _on_reactions_remove(self, form: dict[str, Any]) -> Any:
        reaction = (form["timestamp"], form["name"])
        if reaction not in self.reactions:
            return _build_error("no_reaction")
        self.reactions.discard(reaction)
        return {"ok": True}

    def _on_files_getuploadurlexternal(self, form: dict[str, Any]) -> Any:
        if int(form.get("length") or 0) > self.max_upload:
            return _build_error("file_upload_size_restricted")
        id = f"F{self._next_number()}"
        return {"ok": True, "upload_url": f"{self.url}/upload/{id}", "file_id": id}

    def _on_files_completeuploadexternal(self, form: dict[str, Any]) -> Any:
        files = form["files"]
        listed: list[dict[str, Any]] = json.loads(files) if isinstance(files, str) else files
        for one in listed:
            content = self.files.get(one["id"])
            if content is None:
                return _build_error("file_not_found")
            self.uploads.append((form.get("initial_comment") or "", content))
        return {"ok": True, "files": listed}

    async def _serve_upload(self, request: web.Request) -> web.Response:
        self.files[request.match_info["name"]] = await request.read()
        return web.Response(text="OK")

    async def _serve_file(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.bot_token}":
            return web.Response(status=302, headers={"Location": "/login"})
        return web.Response(body=self.files[request.match_info["name"]])


async def _read_form(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        return json.loads(await request.text() or "{}")
    return {**request.query, **dict((await request.post()).items())}


def _build_error(
    code: str, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.json_response({"ok": False, "error": code}, status=status, headers=headers)
