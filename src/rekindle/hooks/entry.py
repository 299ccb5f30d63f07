"""The program that the client starts: the helper of a home, or `import` for its background work.

    python -I entry.py HOME [import AGENT SESSION TRANSCRIPT FOLDER]

It is started by its path and isolated, so that neither the folder nor the environment of an agent
decides what is imported: the package that this file belongs to is.
"""

from __future__ import annotations

import gc
import os
import sys


def add_package_to_path() -> None:
    """Let the package be imported that this file belongs to, before any installed one."""
    root = __file__.rsplit("/", 3)[0]
    places = [number for number, path in enumerate(sys.path) if path.endswith("-packages")]
    sys.path.insert(places[0] if places else len(sys.path), root)


def main(arguments: list[str]) -> None:
    """Run the helper, or the work that it leaves to another process."""
    if arguments[1:2] == ["import"]:
        from rekindle.hooks.background import run_import
        from rekindle.hooks.events import SETTING_PREFIXES, ImportJob, parse_settings

        home, _, agent, session, transcript, cwd = arguments
        settings = [f"{name}={value}" for name, value in os.environ.items()]
        own = sorted(one for one in settings if one.startswith(SETTING_PREFIXES))
        run_import(home, ImportJob(agent, session, transcript, cwd, parse_settings(own)))
    else:
        gc.disable()  # until the first client has its answer: a tenth of the time
        from rekindle.hooks.helper import run_helper

        run_helper(arguments[0])


if __name__ == "__main__":
    add_package_to_path()
    main(sys.argv[1:])
