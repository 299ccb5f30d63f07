"""Matrix, with end-to-end encryption by matrix-nio.

account       who the bot is             homeserver      requests, and what errors mean
timeline      what is new                events          what an event says
encryption    keys and devices           cross_signing   how the account vouches for its device
invites       whom the bot joins         progress        reactions and read markers
markdown      how an answer looks        media           files
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rekindle.errors import InvalidSetting
from rekindle.platforms import Platform
from rekindle.platforms.kind import PlatformField, PlatformKind

from .account import MatrixSettings
from .platform import MatrixPlatform

_GUIDE = """\
Create an account for the bot on your homeserver, with any Matrix client or with
`rekindle matrix setup`. Give its access token (Element: All settings, Help & About), or its user
name and password. After the start, invite the bot to a direct chat."""


def connect(settings: Mapping[str, str], folder: Path) -> Platform:
    """Connect to a homeserver; nothing is sent before the platform is used."""
    values = MatrixSettings(**{name: value.strip() for name, value in settings.items()})
    if not values.homeserver.startswith(("https://", "http://")):
        raise InvalidSetting(f"homeserver: expected https://…, got {values.homeserver!r:.80}")
    if not values.access_token and not (values.user and values.password):
        raise InvalidSetting("access_token: missing; give it, or user and password")
    if values.message_type not in ("text", "notice"):
        raise InvalidSetting(
            f"message_type: expected text or notice, got {values.message_type!r:.80}"
        )
    return MatrixPlatform(values, folder)


PLATFORM = PlatformKind(
    "matrix",
    "Matrix",
    connect,
    fields=(
        PlatformField(
            "homeserver", "Homeserver", "such as https://matrix.example.org",
            env="MATRIX_HOMESERVER",
        ),
        PlatformField(
            "user", "User", "such as @bot:example.org; needed with a password only",
            default="", env="MATRIX_USER",
        ),
        PlatformField(
            "access_token", "Access token", "leave it empty to log in with a password",
            is_secret=True, default="", env="MATRIX_ACCESS_TOKEN",
        ),
        PlatformField(
            "password", "Password", "not needed with an access token",
            is_secret=True, default="", env="MATRIX_PASSWORD",
        ),
        PlatformField(
            "device_id", "Device id", "the name of the bot's device; empty: a new one",
            default="", env="MATRIX_DEVICE_ID",
        ),
        PlatformField(
            "message_type", "Type of answers: text, or notice as some bots send",
            "clients notify about texts only", default="text", env="MATRIX_MESSAGE_TYPE",
        ),
    ),
    guide=_GUIDE,
)  # fmt: skip
