"""The gate that every tool call passes: refuse it, let it run, or ask a person first.

A rule is the name of a tool (`execute_code`, `mcp__docs__*`), or a name and the beginning of what the
call does: `terminal: npm test` allows `npm test -- --watch`, but no line of several commands.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from rekindle.errors import ToolError
from rekindle.types import JSON

from .tool import HARMLESS_ABILITIES, ApprovalRequest, CallAssessment, Tool, ToolContext

_APPROVAL_TEXT = {
    "always": "every {call} needs approval",
    "dangerous": "dangerous {call}s need approval",
    "refuse": "dangerous {call}s are not allowed",
}
_MAX_SHOWN = 4000
# Signs that a line is more than one simple command.
_OPERATORS = frozenset(";|&<>()`$\n\r{}")


def is_permitted(tool: Tool, context: ToolContext) -> bool:
    """Return whether the session may have the tool at all."""
    return tool.abilities <= context.abilities


async def require_permission(
    tool: Tool, arguments: Mapping[str, JSON], context: ToolContext
) -> None:
    """Return if the call may run; otherwise raise a ToolError that says what to do instead."""
    if not is_permitted(tool, context):
        raise ToolError(f"refused: {tool.name} is not allowed in this conversation", refused=True)
    assessment = await _assess_call(tool, arguments, context)
    if _find_rule(context.rules.refuse, tool.name, assessment.command, is_strict=False):
        raise ToolError("refused: a rule in the settings forbids this call.", refused=True)
    if context.approval == "never" or not _needs_approval(tool, assessment, context):
        return
    allowed = (*context.rules.allow, *(context.granted or ()))
    if _find_rule(allowed, tool.name, assessment.command, is_strict=True):
        return
    await _ask_person(tool, assessment, context)


async def _assess_call(
    tool: Tool, arguments: Mapping[str, JSON], context: ToolContext
) -> CallAssessment:
    if tool.assess is None:
        shown = json.dumps(dict(arguments), ensure_ascii=False, default=str)[:_MAX_SHOWN]
        return CallAssessment(shown, acts=not tool.abilities <= HARMLESS_ABILITIES)
    # In a thread, because resolving links on disk may be slow.
    return await asyncio.to_thread(tool.assess, context, arguments)


def _needs_approval(tool: Tool, assessment: CallAssessment, context: ToolContext) -> bool:
    if assessment.reasons:
        return True
    return context.approval == "always" and assessment.acts


async def _ask_person(tool: Tool, assessment: CallAssessment, context: ToolContext) -> None:
    call = "command" if tool.name == "terminal" else "call"
    text = _APPROVAL_TEXT[context.approval].format(call=call)
    reasons = assessment.reasons
    explanation = f"{text}; this {call}: {'; '.join(reasons)}" if reasons else text
    if context.approval == "refuse":
        raise ToolError(f"refused: {explanation}. Use another approach.", refused=True)
    if context.approve is None:
        hint = "Use another approach, or tell the user what to run."
        raise ToolError(
            f"refused: {explanation}, and nobody can be asked here. {hint}", refused=True
        )
    request = ApprovalRequest(
        tool.name, assessment.command, assessment.workdir or str(context.cwd), reasons
    )
    answer = await context.approve(request)
    if answer == "session" and context.granted is not None:
        context.granted.add(build_grant(tool.name, assessment.command))
    elif answer in (False, "no"):
        hint = "Do not retry; ask the user what to do instead."
        raise ToolError(f"refused by the user: {explanation}. {hint}", refused=True)


def build_grant(tool: str, command: str) -> str:
    """Return the rule that allows a call for the rest of a session: this command, or this tool."""
    return f"{tool}= {command}" if tool in ("terminal", "process") else tool


def _find_rule(rules: Iterable[str], tool: str, command: str, *, is_strict: bool) -> str | None:
    return next((rule for rule in rules if _matches_rule(rule, tool, command, is_strict)), None)


def _matches_rule(rule: str, tool: str, command: str, is_strict: bool) -> bool:
    """Return whether a rule covers a call.

    A strict rule, which allows something, covers one simple command; one that refuses also covers a
    longer line that begins so.
    """
    if rule == build_grant(tool, command):
        return True
    name, separator, prefix = rule.partition(":")
    if not fnmatchcase(tool, name.strip()):
        return False
    prefix = prefix.strip()
    if not separator or not prefix or prefix == "*":
        return True
    if tool != "terminal":
        return command == prefix or command.startswith(prefix.rstrip("*"))
    if is_strict and _OPERATORS & set(command):
        return False
    wanted, given = _split_words(prefix), _split_words(command)
    return bool(wanted) and given[: len(wanted)] == wanted


def _split_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
