"""Answer only permitted requests, and restrict in each response what a browser may do with it.

The checks are made once, here, before any view: the name of the host, the cookie, and for requests
that change something the origin and the form token. A view cannot forget them.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from .access import COOKIE_SECONDS, AccessKeys, Origin, Visitor

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 1_000_000
MAX_FIELDS = 200
OPEN_PATH, STATIC_PATH = "/open", "/static/"
_READING = ("GET", "HEAD")

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: a browser would then hide the origin of our own forms, too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class RequestRejected(Exception):
    """A request that gets no answer but this."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GuardOptions(NamedTuple):
    """What the guard checks against."""

    keys: AccessKeys
    origin: Origin
    readonly: bool


class AccessGuard:
    """An ASGI application that lets checked requests through to another one."""

    def __init__(self, app: Application, options: GuardOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = _read_headers(scope)
        try:
            if not self._options.origin.accepts_host(headers.get("host", "")):
                raise RequestRejected(421, "This server has another name.")
            if scope["path"] == OPEN_PATH:
                await self._open_link(scope, send)
                return
            receive = await self._check_request(scope, headers, receive)
        except RequestRejected as rejection:
            await _send_text(send, rejection.status, str(rejection))
            return
        await self._app(scope, receive, _add_headers(send, scope["path"].startswith(STATIC_PATH)))

    async def _check_request(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive
    ) -> Receive:
        """Check a request; put its visitor and form into the scope."""
        is_reading = scope["method"] in _READING
        if is_reading and scope["path"].startswith(STATIC_PATH):
            return receive
        visitor = self._find_visitor(headers)
        if visitor is None:
            raise RequestRejected(401, _SIGN_IN)
        state = scope.setdefault("state", {})
        state["visitor"] = visitor
        if is_reading:
            return receive
        if self._options.readonly:
            raise RequestRejected(403, "This page is read-only: it was started with --read-only.")
        origin = headers.get("origin")
        if origin is None or not self._options.origin.accepts_origin(origin):
            raise RequestRejected(403, "The request comes from another web site.")
        form = _parse_form(headers, await _read_body(receive))
        given = headers.get("x-form-token") or form.get("form_token", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), visitor.form_token.encode()):
            raise RequestRejected(403, "The form is out of date: reload the page and try again.")
        state["form"] = form
        return receive

    def _find_visitor(self, headers: Mapping[str, str]) -> Visitor | None:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return None
        found = cookies.get(self._options.keys.cookie_name)
        return None if found is None else self._options.keys.read_cookie(found.value)

    async def _open_link(self, scope: Scope, send: Send) -> None:
        """Exchange a link's token for a cookie, and lead on to the page it names."""
        if scope["method"] != "GET":  # a preview of the link must not use it up
            raise RequestRejected(405, "Open the link in a browser.")
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=10))
        if not self._options.keys.use_link_token(query.get("token", "")):
            raise RequestRejected(401, f"This link was used or is too old. {_SIGN_IN}")
        target = query.get("to", "/")
        if not target.startswith("/") or target.startswith("//"):
            target = "/"
        target = quote(target, safe="/?=&%#-._~")  # no line end, no backslash
        secure = "; Secure" if self._options.origin.is_secure else ""
        cookie = (
            f"{self._options.keys.cookie_name}={self._options.keys.create_cookie()}; Path=/; "
            f"Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict{secure}"
        )
        # Not a redirect: a browser would not send the cookie along if the link was on another site.
        await _send_text(
            send, 200, "Opening …", {"set-cookie": cookie, "refresh": f"0; url={target}"}
        )


_SIGN_IN = "Run `rekindle web link` in a terminal, and open the link that it prints."


def _read_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]}


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RequestRejected(400, "The request ended early.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise RequestRejected(413, "The request is too large.")
        if not message.get("more_body", False):
            return bytes(body)


def _parse_form(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    if not body:
        return {}
    if headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise RequestRejected(415, "Expected a form.")
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise RequestRejected(400, "The form cannot be read.") from None
    return dict(pairs)


def _add_headers(send: Send, is_static: bool) -> Send:
    cache = "no-cache" if is_static else "no-store"
    extra = {**SECURITY_HEADERS, "cache-control": cache}

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), text.encode())
                    for name, text in extra.items()
                    if name.encode() not in names
                ),
            ]
        await send(message)

    return send_with_headers


async def _send_text(
    send: Send, status: int, text: str, extra: Mapping[str, str] | None = None
) -> None:
    body = f"{text}\n".encode()
    headers = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **SECURITY_HEADERS,
        **(extra or {}),
    }
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
