"""The `rekindle` command. Heavy modules are imported only once the command is known."""

from __future__ import annotations

import sys


def _is_hook(arguments: list[str]) -> bool:
    has_options = any(word.startswith("-") for word in arguments)
    return arguments[:1] == ["hook"] and len(arguments) == 3 and not has_options


def _run_picker() -> int:
    """Run the picker without loading the commands first: the user waits for its first paint."""
    try:
        from .picker.launch import open_picker
        from .terminal.text import escape_unencodable_output

        escape_unencodable_output()
        return open_picker()
    except BaseException as error:  # noqa: BLE001 -- raised again if unknown
        from .app import report_failure

        return report_failure(error)


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from rekindle import __version__

        sys.stdout.write(f"rekindle {__version__}\n")
        return
    if _is_hook(sys.argv[1:]):  # an agent waits for it
        from rekindle.hooks.command import run_hook

        run_hook(*sys.argv[2:])
        return
    if not sys.argv[1:] and sys.stdin.isatty() and sys.stdout.isatty():
        sys.exit(_run_picker())
    # Block the OpenAI client's optional aiohttp transport: we never use it, and importing it
    # takes at least a tenth of the start-up time of a chat.
    sys.modules["openai._vendor.httpx_aiohttp"] = None  # pyright: ignore[reportArgumentType]
    try:
        from .app import run_command_line

        code = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:  # interrupted during imports: nothing to clean up
        code = 130
    sys.exit(code)
