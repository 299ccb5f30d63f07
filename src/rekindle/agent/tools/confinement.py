"""Run commands and code of tools in the sandbox of their session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from rekindle.errors import InvalidInput, ToolError
from rekindle.sandbox.detection import open_sandbox
from rekindle.sandbox.sandbox import ConfinedCommand, ConfineRequest, Sandbox

from .child_process import ChildResult, run_child
from .sandbox_paths import resolve_roots
from .tool import ToolContext

# What a call may reach: the workspace; the network too; everything that the user can.
Access: TypeAlias = Literal["sandbox", "network", "system"]
ACCESS_LEVELS: tuple[Access, ...] = ("sandbox", "network", "system")
_SETTLE_SECONDS = 1.0  # for the sandbox's own process to end after the command


def get_sandbox(context: ToolContext) -> Sandbox:
    """Return the session's sandbox, or the best that works on this machine."""
    return context.sandbox or open_sandbox()


def find_confinement_reasons(
    context: ToolContext, access: Access, *, background: bool = False
) -> tuple[str, ...]:
    """Return why the sandbox alone does not make a command safe to run; empty if it does."""
    sandbox = get_sandbox(context)
    if sandbox.mode == "none":
        return ("runs without a sandbox",)
    if sandbox.mode == "off":
        return ()
    if access == "system":
        return ("runs outside the sandbox",)
    request = _build_request(context, str(context.cwd), {}, background=background)
    try:
        gaps = sandbox.find_gaps(request)
    except InvalidInput as error:
        raise ToolError(str(error)) from None
    if access == "network" and not sandbox.options.network:
        return (*gaps, "reaches the network")
    return gaps


def _build_request(
    context: ToolContext,
    cwd: str,
    environment: Mapping[str, str],
    *,
    scratch: str = "",
    network: bool = False,
    background: bool = False,
) -> ConfineRequest:
    return ConfineRequest(
        session=context.session,
        roots=tuple(resolve_roots(context)),
        cwd=os.path.realpath(cwd),
        environment=environment,
        user_environment=context.environment,
        scratch=scratch,
        network=network,
        background=background,
    )


async def confine_command(
    context: ToolContext,
    cwd: str,
    environment: Mapping[str, str],
    access: Access = "sandbox",
    *,
    scratch: str = "",
    background: bool = False,
) -> ConfinedCommand | None:
    """Return how a command is wrapped to run in the sandbox; None if it runs without one."""
    sandbox = get_sandbox(context)
    if not sandbox.is_active or access == "system":
        return None
    request = _build_request(
        context,
        cwd,
        environment,
        scratch=scratch,
        network=access == "network",
        background=background,
    )
    try:
        return await asyncio.to_thread(sandbox.confine, request)
    except InvalidInput as error:
        raise ToolError(str(error)) from None


async def run_confined(
    context: ToolContext,
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    seconds: float,
    characters: int,
    access: Access = "sandbox",
    scratch: str = "",
) -> ChildResult:
    """Run a program to its end in the sandbox, and undo changes to files that run code later."""
    confined = await confine_command(context, cwd, environment, access, scratch=scratch)
    if confined is None:
        return await run_child(
            argv, cwd=cwd, environment=environment, seconds=seconds, characters=characters
        )
    changed: list[str] = []
    try:
        result = await run_child(
            (*confined.wrapper, *argv),
            cwd=cwd,
            environment=confined.environment,
            seconds=seconds,
            characters=characters,
            settle_seconds=_SETTLE_SECONDS,
        )
    finally:
        restoring = asyncio.ensure_future(asyncio.to_thread(confined.restore_launch_files))
        changed = await asyncio.shield(restoring)
    if not changed:
        return result
    names = ", ".join(os.path.relpath(path, cwd) for path in changed[:5])
    note = f"[undone by the sandbox, because it would run code later: {names}]"
    return result._replace(output=f"{result.output.rstrip()}\n{note}\n".lstrip("\n"))
