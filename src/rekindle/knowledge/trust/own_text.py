"""Tell texts of the repository's owner from those that strangers may have written.

Only what is known to be local is the owner's: files below the project's root that no package manager
and no clone put there, read by a tool that can read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import classify_tool
from rekindle.knowledge.notes.calls import is_remote_tool
from rekindle.knowledge.notes.command_forms import relativize_path
from rekindle.shell.command_reader import SimpleCommand, split_commands
from rekindle.types import Message, ToolCall

_NO_RESULT = Message("tool")
_PATH_KEYS = ("file_path", "path", "filePath", "filename", "notebook_path", "target_file")
_PROSE = re.compile(r"(?i)(?:\.(?:md|mdx|rst|txt|adoc|html?|pdf|log|csv|jsonl?)|/readme|^readme)$")
_VENDORED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|vendored|site-packages|dist-packages|\.?v?env|third[_-]?party|target"
    r"|external|externals|_?deps|Pods|Carthage|\.tox|\.nox|\.cache|\.git|\.cargo|\.gradle|\.m2|\.npm"
    r"|\.yarn|\.pnpm-store|\.bundle|\.eggs|\.direnv|submodules?|subprojects|bower_components"
    r"|jspm_packages|elm-stuff|downloads?|te?mp)/"
)
_PACKAGES = re.compile(
    r"(?:^|/)(?:node_modules|site-packages|dist-packages|bower_components|_deps|\.?venv|\.tox|\.nox|Pods)/"
)
# What the owner of a repository writes for agents and builds.
_OWN_FILE = re.compile(
    r"(?:^|/)(?:(?:CLAUDE|AGENTS|GEMINI|CONTRIBUTING)(?:\.local)?\.md|\.cursorrules|package\.json"
    r"|[\w.-]*[Mm]akefile|[\w.-]+\.mk|[Jj]ustfile|[Tt]askfile\.ya?ml|mise\.toml|\.mise\.toml"
    r"|pyproject\.toml|tox\.ini|noxfile\.py|Cargo\.toml|go\.mod|Rakefile|Gemfile|build\.gradle(?:\.kts)?"
    r"|pom\.xml|\.pre-commit-config\.yaml|lefthook\.ya?ml|turbo\.json|nx\.json|deno\.jsonc?)$"
)
_LISTINGS = re.compile(
    r"(?:mise tasks?(?: ls)?|(?:just|task) (?:--list|-l)|(?:npm|pnpm|yarn) run)$"
)
_READERS = split_words("cat head tail sed bat less more nl")
# `sed` can also run commands and write files.
_PRINTING_SED = re.compile(r"-n (['\"]?)\d{1,6}(?:,(?:\d{1,6}|\$))?p\1 [^-;|]+")
# Another program, file or folder may stand behind these.
_INDIRECT = ("$", "`", "<", "~", "..", "*", "pushd", "\\")


def is_vendored(path: str) -> bool:
    """Return whether a path of a repository is where packages and clones of others are kept."""
    return _VENDORED.search(f"{path}/") is not None


def is_packaged(path: str) -> bool:
    """Return whether a package manager put a file there: no session should be told to look at it."""
    return _PACKAGES.search(path) is not None


def is_own_text(call: ToolCall, root: str) -> bool:
    """Return whether the result of a call is code or a build file of the repository, or a report."""
    evidence = Evidence(call, _NO_RESULT)
    if is_remote_tool(call):
        return False
    if evidence.shape in ("edit", "read", "search"):
        path = find_own_path(evidence, root)
        return path is not None and (evidence.shape == "edit" or _is_own_file(path))
    if classify_tool(call.name).shape != "shell":
        return False
    if not _is_below_root(evidence.command, root):
        return False
    return all(
        _LISTINGS.match(one.text.strip()) is not None
        or one.program in ("cd", "echo")
        or (_is_reading(one) and _is_naming_own_files(one.arguments, root))
        for one in split_commands(evidence.command)
    )


def is_reading_own_file(call: ToolCall, root: str) -> bool:
    """Return whether a call reads nothing but build files and instructions for agents below `root`."""
    evidence = Evidence(call, _NO_RESULT)
    if is_remote_tool(call):
        return False
    if evidence.shape == "read":
        path = find_own_path(evidence, root)
        return path is not None and _OWN_FILE.search(path) is not None
    if classify_tool(call.name).shape != "shell" or not _is_below_root(evidence.command, root):
        return False
    commands = [one for one in split_commands(evidence.command) if one.program != "cd"]
    return bool(commands) and all(
        _is_reading(one) and _is_naming_own_files(one.arguments, root) for one in commands
    )


def find_own_path(evidence: Evidence, root: str) -> str | None:
    """Return the path that a call names, if it is the repository's own and below the root."""
    arguments = evidence.arguments
    named = next((arguments[key] for key in _PATH_KEYS if arguments.get(key)), None)
    path = relativize_path(named, root) if isinstance(named, str) else None
    return None if path is None or is_vendored(path) else path


def _is_below_root(command: str, root: str) -> bool:
    """Return whether a line names all its files as they are, and leaves the root for no other folder."""
    commands = split_commands(command)
    if not commands or any(sign in command for sign in _INDIRECT):
        return False
    return all(
        _is_below(one.arguments.strip("'\" "), root) for one in commands if one.program == "cd"
    )


def _is_below(folder: str, root: str) -> bool:
    if folder.rstrip("/") == root.rstrip("/"):
        return bool(root)
    path = relativize_path(folder, root)
    return path is not None and not is_vendored(path)


def _is_reading(command: SimpleCommand) -> bool:
    if command.program == "sed":
        return _PRINTING_SED.fullmatch(command.arguments.strip()) is not None
    return command.program in _READERS


def _is_naming_own_files(arguments: str, root: str) -> bool:
    paths = [relativize_path(word, root) for word in _list_files(arguments)]
    return bool(paths) and all(
        path and _OWN_FILE.search(path) and not is_vendored(path) for path in paths
    )


def _list_files(arguments: str) -> Iterator[str]:
    return (word for word in arguments.split() if word[0] not in "-'\"|>0123456789")


def _is_own_file(path: str) -> bool:
    if _OWN_FILE.search(path):
        return True
    return not _PROSE.search(path) and "." in path.rsplit("/", 1)[-1]
