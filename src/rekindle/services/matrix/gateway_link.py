"""Connect the gateway to the home server as its bot, and disconnect it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from rekindle.config.file_edit import write_setting
from rekindle.config.toml_file import read_settings
from rekindle.platforms.settings_file import (
    get_settings_path,
    get_state_folder,
    read_settings_file,
    write_settings,
)

from .layout import ServerSecrets, ServerSettings

PLATFORM = "matrix"
_SETTING = "gateway.platforms"


class GatewayLink(NamedTuple):
    """What was done to the gateway's configuration. `other` is a server that it is connected to."""

    is_changed: bool
    other: str = ""


def link_gateway(
    home: Path, settings: ServerSettings, secrets: ServerSecrets, *, replace_other: bool
) -> GatewayLink:
    """Write the gateway's settings for the bot, unless it is connected to another server."""
    ours = {
        "homeserver": settings.client_url,
        "user": settings.get_address(settings.bot),
        "access_token": secrets.bot_access_token,
        "device_id": secrets.bot_device_id,
    }
    found = read_settings_file(get_settings_path(PLATFORM, home))
    if not replace_other and found.get("user", ours["user"]) != ours["user"]:
        return GatewayLink(is_changed=False, other=found["user"])
    is_changed = found != {**found, **ours}
    if is_changed:
        write_settings(PLATFORM, home, {**found, **ours})
    names = list_platforms(home)
    if PLATFORM not in names:
        is_changed = write_setting(home / "config.toml", _SETTING, " ".join([*names, PLATFORM]))
    return GatewayLink(is_changed)


def is_linked(home: Path, settings: ServerSettings) -> bool:
    """Return whether the gateway is configured for the bot of this server."""
    found = read_settings_file(get_settings_path(PLATFORM, home))
    is_ours = found.get("user") == settings.get_address(settings.bot)
    return is_ours and bool(found.get("access_token")) and PLATFORM in list_platforms(home)


def unlink_gateway(home: Path, settings: ServerSettings) -> bool:
    """Remove the settings and keys of the bot, if they are of this server."""
    path = get_settings_path(PLATFORM, home)
    found = read_settings_file(path)
    if found.get("user") != settings.get_address(settings.bot):
        return False
    names = list_platforms(home)
    if PLATFORM in names:
        names.remove(PLATFORM)
        write_setting(home / "config.toml", _SETTING, " ".join(names) or None)
    shutil.rmtree(get_state_folder(PLATFORM, home), ignore_errors=True)
    path.unlink(missing_ok=True)
    return True


def list_platforms(home: Path) -> list[str]:
    """Return the platforms that `config.toml` names."""
    return str(read_settings(home / "config.toml").values.get(_SETTING, "")).split()
