"""Find the patterns of the package whose time grows faster than the text; run as a program.

    python -m tests.unit.pattern_sweep            sweep the patterns that are not recorded
    python -m tests.unit.pattern_sweep --record   the same, and record those without a fault
    python -m tests.unit.pattern_sweep --all      sweep all; with --record, record them anew

It prints a line per fault, and then exits with 1. A sweep of all patterns takes minutes, so the file
`swept_patterns.txt` keeps a digest of each that passed: of the pattern, of how it is used, and of the
texts that it is tried with. A text that a pattern cannot finish is stopped by a timer of CPU time, which
the matcher obeys, so the sweep ends whatever the patterns are.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import pkgutil
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from multiprocessing import Pool
from pathlib import Path
from time import process_time
from types import BuiltinMethodType, ModuleType
from typing import Any, NamedTuple

import rekindle
from tests.unit import pattern_samples
from tests.unit.pattern_samples import HostileText, iter_hostile_texts
from tests.unit.source_trees import parse_modules

RECORD = Path(__file__).with_name("swept_patterns.txt")
# Up to a size at which a square is plain on any machine.
FIRST_SIZE, LAST_SIZE = 250, 32_000
CLEAR_SECONDS = 0.001  # of CPU: enough to compare; n^2 takes longer for LAST_SIZE characters
MAX_GROWTH = 9.0  # when the text is four times as long: n^1.5 is 8, n^2 is 16
ATTEMPTS = 3
MAX_SECONDS = 1.0  # of CPU for one text
ANCHORED = {"match", "fullmatch"}
# Where the source does not tell, because the pattern is used under another name.
USED_AS = {
    "PROVIDER_RULES.tool": "fullmatch",
    "_DEFAULT_JUDGE._phrases._shapes._regex": "match",
    "_DEFAULT_JUDGE._signatures._by_command": "match",
    "_EXCEPTION_AND_EXIT": "match",
    "_KIND_PATTERNS": "fullmatch",
    "_MODULE": "fullmatch",
    "_PLACEHOLDER": "match",
    "_SUBCOMMAND": "fullmatch",
    "_TAGGED_EXIT": "match",
    "_TRUNCATED": "match",
}
# Patterns that only ever read our own text, or a line of a bounded length.
HARMLESS = {
    "rekindle.judging.rules.command_output.SUCCESS",  # the last line, of at most 1,200 characters
    "rekindle.judging.rules.text_patterns._TOKENS",  # the tables of rules
}
ADAPTERS = ("rekindle.platforms.", "rekindle.integrations.")
METHODS = frozenset(ANCHORED) | {"search", "finditer", "findall", "sub", "subn", "split"}


class Use(NamedTuple):
    """A pattern, the module that holds it, its name there, and the methods it is used with."""

    pattern: re.Pattern[Any]
    module: str
    name: str
    methods: frozenset[str]


class TookTooLong(Exception):
    """A text was not finished in its CPU time."""


# ── finding the patterns


def list_uses() -> list[Use]:
    """List every pattern of the package in the same order each time."""
    parsed = parse_modules()
    modules = list(import_modules(parsed))
    trees = {one.__name__: parsed[Path(one.__file__ or "")] for one in modules}
    methods = {name: dict(collect_methods(tree)) for name, tree in trees.items()}
    uses: dict[re.Pattern[Any], Use] = {}
    seen: set[int] = set()
    for module in modules:
        for name, value in list(vars(module).items()):
            for path, pattern in iter_patterns(name, value, seen):
                holders = [one.__name__ for one in modules if vars(one).get(name) is value]
                used = find_methods(methods, module.__name__, holders, path)
                uses.setdefault(pattern, Use(pattern, module.__name__, path, used))
    for name, tree in trees.items():
        for use in iter_inline_patterns(name, tree):
            uses.setdefault(use.pattern, use)
    return list(uses.values())


def import_modules(parsed: Mapping[Path, ast.Module]) -> Iterator[ModuleType]:
    """Import every module of the package, except what needs an extra that is not installed.

    Those that join others' libraries to ours load many seconds of them: only if they have patterns.
    """
    yield rekindle
    root = Path(rekindle.__file__ or "").parent
    for found in pkgutil.walk_packages([str(root)], "rekindle.", onerror=lambda _: None):
        if found.name.endswith("__main__"):
            continue
        path = root.joinpath(*found.name.split(".")[1:])
        path = path / "__init__.py" if found.ispkg else path.with_suffix(".py")
        if found.name.startswith(ADAPTERS) and not imports_re(parsed[path]):
            continue
        try:
            yield importlib.import_module(found.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "rekindle").startswith("rekindle"):
                raise


def imports_re(tree: ast.Module) -> bool:
    """Whether a module compiles patterns of its own."""
    names = (one.names for one in ast.walk(tree) if isinstance(one, ast.Import))
    return any(name.name == "re" for aliases in names for name in aliases)


def iter_patterns(
    path: str, value: object, seen: set[int]
) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns inside a value, each with the fields that lead to it: `_RULES.where`."""
    if isinstance(value, BuiltinMethodType):
        value = value.__self__  # `re.compile(…).search` kept as a function
    if isinstance(value, re.Pattern):
        yield path, value
    elif id(value) not in seen and not isinstance(value, str | bytes | int | ModuleType):
        seen.add(id(value))
        for field, part in iter_parts(value):
            yield from iter_patterns(f"{path}.{field}" if field else path, part, seen)


def iter_parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the values that a value holds, each with the name of its field if it has one."""
    if isinstance(value, Mapping):
        yield from (("", part) for pair in value.items() for part in pair)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((field, getattr(value, field)) for field in value._fields)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (("", part) for part in value)
    elif is_ours(value) or is_ours(type(value)):
        slots = (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ()))
        yield from ((slot, getattr(value, slot, None)) for slot in slots)
        yield from getattr(value, "__dict__", {}).items()
        cells = getattr(value, "__closure__", None) or ()
        yield from (("", cell.cell_contents) for cell in cells)
        yield "", getattr(value, "__defaults__", None)


def is_ours(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("rekindle")


# ── how they are used


def collect_methods(tree: ast.AST) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the names on which a module calls methods of patterns, and those methods."""
    methods: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            methods.setdefault(get_last_name(node.value), set()).add(node.attr)
        if is_re_call(node) and node.args:
            methods.setdefault(get_last_name(node.args[0]), set()).add(node.func.attr)
    yield from ((name, frozenset(used)) for name, used in methods.items())


def find_methods(
    methods: dict[str, dict[str, frozenset[str]]], module: str, holders: list[str], path: str
) -> frozenset[str]:
    """Return the methods used on every name of a path, as far as the source tells.

    The first name counts in the modules that hold the value, the names of fields anywhere.
    """
    if path in USED_AS:
        return frozenset({USED_AS[path]})
    common = METHODS
    for number, name in enumerate(path.split(".")):
        places = holders if number == 0 else list(methods)
        used = methods[module].get(name) if number else None
        used = used or frozenset().union(*(methods[one].get(name, ()) for one in places))
        common = common & (used or METHODS)
    return common


def get_last_name(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return getattr(node, "attr", None) or getattr(node, "id", None) or ""


def is_re_call(node: ast.AST) -> Any:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in METHODS
        and getattr(node.func.value, "id", "") == "re"
    )


def iter_inline_patterns(module: str, tree: ast.AST) -> Iterator[Use]:
    """Yield the patterns that are written where they are used: `re.match(r"…", text)`."""
    for node in ast.walk(tree):
        if is_re_call(node) and isinstance(node.args[0], ast.Constant):
            pattern = re.compile(node.args[0].value)
            yield Use(pattern, module, f"line {node.lineno}", frozenset({node.func.attr}))


# ── measuring


def list_measured_methods(use: Use) -> list[str]:
    """Return the methods to measure: at the start of a text only, if the package does no more."""
    return sorted(use.methods) if use.methods <= ANCHORED else ["findall"]


def list_measured_calls(use: Use) -> list[Callable[[str], object]]:
    calls = [getattr(use.pattern, method) for method in list_measured_methods(use)]
    if isinstance(use.pattern.pattern, bytes):
        return [lambda text, call=call: call(text.encode()) for call in calls]
    return calls


def measure_call(call: Callable[[str], object], text: str) -> float:
    """Return the CPU seconds of a call, which is stopped after `MAX_SECONDS`."""
    start = process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        call(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
    except TookTooLong:
        return MAX_SECONDS
    return process_time() - start


def grows_too_fast(call: Callable[[str], object], write: HostileText) -> bool:
    """Whether the time grows clearly faster than the text, over two steps of four times the size.

    A repetition with a limit looks like a square until its limit is reached: hence two steps.
    """
    if measure_call(call, write(LAST_SIZE)) < CLEAR_SECONDS:
        return False
    size, seconds = FIRST_SIZE, measure_call(call, write(FIRST_SIZE))
    while seconds < CLEAR_SECONDS and size < LAST_SIZE:
        size *= 2
        seconds = measure_call(call, write(size))
    for _ in range(2):
        if not CLEAR_SECONDS <= seconds < MAX_SECONDS:
            break
        seconds = measure_growth(call, write(size), write(4 * size), seconds)
        size *= 4
    return seconds >= CLEAR_SECONDS


def measure_growth(call: Callable[[str], object], short: str, long: str, before: float) -> float:
    """Return the seconds for the long text if each of several attempts took far too long, or else 0."""
    after = 0.0
    for _ in range(ATTEMPTS):
        after = measure_call(call, long)
        if after < MAX_SECONDS and after < MAX_GROWTH * before:
            return 0.0
        # What else the machine does makes a call longer, never shorter.
        before = min(before, measure_call(call, short))
    return after


def find_fault(use: Use) -> str | None:
    """Describe the first hostile text for which a pattern's time grows too fast."""
    for description, write in iter_hostile_texts(use.pattern):
        if any(grows_too_fast(call, write) for call in list_measured_calls(use)):
            return description
    return None


def raise_timeout(*_: object) -> None:
    raise TookTooLong


def set_timer() -> None:
    """Let the timer of CPU time stop a call in this process."""
    signal.signal(signal.SIGPROF, raise_timeout)


# ── what was swept


def compute_digest(use: Use) -> str:
    """Return the digest of all that a sweep of a pattern depends on."""
    parts = (use.pattern.pattern, use.pattern.flags, list_measured_methods(use))
    return sha256(f"{Path(pattern_samples.__file__).read_text()}{parts}".encode()).hexdigest()[:16]


def read_record() -> set[str]:
    return set(RECORD.read_text().split()) if RECORD.exists() else set()


def list_unrecorded(uses: Iterable[Use]) -> list[Use]:
    recorded = read_record()
    return [use for use in uses if not is_harmless(use) and compute_digest(use) not in recorded]


def is_harmless(use: Use) -> bool:
    return f"{use.module}.{use.name}" in HARMLESS


def sweep_patterns(uses: list[Use]) -> dict[Use, str]:
    """Return the patterns that have a fault, each with its description."""
    with Pool(initializer=set_timer) as pool:
        faults = dict(zip(uses, pool.imap(find_fault, uses), strict=True))
    return {
        use: f"{use.module}.{use.name} ({', '.join(sorted(use.methods))}): {fault}:"
        f" {use.pattern.pattern!r:.200}"
        for use, fault in faults.items()
        if fault
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="recorded patterns too")
    parser.add_argument("--record", action="store_true", help="record patterns without a fault")
    options = parser.parse_args()
    uses = [use for use in list_uses() if not is_harmless(use)]
    swept = uses if options.all else list_unrecorded(uses)
    faults = sweep_patterns(swept)
    if options.record:
        RECORD.write_text(
            "\n".join(sorted({compute_digest(one) for one in uses if one not in faults})) + "\n"
        )
    print(*faults.values(), f"{len(swept)} patterns swept, {len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
