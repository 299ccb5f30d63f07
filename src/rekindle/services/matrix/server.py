"""The home server as a whole: its two programs, started in order and checked."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from rekindle.errors import HomeServerError
from rekindle.services.background import (
    ServerProgram,
    ServerRunner,
    choose_runner,
    read_last_words,
    require_alive,
)

from .client_api import ClientApi
from .layout import (
    ServerFiles,
    ServerSecrets,
    ServerSettings,
    load_secrets,
    load_server_settings,
    write_private_file,
)
from .postgres import PostgresCluster
from .synapse_config import render_config, render_log_config

Report: TypeAlias = Callable[[str], None]
_START_SECONDS = 300.0  # the first start creates the tables
_POLL_SECONDS = 0.1


class HomeServer:
    """A home server that has been set up, at least in part."""

    def __init__(
        self,
        files: ServerFiles,
        settings: ServerSettings,
        secrets: ServerSecrets,
        runner: ServerRunner,
    ) -> None:
        self.files, self.settings, self.secrets, self.runner = files, settings, secrets, runner
        self.cluster = PostgresCluster(files, settings, secrets)
        self.api = ClientApi(settings.client_port)

    def write_config(self) -> bool:
        """Write the files that Synapse reads; return whether one of them changed."""
        files = self.files
        for folder in (files.media, files.logs, files.run):
            folder.mkdir(exist_ok=True, mode=0o700)
        written = [
            write_private_file(files.signing_key, self.secrets.signing_key),
            write_private_file(files.log_config, render_log_config(files)),
            write_private_file(files.config, render_config(files, self.settings, self.secrets)),
            self.cluster.write_password_file(),
        ]
        return any(written)

    def describe_synapse(self) -> ServerProgram:
        """Describe how Synapse is started."""
        files = self.files
        words = [str(files.environment / "bin" / "python"), "-m", "synapse.app.homeserver"]
        words += ["-c", str(files.config)]
        if files.local_config.exists():
            words += ["-c", str(files.local_config)]
        return ServerProgram(
            name="matrix-synapse",
            description="Rekindle: the Matrix server",
            command=tuple(words),
            output_file=files.logs / "synapse.out",
            after=("matrix-postgres",),
        )

    def start_postgres(self) -> bool:
        """Start the database and wait until it answers; return whether it was started."""
        program = self.cluster.describe_program()
        if self.runner.get_pid(program) is None:
            require_free_port(self.settings.postgres_port, "--postgres-port")
        is_started = self.runner.start(program)
        self.cluster.wait_until_ready(lambda: require_alive(self.runner, program))
        return is_started

    def start_synapse(self) -> bool:
        """Start Synapse and wait until it answers; return whether it was started."""
        program = self.describe_synapse()
        if self.runner.get_pid(program) is None:
            require_free_port(self.settings.client_port, "--client-port")
            require_free_port(self.settings.federation_port, "--federation-port")
        is_started = self.runner.start(program)
        deadline = time.monotonic() + _START_SECONDS
        while not self.api.is_healthy():
            require_alive(self.runner, program)
            if time.monotonic() > deadline:
                reason = read_last_words(self.files.logs / "synapse.log")
                raise HomeServerError(f"Synapse did not answer in time: {reason}")
            time.sleep(_POLL_SECONDS)
        return is_started

    def stop_synapse(self) -> None:
        """Stop Synapse and wait until it has ended."""
        self.runner.stop(self.describe_synapse())

    def stop_all(self) -> None:
        """Stop both servers and wait until they have ended."""
        self.stop_synapse()
        if self.cluster.exists:
            self.runner.stop(self.cluster.describe_program())

    def forget_all(self) -> None:
        """Stop both servers and remove all that starts them."""
        self.runner.forget(self.describe_synapse())
        if self.cluster.exists:
            self.runner.forget(self.cluster.describe_program())

    def restart(self) -> None:
        """Stop and start both servers."""
        self.stop_all()
        self.write_config()
        self.start_postgres()
        self.start_synapse()


def open_server(home: Path, user_home: Path, env: Mapping[str, str]) -> HomeServer:
    """Open the home server of `home`; raise NotFound if there is none."""
    files = ServerFiles(home)
    settings, secrets = load_server_settings(files), load_secrets(files)
    return HomeServer(files, settings, secrets, choose_runner(files.run, user_home, env))


@contextmanager
def lock_server(files: ServerFiles) -> Generator[None]:
    """Lock the home server against changes by other commands."""
    files.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(files.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HomeServerError(
                "Another `rekindle matrix` command is running. Wait for it and try again."
            ) from None
        yield
    finally:
        os.close(fd)


def require_free_port(port: int, option: str) -> None:
    """Raise HomeServerError if another program listens on a port."""
    if not is_port_free(port):
        raise HomeServerError(
            f"Port {port} is used by another program. Choose another:"
            f" rekindle matrix setup {option} PORT"
        )


def is_port_free(port: int) -> bool:
    """Return whether a server can listen on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
