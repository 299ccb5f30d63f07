"""The syntax trees of the package, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import rekindle

PACKAGE = Path(rekindle.__file__).parent


@cache
def parse_modules() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}
