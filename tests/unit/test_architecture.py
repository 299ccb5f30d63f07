"""The rules that keep src, bench and soak readable: layers, cycles, sizes and names."""

from __future__ import annotations

import ast
import inspect
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from rekindle import errors
from tests.unit import source_trees
from tests.unit.source_trees import PACKAGE, iter_child_statements, iter_statements

# From the ground up: a module imports only from its own room and from those above it here.
LAYERS = (
    "errors",
    "message_formats",
    "message",
    "types",
    "json_fields",
    "files",
    "pages",
    "config",
    "projects",
    "routing",
    "shell",
    "redaction",
    "judging",
    "analytics",
    "experiments",
    "knowledge",
    "store",
    "tenants",
    "transcripts",
    "sandbox",
    "processes",
    "platforms",
    "agent",
    "parallel",
    "learning",
    "watching",
    "services",
    "gateway",
    "api",
    "hooks",
    "coding_agents",
    "mcp",
    "web",
    "integrations",
    "cli",
    "testing",
)
# Arrows that the layers would allow and the design does not: (from, to).
FORBIDDEN = {
    ("store", "knowledge"),  # the store keeps what is learned; what it means is not its business
    ("processes", "store"),  # the supervisor needs no database
    ("processes", "transcripts"),
    ("platforms", "store"),
    ("agent", "transcripts"),
    ("learning.warm_start", "agent"),  # it is handed what it needs to know of tools and providers
}
MAX_FILES = 12
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_MEDIAN_LINES = 8

LONG_FILES = {
    "store/store.py",  # the façade: one method for each thing a store can do
}
# Nouns that read better than a verb: `store.messages(session)`.
NOUN_METHODS = {
    "Store.messages",
    "Store.session",
    "Store.recent",
    "Store.usage",
    "Store.lineage",
    "Store.children",
    "Store.rewinds",
    "Store.stats",
    "Store.transaction",
    "Filter.with_",  # `with` is a keyword
}
_VERBS = """
    attempt authenticate charge decrypt download erase encrypt maintain react request sign subscribe
    upload
    abandon abbreviate abort accept acknowledge ack aclose acquire adapt add adopt advance aggregate
    announce answer append apply approve archive ascend ask assess assign attach avoid backup become
    begin borrow build cache call cancel catch change check choose claim classify clean clear close
    cluster code coerce collapse collect combine commit compact compare compile complete compress
    compute configure confine connect control convert copy count create cut declare decode defer delete
    deliver demote derive descend describe detach detect diff digest disable discard disconnect draft
    drain draw drop dump echo edit emit enable encode enqueue end ensure escape estimate evaluate evict
    exclude exec execute exit expand explain export extend extract fail feed fence fetch fill filter find
    fingerprint finish fit fix flatten flush fold follow forget fork format forward gather
    generalize generate get glob go greet group guard hand handle hash hold identify ignore
    import increment
    indent index inherit inline insert install interleave invent isolate iter join judge keep kill
    lead leave limit link list listen load localize lock log look main make map mark mask match measure
    advise diagnose distill hide iterate learn notify observe propose recall remember replay reword share
    survey uninstall
    merge migrate mine move next normalize number omit open optimize paint pair parse pass patch pause
    peek percent pick pin plan poll pop post prefix prepare prepend preview print probe process profile
    protect prune publish pump purge push put query queue quote raise rank rate read rebuild receive
    record
    recount recover redact redeliver redirect redo refresh refuse register reindex reject relativize
    release remove rename render renew reopen repair repeat replace report
    requeue require reserve reset revoke
    resize resolve respond restart restore restrict resume retire retry reuse review rewind rewrite
    route run sample save say scan score search seed select send separate serve set settle shorten
    show shut signal simulate skip slice slot sort spawn spell split stack start stat stem step stop
    store stream strip submit subtract suggest sum summarize sweep switch sync take tend terminate test
    touch track transact translate trim truncate try undo undouble unescape unflatten unindex
    unlink unregister unwatch unwrap update upgrade use validate verify visit wait wake walk watch weigh
    wrap write yield
"""
# First words of questions and conversions.
_PREFIXES = """
    accepts allows are as belongs can contains decodes fetches from has is looks matches may mentions
    names needs on reads runs should starts takes to
"""
VERBS, PREFIXES = frozenset(_VERBS.split()), frozenset(_PREFIXES.split())
BACK_UP = "back_up"  # a verb of two words
DICTATED = {"fileno", "_asdict"}  # by protocols of Python; others by the classes that ours extend
SINGLE_WORDS = {"main", "register", "connect", "wrap"}  # a program, a group, a platform, a client

# Benchmarks and crash tests measure, damage and kill, besides what the package does.
ROOT = Path(__file__).parents[2]
BENCH_FOLDERS = ("bench", "soak")
_BENCH_VERBS = """
    accumulate alter alternate audit average bootstrap damage decide flip freeze overwrite pack pool
    press rotate round shrink swap time type unpack zero
"""
BENCH_VERBS = VERBS | frozenset(_BENCH_VERBS.split())
BENCH_SINGLE_WORDS = {"main", "run"}  # a program, a benchmark
# Files whose functions keep other names.
BENCH_NAME_EXCEPTIONS = {
    "bench/warm/tasks/quay.py",  # a fictitious program with words of its own, which a model sees
}
OUR_PACKAGES = {"rekindle", "tests", *BENCH_FOLDERS}


class Function(NamedTuple):
    file: str
    qualified: str
    name: str
    lines: int
    is_method: bool
    is_exempt: bool  # a property, a command, or a name that another protocol dictates


@cache
def parse_modules() -> dict[str, ast.Module]:
    trees = source_trees.parse_modules()
    return {file.relative_to(PACKAGE).as_posix(): tree for file, tree in trees.items()}


@cache
def parse_benches() -> dict[str, ast.Module]:
    return {
        file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for folder in BENCH_FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not any(part.startswith(".") for part in file.relative_to(ROOT).parts)  # downloads
    }


def to_module(file: str) -> str:
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def collect_imports() -> dict[str, frozenset[str]]:
    """Return what each module imports from the package, at the top or inside a function."""
    modules = {to_module(file) for file in parse_modules()}
    found: dict[str, frozenset[str]] = {}
    for file, tree in parse_modules().items():
        module = to_module(file)
        package = module if file.endswith("__init__.py") else module.rpartition(".")[0]
        targets: set[str] = set()
        for node in iter_statements(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            base = resolve_base(node, package)
            if base is not None:
                targets |= {
                    name if (name := f"{base}.{alias.name}".strip(".")) in modules else base
                    for alias in node.names
                }
        found[module] = frozenset(targets - {module, ""})
    return found


def resolve_base(node: ast.ImportFrom, package: str) -> str | None:
    if node.level == 0:
        name = node.module or ""
        if name == "rekindle":
            return ""
        return name.removeprefix("rekindle.") if name.startswith("rekindle.") else None
    parts = package.split(".")[: len(package.split(".")) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


@cache
def list_functions() -> list[Function]:
    return [
        function
        for file, tree in parse_modules().items()
        for function in iter_functions(file, tree, "", is_method=False)
    ]


@cache
def list_bench_functions() -> list[Function]:
    return [
        function
        for file, tree in parse_benches().items()
        for function in iter_functions(file, tree, "", is_method=False)
    ]


@cache
def collect_foreign_names(file: str) -> frozenset[str]:
    """Return the names that a module imports from the packages of others."""
    names: set[str] = set()
    tree = parse_modules().get(file) or parse_benches()[file]
    for node in iter_statements(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            root = (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            root = node.names[0].name.split(".")[0]
        else:
            continue
        if root not in OUR_PACKAGES and root not in sys.stdlib_module_names:
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return frozenset(names)


def extends_foreign_class(file: str, node: ast.AST) -> bool:
    """Whether a class extends one of others, which dictates the names of its methods."""
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    roots = {re.split(r"\W", ast.unparse(base))[0] for base in bases}
    return not roots.isdisjoint(collect_foreign_names(file))


def iter_functions(file: str, node: ast.AST, prefix: str, *, is_method: bool) -> Iterator[Function]:
    is_dictated = extends_foreign_class(file, node)
    for child in iter_child_statements(node):
        if isinstance(child, ast.ClassDef):
            yield from iter_functions(file, child, f"{prefix}{child.name}.", is_method=True)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [ast.unparse(one) for one in child.decorator_list]
            exempt = any("property" in one or "command" in one for one in decorators)
            exempt = exempt or (is_dictated and not child.name.startswith("_"))
            lines = (child.end_lineno or child.lineno) - child.lineno + 1
            qualified = f"{prefix}{child.name}"
            yield Function(file, qualified, child.name, lines, is_method, exempt)
            yield from iter_functions(file, child, f"{qualified}.", is_method=False)
        else:
            yield from iter_functions(file, child, prefix, is_method=is_method)


def is_checked(function: Function) -> bool:
    if function.is_exempt or function.name.startswith("__") or function.name in DICTATED:
        return False
    # Commands are registered by their names, which are the words that people type.
    return not function.file.startswith("cli/") or "_" in function.name.strip("_")


def is_nested(function: Function) -> bool:
    return "." in function.qualified.replace(".", "", function.is_method)


def begins_with_verb(name: str, verbs: frozenset[str] = VERBS) -> bool:
    words = name.strip("_").split("_")
    return (
        words[0] in verbs
        or words[0] in PREFIXES
        or name.strip("_").startswith(BACK_UP)
        or "to" in words[1:-1]  # a conversion: row_to_message
        or "from" in words[1:-1]
        or words[-1] in ("fetches", "succeeds")
        or (len(words) > 2 and words[1] == "runs")
    )


def test_no_module_imports_itself_through_others() -> None:
    try:
        tuple(TopologicalSorter(collect_imports()).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_a_module_imports_only_from_rooms_below_it() -> None:
    ranks = {room: rank for rank, room in enumerate(LAYERS)}
    wrong = [
        f"{module} -> {target}"
        for module, targets in collect_imports().items()
        for target in targets
        if (source := module.split(".")[0]) and source != (room := target.split(".")[0])
        if source not in ranks or room not in ranks or ranks[source] <= ranks[room]
    ]
    assert wrong == []


def test_arrows_that_the_design_forbids_are_absent() -> None:
    wrong = [
        f"{module} -> {target}"
        for module, targets in collect_imports().items()
        for target in targets
        for source, forbidden in FORBIDDEN
        if f"{module}.".startswith(f"{source}.") and f"{target}.".startswith(f"{forbidden}.")
    ]
    assert wrong == []


def test_every_room_is_in_the_layers_and_nothing_else_lies_at_the_top() -> None:
    rooms = {to_module(file).split(".")[0] for file in parse_modules()} - {""}
    assert rooms == set(LAYERS)


def test_a_folder_holds_at_most_twelve_files() -> None:
    files = (*parse_modules(), *parse_benches())
    counts = Counter(file.rpartition("/")[0] for file in files if not file.endswith("__init__.py"))
    assert {folder: count for folder, count in counts.items() if count > MAX_FILES} == {}


def test_files_and_functions_stay_short() -> None:
    sources = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in parse_modules()}
    lengths = {file: text.count("\n") for file, text in sources.items()}
    long_files = {file for file, lines in lengths.items() if lines > MAX_FILE_LINES}
    assert long_files <= LONG_FILES
    functions = list_functions()
    assert [one for one in functions if one.lines > MAX_FUNCTION_LINES] == []
    assert statistics.median(one.lines for one in functions) <= MAX_MEDIAN_LINES


def find_repeated_classes(trees: Iterable[ast.AST]) -> dict[str, int]:
    names = Counter(
        node.name.lstrip("_")
        for tree in trees
        for node in iter_statements(tree)
        if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in names.items() if count > 1}


def test_a_class_name_is_defined_once() -> None:
    assert find_repeated_classes(parse_modules().values()) == {}
    assert find_repeated_classes(parse_benches().values()) == {}


def test_functions_begin_with_a_verb() -> None:
    assert len(NOUN_METHODS) <= 10
    wrong = [
        f"{one.file}: {one.qualified}"
        for one in list_functions()
        if is_checked(one)
        and one.qualified not in NOUN_METHODS
        and not is_nested(one)
        and not begins_with_verb(one.name)
    ]
    assert wrong == []


def test_functions_of_a_module_name_their_object() -> None:
    wrong = [
        f"{one.file}: {one.qualified}"
        for one in list_functions()
        if is_checked(one)
        and "." not in one.qualified
        and "_" not in one.name.strip("_")
        and one.name not in SINGLE_WORDS
    ]
    assert wrong == []


def test_errors_that_leave_their_file_stand_in_the_tree() -> None:
    tree = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    strays: list[str] = []
    for file, module in parse_modules().items():
        for node in iter_statements(module) if not f"/{file}".endswith("/errors.py") else ():
            bases = {ast.unparse(base).rpartition(".")[2] for base in getattr(node, "bases", ())}
            if isinstance(node, ast.ClassDef) and bases & tree:
                strays.append(f"{file}: {node.name}")
    assert strays == []


def test_benches_have_short_files_and_functions() -> None:
    lengths = {file: (ROOT / file).read_text("utf-8").count("\n") for file in parse_benches()}
    assert {file: lines for file, lines in lengths.items() if lines > MAX_FILE_LINES} == {}
    assert [one for one in list_bench_functions() if one.lines > MAX_FUNCTION_LINES] == []


def test_functions_of_benches_begin_with_a_verb_and_name_their_object() -> None:
    assert len(BENCH_NAME_EXCEPTIONS) <= 10
    wrong = [
        f"{one.file}: {one.qualified}"
        for one in list_bench_functions()
        if is_checked(one)
        and one.file not in BENCH_NAME_EXCEPTIONS
        and not is_nested(one)
        and (
            not begins_with_verb(one.name, BENCH_VERBS)
            or (one.name not in BENCH_SINGLE_WORDS and is_single_public_word(one))
        )
    ]
    assert wrong == []


def is_single_public_word(function: Function) -> bool:
    return "." not in function.qualified and "_" not in function.name
