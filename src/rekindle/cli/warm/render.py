"""How templates look on a terminal: advice first, where it comes from beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rekindle.cli.output import Column, counted, one_line, printable, say, time_of, write_table
from rekindle.judging.tool_kinds import kind_of
from rekindle.knowledge.file_format import ORIGIN, dropped_of

if TYPE_CHECKING:
    from rekindle.learning.build import Built, Removed, Use
    from rekindle.types import Pattern, Step, Template

_HEADS: Mapping[str, str] = {
    "init": "To begin with",
    "example": "Calls that work here",
    "sequence": "Done one after the other",
    "retry": "What mended an error",
    "final": "Before it is done",
}
_COMMANDS = ("command", "cmd", "script", "bash_command", "code", "input")
_WIDE = 160


def write_built(built: Built, removed: Removed) -> None:
    """What building a template looked at, what came out, and what stayed of the one before."""
    template, scan, kept = built
    left = ", ".join(f"{count:,} {reason}" for reason, count in scan.skipped.items())
    say(
        f"Looked at {counted(scan.scanned, 'session')}, {scan.looked_through:,} of them anew;"
        f" {scan.qualified:,} qualified{f' (left out: {left})' if left else ''}."
    )
    if scan.sources:
        say("From: " + ", ".join(f"{name} {count}" for name, count in scan.sources.items()) + ".")
    if scan.avg_proficiency_gain is not None:
        gain = 100 * scan.avg_proficiency_gain
        say(f"Errors of their last fifth of calls less the first: {gain:+.1f} points on average.")
    write_removed(removed)
    say()
    kinds = ", ".join(f"{kind} {count}" for kind, count in _kinds(template.patterns).items())
    what = "revision" if template.revision > 1 else "new,"
    number = f" {template.revision}," if template.revision > 1 else ""
    say(
        f"Template {template.id!r} ({what}{number} {template.state}):"
        f" {counted(len(template.patterns), 'pattern')} ({kinds})."
    )
    if kept:
        say(f"Kept from the revision before: {', '.join(_kept(kept))}.")
    write_waiting(template)
    say(f"See it with: rekindle warm show {template.id}")


def write_removed(removed: Removed) -> None:
    """What redaction removed; what was learned from before was redacted then, and is not told again."""
    say(f"Removed this time: {removed_text(removed) or 'nothing'}.")


def removed_text(removed: Removed) -> str:
    """How many of which kind, and from where: `mail 3 (arguments 2, results 1)`."""
    return ", ".join(
        f"{kind} {sum(places.values())} ({', '.join(_places(places))})"
        for kind, places in removed.items()
    )


def _places(places: Mapping[str, int]) -> Iterator[str]:
    for where, count in places.items():
        yield where if len(places) == 1 else f"{where} {count}"


def _kept(kept: Mapping[str, Any]) -> Iterator[str]:
    if "description" in kept:
        yield "the description"
    if "tags" in kept:
        yield f"the tags {' '.join(kept['tags'])}"
    if "state" in kept:
        yield f"that it is {kept['state']}"
    if "dropped" in kept:
        yield f"that {counted(kept['dropped'], 'pattern')} had been dropped"


def write_waiting(template: Template) -> None:
    """That no session starts from a template as it is, and what to do about it."""
    if template.state != "active":
        is_ = "in quarantine" if template.state == "quarantined" else template.state
        say(f"It is {is_}: no session starts from it before `rekindle warm accept {template.id}`.")


def _kinds(patterns: Sequence[Pattern]) -> dict[str, int]:
    return {kind: count for kind in _HEADS if (count := sum(one.kind == kind for one in patterns))}


def write_list(rows: Iterable[tuple[Template, Use]]) -> None:
    """A table of templates."""
    columns = (
        Column("id", style="cyan"),
        Column("name", flexible=True),
        Column("type"),
        Column("patterns", right=True),
        Column("from", right=True),
        Column("used", right=True),
        Column("went well", right=True),
        Column("state"),
    )
    write_table(columns, (_row(*row) for row in rows))


def _row(one: Template, use: Use) -> Sequence[str]:
    went = "–" if use.success_rate is None else f"{use.success_rate:.0%}"
    return (
        one.id, one.name, one.task_type, f"{len(one.patterns)}", f"{len(one.sources)}",
        f"{use.sessions}", went, one.state,
    )  # fmt: skip


def write_template(template: Template, use: Use, known_tools: set[str]) -> None:
    """A whole template."""
    say(f"{printable(template.name)}  ({template.id}, revision {template.revision})")
    if template.description:
        say(printable(template.description))
    say()
    for label, value in _facts(template, use):
        say(f"{label:<9}{printable(value)}")
    for line in _seed_lines(template):
        say(printable(line))
    for kind, head in _HEADS.items():
        patterns = [one for one in template.patterns if one.kind == kind]
        if patterns:
            say()
            say(f"{head}:")
            for one in sorted(patterns, key=lambda one: -one.score):
                for line in _advice(one, known_tools):
                    say(printable(line))


def _facts(template: Template, use: Use) -> Iterator[tuple[str, str]]:
    tags = f"; tags: {', '.join(template.tags)}" if template.tags else ""
    yield "type", f"{template.task_type}{tags}"
    yield "state", _state(template)
    made = f"{template.made}, {time_of(template.updated)}"
    yield "made", f"{made}, from {counted(len(template.sources), 'session')}"
    origin = cast("Mapping[str, Any]", template.scan.get(ORIGIN) or {})
    if origin:
        yield "from", _origin_text(origin)
    dropped = dropped_of(template)
    if dropped:
        yield "dropped", f"{counted(len(dropped), 'pattern')}, also when it is built anew"
    if not use.sessions:
        yield "used", "never yet"
        return
    went = "" if use.success_rate is None else f"; {use.success_rate:.0%} of their calls went well"
    yield "used", f"by {counted(use.sessions, 'session')}{went}"


def _origin_text(origin: Mapping[str, Any]) -> str:
    parts = [str(origin.get("program") or "an unknown program")]
    if "exported" in origin:
        parts.append(f"exported {time_of(origin['exported'])}")
    if "made" in origin:
        parts.append(f"{origin['made']} there")
    if "sessions" in origin:
        parts.append(f"from {counted(origin['sessions'], 'session')}")
    return ", ".join(parts)


def _state(template: Template) -> str:
    if template.state == "quarantined":
        return f"quarantined: not used before `rekindle warm accept {template.id}`"
    return template.state


def _seed_lines(template: Template) -> Iterator[str]:
    seed = template.seed
    if seed.style.messages:
        style = seed.style
        yield (
            f"user     {style.preferred}: {counted(style.messages, 'message')} of"
            f" {style.mean_length:.0f} characters, {style.questions:.0%} questions,"
            f" {style.commands:.0%} commands"
        )
    if seed.system:
        yield f"context  {one_line(seed.system, _WIDE)}"
    for text in seed.instructions:
        yield f"told     {one_line(text, 200)}"
    if seed.markers:
        yield f"names    {one_line(', '.join(seed.markers), _WIDE)}"


def _advice(one: Pattern, known_tools: set[str]) -> Iterator[str]:
    steps = [one_line(step_text(step), _WIDE) for step in one.steps]
    if one.before is not None:
        yield f"  ✗ {one_line(step_text(one.before), _WIDE)}"
        yield f"  ✓ {' → '.join(steps)}" if len(steps) == 1 else f"  ✓ {steps[0]}"
        for text in steps[1:]:
            yield f"    → {text}"
        yield f"    {one.lesson}"
    elif len(steps) == 1:
        result = one.steps[0].result
        yield f"  • {steps[0]}" + (f"  ⇒ {one_line(result, 80)}" if result else "")
    else:
        yield f"  • {steps[0]}"
        for text in steps[1:]:
            yield f"    → {text}"
    if one.steps[0].example is not None:
        made = one.steps[0]._replace(arguments=one.steps[0].example)
        yield f"    such as {one_line(step_text(made), _WIDE)}"
    yield f"    {_origin(one, known_tools)}"


def _origin(one: Pattern, known_tools: set[str]) -> str:
    parts = [f"seen in {counted(one.seen_in, 'session')}"]
    if one.error_rate >= 0.1:
        parts.append(f"{one.error_rate:.0%} of such calls fail")
    if one.asked:
        parts.append(f"when asked: {one_line(one.asked, 90)}")
    if one.tainted:
        parts.append("may stem from words of strangers: not used")
    lacking = sorted({step.tool for step in one.steps} - known_tools)
    if lacking:
        parts.append(f"never called here: {', '.join(lacking)}")
    return f"[{one.id[:6]}] " + "; ".join(parts)


def step_text(step: Step) -> str:
    """A call, as one would write it: a command line, or a function with its arguments."""
    arguments = dict(step.arguments)
    if kind_of(step.tool).shape in ("shell", "code"):
        for key in _COMMANDS:
            if isinstance(arguments.get(key), str):
                rest = {name: value for name, value in arguments.items() if name != key}
                told = f"  ({_told(rest)})" if rest else ""
                return f"{step.tool}: {arguments[key]}{told}"
    return f"{step.tool}({_told(arguments)})"


def _told(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in arguments.items())


def _value(value: Any) -> str:
    if isinstance(value, str):
        return (
            value
            if value.startswith("<") and value.endswith(">")
            else json.dumps(value, ensure_ascii=False)
        )
    if isinstance(value, Mapping):
        return "{" + _told(cast("Mapping[str, Any]", value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, cast("list[Any]", value))) + "]"
    return json.dumps(value)
