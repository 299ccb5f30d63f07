"""`search_files`: text in files by a regular expression, or files by their names.

ripgrep looks for text where it is installed and can do it alike; else `search_walk` does, in a
process that can be ended.
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

from rekindle.agent.tools.child_process import Ended, run
from rekindle.agent.tools.environment import for_code
from rekindle.agent.tools.sandbox_paths import Place, locate, open_folder
from rekindle.agent.tools.tool import Tool, ToolContext, schema
from rekindle.errors import ToolError
from rekindle.types import JSON

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
SECONDS = 30
_CHARACTERS = 2_000_000  # of the raw answer, before it is put into words
_LINE = 300
_WALK = Path(__file__).with_name("search_walk.py")


class Match(NamedTuple):
    """A line that matches, or a file when `line` is 0."""

    path: str
    line: int = 0
    text: str = ""
    beside: tuple[tuple[int, str], ...] = ()


class Matches(NamedTuple):
    """What was found, and whether there is more."""

    found: list[Match]
    more: bool


async def _search(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    asked: dict[str, JSON] = {
        "pattern": arguments["pattern"],
        "target": arguments.get("target", "content"),
        "glob": arguments.get("glob"),
        "case": not arguments.get("ignore_case", False),
        "limit": arguments.get("limit", DEFAULT_LIMIT),
        "context": arguments.get("context", 0),
    }
    place = await asyncio.to_thread(locate, context, arguments.get("path", "."))
    if asked["target"] == "content":
        _checked(asked["pattern"])
    program = shutil.which("rg", path=context.environment.get("PATH"))
    place, only = await asyncio.to_thread(_start, place)
    if only is not None:
        asked["glob"] = "/" + re.sub(r"([*?\[\]{}\\])", r"[\1]", only)
    with open_folder(place) as folder:
        if program and not _needs_python(asked):
            matches = await _by_ripgrep(program, context, folder, asked)
        else:
            matches = await _by_walk(context, folder, place, asked)
    return _shown(matches, asked, _prefix(place, context))


def _checked(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"pattern: not a regular expression ({error}); escape characters such as ( [ * with \\"
        ) from None


def _needs_python(asked: Mapping[str, JSON]) -> bool:
    """What ripgrep does otherwise: look-around, references back, globs that are about paths."""
    if asked["target"] == "names" or re.search(r"[/{!]", asked["glob"] or ""):
        return True
    return re.search(r"\(\?[=!<P(]|\\[1-9ZA]", asked["pattern"]) is not None


def _start(place: Place) -> tuple[Place, str | None]:
    """The folder to search, and the name of the file in it when only one is meant."""
    if not os.path.exists(place.path):
        raise ToolError(f"{place.asked}: no such file or folder")
    if os.path.isdir(place.path):
        return place, None
    return place._replace(parts=place.parts[:-1]), place.parts[-1]


def _prefix(place: Place, context: ToolContext) -> str:
    """What makes the paths that are found such that other tools take them."""
    cwd = os.path.realpath(context.cwd)
    if place.path == cwd:
        return ""
    inside = place.path.startswith(cwd.rstrip("/") + "/")
    return (os.path.relpath(place.path, cwd) if inside else place.path).rstrip("/") + "/"


async def _by_walk(
    context: ToolContext, folder: int, place: Place, asked: Mapping[str, JSON]
) -> Matches:
    ignored = await asyncio.to_thread(_ignored_above, place)
    request = json.dumps({**asked, "ignored": ignored})
    ended = await _ended(
        (sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_WALK), str(folder), request),
        context,
        folder,
    )
    rows = [json.loads(line) for line in ended.output.splitlines() if line.startswith("{")]
    if ended.exit_code != 0 or not rows:
        raise ToolError(f"the search failed: {ended.output[-300:].strip()}")
    found = [
        Match(
            row["path"],
            row.get("line", 0),
            row.get("text", ""),
            tuple((number, text) for number, text in row.get("beside", ())),
        )
        for row in rows[:-1]
    ]
    return Matches(found, rows[-1]["more"])


def _ignored_above(place: Place) -> list[str]:
    """The .gitignore files between the allowed folder and where the search starts."""
    texts: list[str] = []
    for depth in range(len(place.parts)):
        above = place._replace(parts=place.parts[:depth])
        file = Path(above.path, ".gitignore")
        if file.is_file() and not file.is_symlink():
            text = file.read_text(encoding="utf-8", errors="replace")[:100_000]
            # A rule with a path counts from its own folder: only those about names reach down here.
            rules = [rule for rule in text.splitlines() if "/" not in rule.strip().rstrip("/")]
            texts.append("\n".join(rules))
    return texts


async def _by_ripgrep(
    program: str, context: ToolContext, folder: int, asked: Mapping[str, JSON]
) -> Matches:
    """The same with ripgrep, which is faster in large trees."""
    limit: int = asked["limit"]
    argv = [program, "--json", "--hidden", "--no-require-git", "--no-config", "--no-messages"]
    argv += ["--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot"]
    argv += ["--sort", "path", "--max-filesize", "20M", "--glob", "!.git"]
    argv += ["--context", str(asked["context"]), "--max-count", str(limit + 1)]
    argv += [] if asked["case"] else ["--ignore-case"]
    if asked["glob"]:  # as a type of file: a glob would bring back what .gitignore names
        argv += ["--type-add", f"asked:{asked['glob']}", "--type", "asked"]
    ended = await _ended((*argv, "--regexp", str(asked["pattern"]), "./"), context, folder)
    if ended.exit_code not in (0, 1):
        raise ToolError(f"the search failed: {ended.output[-300:].strip()}")
    found = _read_ripgrep(ended.output.splitlines(), asked["context"])
    return Matches(found[:limit], len(found) > limit)


def _read_ripgrep(lines: Iterable[str], context: int) -> list[Match]:
    found: list[Match] = []
    around: dict[tuple[str, int], str] = {}
    for line in lines:
        try:
            row: JSON = json.loads(line)
        except ValueError:  # where the middle of a long answer was left out
            continue
        if row.get("type") not in ("match", "context"):
            continue
        data = row["data"]
        path = str(data["path"].get("text", "")).removeprefix("./")
        text = str(data["lines"].get("text", "")).rstrip("\r\n")
        number = int(data["line_number"])
        if row["type"] == "context":
            around[path, number] = text[:_LINE]
        else:
            around[path, number] = text[:_LINE]
            found.append(Match(path, number, _cut(text, data["submatches"])))
    if not context:
        return found
    return [
        one._replace(
            beside=tuple(
                (number, around[one.path, number])
                for number in range(one.line - context, one.line + context + 1)
                if number != one.line and (one.path, number) in around
            )
        )
        for one in found
    ]


def _cut(text: str, submatches: list[JSON]) -> str:
    if len(text) <= _LINE:
        return text
    start = (
        len(text.encode()[: submatches[0]["start"]].decode("utf-8", "ignore")) if submatches else 0
    )
    begin = max(min(start - _LINE // 3, len(text) - _LINE), 0)
    end = begin + _LINE
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


async def _ended(argv: tuple[str, ...], context: ToolContext, folder: int) -> Ended:
    here = f"/proc/self/fd/{folder}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{folder}"
    ended = await run(
        argv,
        cwd=here,
        environment=for_code(context, "/"),
        seconds=SECONDS,
        characters=_CHARACTERS,
        pass_fds=(folder,),
    )
    if ended.timed_out:
        raise ToolError(
            f"the search took longer than {SECONDS} s: use a simpler pattern, or a path further down"
        )
    return ended


def _shown(matches: Matches, asked: Mapping[str, JSON], prefix: str) -> str:
    if not matches.found:
        what = "lines" if asked["target"] == "content" else "files"
        return f"No matches found: no {what} for {asked['pattern']!r:.200}."
    lines: list[str] = []
    for match in matches.found:
        if match.line == 0:
            lines.append(prefix + match.path)
            continue
        rows = sorted(
            [*((at, "-", text) for at, text in match.beside), (match.line, ":", match.text)]
        )
        lines += [f"{prefix}{match.path}{sign}{at}{sign}{text}" for at, sign, text in rows]
        lines += ["--"] if match.beside else []
    if matches.more:
        lines.append(
            f"[the first {len(matches.found)} only; narrow the pattern, path or glob, or raise limit]"
        )
    return "\n".join(lines)


SEARCH_FILES = Tool(
    name="search_files",
    toolset="files",
    description=(
        "Find text in files (target content: pattern is a regular expression, matched line by line),"
        " or files by name (target names: pattern is a glob such as *.py or src/**/test_*). What"
        " .gitignore names, binary files and links are left out."
    ),
    parameters=schema(
        "pattern",
        pattern={
            "type": "string",
            "minLength": 1,
            "maxLength": 2000,
            "description": "what to find",
        },
        target={"type": "string", "enum": ["content", "names"], "description": "default content"},
        path={"type": "string", "minLength": 1, "description": "where to look (default: here)"},
        glob={"type": "string", "minLength": 1, "description": "only in files such as *.py"},
        ignore_case={"type": "boolean", "description": "default false"},
        context={
            "type": "integer",
            "minimum": 0,
            "maximum": 10,
            "description": "lines to show around each match (default 0)",
        },
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LIMIT,
            "description": f"how many matches to show (default {DEFAULT_LIMIT})",
        },
    ),
    handler=_search,
    emoji="🔍",
    seconds=SECONDS + 15,
)
