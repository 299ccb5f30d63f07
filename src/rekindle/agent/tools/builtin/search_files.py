"""`search_files`: search file contents by a regular expression, or find files by name.

Contents are searched with ripgrep if it is installed and supports the pattern; otherwise with
`search_walk`, in a process that can be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rekindle.agent.tools.child_process import ChildResult, run_child
from rekindle.agent.tools.environment import build_code_environment
from rekindle.agent.tools.sandbox_paths import (
    SandboxPath,
    assess_read,
    is_secret_path,
    open_folder,
    resolve_path,
)
from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.errors import ToolError
from rekindle.types import JSON

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
SECONDS = 30
_MAX_RAW_CHARACTERS = 2_000_000  # of raw output, before formatting
_MAX_LINE_CHARACTERS = 300
_WALK_SCRIPT = Path(__file__).with_name("search_walk.py")


class SearchMatch(NamedTuple):
    """A matching line, or a matching file if `line` is 0."""

    path: str
    line: int = 0
    text: str = ""
    context_lines: tuple[tuple[int, str], ...] = ()


class SearchMatches(NamedTuple):
    """The matches, and whether there are more."""

    found: list[SearchMatch]
    has_more: bool


async def _search_files(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    request: dict[str, JSON] = {
        "pattern": arguments["pattern"],
        "target": arguments.get("target", "content"),
        "glob": arguments.get("glob"),
        "case": not arguments.get("ignore_case", False),
        "limit": arguments.get("limit", DEFAULT_LIMIT),
        "context": arguments.get("context", 0),
    }
    path = await asyncio.to_thread(resolve_path, context, arguments.get("path", "."))
    if request["target"] == "content":
        _validate_pattern(request["pattern"])
    program = shutil.which("rg", path=context.environment.get("PATH"))
    path, only = await asyncio.to_thread(_resolve_start, path)
    if only is not None:
        request["glob"] = "/" + re.sub(r"([*?\[\]{}\\])", r"[\1]", only)
    with open_folder(path) as folder:
        if program and not _needs_python(request):
            matches = await _search_with_ripgrep(program, context, folder, request)
        else:
            matches = await _search_with_walk(context, folder, path, request)
    if only is None and request["target"] == "content":
        matches = await asyncio.to_thread(_drop_credentials, matches, path)
    return _format_matches(matches, request, _build_prefix(path, context))


def _drop_credentials(matches: SearchMatches, folder: SandboxPath) -> SearchMatches:
    """Leave out matches in files that a person must be asked about."""
    secret: dict[str, bool] = {}
    for name in {match.path for match in matches.found}:
        secret[name] = is_secret_path(folder._replace(parts=(*folder.parts, *name.split("/"))))
    return matches._replace(found=[one for one in matches.found if not secret[one.path]])


def _validate_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"pattern: not a regular expression ({error}); escape characters such as ( [ * with \\"
        ) from None


def _needs_python(request: Mapping[str, JSON]) -> bool:
    """Return whether ripgrep would differ: look-around, backreferences, or path globs."""
    if request["target"] == "names" or re.search(r"[/{!]", request["glob"] or ""):
        return True
    return re.search(r"\(\?[=!<P(]|\\[1-9ZA]", request["pattern"]) is not None


def _resolve_start(path: SandboxPath) -> tuple[SandboxPath, str | None]:
    """Return the folder to search, and the file name if the path is a single file."""
    if not os.path.exists(path.absolute):
        raise ToolError(f"{path.asked}: no such file or folder")
    if os.path.isdir(path.absolute):
        return path, None
    return path._replace(parts=path.parts[:-1]), path.parts[-1]


def _build_prefix(path: SandboxPath, context: ToolContext) -> str:
    """Return the prefix that turns matched paths into ones that other tools accept."""
    cwd = os.path.realpath(context.cwd)
    if path.absolute == cwd:
        return ""
    inside = path.absolute.startswith(cwd.rstrip("/") + "/")
    return (os.path.relpath(path.absolute, cwd) if inside else path.absolute).rstrip("/") + "/"


async def _search_with_walk(
    context: ToolContext, folder: int, path: SandboxPath, options: Mapping[str, JSON]
) -> SearchMatches:
    ignored = await asyncio.to_thread(_read_parent_ignores, path)
    request = json.dumps({**options, "ignored": ignored})
    result = await _run_search(
        (sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_WALK_SCRIPT), str(folder), request),
        context,
        folder,
    )
    rows = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    if result.exit_code != 0 or not rows:
        raise ToolError(f"the search failed: {result.output[-300:].strip()}")
    found = [
        SearchMatch(
            row["path"],
            row.get("line", 0),
            row.get("text", ""),
            tuple((number, text) for number, text in row.get("beside", ())),
        )
        for row in rows[:-1]
    ]
    return SearchMatches(found, rows[-1]["more"])


def _read_parent_ignores(path: SandboxPath) -> list[str]:
    """Read the .gitignore files between the allowed folder and the start of the search."""
    texts: list[str] = []
    for depth in range(len(path.parts)):
        above = path._replace(parts=path.parts[:depth])
        file = Path(above.absolute, ".gitignore")
        if file.is_file() and not file.is_symlink():
            text = file.read_text(encoding="utf-8", errors="replace")[:100_000]
            # A rule with a path is relative to its folder; only name rules apply further down.
            rules = [rule for rule in text.splitlines() if "/" not in rule.strip().rstrip("/")]
            texts.append("\n".join(rules))
    return texts


async def _search_with_ripgrep(
    program: str, context: ToolContext, folder: int, request: Mapping[str, JSON]
) -> SearchMatches:
    """Search with ripgrep, which is faster in large trees."""
    limit: int = request["limit"]
    argv = [program, "--json", "--hidden", "--no-require-git", "--no-config", "--no-messages"]
    argv += ["--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot"]
    argv += ["--sort", "path", "--max-filesize", "20M", "--glob", "!.git"]
    argv += ["--context", str(request["context"]), "--max-count", str(limit + 1)]
    argv += [] if request["case"] else ["--ignore-case"]
    if request["glob"]:  # as a file type: --glob would override .gitignore
        argv += ["--type-add", f"asked:{request['glob']}", "--type", "asked"]
    result = await _run_search((*argv, "--regexp", str(request["pattern"]), "./"), context, folder)
    if result.exit_code not in (0, 1):
        raise ToolError(f"the search failed: {result.output[-300:].strip()}")
    found = _parse_ripgrep(result.output.splitlines(), request["context"])
    return SearchMatches(found[:limit], len(found) > limit)


def _parse_ripgrep(lines: Iterable[str], context: int) -> list[SearchMatch]:
    found: list[SearchMatch] = []
    around: dict[tuple[str, int], str] = {}
    for line in lines:
        try:
            row: JSON = json.loads(line)
        except ValueError:  # truncated in the middle of long output
            continue
        if row.get("type") not in ("match", "context"):
            continue
        data = row["data"]
        path = str(data["path"].get("text", "")).removeprefix("./")
        text = str(data["lines"].get("text", "")).rstrip("\r\n")
        number = int(data["line_number"])
        if row["type"] == "context":
            around[path, number] = text[:_MAX_LINE_CHARACTERS]
        else:
            around[path, number] = text[:_MAX_LINE_CHARACTERS]
            found.append(SearchMatch(path, number, _cut_around_match(text, data["submatches"])))
    if not context:
        return found
    return [
        one._replace(
            context_lines=tuple(
                (number, around[one.path, number])
                for number in range(one.line - context, one.line + context + 1)
                if number != one.line and (one.path, number) in around
            )
        )
        for one in found
    ]


def _cut_around_match(text: str, submatches: list[JSON]) -> str:
    if len(text) <= _MAX_LINE_CHARACTERS:
        return text
    start = (
        len(text.encode()[: submatches[0]["start"]].decode("utf-8", "ignore")) if submatches else 0
    )
    begin = max(min(start - _MAX_LINE_CHARACTERS // 3, len(text) - _MAX_LINE_CHARACTERS), 0)
    end = begin + _MAX_LINE_CHARACTERS
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


async def _run_search(argv: tuple[str, ...], context: ToolContext, folder: int) -> ChildResult:
    folder_path = (
        f"/proc/self/fd/{folder}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{folder}"
    )
    result = await run_child(
        argv,
        cwd=folder_path,
        environment=build_code_environment(context, "/"),
        seconds=SECONDS,
        characters=_MAX_RAW_CHARACTERS,
        pass_fds=(folder,),
    )
    if result.timed_out:
        raise ToolError(
            f"the search took longer than {SECONDS} s: use a simpler pattern or a deeper path"
        )
    return result


def _format_matches(matches: SearchMatches, request: Mapping[str, JSON], prefix: str) -> str:
    if not matches.found:
        what = "lines" if request["target"] == "content" else "files"
        return f"No matches found: no {what} match {request['pattern']!r:.200}."
    lines: list[str] = []
    for match in matches.found:
        if match.line == 0:
            lines.append(prefix + match.path)
            continue
        rows = sorted(
            [*((at, "-", text) for at, text in match.context_lines), (match.line, ":", match.text)]
        )
        lines += [f"{prefix}{match.path}{sign}{at}{sign}{text}" for at, sign, text in rows]
        lines += ["--"] if match.context_lines else []
    if matches.has_more:
        lines.append(
            f"[first {len(matches.found)} matches; narrow pattern, path or glob, or raise limit]"
        )
    return "\n".join(lines)


SEARCH_FILES = Tool(
    name="search_files",
    toolset="files",
    description=(
        "Search file contents (target content: pattern is a regular expression, matched line by"
        " line) or find files by name (target names: pattern is a glob such as *.py or"
        " src/**/test_*). Skips files ignored by .gitignore, binary files and links."
    ),
    parameters=build_schema(
        "pattern",
        pattern={
            "type": "string",
            "minLength": 1,
            "maxLength": 2000,
            "description": "regular expression or glob",
        },
        target={"type": "string", "enum": ["content", "names"], "description": "default content"},
        path={"type": "string", "minLength": 1, "description": "where to search (default: cwd)"},
        glob={"type": "string", "minLength": 1, "description": "file filter, such as *.py"},
        ignore_case={"type": "boolean", "description": "default false"},
        context={
            "type": "integer",
            "minimum": 0,
            "maximum": 10,
            "description": "lines of context around each match (default 0)",
        },
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LIMIT,
            "description": f"maximum number of matches (default {DEFAULT_LIMIT})",
        },
    ),
    handler=_search_files,
    abilities=frozenset(("read_files",)),
    assess=assess_read,
    emoji="🔍",
    seconds=SECONDS + 15,
)
