"""Find the skills, agents and tools that agents ask for although a project has none of that name.

The program says so at once, but the next session asks again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rekindle.judging.rules.evidence import Evidence
from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.records import PlaybookItem, SessionObservation, hash_word
from rekindle.knowledge.path_names import is_plain_folder, reads_like_sentence
from rekindle.types import Message

MIN_MISSING_SESSIONS = 3  # with different requests
LATEST_SESSIONS = 40  # in two of which somebody must have asked for it
MAX_MISSING_TOOLS = 5  # of a session
_UNKNOWN_TOOL = "unknown_tool"  # the kind of the error
_UNKNOWN = (
    ("skill", re.compile(r"\A(?:<tool_use_error>)?Unknown skill: ([\w:-]{1,60})")),
    ("agent", re.compile(r"\A(?:<tool_use_error>)?Agent type '([\w:-]{1,60})' not found")),
)
# What a tool runs, by the argument that names it.
_NAMING_ARGUMENTS: Mapping[str, tuple[str, str]] = {
    "Skill": ("skill", "skill"),
    "Task": ("agent", "subagent_type"),
    "Agent": ("agent", "subagent_type"),
}


def find_missing_tools(calls: Iterable[ObservedCall]) -> tuple[str, ...]:
    """Return what a session asked for in vain, such as `skill commit`."""
    found: dict[str, None] = {}
    for one in calls:
        kind, name = _read_missing(one) if one.failed else ("", "")
        if name and is_plain_folder(name) and not reads_like_sentence(name):
            found[f"{kind} {name}"] = None
    return tuple(found)[:MAX_MISSING_TOOLS]


def _read_missing(one: ObservedCall) -> tuple[str, str]:
    """Return the kind and the name of what a failed call asked for; empty if it was there."""
    if one.error_kind == _UNKNOWN_TOOL:
        return "tool", one.call.name
    for kind, pattern in _UNKNOWN if one.call.name in _NAMING_ARGUMENTS else ():
        if named := pattern.match(one.result):
            return kind, named[1]
    return "", ""


def hash_available_tools(calls: Iterable[ObservedCall]) -> tuple[int, ...]:
    """Return the hashed names of the skills, agents and tools that a session had."""
    names: set[str] = set()
    for one in calls:
        if one.failed is not False:
            continue
        names.add(f"tool {one.call.name}")
        if one.call.name in _NAMING_ARGUMENTS:
            kind, key = _NAMING_ARGUMENTS[one.call.name]
            named = str(Evidence(one.call, Message("tool")).arguments.get(key, ""))
            names.add(f"{kind} {named}")
    return tuple(sorted(map(hash_word, names)))


def collect_missing_tools(observations: Sequence[SessionObservation]) -> Iterator[PlaybookItem]:
    """Yield what sessions ask for again and again, and none has had since."""
    missing: dict[str, list[int]] = {}
    for number, one in enumerate(observations):
        for name in [name for name in missing if hash_word(name) in one.available]:
            del missing[name]
        for name in one.missing:
            missing.setdefault(name, []).append(number)
    oldest = len(observations) - LATEST_SESSIONS
    for name, sessions in missing.items():
        requests = {observations[number].words for number in sessions}
        if len(requests) >= MIN_MISSING_SESSIONS and sessions[-2] >= oldest:
            yield PlaybookItem(name, tuple(sessions), len(sessions))
