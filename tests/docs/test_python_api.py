"""The public API: every name can be imported, and the pages import nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rekindle
from tests.cases import check_each
from tests.docs.test_docs import PAGES, ROOT, blocks

PYTHON_PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
MODULES = set(re.findall(r"`(rekindle(?:\.\w+)+)`", PYTHON_PAGE.split("## Modules")[1]))
LOAD_NONE = "import sys, rekindle; print(*(m for m in sys.modules if m.startswith('rekindle.')))"


def sort_key(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions, as ruff sorts them."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_every_public_name_is_there_once_and_in_order() -> None:
    assert [name for name in rekindle.__all__ if getattr(rekindle, name, None) is None] == []
    assert sorted(set(rekindle.__all__), key=sort_key) == rekindle.__all__
    assert set(rekindle.__all__) <= set(dir(rekindle))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rekindle.nothing  # noqa: B018  # pyright: ignore


def test_a_type_checker_sees_what_is_loaded_on_first_use() -> None:
    tree = ast.parse((ROOT / "src" / "rekindle" / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        name.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rekindle.")
        for name in node.names
    }
    loaded = {
        name: f"rekindle.{module}"
        for module, names in rekindle._NAMES.items()
        for name in names.split()
    }
    assert seen == loaded
    assert seen.keys() == set(rekindle.__all__)


def test_importing_the_package_loads_no_module_of_it() -> None:
    said = subprocess.run([sys.executable, "-c", LOAD_NONE], capture_output=True, check=True)
    assert said.stdout.split() == []


def test_the_python_page_lists_exactly_the_public_names() -> None:
    section = PYTHON_PAGE.split("## Everything there is")[1].split("## Modules")[0]
    listed = re.findall(r"`(\w+)`", section)
    assert sorted(listed) == sorted(rekindle.__all__)


@check_each("page", PAGES, ids=lambda page: page.name)
def test_pages_import_only_what_is_public(page: Path) -> None:
    private: list[str] = []
    for block in blocks(page):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.body)):
            if isinstance(node, ast.Import):
                private += [name.name for name in node.names if name.name.startswith("rekindle.")]
            elif isinstance(node, ast.ImportFrom) and node.module == "rekindle":
                private += [name.name for name in node.names if name.name not in rekindle.__all__]
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("rekindle."):
                private += [str(node.module)] * (node.module not in MODULES)
    assert private == []
