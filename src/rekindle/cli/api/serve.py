"""`rekindle serve`: the HTTP API for machines without access to the database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.help import CommandGroup
from rekindle.cli.output import JsonOption, print_json, print_line, print_notice
from rekindle.cli.store_access import connect_store, ignore_sigpipe, load_settings
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.api.serving.keys import KeyFile
    from rekindle.api.serving.server import TlsFiles
    from rekindle.config import Config
    from rekindle.config.address import Address

DEFAULT_PORT, DEFAULT_RATE = 8766, 50.0
group = typer.Typer(cls=CommandGroup, invoke_without_command=True)


@group.callback()
def serve_api(
    context: typer.Context,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port."
        ),
    ] = f"127.0.0.1:{DEFAULT_PORT}",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain, in PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key, in PEM.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow plain HTTP on an address that others can reach."),
    ] = False,
    rate: Annotated[
        float,
        typer.Option("--rate", min=0, help="Requests per second per API key; 0 for no limit."),
    ] = DEFAULT_RATE,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request, not only those that fail.")
    ] = False,
) -> None:
    """Serve the store over HTTP to machines that must not have access to its database.

    Clients need an API key, made with `rekindle serve add-key`. The server listens on this machine
    only; for others pass a certificate, or put a proxy with TLS in front. The log is JSON, one
    object per line, on standard error.

    \b
    Examples:
      rekindle serve
      rekindle serve --listen 10.0.0.5:8766 --tls-cert cert.pem --tls-key key.pem
      rekindle --store postgresql://db/rekindle serve --rate 200
      rekindle serve add-key laptop
    """
    if context.invoked_subcommand is not None:
        return
    from rekindle.config.address import parse_address

    address = parse_address(listen)
    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key: expected both")
    ignore_sigpipe()
    _serve(
        load_settings(),
        address,
        (tls_cert, tls_key),
        is_insecure=insecure,
        rate=rate,
        logs_requests=log_requests,
    )


@group.command("add-key")
def add_key(
    name: Annotated[str, typer.Argument(help="What the key is for, such as a machine's name.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="Scope: read or write (repeatable).",
            show_default="read and write",
        ),
    ] = None,
) -> None:
    """Create an API key and print it once; only its hash is stored.

    \b
    Examples:
      rekindle serve add-key laptop
      rekindle serve add-key dashboard --scope read
    """
    from rekindle.tenants import parse_scopes

    scopes = parse_scopes(scope or ("read", "write"))
    token = _open_key_file(load_settings()).create_key(name, scopes)
    print_notice("Keep this key; it is not shown again. Clients read it from REKINDLE_API_KEY.")
    print_line(token)


@group.command("list-keys")
def list_keys(json: JsonOption = False) -> None:
    """List the API keys, without the keys themselves.

    \b
    Examples:
      rekindle serve list-keys
    """
    import msgspec

    keys = _open_key_file(load_settings()).list_keys()
    if json:
        shown = [msgspec.to_builtins(key) for key in keys]
        print_json([{name: one[name] for name in one if name != "sha256"} for one in shown])
        return
    for key in keys:
        print_line(f"{key.id}  {','.join(key.scopes):10}  {key.name}")
    if not keys:
        print_notice("No API keys. Create one with `rekindle serve add-key NAME`.")


@group.command("remove-key")
def remove_key(
    id: Annotated[str, typer.Argument(help="Key id, from `list-keys`.")],
) -> None:
    """Remove an API key; a running server refuses it within five seconds.

    \b
    Examples:
      rekindle serve remove-key 3f2a9c01
    """
    removed = _open_key_file(load_settings()).delete_key(id)
    print_line(f"Removed the key {removed.name!r}.")


@group.command("learn", hidden=True)
def learn_in_stores(names: Annotated[list[str], typer.Argument()]) -> None:
    """Learn from stores that a server has marked. Started by the server."""
    import os

    from rekindle.api.serving import learning_run
    from rekindle.api.serving.server import configure_logging
    from rekindle.watching.background_learning import NICENESS

    os.nice(NICENESS)
    configure_logging()
    config = load_settings()
    found = learning_run.learn_in_stores(
        config, names, lambda: connect_store(config, config.store.url)
    )
    for name, state in found:
        print_line(f"{name} {state}")


def _open_key_file(config: Config) -> KeyFile:
    from rekindle.api.serving.keys import KEY_FILE, KeyFile

    return KeyFile(config.home / "serve" / KEY_FILE)


def _serve(
    config: Config,
    address: Address,
    tls_files: tuple[Path | None, Path | None],
    *,
    is_insecure: bool,
    rate: float,
    logs_requests: bool,
) -> None:
    import asyncio

    try:
        from rekindle.api.serving.server import (
            TlsFiles,
            check_exposure,
            configure_logging,
            find_loop_factory,
        )
    except ImportError:
        raise InvalidInput("The server needs: pip install 'rekindle[web]'") from None

    certificate, key = tls_files
    tls = None if certificate is None or key is None else TlsFiles(certificate, key)
    check_exposure(address, tls, is_insecure=is_insecure)
    configure_logging()
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        runner.run(_run_server(config, address, tls, rate=rate, logs_requests=logs_requests))


async def _run_server(
    config: Config, address: Address, tls: TlsFiles | None, *, rate: float, logs_requests: bool
) -> None:
    import asyncio

    from rekindle.api.serving.app import ApiApp
    from rekindle.api.serving.handlers import ApiHandlers
    from rekindle.api.serving.keys import KeyCache, RateLimiter
    from rekindle.api.serving.learning import BackgroundLearner
    from rekindle.api.serving.server import BACKLOG, log_start, serve_app
    from rekindle.api.serving.stores import ServerStores
    from rekindle.api.serving.uploads import FOLDER, TranscriptUploads
    from rekindle.config.address import listen_at
    from rekindle.store.async_store import AsyncStore

    keys = _open_key_file(config)
    with listen_at(address, BACKLOG) as listener:
        async with AsyncStore(connect_store(config, config.store.url)) as store:
            stores = ServerStores(config, store, keys)
            if not keys.list_keys() and not stores.has_tenants():
                print_notice("No API keys yet. Create one with `rekindle serve add-key NAME`.")
            learner = BackgroundLearner(config)
            handlers = ApiHandlers(stores, TranscriptUploads(config.home / FOLDER), learner)
            app = ApiApp(
                handlers, KeyCache(stores), RateLimiter(rate, 2 * rate), logs_requests=logs_requests
            )
            scheme = "http" if tls is None else "https"
            url = f"{scheme}://{address.url_host}:{listener.getsockname()[1]}"

            def announce() -> None:
                log_start(url, store.location)
                print_line(url)

            learning = asyncio.create_task(learner.run())
            try:
                await serve_app(app, listener, announce, tls)
            finally:
                learning.cancel()
                await asyncio.wait([learning])
                await stores.close()
