"""The Cloud API of WhatsApp: webhooks with signatures and retries, sending, media, and its errors.

    with WhatsAppServer() as server:
        server.webhook_url = "http://127.0.0.1:8087/webhook"
        server.post_text("hello")

A webhook is posted until it is answered with the status 200, the oldest first.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from .web_server import WebServer

TOKEN = "local-access-token"
NUMBER = "555000"
SECRET = "local-app-secret"
ADA = "491701"
MAX_TEXT = 4096
MAX_CAPTION = 1024


@dataclass(slots=True)
class WhatsAppSent:
    """A message of the business."""

    id: str
    to: str
    text: str
    nonce: str = ""
    file: bytes | None = None


class WhatsAppServer(WebServer):
    """The network with one number."""

    def __init__(self, *, port: int = 0, redeliver_seconds: float = 0.05) -> None:
        super().__init__(port=port)
        self.token, self.secret = TOKEN, SECRET
        self.webhook_url = ""
        self.sent: list[WhatsAppSent] = []
        self.read: list[str] = []  # ids of messages that were marked as read
        self.files: dict[str, bytes] = {}
        self.statuses: list[int] = []  # of the answers of the webhook
        self.error_code = 0  # given to every send, such as 131047
        self.max_upload = 100 << 20
        self.loses_answers = False  # of sends: they are sent, and the connection dropped
        self._redeliver_seconds = redeliver_seconds
        self._bodies: list[bytes] = []  # not answered with 200
        self._posting: asyncio.Task[None] | None = None
        self._counter = 0

    # -- the people's side

    def post_text(self, text: str, **fields: Any) -> str:
        """Post a text and return its id."""
        return self.post_message({"type": "text", "text": {"body": text}, **fields})

    def post_message(self, message: dict[str, Any], *, sender: str = ADA) -> str:
        """Post a message, with any fields, and return its id."""
        self._counter += 1
        full = {
            "from": sender,
            "id": f"wamid.{self._counter}",
            "timestamp": "1700000000",
            **message,
        }
        contact = {"wa_id": sender, "profile": {"name": "Ada"}}
        self.post_value({"contacts": [contact], "messages": [full]})
        return str(full["id"])

    def post_value(self, value: dict[str, Any], *, number: str = NUMBER) -> None:
        """Post a change of the field `messages`."""
        metadata = {"display_phone_number": "15550001", "phone_number_id": number}
        change = {
            "field": "messages",
            "value": {"messaging_product": "whatsapp", "metadata": metadata, **value},
        }
        body = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}
        self.post_body(json.dumps(body).encode())

    def post_body(self, body: bytes) -> None:
        """Post a webhook as it is, until it is answered with 200."""

        def add() -> None:
            self._bodies.append(body)
            if self._posting is None or self._posting.done():
                self._posting = asyncio.ensure_future(self._post_all())

        self.call(add)

    @property
    def waiting(self) -> int:
        """The number of webhooks that were not answered with 200."""
        return len(self._bodies)

    async def _post_all(self) -> None:
        while self._bodies:
            body = self._bodies[0]
            status = await self.send_webhook(body, build_signature(body, self.secret))
            if status == 200:
                self._bodies.remove(body)
            else:
                await asyncio.sleep(self._redeliver_seconds)

    async def send_webhook(self, body: bytes, signature: str) -> int:
        """Send a webhook once; return the status of the answer, 0 if there is none."""
        headers = {"X-Hub-Signature-256": signature, "Content-Type": "application/json"}
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(self.webhook_url, data=body, headers=headers) as answer,
            ):
                self.statuses.append(answer.status)
                return answer.status
        except (aiohttp.ClientError, OSError):
            return 0

    # -- the business's side

    def list_routes(self) -> list[web.RouteDef]:
        return [
            web.post(f"/{NUMBER}/messages", self._serve_messages),
            web.post(f"/{NUMBER}/media", self._serve_upload),
            web.get("/files/{id}", self._serve_file),
            web.get("/{id}", self._serve_object),
        ]

    def _is_allowed(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self.token}"

    async def _serve_messages(self, request: web.Request) -> web.Response:
        self.requests.append("messages")
        if not self._is_allowed(request):
            return _build_error(401, 190, "Error validating access token")
        body = await request.json()
        if body.get("status") == "read":
            self.read.append(body["message_id"])
            return web.json_response({"success": True})
        if self.refuse is not None:
            if (seconds := self.refuse.retry_after) is not None:
                headers = {"Retry-After": str(int(seconds))}
                return _build_error(429, 130429, "Rate limit hit", headers)
            return _build_error(400, 131026, str(self.refuse))
        if self.error_code:
            return _build_error(400, self.error_code, "refused")
        content = body[body["type"]]
        text = content.get("body") or content.get("caption") or ""
        limit = MAX_TEXT if body["type"] == "text" else MAX_CAPTION
        if len(text) > limit or (body["type"] == "text" and not text):
            return _build_error(400, 100, "Invalid parameter")
        self._counter += 1
        file = self.files.get(content.get("id", ""))
        nonce = body.get("biz_opaque_callback_data") or ""
        sent = WhatsAppSent(f"wamid.out{self._counter}", body["to"], text, nonce, file)
        self.sent.append(sent)
        if self.loses_answers and request.transport is not None:
            request.transport.abort()
        return web.json_response({
            "messaging_product": "whatsapp",
            "contacts": [{"input": sent.to, "wa_id": sent.to}],
            "messages": [{"id": sent.id}],
        })  # fmt: skip

    async def _serve_upload(self, request: web.Request) -> web.Response:
        if not self._is_allowed(request):
            return _build_error(401, 190, "Error validating access token")
        form = await request.post()
        upload = form["file"]
        id = f"media{len(self.files)}"
        content = upload.file.read() if isinstance(upload, web.FileField) else b""
        if len(content) > self.max_upload:
            return _build_error(400, 131053, "Media upload error")
        self.files[id] = content
        return web.json_response({"id": id})

    async def _serve_object(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if not self._is_allowed(request):
            return _build_error(401, 190, "Error validating access token")
        if id == NUMBER:
            return web.json_response({"verified_name": "Rekindle", "id": NUMBER})
        if id not in self.files:
            return _build_error(400, 100, "Unsupported get request")
        size = len(self.files[id])
        return web.json_response({"id": id, "url": f"{self.url}/files/{id}", "file_size": size})

    async def _serve_file(self, request: web.Request) -> web.Response:
        if not self._is_allowed(request):
            return web.Response(status=401)
        return web.Response(body=self.files[request.match_info["id"]])


def build_signature(body: bytes, secret: str) -> str:
    """Return the signature of a webhook."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _build_error(
    status: int, code: int, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    error = {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "x"}
    return web.json_response({"error": error}, status=status, headers=headers)
