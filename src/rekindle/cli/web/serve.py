"""`rekindle web`: the page in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.help import CommandGroup
from rekindle.cli.output import print_line, print_notice
from rekindle.cli.store_access import (
    connect_store,
    ignore_sigpipe,
    load_settings,
    needs_refresh,
    open_for_reading,
)
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.config import Config
    from rekindle.config.address import Address
    from rekindle.web.access import AccessKeys, Origin
    from rekindle.web.freshness import FreshnessOptions

DEFAULT_PORT = 8765
group = typer.Typer(cls=CommandGroup, invoke_without_command=True)
PublicUrlOption = Annotated[
    str | None,
    typer.Option(
        "--public-url",
        metavar="URL",
        help="Address under which a reverse proxy serves the page.",
        show_default=False,
    ),
]
ListenOption = Annotated[
    str,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port."
    ),
]


@group.callback()
def serve_web(
    context: typer.Context,
    listen: ListenOption = f"127.0.0.1:{DEFAULT_PORT}",
    public_url: PublicUrlOption = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, but allow no changes.")
    ] = False,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the link without opening a browser.")
    ] = False,
) -> None:
    """Show sessions, projects, notes, processes and the gateway in the browser.

    The page is served on this machine only. The link that is printed works once, within ten
    minutes; `rekindle web link` prints another one for a second browser.

    \b
    Examples:
      rekindle web
      rekindle web --listen 127.0.0.1:9000 --no-open
      rekindle web --read-only
      rekindle web link
    """
    if context.invoked_subcommand is not None:
        return
    from rekindle.config.address import parse_address

    address = parse_address(listen)
    if not address.is_loopback and public_url is None:
        raise InvalidInput(
            f"{address.host} can be reached by others: put a TLS proxy in front, and pass its URL with"
            " --public-url"
        )
    ignore_sigpipe()
    _serve(load_settings(), address, public_url, readonly=read_only, opens=not no_open)


@group.command("link")
def print_link(
    listen: ListenOption = f"127.0.0.1:{DEFAULT_PORT}", public_url: PublicUrlOption = None
) -> None:
    """Print a one-time link to the page of a running server.

    \b
    Examples:
      rekindle web link
      rekindle web link --listen 127.0.0.1:9000
    """
    from rekindle.config.address import parse_address
    from rekindle.web.access import build_origin

    address = parse_address(listen)
    if address.port == 0 and public_url is None:
        raise InvalidInput("--listen: expected the port that the server printed when it started")
    origin = build_origin(address, public_url)
    print_line(_build_link(_open_keys(load_settings(), origin), origin))


def _serve(
    config: Config, address: Address, public_url: str | None, *, readonly: bool, opens: bool
) -> None:
    try:
        from rekindle.web.app import build_app
        from rekindle.web.context import WebContext
        from rekindle.web.guard import GuardOptions
        from rekindle.web.rendering import PageRenderer
        from rekindle.web.server import serve_app
    except ImportError:
        raise InvalidInput("The web page needs: pip install 'rekindle[web]'") from None
    from rekindle.config.address import Address, listen_at
    from rekindle.store.store_executor import StoreExecutor
    from rekindle.web.access import build_origin

    listener = listen_at(address)
    origin = build_origin(Address(address.host, listener.getsockname()[1]), public_url)
    keys = _open_keys(config, origin)
    with open_for_reading(refresh=False) as store:
        executor = StoreExecutor(store)
        context = WebContext(config, executor, PageRenderer(), readonly)
        app = build_app(context, GuardOptions(keys, origin, readonly), _build_freshness(config))

        def announce() -> None:
            link = _build_link(keys, origin)
            print_notice("Open this link; it works once. Press Ctrl+C to stop.")
            print_line(link)
            if opens:
                _open_browser(link)

        try:
            serve_app(app, listener, announce)
        finally:
            executor.close()


def _build_freshness(config: Config) -> FreshnessOptions | None:
    """Say how to import what agents write, if it belongs into this store."""
    from rekindle.config import get_home_and_env
    from rekindle.watching.refresh import BUSY_SECONDS
    from rekindle.web.freshness import FreshnessOptions

    if not needs_refresh(config):
        return None
    user_home, env = get_home_and_env()
    return FreshnessOptions(
        home=config.home,
        user_home=user_home,
        env=env,
        open_writer=lambda: connect_store(config, config.store.url, busy_seconds=BUSY_SECONDS),
    )


def _open_keys(config: Config, origin: Origin) -> AccessKeys:
    from rekindle.web.access import AccessKeys

    # Cookies do not know ports: two servers on one machine need two names.
    port = origin.names[0].rpartition(":")[2]
    name = "__Host-rekindle" if origin.is_secure else f"rekindle_{port if port.isdigit() else 80}"
    return AccessKeys(config.home / "web", name)


def _build_link(keys: AccessKeys, origin: Origin) -> str:
    return f"{origin.scheme}://{origin.names[0]}/open?token={keys.create_link_token()}"


def _open_browser(link: str) -> None:
    """Open the link where there is a screen; a browser in this terminal would not help."""
    import os
    import sys
    import threading
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
