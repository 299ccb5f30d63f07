"""A Bot API server: long polling, sending, editing, files, reactions, and its errors.

with TelegramServer() as server:
    server.post_text("hello", chat=ADA)
    platform = TelegramPlatform(server.token, folder, api_url=server.url)
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .web_server import WebServer

TOKEN = "123456:local-token"
BOT = {"id": 123456, "is_bot": True, "first_name": "Rekindle", "username": "rekindle_bot"}
ADA = {"id": 1001, "type": "private", "first_name": "Ada"}
ADA_USER = {"id": 1001, "is_bot": False, "first_name": "Ada"}
BOB_USER = {"id": 1002, "is_bot": False, "first_name": "Bob"}
GROUP = {"id": -2001, "type": "supergroup", "title": "Ops", "is_forum": True}
MAX_TEXT = 4096
MAX_CAPTION = 1024
MAX_DOWNLOAD = 20 << 20


@dataclass(slots=True)
class TelegramSent:
    """A message of the bot."""

    id: int
    chat: int
    text: str
    entities: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    thread: int | None = None
    file: bytes | None = None
    edits: int = 0


class TelegramServer(WebServer):
    """The network with one bot."""

    def __init__(self, *, port: int = 0) -> None:
        super().__init__(port=port)
        self.token = TOKEN
        self.sent: list[TelegramSent] = []
        self.reactions: dict[int, list[str]] = {}
        self.actions: list[str] = []
        self.files: dict[str, bytes] = {}
        self.rejects_entities = False
        self.max_upload = 50 << 20
        self.loses_answers = False  # of sendMessage: it is sent, and the connection dropped
        self._updates: list[dict[str, Any]] = []  # not confirmed
        self._next_update = 1
        self._next_message = 1
        self._poll: asyncio.Task[Any] | None = None
        self._arrived = asyncio.Event()

    # -- the people's side

    def post_text(self, text: str, **fields: Any) -> int:
        """Post a message, with any fields of a Message, and return its id."""
        message = self.build_message(text=text, **fields)
        self.post_update({"message": message})
        return message["message_id"]

    def build_message(
        self, *, chat: Mapping[str, Any] = ADA, sender: Mapping[str, Any] = ADA_USER, **fields: Any
    ) -> dict[str, Any]:
        """Build a message with the next id."""
        self._next_message += 1
        return {
            "message_id": self._next_message,
            "date": int(time.time()),
            "chat": dict(chat),
            "from": dict(sender),
            **fields,
        }

    def post_update(self, update: Mapping[str, Any], *, update_id: int | None = None) -> int:
        """Post an update and return its id; with a known one it comes twice."""
        id = self._next_update if update_id is None else update_id
        self.post_updates({**update, "update_id": id})
        return id

    def post_updates(self, *updates: Mapping[str, Any]) -> None:
        """Post updates with their ids at once; with lower ones they come out of order."""

        def add() -> None:
            for update in updates:
                self._next_update = max(self._next_update, update["update_id"] + 1)
                self._updates.append(dict(update))
            self._arrived.set()

        self.call(add)

    def add_file(self, content: bytes) -> str:
        """Store a file and return its id."""
        id = f"file{len(self.files)}"
        self.files[id] = content
        return id

    @property
    def waiting(self) -> int:
        """The number of updates that are not confirmed."""
        return len(self._updates)

    # -- the bot's side

    def list_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/bot{token}/{method}", self._serve_method),
            web.get("/file/bot{token}/{path:.*}", self._serve_file),
        ]

    async def _serve_method(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        self.requests.append(method)
        if request.match_info["token"] != self.token:
            return _build_error(401, "Unauthorized")
        form = dict((await request.post()).items())
        handler = getattr(self, f"_on_{method.lower()}", None)
        if handler is None:
            return _build_error(404, "Not Found: method not found")
        if self.refuse is not None and method in ("sendMessage", "sendDocument", "sendPhoto"):
            if (seconds := self.refuse.retry_after) is not None:
                text = f"Too Many Requests: retry after {seconds:g}"
                return _build_error(429, text, retry_after=int(seconds))
            return _build_error(403, f"Forbidden: {self.refuse}")
        result = await handler(form)
        if self.loses_answers and method == "sendMessage" and request.transport is not None:
            request.transport.abort()
        return result if isinstance(result, web.Response) else _build_answer(result)

    async def _serve_file(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != self.token:
            return _build_error(401, "Unauthorized")
        content = self.files.get(request.match_info["path"].removeprefix("files/"))
        return _build_error(404, "Not Found") if content is None else web.Response(body=content)

    async def _on_getme(self, form: dict[str, Any]) -> Any:
        return BOT

    async def _on_getupdates(self, form: dict[str, Any]) -> Any:
        if self._poll is not None and not self._poll.done():
            self._poll.cancel()  # as documented: only one may poll
        self._poll = asyncio.ensure_future(self._wait_for_updates(form))
        try:
            return await self._poll
        except asyncio.CancelledError:
            if self._stop.is_set():
                raise
            return _build_error(409, "Conflict: terminated by other getUpdates request")

    async def _wait_for_updates(self, form: dict[str, Any]) -> list[dict[str, Any]]:
        if offset := int(form.get("offset", 0)):
            self._updates = [one for one in self._updates if one["update_id"] >= offset]
        deadline = time.monotonic() + float(form.get("timeout", 0))
        allowed = json.loads(form.get("allowed_updates", "[]"))
        while True:
            found = [one for one in self._updates if not allowed or set(one) & set(allowed)]
            if found or (left := deadline - time.monotonic()) <= 0:
                return found[: int(form.get("limit", 100))]
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
                pass

    async def _on_sendmessage(self, form: dict[str, Any]) -> Any:
        text, entities = form.get("text", ""), json.loads(form.get("entities", "[]"))
        if (problem := self._check_text(text, entities, MAX_TEXT)) is not None:
            return problem
        return self._add(form, text, entities)

    async def _on_senddocument(self, form: dict[str, Any]) -> Any:
        return await self._send_file(form, form["document"])

    async def _on_sendphoto(self, form: dict[str, Any]) -> Any:
        return await self._send_file(form, form["photo"])

    async def _send_file(self, form: dict[str, Any], reference: str) -> Any:
        upload = form[reference.removeprefix("attach://")]
        caption = form.get("caption", "")
        entities = json.loads(form.get("caption_entities", "[]"))
        if caption and (problem := self._check_text(caption, entities, MAX_CAPTION)) is not None:
            return problem
        content = upload.file.read()
        if len(content) > self.max_upload:
            return _build_error(413, "Request Entity Too Large")
        return self._add(form, caption, entities, content)

    async def _on_editmessagetext(self, form: dict[str, Any]) -> Any:
        text, entities = form.get("text", ""), json.loads(form.get("entities", "[]"))
        if (problem := self._check_text(text, entities, MAX_TEXT)) is not None:
            return problem
        for one in self.sent:
            if (one.id, one.chat) == (int(form["message_id"]), int(form["chat_id"])):
                if (one.text, one.entities) == (text, entities):
                    return _build_error(400, "Bad Request: message is not modified")
                one.text, one.entities, one.edits = text, entities, one.edits + 1
                return self._to_json(one)
        return _build_error(400, "Bad Request: message to edit not found")

    async def _on_sendchataction(self, form: dict[str, Any]) -> Any:
        self.actions.append(form["action"])
        return True

    async def _on_setmessagereaction(self, form: dict[str, Any]) -> Any:
        given = json.loads(form.get("reaction", "[]"))
        self.reactions[int(form["message_id"])] = [one["emoji"] for one in given]
        return True

    async def _on_getfile(self, form: dict[str, Any]) -> Any:
        content = self.files.get(form["file_id"])
        if content is None:
            return _build_error(400, "Bad Request: invalid file_id")
        if len(content) > MAX_DOWNLOAD:
            return _build_error(400, "Bad Request: file is too big")
        return {
            "file_id": form["file_id"],
            "file_unique_id": form["file_id"],
            "file_size": len(content),
            "file_path": f"files/{form['file_id']}",
        }

    def _check_text(
        self, text: str, entities: list[dict[str, Any]], limit: int
    ) -> web.Response | None:
        size = len(text.encode("utf-16-le")) // 2
        if not text.strip():
            return _build_error(400, "Bad Request: message text is empty")
        if size > limit:
            return _build_error(400, "Bad Request: message is too long")
        outside = any(one["offset"] + one["length"] > size for one in entities)
        if outside or (entities and self.rejects_entities):
            return _build_error(400, "Bad Request: can't parse entities")
        return None

    def _add(
        self,
        form: dict[str, Any],
        text: str,
        entities: list[dict[str, Any]],
        file: bytes | None = None,
    ) -> dict[str, Any]:
        self._next_message += 1
        thread = form.get("message_thread_id")
        sent = TelegramSent(
            self._next_message,
            int(form["chat_id"]),
            text,
            entities,
            int(thread) if thread else None,
            file,
        )
        self.sent.append(sent)
        return self._to_json(sent)

    def _to_json(self, sent: TelegramSent) -> dict[str, Any]:
        return {
            "message_id": sent.id,
            "date": int(time.time()),
            "chat": {"id": sent.chat, "type": "private"},
            "from": BOT,
            "text": sent.text,
        }


def _build_answer(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _build_error(code: int, description: str, **parameters: Any) -> web.Response:
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    if parameters:
        body["parameters"] = parameters
    return web.json_response(body, status=code)
