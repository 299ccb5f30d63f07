"""The command `rekindle`. Nothing heavy is imported before it is known what was asked for."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from rekindle import __version__

        sys.stdout.write(f"rekindle {__version__}\n")
        return
    # The model's client loads aiohttp where it finds it, for a way to connect that is not ours:
    # a tenth or more of what a chat takes to start here.
    sys.modules["openai._vendor.httpx_aiohttp"] = None  # pyright: ignore[reportArgumentType]
    try:
        from .app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were still loaded: nothing had begun
        code = 130
    sys.exit(code)
