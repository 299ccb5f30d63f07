"""`rekindle mcp`: serve past sessions to any agent over the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import print_notice
from rekindle.cli.store_access import connect_store, ignore_sigpipe, load_settings
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.config import Config
    from rekindle.config.address import Address
    from rekindle.mcp.protocol import RequestHandler
    from rekindle.mcp.service import SessionService


def serve_mcp(
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve over HTTP at this address instead of stdin and stdout.",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT", help="Project, e.g. owner/name.", show_default="this folder's"
        ),
    ] = None,
    all: Annotated[
        bool, typer.Option("--all", help="Let clients read the sessions of all projects.")
    ] = False,
) -> None:
    """Serve past sessions, notes and background processes to agents, as an MCP server.

    An agent starts this command itself, in the folder it works in; it can read the sessions of that
    project and no others. Over HTTP, every request needs a token: the setting `mcp.token`, or the
    one that is printed at the start.

    \b
    Examples:
      rekindle mcp
      rekindle mcp --project owner/name
      rekindle mcp --http 127.0.0.1:8321
    """
    from rekindle.mcp.protocol import RequestHandler

    if all and project is not None:
        raise InvalidInput("--all: expected either --all or --project")
    config = load_settings()
    ignore_sigpipe()
    folder = os.getcwd()
    handler = RequestHandler(cache(lambda: _build_service(config, folder, project, all)))
    if http is not None:
        _serve_http(handler, http, config.mcp.token)
    else:
        from rekindle.mcp.stdio import serve_stdio

        if sys.stdin.isatty():
            print_notice(
                "Waiting for an MCP client on stdin. Agents start this command themselves."
            )
        serve_stdio(handler, asks_for_roots=not all and project is None)


def _build_service(
    config: Config, folder: str, project: str | None, everything: bool
) -> SessionService:
    from rekindle.config import get_home_and_env, is_url
    from rekindle.mcp.access import Scope, StoreOpener
    from rekindle.mcp.quoting import Quoter
    from rekindle.mcp.service import SessionService
    from rekindle.processes.from_config import create_client
    from rekindle.redaction.redactor import Redactor

    target = config.store.url
    opener = StoreOpener(
        lambda readonly: connect_store(config, target, readonly=readonly),
        None if is_url(target) else target,
    )
    quoter = Quoter(Redactor.from_environment(*get_home_and_env()))
    scope = Scope(folder, project, everything)
    return SessionService(opener, scope, quoter, lambda: create_client(config))


def _serve_http(handler: RequestHandler, http: str, token: str) -> None:
    import asyncio
    import secrets

    try:
        from rekindle.mcp.http import PATH, serve_http
    except ImportError:
        raise InvalidInput("MCP over HTTP needs: pip install 'rekindle[mcp]'") from None
    from rekindle.config.address import parse_address

    address = parse_address(http)
    if not address.is_loopback and not token:
        raise InvalidInput(
            f"{address.host} can be reached by others: set mcp.token, and put TLS in front of it"
        )

    def report_start(bound: Address) -> None:
        print_notice(f"Listening on http://{bound.url_host}:{bound.port}{PATH}")
        if not token:
            print_notice(f"Token: {chosen}")

    chosen = token or secrets.token_urlsafe(24)
    asyncio.run(serve_http(handler, address, chosen, report_start))
