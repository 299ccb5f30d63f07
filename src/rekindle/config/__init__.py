"""Settings: the only reader of settings from the environment and of TOML.

A setting is one line in `sections`: its type, its default, what is allowed and what it is for. Its
name is `section.key`, its environment variable `REKINDLE_SECTION_KEY`. The value comes from the
environment, else from `<home>/config.toml`, else it is the default; what is unknown or not allowed
is refused with its name and the place it came from.

The settings of `reset` and `keys` may differ by place. The file then holds, beside `[reset]`, tables
`[reset.type.<type>]`, `[reset.platform.<platform>]` and `[reset.platform.<platform>.<type>]` with the
settings that are other there. The words `type` and `platform` keep the names of platforms, which
plugins choose, apart from those of settings.

MCP servers and prices of models stand in tables that the user names: `[mcp.servers.<name>]` and
`[model.prices.<model>]`. They come from the file alone.
"""

from .load import (
    Config,
    find_home,
    is_colourful,
    is_url,
    load,
    located,
    strangers,
    surroundings,
    zone_of_machine,
)
from .lookup import NAMED_SETTINGS, SETTINGS, setting_of
from .schema import McpServer
from .setting import Limits, Setting, Value, masked

__all__ = [
    "NAMED_SETTINGS",
    "SETTINGS",
    "Config",
    "Limits",
    "McpServer",
    "Setting",
    "Value",
    "find_home",
    "is_colourful",
    "is_url",
    "load",
    "located",
    "masked",
    "setting_of",
    "strangers",
    "surroundings",
    "zone_of_machine",
]
