"""Hooks for the MkDocs site: README.md as the home page, and links that leave docs/.

The pages in docs/ are also read in the repository, where `../bench/RESULTS.md` is a working link.
On the site there is no such page, so these links lead to the repository instead.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_DOCS_LINK = re.compile(r"(\]\()docs/")
_HOME_LINK = re.compile(r"(\]\()(?![a-z]+:|#|docs/)([^)\s]+\))")
_OUTSIDE_LINK = re.compile(r"(\]\()\.\./([^)\s]+\))")
_NOTE = re.compile(r"<!-- docs: .*?-->\n", re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the home page, with links relative to docs/."""
    readme = (Path(config.config_file_path).parent / "README.md").read_text(encoding="utf-8")
    text = _HOME_LINK.sub(r"\1../\2", readme)
    files.append(File.generated(config, "index.md", content=_DOCS_LINK.sub(r"\1", text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ at the repository, and drop notes to the docs tests."""
    repository = f"{config.repo_url}/blob/main"
    return _OUTSIDE_LINK.sub(rf"\1{repository}/\2", _NOTE.sub("", markdown))
