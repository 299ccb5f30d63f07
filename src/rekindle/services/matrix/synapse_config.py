"""The configuration of Synapse. JSON is valid YAML, so it is written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .layout import ServerFiles, ServerSecrets, ServerSettings

RETENTION = "90d"
MAX_UPLOAD = "50M"
_LOG_BYTES, _LOG_FILES = 10_000_000, 3


def render_config(files: ServerFiles, settings: ServerSettings, secrets: ServerSecrets) -> str:
    """Return the text of `homeserver.yaml`."""
    config: dict[str, Any] = {
        "server_name": settings.server_name,
        "report_stats": False,
        "listeners": _build_listeners(settings),
        "database": _build_database(settings, secrets),
        "log_config": str(files.log_config),
        "media_store_path": str(files.media),
        "signing_key_path": str(files.signing_key),
        "registration_shared_secret": secrets.registration_shared_secret,
        "macaroon_secret_key": secrets.macaroon_secret_key,
        "form_secret": secrets.form_secret,
        # Ask each server for its keys, and no third party.
        "trusted_key_servers": [],
        "serve_server_wellknown": bool(settings.public_url),
        **_build_policies(),
    }
    if settings.public_url:
        config["public_baseurl"] = settings.public_url
    if settings.certificate:
        config |= {
            "tls_certificate_path": settings.certificate,
            "tls_private_key_path": settings.key,
        }
    return (
        "# Written by `rekindle matrix setup`. Put your own settings into local.yaml.\n"
        + json.dumps(config, indent=2)
        + "\n"
    )


def _build_listeners(settings: ServerSettings) -> list[dict[str, Any]]:
    """Serve clients on loopback alone; servers likewise, unless there is a certificate."""
    has_certificate = bool(settings.certificate)
    return [
        {
            "port": settings.client_port,
            "bind_addresses": ["127.0.0.1"],
            "type": "http",
            "tls": False,
            "x_forwarded": True,
            "resources": [{"names": ["client"], "compress": False}],
        },
        {
            "port": settings.federation_port,
            "bind_addresses": ["0.0.0.0"] if has_certificate else ["127.0.0.1"],
            "type": "http",
            "tls": has_certificate,
            "x_forwarded": not has_certificate,
            "resources": [{"names": ["federation"], "compress": False}],
        },
    ]


def _build_database(settings: ServerSettings, secrets: ServerSecrets) -> dict[str, Any]:
    return {
        "name": "psycopg2",
        "args": {
            "host": "127.0.0.1",
            "port": settings.postgres_port,
            "user": "synapse",
            "password": secrets.database_password,
            "dbname": "synapse",
            "cp_min": 2,
            "cp_max": 10,
        },
    }


def _build_policies() -> Mapping[str, Any]:
    """Return who may do what, how often, and for how long it is kept."""
    return {
        "enable_registration": False,
        "allow_guest_access": False,
        "allow_public_rooms_over_federation": False,
        "allow_public_rooms_without_auth": False,
        "encryption_enabled_by_default_for_room_type": "invite",
        "url_preview_enabled": False,
        "max_upload_size": MAX_UPLOAD,
        "retention": {
            "enabled": True,
            "default_policy": {"max_lifetime": RETENTION},
            "allowed_lifetime_max": RETENTION,
            "purge_jobs": [{"interval": "12h"}],
        },
        "media_retention": {
            "local_media_lifetime": RETENTION,
            "remote_media_lifetime": RETENTION,
        },
        "rc_message": {"per_second": 0.5, "burst_count": 15},
        "rc_login": {
            "address": {"per_second": 0.2, "burst_count": 10},
            "account": {"per_second": 0.2, "burst_count": 10},
            "failed_attempts": {"per_second": 0.05, "burst_count": 5},
        },
        "rc_registration": {"per_second": 0.05, "burst_count": 3},
    }


def render_log_config(files: ServerFiles) -> str:
    """Return the configuration of Synapse's log: a file that does not grow without limit."""
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(request)s %(message)s"}
        },
        "handlers": {
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "formatter": "line",
                "filename": str(files.logs / "synapse.log"),
                "maxBytes": _LOG_BYTES,
                "backupCount": _LOG_FILES,
                "encoding": "utf8",
            }
        },
        "root": {"level": "INFO", "handlers": ["file"]},
        # It writes the parameters of queries at lower levels.
        "loggers": {"synapse.storage.SQL": {"level": "WARNING"}},
    }
    return json.dumps(config, indent=2) + "\n"
