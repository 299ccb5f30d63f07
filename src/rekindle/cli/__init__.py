"""The `rekindle` command. Heavy modules are imported only once the command is known."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from rekindle import __version__

        sys.stdout.write(f"rekindle {__version__}\n")
        return
    # Block the OpenAI client's optional aiohttp transport: we never use it, and importing it
    # takes at least a tenth of the start-up time of a chat.
    sys.modules["openai._vendor.httpx_aiohttp"] = None  # pyright: ignore[reportArgumentType]
    try:
        from .app import run_command_line

        code = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:  # interrupted during imports: nothing to clean up
        code = 130
    sys.exit(code)
