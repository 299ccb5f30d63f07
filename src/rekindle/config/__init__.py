"""Settings; the only reader of settings from the environment and of TOML.

A setting is one line in `schema`: its type, default, allowed values and purpose. Its name is
`section.key`, its environment variable `REKINDLE_SECTION_KEY`. The value comes from the environment,
else from `<home>/config.toml`, else it is the default. An unknown setting or invalid value is rejected
with its name and location.

The settings of `reset` and `keys` can be overridden per platform and chat type. Besides `[reset]`, the
file may contain the tables `[reset.type.<type>]`, `[reset.platform.<platform>]` and
`[reset.platform.<platform>.<type>]` with the settings that differ. The words `type` and `platform`
separate the names of platforms, which plugins choose, from those of settings.

MCP servers and model prices are tables that the user names: `[mcp.servers.<name>]` and
`[model.prices.<model>]`. They are read from the file only.
"""

from .load import (
    Config,
    allows_color,
    find_home,
    find_pager,
    find_unknown_env_vars,
    get_home_and_env,
    get_local_zone,
    get_login_name,
    is_url,
    load_config,
    resolve_path,
    should_force_color,
)
from .lookup import NAMED_SETTINGS, SETTINGS, get_setting
from .schema import McpServer
from .setting import NumberRange, Setting, Value, mask_secrets

__all__ = [
    "NAMED_SETTINGS",
    "SETTINGS",
    "Config",
    "McpServer",
    "NumberRange",
    "Setting",
    "Value",
    "allows_color",
    "find_home",
    "find_pager",
    "find_unknown_env_vars",
    "get_home_and_env",
    "get_local_zone",
    "get_login_name",
    "get_setting",
    "is_url",
    "load_config",
    "mask_secrets",
    "resolve_path",
    "should_force_color",
]
