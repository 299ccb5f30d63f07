"""The form of a call: what it has in common with others like it, redacted, with slots.

Nothing of a call gets into its form but through redaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from rekindle.judging.rules.text_patterns import words
from rekindle.judging.tool_kinds import Kind, kind_of
from rekindle.shell.side_effects import is_destructive
from rekindle.types import JSON, ToolCall

from . import command_skeleton
from .command_skeleton import PLAIN, TELLING, TRIVIAL
from .slots import COMMENTS, FLEETING, LONGEST_TEXT, MARK, mark, marks, pruned, shape

REMEMBERED = 20_000  # what comes again and again is kept at hand
_TOGETHER, _FEW = 200, 4  # texts that are looked at at once, and so few that they are not halved

Redact = Callable[[JSON], JSON]

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command", "code", "input", "chars")
# A value under one of these names is no secret because of its name.
_HARMLESS = words(
    """
    command cmd script bash_command code input chars path file_path filePath filename file pattern
    query offset limit workdir cwd old_string new_string old_str new_str content text url glob include
    output_mode head_limit line start end view_range replace_all oldText newText recursive depth
    """
)
_EDITOR = words("view create str_replace insert undo_edit write append delete")
_ENDING = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,5})$")
_decode = msgspec.json.Decoder().decode


class Form(NamedTuple):
    """What a call is like, whoever makes it."""

    tool: str
    work: str  # calls of a sort: the tool, with the program that it runs
    tier: int  # TRIVIAL, PLAIN or TELLING
    skeleton: JSON
    values: tuple[str, ...]
    family: str  # shell, read, edit, search, web, …: the shape of its results
    digest: int  # the same for calls that differ only in their slots
    exact: int  # the same for calls that do not differ at all, where that matters
    steady: bool = False  # what stands in its slots may be of use to others as it is
    barred: bool = False  # it destroys something: no example of anything


class Draft(NamedTuple):
    """A call that is made ready for redaction: what it is asked about."""

    tool: str
    kind: Kind
    key: str  # of the command line, where it is one
    command: str
    arguments: Mapping[str, JSON]  # the others

    @property
    def texts(self) -> list[str]:
        """Texts that can be redacted together: no name beside them could make them secret."""
        found = (
            [self.command]
            if self.command and not command_skeleton.is_everyday(self.command)
            else []
        )
        for name, part in self.arguments.items():
            if isinstance(part, str) and name in _HARMLESS:
                found.append(part)
        return found


def draft(call: ToolCall, cwd: str | None) -> Draft:
    """A call without what is too long for an example, its paths as seen from the working folder."""
    kind, given = kind_of(call.name), call.arguments
    arguments = _arguments(given)
    is_short = isinstance(given, str) and len(given) <= LONGEST_TEXT and "\\n" not in given
    key = command = ""
    if kind.shape in ("shell", "code"):
        key = next((key for key in _COMMAND_KEYS if arguments.get(key)), "")
        if key:
            command = _joined(arguments[key])
            arguments = {
                name: part
                for name, part in arguments.items()
                if name != key and name not in COMMENTS and part != cwd
            }
    if not is_short:
        arguments = cast("Mapping[str, JSON]", pruned(arguments))
    if cwd and len(cwd) > 3 and not (isinstance(given, str) and cwd not in given):
        arguments = cast("Mapping[str, JSON]", _inside(arguments, cwd))
        command = _relative(command, cwd)
    return Draft(call.name, kind, key, command_skeleton.core(command) if command else "", arguments)


def form_of(made: Draft, redact: Redact) -> Form:
    """The form of one call."""
    if made.key:
        return _command_form(made, redact)
    skeleton, values = shape(cast("Mapping[str, JSON]", redact(made.arguments)))
    family = made.kind.shape
    tier = TELLING if family in ("call", "agent") else PLAIN if family == "edit" else TRIVIAL
    sub: Any = skeleton.get("command") if family in ("edit", "read") else None
    work = made.tool
    if isinstance(sub, str) and len(sub) < 24 and MARK.search(sub) is None:
        work = f"{made.tool} {sub}"
        tier = TRIVIAL if sub == "view" else tier
    is_own = family in ("call", "agent")  # else any two calls do the same to different files
    likeness = (made.tool, _likeness(skeleton) if is_own else work)
    steady = family == "read" and _is_steady(skeleton)
    exact = digest((likeness, values)) if steady or is_own else 0
    sign = digest(likeness) if is_own else _bare(made.tool, work, family).digest
    return Form(made.tool, work, tier, skeleton, values, family, sign, exact, steady)


def is_glanced_at(tool: str) -> bool:
    """Does a glance tell enough of calls to this tool?"""
    return kind_of(tool).shape in ("read", "search", "edit")


def glance(call: ToolCall) -> Form | None:
    """The form of a call that tells nothing by itself: none of its values are taken."""
    family = kind_of(call.name).shape
    if family in ("read", "search"):
        return _bare(call.name, call.name, family)
    if family != "edit":
        return None
    arguments = _arguments(call.arguments)
    skeleton: dict[str, JSON] = {}
    for key, part in arguments.items():
        if isinstance(part, str):
            place = _ENDING.search(part) if "ath" in key or "file" in key else None
            skeleton[key] = mark(f"path:{place[1].lower()}" if place else "text")
        elif isinstance(part, bool):
            skeleton[key] = part
    sub = arguments.get("command")
    if not isinstance(sub, str) or sub not in _EDITOR:
        known = _bare(call.name, call.name, family)
        return known._replace(tier=PLAIN, skeleton=skeleton, values=("",) * len(skeleton))
    skeleton["command"] = sub
    known = _bare(call.name, f"{call.name} {sub}", family)
    tier = TRIVIAL if sub == "view" else PLAIN
    return known._replace(tier=tier, skeleton=skeleton, values=("",) * len(skeleton))


@lru_cache(maxsize=1_000)
def _bare(tool: str, work: str, family: str) -> Form:
    return Form(tool, work, TRIVIAL, {}, (), family, digest((tool, work)), 0)


def _command_form(made: Draft, redact: Redact) -> Form:
    command = made.command
    if made.kind.shape == "code" or command_skeleton.is_script(command):
        found = command_skeleton.SCRIPT
    elif command_skeleton.is_everyday(command):
        return _bare(made.tool, f"{made.tool} {command.split(None, 1)[0]}", made.kind.shape)
    else:
        found = _line(str(redact(command)))
    skeleton: dict[str, JSON] = {made.key: found.skeleton}
    values = found.values
    if made.arguments:
        rest = shape(cast("Mapping[str, JSON]", redact(made.arguments)))
        skeleton |= rest.skeleton
        values += rest.values
    tier = found.tier
    if made.kind.shape == "code" and tier == TRIVIAL:
        tier = PLAIN
    work = f"{made.tool} {found.work}" if found.work else made.tool
    sign, steady = _sign(made.tool, found.skeleton)
    return Form(
        made.tool,
        work,
        tier,
        skeleton,
        values,
        made.kind.shape,
        sign,
        digest((made.tool, found.skeleton, found.values)) if steady else 0,
        steady,
        is_destructive(command),
    )


_line = lru_cache(maxsize=REMEMBERED)(command_skeleton.line)


@lru_cache(maxsize=REMEMBERED)
def _sign(tool: str, skeleton: str) -> tuple[int, bool]:
    """The digest of a command line, and whether it is steady: few skeletons, many commands."""
    return digest((tool, skeleton)), _is_steady(skeleton)


def _is_steady(skeleton: JSON) -> bool:
    kinds = marks(skeleton)
    return bool(kinds) and not any(kind in FLEETING or kind == "int" for kind in kinds)


def digest(value: object) -> int:
    """A number that is the same for the same value, in every process."""
    hashed = blake2b(msgspec.json.encode(value), digest_size=8).digest()
    return int.from_bytes(hashed, "big", signed=True)


def _likeness(skeleton: JSON) -> JSON:
    """A skeleton, whatever kinds of things are in its slots and however many in its lists."""
    if isinstance(skeleton, str):
        return MARK.sub("*", skeleton)
    if isinstance(skeleton, dict):
        parts = cast("dict[str, JSON]", skeleton)
        return [[key, _likeness(parts[key])] for key in sorted(parts)]
    if isinstance(skeleton, list):
        return [_likeness(part) for part in cast("list[JSON]", skeleton)[:1]]
    return skeleton


def _joined(command: JSON) -> str:
    if isinstance(command, list):
        parts = [str(part) for part in cast("list[object]", command)]
        if len(parts) >= 3 and parts[1].startswith("-") and parts[1].endswith("c"):
            return parts[2]
        return " ".join(part if part and " " not in part else repr(part) for part in parts)
    return command if isinstance(command, str) else ""


def _arguments(given: str | Mapping[str, JSON]) -> Mapping[str, JSON]:
    if not isinstance(given, str):
        return given
    try:
        value: Any = _decode(given) if given[:1] == "{" else None
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        return cast("dict[str, JSON]", value)
    return {"input": given} if given.strip() else {}


def _inside(value: JSON, cwd: str) -> JSON:
    """Paths inside the working folder, as seen from there."""
    if isinstance(value, str):
        return _relative(value, cwd)
    if isinstance(value, dict):
        parts = cast("Mapping[str, JSON]", value)
        return {key: _inside(part, cwd) for key, part in parts.items()}
    if isinstance(value, list):
        return [_inside(part, cwd) for part in cast("list[JSON]", value)]
    return value


def _relative(text: str, cwd: str) -> str:
    if cwd not in text:
        return text
    return "." if text == cwd else text.replace(f"{cwd}/", "")


class Remembering:
    """Redaction that need not look twice at what it left alone: paths and names come again and again."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._clean: set[str] = set()

    def look_at(self, texts: list[str]) -> None:
        """Look at many texts together: mostly there is nothing in them, and then they are known."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._clean]
        rest = [fresh[start : start + _TOGETHER] for start in range(0, len(fresh), _TOGETHER)]
        while rest:
            some = rest.pop()
            together = "\n".join(some)
            if self._redact(together) == together:
                self._remember(*some)
            elif len(some) > _FEW:  # something is in there: look for the part that it is in
                rest += [some[: len(some) // 2], some[len(some) // 2 :]]

    def __call__(self, value: JSON) -> JSON:
        if isinstance(value, str):
            return self._one("", value)
        if not isinstance(value, dict):
            return self._redact(value)
        parts = cast("dict[str, JSON]", value)
        if not parts.keys() <= _HARMLESS:
            return self._whole(dict(parts))
        clean = self._clean
        return {
            key: part if type(part) is str and part in clean else self._one(key, part)
            for key, part in parts.items()
        }

    def _whole(self, parts: dict[str, JSON]) -> JSON:
        """Arguments together: what stands beside a text may say that it is a secret."""
        text = msgspec.json.encode(self._redact(parts)).decode()
        told = str(self._redact(text))
        try:
            return _decode(told)
        except msgspec.MsgspecError:  # a mask in place of more than a text: nothing is left to show
            return {}

    def _one(self, key: str, part: JSON) -> JSON:
        if isinstance(part, (bool, int, float)) or part is None:
            return part
        if not isinstance(part, str):
            return cast("dict[str, JSON]", self._redact({key: part}))[key]
        if part in self._clean:
            return part
        told = self._redact(part)
        if told == part:
            self._remember(part)
        return told

    def _remember(self, *texts: str) -> None:
        if len(self._clean) >= REMEMBERED:
            self._clean.clear()
        self._clean.update(texts)
