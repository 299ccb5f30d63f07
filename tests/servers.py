"""Real servers for the tests: found or installed, started on a free port, stopped by their pid."""

from __future__ import annotations

import fcntl
import glob
import os
import pickle
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rekindle import open_store
from tests.ports import find_port
from tests.waiting import wait_until


class Missing(Exception):
    """A real part that cannot be had here."""


class Postgres:
    """A PostgreSQL server of our own, with a database for each who asks."""

    def __init__(
        self,
        primary: Postgres | None = None,
        *,
        parent: Path | None = None,  # of its folder
        options: str = "-c fsync=off -c full_page_writes=off -c shared_buffers=64MB -c autovacuum=off",
    ) -> None:
        self._bin = _postgres_binaries()
        self._options = options
        parent = find_quick_folder() if parent is None else parent
        self.folder = Path(tempfile.mkdtemp(prefix="rekindle-pg-", dir=parent))
        self.port = find_port()
        self._databases = 0
        self._store: str | None = None
        self._connection: Any = None  # for what makes and removes databases
        self._owner = os.getpid()
        if os.geteuid() == 0:  # the server refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        version = self._run("pg_ctl", "--version")  # pg_ctl (PostgreSQL) 15.3 (Debian …)
        self._version = int(re.findall(r"\d+", version)[0])
        if primary is None:
            self._run("initdb", "-A", "trust", "-U", "rekindle", "--no-sync", "-E", "UTF8",
                      "--locale=C", "-D", self._data)  # fmt: skip
        else:  # a replica that follows it
            self._run("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "rekindle",
                      "-R", "-X", "stream", "-c", "fast", "--no-sync", "-D", self._data)  # fmt: skip
        self.start()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._bin / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr or done.stdout}")
        return done.stdout

    def start(self) -> None:
        options = (
            f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c max_connections=200 {self._options}"
        )
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-D", self._data, "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._disconnect()
        self._run("pg_ctl", "-w", "-D", self._data, "-m", mode, "stop")

    def database(self, template: str = "template1") -> str:
        """The URL of a new database, empty or a copy of another."""
        self._databases += 1
        name = f"t{os.getpid()}_{self._databases}"
        # The other strategy, the default since 15, writes every page to the log first.
        copied = "" if self._version < 15 else " STRATEGY file_copy"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}{copied}")
        return self.url(name)

    def store_database(self) -> str:
        """The URL of a new database with an empty store in it, an eighth of the work to make one."""
        return self.copy_database(self._store or self.prepare_store())

    def copy_database(self, url: str) -> str:
        """The URL of a copy of a database that nobody is connected to."""
        return self.database(template=url.rpartition("/")[2])

    def prepare_store(self) -> str:
        """Make the store that is copied."""
        self._store = self.database()
        open_store(self._store).close()
        return self._store

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self._execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        """Run a statement on a connection that stays: to connect takes as long as some statements."""
        import psycopg

        if self._connection is None or self._connection.closed or self._owner != os.getpid():
            self._connection = psycopg.connect(self.url("postgres"), autocommit=True)
            self._owner = os.getpid()
        self._connection.execute(statement)  # pyright: ignore

    def _disconnect(self) -> None:
        if self._connection is not None and self._owner == os.getpid():
            self._connection.close()
        self._connection = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def url(self, database: str) -> str:
        return f"postgresql://rekindle@127.0.0.1:{self.port}/{database}"

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        yield server
    finally:
        server.remove()


class Pgbouncer:
    """A pgbouncer in transaction mode before a server: fewer connections to it than clients."""

    def __init__(self, server: Postgres, *, pool_size: int = 2, max_clients: int = 100) -> None:
        program = _find_pgbouncer()
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="rekindle-pgbouncer-"))
        self.port = find_port()
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port} user=rekindle\n"
            "[pgbouncer]\npool_mode = transaction\nauth_type = any\nlisten_addr = 127.0.0.1\n"
            f"unix_socket_dir =\nlisten_port = {self.port}\ndefault_pool_size = {pool_size}\n"
            f"max_client_conn = {max_clients}\nserver_round_robin = 1\n"
        )
        command = [program, "-q", str(settings)]
        if os.geteuid() == 0:  # it refuses to run as root
            self._folder.chmod(0o755)
            user = pwd.getpwnam("postgres")
            identity: dict[str, Any] = {
                "user": user.pw_uid,
                "group": user.pw_gid,
                "extra_groups": [],
            }
        else:
            identity = {}
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            **identity,
        )  # fmt: skip
        wait_until(self._is_listening)

    def _is_listening(self) -> bool:
        if self._process.poll() is not None:
            assert self._process.stderr
            raise RuntimeError(f"pgbouncer: {self._process.stderr.read().decode()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def route(self, url: str) -> str:
        """The URL of a database of the server through this."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def remove(self) -> None:
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


def _find_pgbouncer() -> str:
    def look() -> str | None:
        return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

    if look() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "pgbouncer"]
        subprocess.run(install, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if (found := look()) is None:
        raise Missing("no pgbouncer here, and it could not be installed")
    return found


_SHARED = "postgres.pickle"


def share_postgres(folder: Path) -> Postgres:
    """The server of everybody who names the same folder; the first to ask starts it."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _SHARED).exists():
            server = Postgres()
            (folder / _SHARED).write_bytes(pickle.dumps(server))
            server.prepare_store()
            (folder / _SHARED).write_bytes(pickle.dumps(server))
        return pickle.loads((folder / _SHARED).read_bytes())


def remove_shared(folder: Path) -> None:
    """Stop what was started for a folder, and remove both."""
    if (folder / _SHARED).exists():
        pickle.loads((folder / _SHARED).read_bytes()).remove()
    shutil.rmtree(folder, ignore_errors=True)


def _postgres_binaries() -> Path:
    found = _look_for_postgres()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["apt-get", "update"], **quiet)
        subprocess.run(["apt-get", "install", "-y", "postgresql"], **quiet)
        found = _look_for_postgres()
    if found is None:
        raise Missing("no PostgreSQL server (initdb) here, and it could not be installed")
    return found


def _look_for_postgres() -> Path | None:
    places = [shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))]
    for place in reversed([place for place in places if place]):
        if (Path(place).parent / "pg_ctl").exists():
            return Path(place).parent
    return None


def find_quick_folder() -> Path | None:
    """Memory, where there is plenty: for tests that make databases by the hundred."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30 else None
