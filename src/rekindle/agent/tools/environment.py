"""Which environment variables a command may see: none that look like a secret of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .tool import ToolContext

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(^|_)(AUTH|PWD|PASS|PAT|DSN|SESSION|JWT)(_|$)"
)
_NO_SECRET = {"PWD", "OLDPWD"}
_SECRET_VALUE = re.compile(
    r"://[^/@\s]*:[^/@\s]+@|-----BEGIN [A-Z ]*PRIVATE KEY|\b(sk|ghp|xox[bap])[-_]\w{16}"
)
_PLAIN = re.compile(r"PATH|LANG|LC_\w+|TZ|TERM|SYSTEMROOT")
_SEARCHED = "/usr/local/bin:/usr/bin:/bin"
# A program that asks would wait for an answer that nobody gives.
_QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


def for_commands(context: ToolContext) -> dict[str, str]:
    """The environment of our process without secrets, except those that are to be passed on."""
    seen = {
        name: value
        for name, value in context.environment.items()
        if name in context.pass_on or not _is_secret(name, value)
    }
    return {"PATH": _SEARCHED, **seen, **_QUIET}


def for_code(context: ToolContext, home: str) -> dict[str, str]:
    """Next to nothing: where programs are and which language is spoken."""
    seen = {name: value for name, value in context.environment.items() if _PLAIN.fullmatch(name)}
    passed = {n: context.environment[n] for n in context.pass_on if n in context.environment}
    return {"PATH": _SEARCHED, **seen, **passed, "HOME": home, "TMPDIR": home, "TERM": "dumb"}


def home_of(environment: Mapping[str, str]) -> str | None:
    return environment.get("HOME") or None


def _is_secret(name: str, value: str) -> bool:
    if name in _NO_SECRET:
        return False
    return bool(_SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value))
