"""Programs that run another program: `sudo`, `timeout 5`, `uv run`, `npx`, `docker exec web`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


def split_names(text: str) -> frozenset[str]:
    """Return the words of a table."""
    return frozenset(text.split())


SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh", "rbash"])
INTERPRETERS = split_names("""
    python python2 python3 pypy pypy3 node nodejs ruby perl php java deno bun tsx ts-node lua Rscript
    """)
_VERSIONED = re.compile(r"(?:python|pypy)[\d.]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


class ProgramWrapper(NamedTuple):
    """How a program gets the command to run."""

    value_options: frozenset[str] = frozenset()  # options followed by a value
    subcommands: frozenset[str] = frozenset()  # it runs another program only with one of these
    operands: int = 0  # arguments of its own, before the other program
    query_options: frozenset[str] = frozenset()  # with one of these, it runs nothing
    needs_dashes: bool = False  # the other program follows `--`


def _make_wrapper(
    values: str = "",
    *,
    subcommands: str = "",
    operands: int = 0,
    queries: str = "",
    needs_dashes: bool = False,
) -> ProgramWrapper:
    return ProgramWrapper(
        split_names(values),
        split_names(subcommands),
        operands,
        split_names(queries),
        needs_dashes,
    )


_PROJECT_VALUES = """
    --with --with-requirements --with-editable --project --directory --python -p --group --extra
    --package --env-file --index-url -e --environment -C
"""
_CONTAINER_VALUES = "-e -u -w --env --user --workdir --env-file --index"
WRAPPERS: dict[str, ProgramWrapper] = {
    **dict.fromkeys(
        split_names("nohup setsid builtin unbuffer chronic rtk busybox toybox unshare then"),
        _make_wrapper(),
    ),
    "command": _make_wrapper(queries="-v -V"),
    "env": _make_wrapper("-u -C -S --unset --chdir"),
    "sudo": _make_wrapper("-u -g -p -C -D -h -R -T -r --user --group"),
    "doas": _make_wrapper("-u -C"),
    "runuser": _make_wrapper("-u -g"),
    "nice": _make_wrapper("-n"),
    "ionice": _make_wrapper("-c -n -p"),
    "stdbuf": _make_wrapper("-i -o -e"),
    "time": _make_wrapper("-f -o"),
    "exec": _make_wrapper("-a"),
    "caffeinate": _make_wrapper("-t"),
    "watch": _make_wrapper("-n -d"),
    "parallel": _make_wrapper("-j -S"),
    "xargs": _make_wrapper("-I -n -d -P -L -s -E -a"),
    "strace": _make_wrapper("-e -o -p -s -u -P"),
    "ltrace": _make_wrapper("-e -o -p -s -u"),
    "xvfb-run": _make_wrapper("-n -s -e -f -p -w"),
    **dict.fromkeys(("timeout", "gtimeout"), _make_wrapper("-k -s", operands=1)),
    **dict.fromkeys(("taskset", "chrt"), _make_wrapper(operands=1)),
    "flock": _make_wrapper("-w -E -c", operands=1),
    "script": _make_wrapper("-c", operands=1),
    **dict.fromkeys(
        split_names("uv poetry pipenv pdm hatch rye pixi"),
        _make_wrapper(_PROJECT_VALUES, subcommands="run"),
    ),
    "conda": _make_wrapper("-n -p --name --prefix", subcommands="run"),
    "bundle": _make_wrapper(subcommands="exec"),
    "mise": _make_wrapper(subcommands="exec x", needs_dashes=True),
    "direnv": _make_wrapper(subcommands="exec", operands=1),
    **dict.fromkeys(("npx", "bunx", "pnpx"), _make_wrapper("-p --package")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _make_wrapper(subcommands="exec dlx x")),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "docker-compose"),
        _make_wrapper(_CONTAINER_VALUES, subcommands="exec", operands=1),
    ),
    **dict.fromkeys(("kubectl", "oc"), _make_wrapper("-n", subcommands="exec", needs_dashes=True)),
}


def find_inner_program(words: Sequence[str]) -> int:
    """Return the index of the program that a wrapper's command runs; 0 if it runs none."""
    wrapper = WRAPPERS.get(get_basename(words[0])) if words else None
    if wrapper is None:
        return 0
    index, operands = 1, wrapper.operands
    needs_subcommand = bool(wrapper.subcommands)
    while index < len(words):
        word = words[index]
        if word in wrapper.query_options:
            return 0
        if word == "--":
            operands = 0
        elif word[:1] == "-" and len(word) > 1:
            index += word in wrapper.value_options
        elif needs_subcommand:
            if word == "compose" and index == 1:
                pass  # `docker compose exec`
            elif word not in wrapper.subcommands:
                return 0
            else:
                needs_subcommand = False
                if wrapper.needs_dashes:
                    return words.index("--") + 1 if "--" in words[index:-1] else 0
        elif _ASSIGNMENT.match(word) and words[0] in ("env", "sudo", "doas"):
            pass
        elif operands:
            operands -= 1
        else:
            return index
        index += 1
    return 0


def is_interpreter(program: str) -> bool:
    """Return whether the program runs code in a language other than the shell's."""
    return program in INTERPRETERS or _VERSIONED.fullmatch(program) is not None


def is_assignment(word: str) -> bool:
    """Return whether the word sets a variable, as in `NAME=value`."""
    return _ASSIGNMENT.match(word) is not None


def get_basename(word: str) -> str:
    """Return the name of a program without its folder."""
    return word.rsplit("/", 1)[-1]
