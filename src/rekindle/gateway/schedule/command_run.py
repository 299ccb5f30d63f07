"""Run the command of a job. Only the operator can make such a job, on the command line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from rekindle.agent.tools.truncate import truncate_middle

COMMAND_SECONDS = 3600.0
MAX_OUTPUT_CHARS = 20_000
INTERRUPTED = (
    "The gateway stopped while this command ran. It may or may not have finished; it will not be run"
    " again."
)


async def run_job_command(command: str, folder: Path) -> tuple[str, str | None]:
    """Run a command in a shell and return its output, and why it failed if it did."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", command, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
    except (TimeoutError, asyncio.CancelledError) as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
        return "", f"it took longer than {COMMAND_SECONDS / 60:.0f} minutes"
    text = truncate_middle(output.decode("utf-8", "replace"), MAX_OUTPUT_CHARS)
    code = process.returncode or 0
    return text.strip() or "(no output)", f"exit code {code}" if code else None
