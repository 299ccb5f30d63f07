"""The database cluster of the home server: created, started, dumped and restored.

It listens on loopback alone, and asks for a password. PostgreSQL refuses to run as root; for root it
runs as the system user `postgres`, who must be able to enter the data folder.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rekindle.errors import HomeServerError
from rekindle.services.background import ServerProgram

from .layout import ServerFiles, ServerSecrets, ServerSettings, write_private_file

DATABASE = USER = "synapse"
ADMIN = "rekindle"
_SYSTEM_USER = "postgres"
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.1


class PostgresCluster:
    """The cluster that a home server keeps its database in."""

    def __init__(
        self, files: ServerFiles, settings: ServerSettings, secrets: ServerSecrets
    ) -> None:
        self._files, self._settings, self._secrets = files, settings, secrets
        self.data = Path(settings.postgres_data)

    @property
    def exists(self) -> bool:
        return self.data.exists()

    def describe_program(self) -> ServerProgram:
        """Describe how the server is started."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._settings.postgres_port),
            "unix_socket_directories": "",
            "logging_collector": "on",
            "log_directory": "log",
            "log_filename": "postgres-%a.log",  # a week, then overwritten
            "log_truncate_on_rotation": "on",
            "log_rotation_size": "0",
        }
        words = [str(self._find_program("postgres")), "-D", str(self.data)]
        for name, value in options.items():
            words += ["-c", f"{name}={value}"]
        return ServerProgram(
            name="matrix-postgres",
            description="Rekindle: the database of the Matrix server",
            command=(*_drop_root(), *words),
            output_file=self._files.logs / "postgres.out",
            stop_signal=signal.SIGINT,  # end connections and stop
        )

    def create(self) -> bool:
        """Create the cluster if it does not exist; return whether it was created."""
        if self.data.exists():
            return False
        self.require_access()
        draft = self.data.with_name(f"{self.data.name}.{os.getpid()}.part")
        password = draft.with_suffix(".password")
        self.remove_drafts()
        draft.mkdir(mode=0o700)
        write_private_file(password, self._secrets.database_admin_password)
        if account := _find_system_user():
            for path in (draft, password):
                os.chown(path, account.pw_uid, account.pw_gid)
        try:
            words = ["-D", str(draft), "-U", ADMIN, "--auth=scram-sha-256", f"--pwfile={password}"]
            words += ["-E", "UTF8", "--locale=C"]
            self._run([*_drop_root(), str(self._find_program("initdb")), *words])
        finally:
            password.unlink(missing_ok=True)
        draft.rename(self.data)
        return True

    def remove_drafts(self) -> None:
        """Remove what interrupted runs have left."""
        for path in self.data.parent.glob(f"{glob.escape(self.data.name)}.*"):
            if path.suffix == ".password":
                path.unlink(missing_ok=True)
            elif path.suffix == ".part":
                shutil.rmtree(path, ignore_errors=True)

    def wait_until_ready(self, require_alive: Callable[[], None]) -> None:
        """Wait until the server answers; `require_alive` raises if it has ended."""
        deadline = time.monotonic() + _READY_SECONDS
        while not self.is_ready():
            require_alive()
            if time.monotonic() > deadline:
                raise HomeServerError("PostgreSQL did not start in time.")
            time.sleep(_POLL_SECONDS)

    def is_ready(self) -> bool:
        """Return whether the server accepts our connections."""
        words = self._build_client_words("psql", ADMIN, "postgres")
        done = subprocess.run(
            [*words, "-c", "SELECT 1"],
            env=self._build_client_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return done.returncode == 0

    def create_database(self) -> bool:
        """Create the role and the database of Synapse; return whether the database was created."""
        if not self._query(f"SELECT 1 FROM pg_roles WHERE rolname = '{USER}'"):
            # The password is of hexadecimal digits.
            self._query(f"CREATE ROLE {USER} LOGIN PASSWORD '{self._secrets.database_password}'")
        if self._query(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"):
            return False
        # Synapse compares text by its bytes.
        self._query(
            f"CREATE DATABASE {DATABASE} OWNER {USER} TEMPLATE template0 ENCODING 'UTF8'"
            " LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        return True

    def drop_database(self) -> None:
        """Remove the database, whoever is connected to it."""
        self._query(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")

    def dump_database(self, file: Path) -> None:
        """Write a dump of the database."""
        words = self._build_client_words("pg_dump", USER, DATABASE)
        self._run([*words, "--format=custom", f"--file={file}"])
        file.chmod(0o600)

    def load_dump(self, file: Path) -> None:
        """Load a dump into the empty database: all of it or nothing."""
        words = self._build_client_words("pg_restore", USER, DATABASE)
        self._run([*words, "--no-owner", "--exit-on-error", "--single-transaction", str(file)])

    def get_log_file(self) -> Path:
        """Return the log that was written last."""
        logs = sorted((self.data / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1] if logs else self._files.logs / "postgres.out"

    def measure_database(self) -> int:
        """Return the size of the database in bytes."""
        return int(self._query(f"SELECT pg_database_size('{DATABASE}')") or 0)

    def write_password_file(self) -> bool:
        """Write the passwords for the clients of PostgreSQL; return whether they changed."""
        lines = [
            f"127.0.0.1:*:*:{ADMIN}:{self._secrets.database_admin_password}\n",
            f"127.0.0.1:*:*:{USER}:{self._secrets.database_password}\n",
        ]
        return write_private_file(self._files.password_file, "".join(lines))

    def _query(self, statement: str) -> str:
        # On its standard input, so that no password is in the list of processes.
        words = self._build_client_words("psql", ADMIN, "postgres")
        options = ["--no-psqlrc", "--tuples-only", "--no-align", "--quiet", "-v", "ON_ERROR_STOP=1"]
        return self._run([*words, *options], given=statement).strip()

    def _build_client_words(self, program: str, user: str, database: str) -> list[str]:
        port = str(self._settings.postgres_port)
        words = [str(self._find_program(program)), "-h", "127.0.0.1", "-p", port, "-U", user]
        return [*words, "--no-password", "-d", database]

    def _build_client_env(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**env, "PGPASSFILE": str(self._files.password_file), "PGCONNECT_TIMEOUT": "5"}

    def _run(self, words: Sequence[str], given: str = "") -> str:
        done = subprocess.run(
            words,
            env=self._build_client_env(),
            cwd="/",
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            program = words[words.index("--") + 1] if "--" in words else words[0]
            reason = " ".join((done.stderr or done.stdout).split())
            reason = reason.replace(self._secrets.database_password, "***")
            raise HomeServerError(f"{Path(program).name} failed: {reason[:500]}")
        return done.stdout

    def _find_program(self, name: str) -> Path:
        """Return a program of the cluster's version, or of the newest one for a new cluster."""
        try:
            version = (self.data / "PG_VERSION").read_text().strip()
        except OSError:
            version = ""
        return find_postgres(version) / name

    def require_access(self) -> None:
        """Create the folder of a new cluster; raise HomeServerError if its user cannot enter it."""
        parent = self.data.parent
        if self.data.exists():
            return
        words = _drop_root()
        parent.mkdir(parents=True, exist_ok=True, mode=0o711 if words else 0o700)
        if not words:
            return
        done = subprocess.run([*words, "test", "-x", str(parent)], cwd="/", capture_output=True)
        if done.returncode:
            raise HomeServerError(
                f"PostgreSQL does not run as root, and its user {_SYSTEM_USER} cannot enter {parent}."
                " Run `rekindle matrix setup` as another user, or choose a folder that it can enter,"
                " such as: --postgres-data /var/lib/rekindle/postgres"
            )


def find_postgres(version: str = "") -> Path:
    """Return the folder of PostgreSQL's programs: of this major version, or of the newest."""
    folders = [Path(path).parent for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    folders.sort(key=lambda folder: _to_number(folder.parent.name), reverse=True)
    if found := shutil.which("initdb"):
        folders.append(Path(os.path.realpath(found)).parent)
    for folder in folders:
        if (folder / "postgres").exists() and version in ("", _read_version(folder)):
            return folder
    wanted = f"PostgreSQL {version}" if version else "PostgreSQL"
    raise HomeServerError(
        f"{wanted} is not installed. On Debian and Ubuntu: apt-get install postgresql"
    )


def _read_version(folder: Path) -> str:
    words = [str(folder / "postgres"), "--version"]  # postgres (PostgreSQL) 15.3 (Debian …)
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.rpartition("(PostgreSQL) ")[2].split(".")[0].strip()


def _to_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _find_system_user() -> pwd.struct_passwd | None:
    """Return the user that PostgreSQL runs as instead of root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        raise HomeServerError(
            f"PostgreSQL does not run as root, and there is no user {_SYSTEM_USER}. Run"
            " `rekindle matrix setup` as another user."
        ) from None


def _drop_root() -> tuple[str, ...]:
    """Return the words before a command that must not run as root."""
    account = _find_system_user()
    if account is None:
        return ()
    program = shutil.which("setpriv")
    if program is None:
        raise HomeServerError("setpriv is not installed. Install the package util-linux.")
    ids = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
    return (program, *ids, "--")
