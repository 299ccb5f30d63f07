"""Say where a missing file is, and in which folder a command finds its project."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice

from rekindle.judging.rules.evidence import Evidence
from rekindle.knowledge.notes.calls import read_command, read_forms, read_path
from rekindle.knowledge.notes.command_forms import (
    CommandForm,
    format_path,
    is_absolute_path,
    relativize_path,
)
from rekindle.knowledge.notes.note import RecalledNote, make_note_id
from rekindle.knowledge.notes.playbook import IsPresent, Playbook, is_never_missing
from rekindle.knowledge.notes.programs import get_program
from rekindle.knowledge.path_names import is_file_name
from rekindle.projects import is_below, normalize_folder
from rekindle.types import Message, ToolCall

_NO_RESULT = Message("tool")
MAX_SIMILAR_PATHS = 3  # to one that does not exist
_MISSING_FILE = re.compile(
    r"(?i)no such file|does not exist|not found|cannot find|can't open|no matches found"
    r"|did not match any|unknown revision or path"
)
# The command looked for its project in the folder that the shell was in.
_WRONG_FOLDER = re.compile(
    r"(?i)go\.mod file not found|cannot find main module|does not contain main module"
    r"|not a git repository|no makefile found|could not (?:read package\.json|find `?Cargo\.toml)"
    r"|no package\.json|no such file or directory, open '[^'\n]{0,300}package\.json"
    r"|no justfile found|no taskfile found|\bcd:[^\n]{0,300}no such file or directory"
    r"|main module \([^)\n]{1,200}\) does not contain package"
    r"|directory prefix \S{1,200} does not contain main module|\"\./\.\.\.\" matched no packages"
    r"|no pubspec\.yaml (?:file )?found"
    r"|expected to find project root|could not find a? ?pyproject\.toml|no `?pyproject\.toml`? found"
    r"|there is no POM in this directory|does not contain a gradle build|no configuration file provided"
    r"|no project found in|no (?:mix\.exs|composer\.json|gemfile)"
)
# The file that says where the project of a program begins.
_MANIFESTS: Mapping[str, Sequence[str]] = {
    "go": ("go.mod",),
    "cargo": ("Cargo.toml",),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun", "bunx"), ("package.json",)),
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    **dict.fromkeys(("flutter", "dart"), ("pubspec.yaml",)),
    **dict.fromkeys(("poetry", "uv", "pdm", "hatch"), ("pyproject.toml",)),
    "mvn": ("pom.xml",),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    "mix": ("mix.exs",),
    "composer": ("composer.json",),
    "bundle": ("Gemfile",),
}
# Where a program says that it looked for its project.
_SEARCHED_ABOVE = re.compile(r"(?i)\bin [`'\"]?([^`'\"\n]{1,300}?)[`'\"]? or any parent")
_SEARCHED_FOLDER = re.compile(r"(?i)\bopen '([^'\n]{1,300})[/\\]package\.json'")
# A package in the folder that the shell was in has no such script; another one may.
_MISSING_SCRIPT = re.compile(r"(?i)\bmissing script: ?[\"']|\bscript not found [\"']")
_OTHER_MODULE = re.compile(r"directory prefix (\S{1,200}) does not contain main module")
_FOLDER_KEYS = ("workdir", "cwd", "working_directory")
_CHANGED_FOLDER = re.compile(r"\bcd ['\"]?([^\s'\";&|]+)")
_QUOTED_PATH = re.compile(r"['\"]([\w.:/\\-]{3,300})['\"]")
_UNOPENED_FOLDER = re.compile(r"could not open directory '([^'\n]{1,300})'")


def suggest_paths(
    playbook: Playbook,
    root: str,
    call: ToolCall,
    result: str,
    is_present: IsPresent = is_never_missing,
) -> list[RecalledNote]:
    """Return where a missing file is, files like it, or files next to it, if they are present."""
    lines = [line for line in result[-4_000:].splitlines() if _MISSING_FILE.search(line[:1_000])]
    if not lines or is_elsewhere(call, root):
        return []
    named = [path for path in _list_paths(call, root) if any(path in line for line in lines)]
    reported = [path for path in _list_reported_paths(lines, root) if path not in named]
    found: list[RecalledNote] = []
    for path in filter(_can_be_quoted, dict.fromkeys([*named, *reported])):
        if _can_be_quoted(root) and _is_here(path, playbook, root, call, result):
            folder = _format_folder(root)
            text = f"`{path}` is below the folder of the project: run it there (`cd {folder}`)."
            found.append(RecalledNote(make_note_id("place", path), "place", text, path=path))
            continue
        similar = _find_similar_paths(path, playbook.paths)
        if path in named:
            similar += _find_neighbors(path, playbook)
        unique = (one for one in dict.fromkeys(similar) if one != path and _can_be_quoted(one))
        others = (one for one in unique if is_present(one))
        similar = [*islice(others, MAX_SIMILAR_PATHS)]
        if similar:
            names = ", ".join(f"`{one}`" for one in similar)
            text = f"`{path}` does not exist; earlier sessions used {names}."
            note_id = make_note_id("place", *similar)
            found.append(RecalledNote(note_id, "place", text, path=similar[0]))
    return found


def _list_paths(call: ToolCall, root: str) -> list[str]:
    """Return the paths below the project that a call names."""
    forms = read_forms(call, root)
    path = read_path(call, root)
    named = (one for form in forms for one in (*form.files, *_list_patterns(form)))
    return [*named, *([path] if path else [])]


def _list_reported_paths(lines: Sequence[str], root: str) -> Iterator[str]:
    """Yield the paths that a script reports as missing, below the project."""
    for line in lines:
        for written in _QUOTED_PATH.findall(line[:1_000]):
            path = relativize_path(written.replace("\\\\", "/"), root)
            if path and is_file_name(path.rpartition("/")[2]):
                yield path


def _is_here(path: str, playbook: Playbook, root: str, call: ToolCall, result: str) -> bool:
    """Return whether a path is below the project, but not below the folder that the shell is in."""
    command = read_command(call)
    if not command or _is_folder_chosen(call, command):
        return False  # tools for files, and commands that went there, looked in the right place
    in_full = f"{format_path(root)}/{path}"
    if any(in_full in text.replace("\\", "/") for text in (command, result[-4_000:])):
        return False  # it was looked for there
    return path in playbook.paths or _is_looked_for_below(path, result)


def _is_looked_for_below(path: str, result: str) -> bool:
    """Return whether git looked for a path of the project below a folder, in which the shell is."""
    folder = path.rpartition("/")[0]
    opened = [one.rstrip("/") for one in _UNOPENED_FOLDER.findall(result[-4_000:])]
    while folder:  # of several paths, git opens what their folders begin with
        if any(one.endswith(f"/{folder}") for one in opened):
            return True
        folder = folder.rpartition("/")[0]
    return False


def suggest_folder(
    playbook: Playbook,
    root: str,
    call: ToolCall,
    result: str,
    is_present: IsPresent = is_never_missing,
) -> list[RecalledNote]:
    """Return where a command works that did not find its project in the folder of the shell."""
    command, end = read_command(call), result[-4_000:]
    lacks_script = _MISSING_SCRIPT.search(end) is not None
    if not (root and command and (lacks_script or _WRONG_FOLDER.search(end))):
        return []
    if _is_folder_chosen(call, command):
        return []
    below = _find_project_folder(playbook, root, call, end, is_present, only_known=lacks_script)
    if below is None:
        return []
    place = f"{root.rstrip('/')}/{below}" if below else root
    if not _can_be_quoted(place) or _is_searched(place, end):
        return []
    folder = _format_folder(place)
    text = f"The shell was in another folder: `cd {folder}` first."
    return [RecalledNote(make_note_id("place", "folder", folder), "place", text)]


def _find_project_folder(
    playbook: Playbook,
    root: str,
    call: ToolCall,
    end: str,
    is_present: IsPresent,
    *,
    only_known: bool,
) -> str | None:
    """Return the folder below the root that has the project of a command; None if none is known to."""
    module = _OTHER_MODULE.search(end)
    if module and f"{module[1]}/go.mod" in playbook.paths:
        return module[1]
    keys = {form.key for form in read_forms(call, root)}
    names = [name for key in sorted(keys) for name in _MANIFESTS.get(get_program(key), ())]
    known = [form for item in playbook.commands if item.name in keys for form in item.forms]
    if known:
        below = max(known, key=lambda form: form.sessions).folder
        prefix = f"{below}/" if below else ""
        is_there = not names or any(is_present(prefix + name) for name in names)
        return below if is_there else None
    if only_known:
        return None  # perhaps no package has it
    if any(get_program(key) == "git" for key in keys):
        return ""
    manifests = [path for path in playbook.paths if path.rpartition("/")[2] in names]
    present = sorted(filter(is_present, manifests), key=lambda path: (path.count("/"), path))
    return present[0].rpartition("/")[0] if present else None


def _is_searched(folder: str, end: str) -> bool:
    """Return whether a program says that it has looked for its project in a folder."""
    name = normalize_folder(folder)
    if any(normalize_folder(one) == name for one in _SEARCHED_FOLDER.findall(end)):
        return True
    return any(is_below(normalize_folder(one), name) for one in _SEARCHED_ABOVE.findall(end))


def _can_be_quoted(name: str) -> bool:
    """Return whether a name can stand between backticks as it is, without hiding anything."""
    return name.isprintable() and "`" not in name


def _format_folder(folder: str) -> str:
    """Return an absolute path as a word of a command line."""
    return shlex.quote(format_path(folder))


def _is_folder_chosen(call: ToolCall, command: str) -> bool:
    """Return whether a command went to a folder on purpose, by `cd` or by an argument of the tool."""
    return any(map(is_absolute_path, _list_chosen_folders(call, command)))


def is_elsewhere(call: ToolCall, root: str) -> bool:
    """Return whether a command went to a folder outside of the project."""
    above = normalize_folder(root)
    chosen = [*map(normalize_folder, _list_chosen_folders(call, read_command(call)))]
    return any(
        folder.startswith("..") or (folder[0] == "/" and not is_below(folder, above))
        for folder in chosen
    )


def _list_chosen_folders(call: ToolCall, command: str) -> list[str]:
    arguments = Evidence(call, _NO_RESULT).arguments
    given = (arguments.get(key) for key in _FOLDER_KEYS)
    named = (one for one in given if isinstance(one, str) and one.strip())
    return [*_CHANGED_FOLDER.findall(command), *named]


def _list_patterns(form: CommandForm) -> list[str]:
    """Return the patterns of files that a command names."""
    folder = f"{form.folder}/" if form.folder else ""
    words = (word.removeprefix("./") for word in form.text.split()[1:])
    return [folder + one for one in words if "*" in one and "/" in one and one[0] not in "-/<"]


def _find_similar_paths(path: str, known: Sequence[str]) -> list[str]:
    """Return files with the same name elsewhere, or else with a similar name in the same folder."""
    folder, _, name = path.rpartition("/")
    same = [one for one in known if one.rpartition("/")[2] == name]
    if same:
        return same[:2]
    beside = {one.rpartition("/")[2]: one for one in known if one.rpartition("/")[0] == folder}
    if "*" in name:
        return [beside[one] for one in beside if fnmatchcase(one, f"*{name}")][:MAX_SIMILAR_PATHS]
    return [beside[one] for one in get_close_matches(name, beside, n=1, cutoff=0.7)]


def _find_neighbors(path: str, playbook: Playbook) -> list[str]:
    """Return the files of the same folder that most sessions used: the one looked for may be there."""
    folder, sign, _ = path.rpartition("/")
    sessions: dict[str, int] = {}
    for one in (*playbook.files, *playbook.command_files) if sign else ():
        if one.name.rpartition("/")[0] == folder and is_file_name(one.name.rsplit("/")[-1]):
            sessions[one.name] = max(len(one.sessions), sessions.get(one.name, 0))
    return sorted(sessions, key=lambda name: (-sessions[name], name))[:MAX_SIMILAR_PATHS]
