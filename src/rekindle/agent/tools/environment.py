"""Build the environment variables for commands, without anything that looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .tool import ToolContext

_BASIC_NAME = re.compile(r"PATH|LANG|LC_\w+|TZ|TERM|SYSTEMROOT")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# An interactive prompt would wait forever.
_NON_INTERACTIVE = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


def build_command_environment(context: ToolContext) -> dict[str, str]:
    """Return our environment without secrets, except those listed in `pass_on`."""
    from rekindle.redaction.environment import is_secret_variable  # lazy: compiles many patterns

    visible = {
        name: value
        for name, value in context.environment.items()
        if name in context.pass_on or not is_secret_variable(name, value)
    }
    return {"PATH": _DEFAULT_PATH, **visible, **_NON_INTERACTIVE}


def build_code_environment(context: ToolContext, home: str) -> dict[str, str]:
    """Return a minimal environment: the search path, the locale, and a home folder."""
    visible = {
        name: value for name, value in context.environment.items() if _BASIC_NAME.fullmatch(name)
    }
    passed = {n: context.environment[n] for n in context.pass_on if n in context.environment}
    return {
        "PATH": _DEFAULT_PATH,
        **visible,
        **passed,
        "HOME": home,
        "TMPDIR": home,
        "TERM": "dumb",
    }


def get_home(environment: Mapping[str, str]) -> str | None:
    return environment.get("HOME") or None
