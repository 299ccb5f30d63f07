"""Side effects of calls: which ones must not be shown as examples to repeat."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.judging.tool_kinds import classify_tool
from rekindle.types import JSON, PatternStep

_EXTERNAL_COMMANDS = re.compile(
    r"""(?x)\b(?: git\s+(?:-\S+\s+)*push
    | (?:npm|pnpm|yarn|cargo|uv|poetry|gem|twine)\s+(?:publish|upload)
    | docker\s+(?:image\s+)?push | kubectl\s+(?:apply|create|delete|scale|rollout|patch|drain)
    | helm\s+(?:install|upgrade|uninstall|rollback) | terraform\s+(?:apply|destroy|import)
    | gh\s+(?:pr|issue|release|repo|gist|workflow)\s+
      (?:create|merge|close|comment|edit|delete|review|run|upload)
    | (?:vercel|netlify|fly|flyctl|heroku|wrangler|serverless|sls|gcloud|aws|az)\s+
      \S*(?:deploy|publish|delete|create|rm|put|push)
    | (?:deploy|release|publish)(?:\.\w+|\b) | sendmail | mailx? | mutt | scp
    | rsync\b(?:(?!\brsync\b)[^|])*:
    | curl\b(?:(?!\bcurl\b)[^|;])*(?:-X\s*(?:POST|PUT|DELETE|PATCH)|\s-d\b|--data|\s-T\b|\s-F\b)
    | wget\b(?:(?!\bwget\b)[^|;])*--post
    | systemctl\s+(?:start|stop|restart|enable|disable) | (?:shutdown|reboot|poweroff) )"""
)
_DESTRUCTIVE = re.compile(
    r"""(?x)\brm\s+(?:-\w+\s+)*-\w*[rRf]
    | \bgit\s+(?:reset\s+--hard|clean\s+-\w*f|checkout\s+(?:--\s+)?\.
    |push\s+(?:(?!git\b)\S+\s+)*(?:-f\b|--force)|branch\s+-D|stash\s+(?:drop|clear)|filter-branch)
    | \b(?:mkfs|dd\s+if=|shred|truncate\s) | \bdrop\s+(?:table|database|schema)\b | \bdelete\s+from\b
    | \btruncate\s+table\b | \bdocker\s+(?:system|volume|image)\s+(?:prune|rm)\b
    | \bkillall\b | \bpkill\b
    | >\s*/dev/sd | \bcurl\b(?:(?!\bcurl\b)[^|;])*\|\s*(?:sudo\s+)?(?:ba|z)?sh\b | \bsudo\b""",
    re.IGNORECASE,
)
_DESTRUCTIVE_HINTS = (
    "rm ", "git ", "mkfs", "dd ", "shred", "truncate", "drop", "delete", "docker", "kill", "/dev/sd",
    "curl", "sudo",
)  # fmt: skip
# Verbs in the names of functions that change something for others.
_EXTERNAL_VERBS = re.compile(
    r"""(?ix)(?:^|[_.-])(?: send | post | publish | delete | remove | cancel | book | buy | order | pay
    | purchase | transfer | refund | deploy | push | merge | invite | reply | forward | schedule | submit
    | update | create | modify | exchange | return | grant | revoke | drop | kill | stop )(?:[_.-]|$)"""
)


def collect_texts(arguments: JSON) -> list[str]:
    """Return all texts in some arguments."""
    if isinstance(arguments, str):
        return [arguments]
    if isinstance(arguments, Mapping):
        return [text for part in arguments.values() for text in collect_texts(part)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(arguments, (list, tuple)):
        return [text for part in arguments for text in collect_texts(part)]  # pyright: ignore[reportUnknownVariableType]
    return []


def is_destructive(arguments: JSON) -> bool:
    """Return whether the call destroys data for good; such a call is never an example."""
    if isinstance(arguments, str):
        return _may_be_destructive(arguments) and _DESTRUCTIVE.search(arguments) is not None
    return any(is_destructive(text) for text in collect_texts(arguments))


def _may_be_destructive(text: str) -> bool:
    """Return whether the slow pattern is worth running: most texts contain none of these words."""
    lower = text.lower()
    return any(word in lower for word in _DESTRUCTIVE_HINTS)


def has_external_effect(step: PatternStep) -> bool:
    """Return whether the call changes something outside the working folder.

    Such a call may be described, but not shown as a turn.
    """
    kind = classify_tool(step.tool)
    if kind.shape in ("shell", "code"):
        return any(_EXTERNAL_COMMANDS.search(text) for text in collect_texts(step.arguments))
    return kind.work == "general" and _EXTERNAL_VERBS.search(step.tool) is not None
