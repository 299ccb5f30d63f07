"""Fields that several kinds of platforms have."""

from __future__ import annotations

from rekindle.platforms.kind import PlatformField


def build_url_field(default: str, env: str) -> PlatformField:
    """Build the field for the address of the API."""
    help = "only for a server or proxy of your own"
    return PlatformField("api_url", "Address of the API", help, default=default, env=env)
