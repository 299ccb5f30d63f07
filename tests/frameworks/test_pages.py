"""The programs on the pages about frameworks run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_docs import APART, run_page


@pytest.mark.parametrize("page", APART, ids=lambda page: page.name)
def test_what_the_page_shows_can_be_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
