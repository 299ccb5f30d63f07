"""Serve clients over streamable HTTP: on this machine by default, and with a token in any case."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from rekindle import __version__
from rekindle.config.address import Address

from .protocol import RequestHandler, RequestRefused
from .tools import INSTRUCTIONS

PATH = "/mcp"
MAX_BODY_BYTES = 1_000_000
MAX_CLIENTS = 100
MAX_CONCURRENT_REQUESTS = 4
Context = ServerRequestContext[Any, Any]

logging.getLogger("mcp").addHandler(logging.NullHandler())  # a client sees its errors in answers


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    message: str


def check_request(headers: Mapping[str, str], address: Address, token: str) -> Refusal | None:
    """Return why a request is refused: by the names of host and origin, then by its token.

    A web page that a user visits can send requests to this machine, under a name of its own or with
    its own origin; it does not know the token either.
    """
    names = address.list_names()
    if headers.get("host", "").lower() not in names:
        return Refusal(421, "wrong Host header")
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in [f"http://{name}" for name in names]:
        return Refusal(403, "wrong Origin header")
    kind, _, given = headers.get("authorization", "").partition(" ")
    is_right = hmac.compare_digest(given.strip().encode(), token.encode())
    if kind.lower() != "bearer" or not token or not is_right:
        return Refusal(401, "send the token: Authorization: Bearer TOKEN")
    return None


class GuardedApp:
    """An ASGI application that answers only requests that pass `check_request`."""

    def __init__(self, app: Any, address: Address, token: str) -> None:
        self._app = app
        self._address = address
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = Refusal(400, "expected HTTP")
        if scope["type"] == "http":
            headers = {
                name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
            }
            refusal = check_request(headers, self._address, self._token)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _send_refusal(refusal, send)


async def _send_refusal(refusal: Refusal, send: Any) -> None:
    body = f"{refusal.message}\n".encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class SdkHandlers:
    """Hands the requests that the SDK received to our handler, in threads."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate(await self._answer("tools/list", params))

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return types.CallToolResult.model_validate(await self._answer("tools/call", params))

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = await self._answer("resources/list", params)
        return types.ListResourcesResult.model_validate(found)

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        found = await self._answer("resources/templates/list", params)
        return types.ListResourceTemplatesResult.model_validate(found)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        found = await self._answer("resources/read", params)
        return types.ReadResourceResult.model_validate(found)

    async def _answer(self, method: str, params: BaseModel | None) -> dict[str, Any]:
        fields = {} if params is None else params.model_dump(by_alias=True, exclude_none=True)
        try:
            async with self._slots:
                return await asyncio.to_thread(self._handler.answer, method, fields)
        except RequestRefused as refusal:
            raise MCPError(code=refusal.code, message=str(refusal)) from None


def create_server(handler: RequestHandler) -> Server[Any]:
    """Create a server of the SDK. It never asks for a client's folders: nobody vouches for them."""
    handlers = SdkHandlers(handler)
    return Server(
        "rekindle",
        version=__version__,
        title="Rekindle",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )


async def serve_http(
    handler: RequestHandler, address: Address, token: str, on_start: Callable[[Address], None]
) -> None:
    """Serve clients until the program is stopped; `on_start` gets the address with its port."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen()
        bound = Address(address.host, listener.getsockname()[1])
        names = bound.list_names()
        build_app: Any = create_server(handler).streamable_http_app
        has_limit = "max_sessions" in inspect.signature(build_app).parameters  # since mcp 2.2
        app = build_app(
            streamable_http_path=PATH,
            max_request_body_size=MAX_BODY_BYTES,
            **({"max_sessions": MAX_CLIENTS} if has_limit else {}),
            transport_security=TransportSecuritySettings(
                allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
            ),
        )
        config = uvicorn.Config(
            GuardedApp(app, bound, token),
            http="h11",  # has limits for the head of a request
            log_level="warning",
            access_log=False,
            server_header=False,
        )
        on_start(bound)
        await uvicorn.Server(config).serve(sockets=[listener])
