"""A real Synapse: installed once per machine, in the user's cache folder, and started on a free port."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tests.environments import install_packages
from tests.ports import find_port
from tests.waiting import PATIENCE

# Exact versions: what is tested must not change by itself. Synapse itself asks for psycopg2, which
# needs a compiler and the headers of PostgreSQL.
PACKAGES = ("matrix-synapse==1.163.0", "psycopg2-binary==2.9.11")
SERVER_NAME = "rekindle.test"
_LIMITS = (
    "rc_message", "rc_registration", "rc_admin_redaction", "rc_key_requests", "rc_presence",
    "rc_room_creation", "rc_reports", "rc_media_create", "rc_delayed_event_mgmt",
)  # fmt: skip
_NESTED_LIMITS = {
    "rc_login": ("address", "account", "failed_attempts"),
    "rc_joins": ("local", "remote"),
    "rc_invites": ("per_room", "per_user", "per_issuer"),
}


def install_synapse() -> Path:
    """Install Synapse unless it is there, and return its Python; raise Missing if that fails."""
    return install_packages("synapse", *PACKAGES)


class ApiError(Exception):
    """Synapse refused a request."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {answer.get('errcode')}: {answer.get('error')}")
        self.status, self.code = status, str(answer.get("errcode"))


def call(
    url: str, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, token: str = ""
) -> Any:
    """Send a request and return the answer."""
    data = json.dumps(body).encode() if isinstance(body, Mapping) else body
    request = urllib.request.Request(url + path, data, method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            raise ApiError(error.code, json.loads(error.read() or b"{}")) from error


def fetch_bytes(url: str, token: str) -> bytes:
    """Return a file of the media repository."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return response.read()


class Synapse:
    """A server of our own. `database` is the URL of a PostgreSQL database; without it, SQLite."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.folder = folder
        self.port = find_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._python = install_synapse()
        self._secret = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        key = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
        (folder / "homeserver.yaml").write_text(json.dumps(self._build_config(database)))
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        environ = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
        environ.pop("PYTHONPATH", None)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", "synapse.app.homeserver", "-c", "homeserver.yaml"],
                cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text()[-3000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server without a chance to finish anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def register(
        self, name: str, *, admin: bool = False, display_name: str = ""
    ) -> tuple[str, str]:
        """Create a user, whose password is the name, and return the user id and an access token."""
        path = "/_synapse/admin/v1/register"
        nonce = call(self.url, "GET", path)["nonce"]
        kind = "admin" if admin else "notadmin"
        signed = "\0".join((nonce, name, name, kind)).encode()
        answer = call(
            self.url,
            "POST",
            path,
            {
                "nonce": nonce,
                "username": name,
                "password": name,
                "admin": admin,
                "displayname": display_name or name.title(),
                "mac": hmac.new(self._secret.encode(), signed, hashlib.sha1).hexdigest(),
            },
        )
        return answer["user_id"], answer["access_token"]

    def _answers(self) -> bool:
        try:
            call(self.url, "GET", "/_matrix/client/versions")
        except (OSError, ApiError, ValueError):
            return False
        return True

    def _build_config(self, database: str | None) -> dict[str, Any]:
        high = {"per_second": 10_000, "burst_count": 10_000}
        if database:
            parts = urlparse(database)
            arguments = {"user": parts.username, "dbname": parts.path[1:], "host": parts.hostname,
                         "port": parts.port, "cp_min": 1, "cp_max": 5}  # fmt: skip
            engine = {"name": "psycopg2", "args": arguments}
        else:
            engine = {"name": "sqlite3", "args": {"database": str(self.folder / "homeserver.db")}}
        return {
            "server_name": SERVER_NAME,
            "listeners": [
                {
                    "port": self.port,
                    "type": "http",
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client", "media"]}],
                }
            ],
            "database": engine,
            "media_store_path": str(self.folder / "media"),
            "signing_key_path": str(self.folder / "signing.key"),
            "registration_shared_secret": self._secret,
            "macaroon_secret_key": secrets.token_hex(16),
            "form_secret": secrets.token_hex(16),
            "trusted_key_servers": [],
            "report_stats": False,
            "bcrypt_rounds": 4,
            "presence": {"enabled": False},
            "max_upload_size": "2M",
            **dict.fromkeys(_LIMITS, high),
            **{name: dict.fromkeys(kinds, high) for name, kinds in _NESTED_LIMITS.items()},
        }
