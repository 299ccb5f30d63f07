"""Build the signature of a call: what it shares with similar calls, redacted, with slots.

Nothing of a call enters its signature without redaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from rekindle.judging.rules.text_patterns import split_words
from rekindle.judging.tool_kinds import ToolKind, classify_tool
from rekindle.types import JSON, ToolCall

from . import command_skeleton
from .command_skeleton import INFORMATIVE, PLAIN, TRIVIAL
from .side_effects import find_command_key, is_destructive, join_command
from .slots import (
    COMMENT_ARGUMENTS,
    FLEETING_KINDS,
    MARK,
    MAX_ARGUMENT_CHARS,
    list_slot_kinds,
    make_mark,
    prune_long_texts,
    slot_arguments,
)

CACHE_SIZE = 20_000  # entries
_BATCH_SIZE, _MIN_SPLIT_SIZE = 200, 4  # texts redacted at once; smaller batches are not split

Redact = Callable[[JSON], JSON]

# These names never make their value a secret.
_HARMLESS_NAMES = split_words(
    """
    command cmd script bash_command code input chars path file_path filePath filename file pattern
    query offset limit workdir cwd old_string new_string old_str new_str content text url glob include
    output_mode head_limit line start end view_range replace_all oldText newText recursive depth
    """
)
_EDITOR_COMMANDS = split_words("view create str_replace insert undo_edit write append delete")
_FILE_EXTENSION = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,5})$")
_decode = msgspec.json.Decoder().decode


class CallSignature(NamedTuple):
    """What equal calls have in common."""

    tool: str
    work: str  # the type of call: the tool, with the program that it runs
    tier: int  # TRIVIAL, PLAIN or TELLING
    skeleton: JSON
    values: tuple[str, ...]
    family: str  # shell, read, edit, search, web, …: the shape of its results
    digest: int  # equal for calls that differ only in their slots
    exact: int  # equal for identical calls; 0 if irrelevant
    stable: bool = False  # its slot values may be useful to other sessions
    destructive: bool = False  # never used as an example


class SignatureDraft(NamedTuple):
    """A call prepared for redaction."""

    tool: str
    kind: ToolKind
    key: str  # name of the argument with the command line, if any
    command: str  # without the `cd` to the folder, here-documents and the handling of output
    arguments: Mapping[str, JSON]  # without the command line
    whole_command: str = ""  # as it ran

    @property
    def texts(self) -> list[str]:
        """The texts that can be redacted together: no name next to them could make them secret."""
        found = (
            [self.command]
            if self.command and not command_skeleton.is_everyday_command(self.command)
            else []
        )
        for name, part in self.arguments.items():
            if isinstance(part, str) and name in _HARMLESS_NAMES:
                found.append(part)
        return found


def draft_signature(call: ToolCall, cwd: str | None) -> SignatureDraft:
    """Draft a signature: drop what is too long, and make paths relative to the working folder."""
    kind, raw_arguments = classify_tool(call.name), call.arguments
    arguments = _parse_arguments(raw_arguments)
    is_short = (
        isinstance(raw_arguments, str)
        and len(raw_arguments) <= MAX_ARGUMENT_CHARS
        and "\\n" not in raw_arguments
    )
    key = command = ""
    if kind.shape in ("shell", "code"):
        key = find_command_key(arguments)
        if key:
            command = join_command(arguments[key])
            arguments = {
                name: part
                for name, part in arguments.items()
                if name != key and name not in COMMENT_ARGUMENTS and part != cwd
            }
    if not is_short:
        arguments = cast("Mapping[str, JSON]", prune_long_texts(arguments))
    if cwd and len(cwd) > 3 and not (isinstance(raw_arguments, str) and cwd not in raw_arguments):
        arguments = cast("Mapping[str, JSON]", _relativize_value(arguments, cwd))
        command = _relativize_text(command, cwd)
    stripped = command_skeleton.strip_command(command) if command else ""
    return SignatureDraft(call.name, kind, key, stripped, arguments, command)


def build_signature(draft: SignatureDraft, redact: Redact) -> CallSignature:
    """Build the signature of one call."""
    if draft.key:
        return _build_command_signature(draft, redact)
    skeleton, values = slot_arguments(cast("Mapping[str, JSON]", redact(draft.arguments)))
    family = draft.kind.shape
    tier = INFORMATIVE if family in ("call", "agent") else PLAIN if family == "edit" else TRIVIAL
    sub: Any = skeleton.get("command") if family in ("edit", "read") else None
    work = draft.tool
    if isinstance(sub, str) and len(sub) < 24 and MARK.search(sub) is None:
        work = f"{draft.tool} {sub}"
        tier = TRIVIAL if sub == "view" else tier
    is_own = family in ("call", "agent")  # otherwise calls differ only in their files
    general = (draft.tool, _generalize_skeleton(skeleton) if is_own else work)
    stable = family == "read" and _is_stable(skeleton)
    exact = digest_value((general, values)) if stable or is_own else 0
    call_digest = (
        digest_value(general) if is_own else _build_bare_signature(draft.tool, work, family).digest
    )
    return CallSignature(
        draft.tool, work, tier, skeleton, values, family, call_digest, exact, stable
    )


def allows_quick_signature(tool: str) -> bool:
    """Return whether a quick signature suffices for calls to this tool."""
    return classify_tool(tool).shape in ("read", "search", "edit")


def build_quick_signature(call: ToolCall) -> CallSignature | None:
    """Build the signature of an uninformative call, without any of its values."""
    family = classify_tool(call.name).shape
    if family in ("read", "search"):
        return _build_bare_signature(call.name, call.name, family)
    if family != "edit":
        return None
    arguments = _parse_arguments(call.arguments)
    skeleton: dict[str, JSON] = {}
    for key, part in arguments.items():
        if isinstance(part, str):
            extension = _FILE_EXTENSION.search(part) if "ath" in key or "file" in key else None
            skeleton[key] = make_mark(f"path:{extension[1].lower()}" if extension else "text")
        elif isinstance(part, bool):
            skeleton[key] = part
    sub = arguments.get("command")
    if not isinstance(sub, str) or sub not in _EDITOR_COMMANDS:
        known = _build_bare_signature(call.name, call.name, family)
        return known._replace(tier=PLAIN, skeleton=skeleton, values=("",) * len(skeleton))
    skeleton["command"] = sub
    known = _build_bare_signature(call.name, f"{call.name} {sub}", family)
    tier = TRIVIAL if sub == "view" else PLAIN
    return known._replace(tier=tier, skeleton=skeleton, values=("",) * len(skeleton))


@lru_cache(maxsize=1_000)
def _build_bare_signature(tool: str, work: str, family: str) -> CallSignature:
    return CallSignature(tool, work, TRIVIAL, {}, (), family, digest_value((tool, work)), 0)


def _build_command_signature(draft: SignatureDraft, redact: Redact) -> CallSignature:
    command = draft.command
    if draft.kind.shape == "code" or command_skeleton.is_script(command):
        found = command_skeleton.SCRIPT_SKELETON
    elif command_skeleton.is_everyday_command(command):
        program = command.split(None, 1)[0]
        bare = _build_bare_signature(draft.tool, f"{draft.tool} {program}", draft.kind.shape)
        return bare._replace(destructive=_is_destructive(draft))
    else:
        found = _build_skeleton_cached(str(redact(command)))
    skeleton: dict[str, JSON] = {draft.key: found.skeleton}
    values = found.values
    if draft.arguments:
        rest = slot_arguments(cast("Mapping[str, JSON]", redact(draft.arguments)))
        skeleton |= rest.skeleton
        values += rest.values
    tier = found.tier
    if draft.kind.shape == "code" and tier == TRIVIAL:
        tier = PLAIN
    work = f"{draft.tool} {found.work}" if found.work else draft.tool
    call_digest, stable = _digest_skeleton(draft.tool, found.skeleton)
    return CallSignature(
        draft.tool,
        work,
        tier,
        skeleton,
        values,
        draft.kind.shape,
        call_digest,
        digest_value((draft.tool, found.skeleton, found.values)) if stable else 0,
        stable,
        _is_destructive(draft),
    )


def _is_destructive(draft: SignatureDraft) -> bool:
    return is_destructive(draft.tool, {draft.key: draft.whole_command})


_build_skeleton_cached = lru_cache(maxsize=CACHE_SIZE)(command_skeleton.build_skeleton)


@lru_cache(maxsize=CACHE_SIZE)
def _digest_skeleton(tool: str, skeleton: str) -> tuple[int, bool]:
    """Digest a command skeleton and return whether it is stable; cached, as skeletons recur."""
    return digest_value((tool, skeleton)), _is_stable(skeleton)


def _is_stable(skeleton: JSON) -> bool:
    kinds = list_slot_kinds(skeleton)
    return bool(kinds) and not any(kind in FLEETING_KINDS or kind == "int" for kind in kinds)


def digest_value(value: object) -> int:
    """Return a number that is equal for equal values, in every process."""
    hashed = blake2b(msgspec.json.encode(value), digest_size=8).digest()
    return int.from_bytes(hashed, "big", signed=True)


def _generalize_skeleton(skeleton: JSON) -> JSON:
    """Generalize a skeleton over the kinds of its slots and the lengths of its lists."""
    if isinstance(skeleton, str):
        return MARK.sub("*", skeleton)
    if isinstance(skeleton, dict):
        parts = cast("dict[str, JSON]", skeleton)
        return [[key, _generalize_skeleton(parts[key])] for key in sorted(parts)]
    if isinstance(skeleton, list):
        return [_generalize_skeleton(part) for part in cast("list[JSON]", skeleton)[:1]]
    return skeleton


def _parse_arguments(raw_arguments: str | Mapping[str, JSON]) -> Mapping[str, JSON]:
    if not isinstance(raw_arguments, str):
        return raw_arguments
    try:
        value: Any = _decode(raw_arguments) if raw_arguments[:1] == "{" else None
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        return cast("dict[str, JSON]", value)
    return {"input": raw_arguments} if raw_arguments.strip() else {}


def _relativize_value(value: JSON, cwd: str) -> JSON:
    """Make the paths inside the working folder relative to it."""
    if isinstance(value, str):
        return _relativize_text(value, cwd)
    if isinstance(value, dict):
        parts = cast("Mapping[str, JSON]", value)
        return {key: _relativize_value(part, cwd) for key, part in parts.items()}
    if isinstance(value, list):
        return [_relativize_value(part, cwd) for part in cast("list[JSON]", value)]
    return value


def _relativize_text(text: str, cwd: str) -> str:
    if cwd not in text:
        return text
    return "." if text == cwd else text.replace(f"{cwd}/", "")


class CachedRedactor:
    """A redactor that remembers clean texts: paths and names recur often."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._clean: set[str] = set()

    def check_batch(self, texts: list[str]) -> None:
        """Check many texts at once and cache the clean ones; most of them are clean."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._clean]
        batches = [
            fresh[start : start + _BATCH_SIZE] for start in range(0, len(fresh), _BATCH_SIZE)
        ]
        while batches:
            batch = batches.pop()
            joined = "\n".join(batch)
            if self._redact(joined) == joined:
                self._cache_clean(*batch)
            elif len(batch) > _MIN_SPLIT_SIZE:  # one of them is not clean: split to find it
                batches += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]

    def __call__(self, value: JSON) -> JSON:
        if isinstance(value, str):
            return self._redact_part("", value)
        if not isinstance(value, dict):
            return self._redact(value)
        parts = cast("dict[str, JSON]", value)
        if not parts.keys() <= _HARMLESS_NAMES:
            return self._redact_together(dict(parts))
        clean = self._clean
        return {
            key: part if type(part) is str and part in clean else self._redact_part(key, part)
            for key, part in parts.items()
        }

    def _redact_together(self, parts: dict[str, JSON]) -> JSON:
        """Redact arguments together: what is next to a text may mark it as a secret."""
        text = msgspec.json.encode(self._redact(parts)).decode()
        redacted = str(self._redact(text))
        try:
            return _decode(redacted)
        except msgspec.MsgspecError:  # a mask broke the JSON: nothing is left to show
            return {}

    def _redact_part(self, key: str, part: JSON) -> JSON:
        if isinstance(part, (bool, int, float)) or part is None:
            return part
        if not isinstance(part, str):
            return cast("dict[str, JSON]", self._redact({key: part}))[key]
        if part in self._clean:
            return part
        redacted = self._redact(part)
        if redacted == part:
            self._cache_clean(part)
        return redacted

    def _cache_clean(self, *texts: str) -> None:
        if len(self._clean) >= CACHE_SIZE:
            self._clean.clear()
        self._clean.update(texts)
