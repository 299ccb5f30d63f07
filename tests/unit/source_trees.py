"""The syntax trees of the package, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rekindle

PACKAGE = Path(rekindle.__file__).parent
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@cache
def parse_modules() -> dict[Path, ast.Module]:
    gc.disable()  # it would look through a million new objects again and again, and find nothing
    try:
        return {file: ast.parse(file.read_text("utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()


def iter_child_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements right inside one, and the branches of `try` and `match`."""
    for block in BLOCKS:
        yield from getattr(node, block, ())


def iter_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, like `ast.walk` but for expressions, which are nine nodes of ten."""
    for child in iter_child_statements(tree):
        yield child
        yield from iter_statements(child)
