"""What a call leaves behind: some must not be shown as something to be done again without a thought."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.judging.tool_kinds import kind_of
from rekindle.types import JSON, Step

_OUTWARD = re.compile(
    r"""(?x)\b(?: git\s+(?:-\S+\s+)*push
    | (?:npm|pnpm|yarn|cargo|uv|poetry|gem|twine)\s+(?:publish|upload)
    | docker\s+(?:image\s+)?push | kubectl\s+(?:apply|create|delete|scale|rollout|patch|drain)
    | helm\s+(?:install|upgrade|uninstall|rollback) | terraform\s+(?:apply|destroy|import)
    | gh\s+(?:pr|issue|release|repo|gist|workflow)\s+
      (?:create|merge|close|comment|edit|delete|review|run|upload)
    | (?:vercel|netlify|fly|flyctl|heroku|wrangler|serverless|sls|gcloud|aws|az)\s+
      \S*(?:deploy|publish|delete|create|rm|put|push)
    | (?:deploy|release|publish)(?:\.\w+|\b) | sendmail | mailx? | mutt | scp | rsync\b[^|]*:
    | curl\b[^|;]*(?:-X\s*(?:POST|PUT|DELETE|PATCH)|\s-d\b|--data|\s-T\b|\s-F\b) | wget\b[^|;]*--post
    | systemctl\s+(?:start|stop|restart|enable|disable) | (?:shutdown|reboot|poweroff) )"""
)
_DESTRUCTIVE = re.compile(
    r"""(?x)\brm\s+(?:-\w+\s+)*-\w*[rRf]
    | \bgit\s+(?:reset\s+--hard|clean\s+-\w*f|checkout\s+(?:--\s+)?\.
    |push\s+(?:\S+\s+)*(?:-f\b|--force)|branch\s+-D|stash\s+(?:drop|clear)|filter-branch)
    | \b(?:mkfs|dd\s+if=|shred|truncate\s) | \bdrop\s+(?:table|database|schema)\b | \bdelete\s+from\b
    | \btruncate\s+table\b | \bdocker\s+(?:system|volume|image)\s+(?:prune|rm)\b
    | \bkillall\b | \bpkill\b
    | >\s*/dev/sd | \bcurl\b[^|;]*\|\s*(?:sudo\s+)?(?:ba|z)?sh\b | \bsudo\b""",
    re.IGNORECASE,
)
_SUSPECT = (
    "rm ", "git ", "mkfs", "dd ", "shred", "truncate", "drop", "delete", "docker", "kill", "/dev/sd",
    "curl", "sudo",
)  # fmt: skip
# Verbs of functions that change something for others.
_VERBS = re.compile(
    r"""(?ix)(?:^|[_.-])(?: send | post | publish | delete | remove | cancel | book | buy | order | pay
    | purchase | transfer | refund | deploy | push | merge | invite | reply | forward | schedule | submit
    | update | create | modify | exchange | return | grant | revoke | drop | kill | stop )(?:[_.-]|$)"""
)


def texts(arguments: JSON) -> list[str]:
    """All texts in some arguments."""
    if isinstance(arguments, str):
        return [arguments]
    if isinstance(arguments, Mapping):
        return [text for part in arguments.values() for text in texts(part)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(arguments, (list, tuple)):
        return [text for part in arguments for text in texts(part)]  # pyright: ignore[reportUnknownVariableType]
    return []


def is_destructive(arguments: JSON) -> bool:
    """Does this destroy what cannot be brought back? Such a call is never an example."""
    if isinstance(arguments, str):
        return _may_destroy(arguments) and _DESTRUCTIVE.search(arguments) is not None
    return any(is_destructive(text) for text in texts(arguments))


def _may_destroy(text: str) -> bool:
    """A quick look: most texts have none of these words, and the pattern is slow."""
    lower = text.lower()
    return any(word in lower for word in _SUSPECT)


def is_outward(step: Step) -> bool:
    """Does this change something outside the working folder? Tell of it, but show no such turn."""
    kind = kind_of(step.tool)
    if kind.shape in ("shell", "code"):
        return any(_OUTWARD.search(text) for text in texts(step.arguments))
    return kind.work == "general" and _VERBS.search(step.tool) is not None
