"""Where the home server keeps its files, and its settings and secrets.

<home>/matrix/
  settings.json      names, ports and folders
  secrets.json       passwords, keys and tokens, for the user alone, like all below
  homeserver.yaml    generated from both; `local.yaml` beside it is the user's and goes before it
  environment        link to the Python environment of Synapse in environments/
  postgres/          the database cluster
  media/  logs/  run/
<home>/matrix-backups/
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rekindle.errors import HomeServerError, InvalidInput, NotFound
from rekindle.files import write_new_file

T = TypeVar("T")

_USER_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._=-/+")
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")
_MAX_NAME_LENGTH = 200


class ServerFiles:
    """The paths of a home server."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lock = home / "matrix.lock"
        self.backups = home / "matrix-backups"
        self.folder = home / "matrix"
        self.settings = self.folder / "settings.json"
        self.secrets = self.folder / "secrets.json"
        self.config = self.folder / "homeserver.yaml"
        self.local_config = self.folder / "local.yaml"
        self.log_config = self.folder / "logging.yaml"
        self.signing_key = self.folder / "signing.key"
        self.password_file = self.folder / "pgpass"  # in the format of PostgreSQL's clients
        self.environment = self.folder / "environment"
        self.environments = self.folder / "environments"
        self.media = self.folder / "media"
        self.logs = self.folder / "logs"
        self.run = self.folder / "run"
        self.passwords = self.folder / "passwords"  # generated ones of users
        self.restore_mark = self.folder / "restoring"  # exists while a restore is not finished
        self.update_mark = self.folder / "updating.json"  # likewise of an update

    def create_folder(self) -> None:
        """Create the folder; the user of the database must pass through it if we are root."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)

    def remove_leftovers(self) -> None:
        """Remove what killed commands have left; only for who holds the lock."""
        for path in (*self.folder.glob(".*.part"), *self.backups.glob(".*.part")):
            path.unlink(missing_ok=True)
        for path in self.folder.glob("backup-*"):
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What is not secret about a home server."""

    server_name: str
    postgres_data: str
    postgres_port: int
    client_port: int = 8008
    federation_port: int = 8448
    admin: str = "admin"
    bot: str = "rekindle"
    public_url: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def client_url(self) -> str:
        return f"http://127.0.0.1:{self.client_port}"

    def get_address(self, user: str) -> str:
        """Return the address of a user on this server."""
        return f"@{user}:{self.server_name}"


@dataclass(frozen=True, slots=True)
class ServerSecrets:
    """The passwords, keys and tokens of a home server."""

    database_admin_password: str
    database_password: str
    registration_shared_secret: str
    macaroon_secret_key: str
    form_secret: str
    signing_key: str
    admin_password: str
    bot_password: str
    bot_device_id: str
    bot_access_token: str = ""


def generate_secrets() -> ServerSecrets:
    """Generate all secrets of a new home server."""
    seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return ServerSecrets(
        database_admin_password=secrets.token_hex(24),
        database_password=secrets.token_hex(24),
        registration_shared_secret=secrets.token_urlsafe(48),
        macaroon_secret_key=secrets.token_urlsafe(48),
        form_secret=secrets.token_urlsafe(48),
        signing_key=f"ed25519 a_{secrets.token_hex(2)} {seed}\n",
        admin_password=generate_password(),
        bot_password=generate_password(),
        bot_device_id=f"REKINDLE{secrets.token_hex(4).upper()}",
    )


def generate_password() -> str:
    """Generate a password for a user."""
    return secrets.token_urlsafe(18)


def load_server_settings(files: ServerFiles) -> ServerSettings:
    """Load the settings of the home server; raise NotFound if there is none."""
    settings = _read_values(files.settings, ServerSettings)
    if settings is None:
        raise NotFound("There is no Matrix server here. Create one with `rekindle matrix setup`.")
    return settings


def find_server_settings(files: ServerFiles) -> ServerSettings | None:
    """Return the settings of the home server, or None if there is none."""
    return _read_values(files.settings, ServerSettings)


def load_secrets(files: ServerFiles) -> ServerSecrets:
    """Load the secrets of the home server."""
    found = _read_values(files.secrets, ServerSecrets)
    if found is None:
        raise HomeServerError(f"{files.secrets} is missing. Restore a backup.")
    return found


def find_secrets(files: ServerFiles) -> ServerSecrets | None:
    """Return the secrets of the home server, or None if there are none yet."""
    return _read_values(files.secrets, ServerSecrets)


def save_settings(files: ServerFiles, settings: ServerSettings) -> bool:
    """Write the settings; return whether they changed."""
    return write_private_file(files.settings, _encode_values(settings))


def save_secrets(files: ServerFiles, found: ServerSecrets) -> bool:
    """Write the secrets; return whether they changed."""
    return write_private_file(files.secrets, _encode_values(found))


def save_bot_token(files: ServerFiles, token: str) -> ServerSecrets:
    """Keep the access token of the bot, and return all secrets."""
    changed = replace(load_secrets(files), bot_access_token=token)
    save_secrets(files, changed)
    return changed


def _encode_values(values: ServerSettings | ServerSecrets) -> str:
    return json.dumps(asdict(values), indent=2) + "\n"


def _read_values(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise HomeServerError(f"{path} is damaged: {error}. Restore a backup.") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if it does not exist or is damaged."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def write_private_file(path: Path, text: str) -> bool:
    """Replace a file that the user alone may read; return whether it changed."""
    content = text.encode()
    try:
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == 0o600:
            return False
    except FileNotFoundError:
        pass
    write_new_file(path, content)
    return True


def check_server_name(name: str) -> str:
    """Return the name if it can be that of a Matrix server; raise InvalidInput if not."""
    host, colon, port = name.partition(":")
    is_host = host and set(host) <= _HOST_CHARACTERS and len(host) <= _MAX_NAME_LENGTH
    labels = host.split(".")
    is_name = all(label and label[0] != "-" and label[-1] != "-" for label in labels)
    is_port = not colon or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536)
    if not (is_host and is_name and is_port):
        raise InvalidInput(
            f"{name!r:.80} cannot be the name of a Matrix server. Use a domain in lower case, such as"
            " example.org."
        )
    return name


def check_user_name(name: str) -> str:
    """Return the name if it can be that of a user; raise InvalidInput if not."""
    if not name or not set(name) <= _USER_CHARACTERS or len(name) > _MAX_NAME_LENGTH:
        raise InvalidInput(
            f"{name!r:.80} cannot be the name of a user. Use lower-case letters, digits and ._=-/+"
            " without the name of the server."
        )
    return name
