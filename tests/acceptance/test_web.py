"""`rekindle web` refuses what cannot work, in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.test_cli import Rekindle


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("web", "--listen", "nowhere"), "expected HOST:PORT"),
        (("web", "--listen", "192.0.2.1:80"), "can be reached by others"),
        (("web", "--public-url", "name.example"), "expected a URL"),
        (("web", "link", "--listen", "127.0.0.1:0"), "expected the port"),
        (("--store", "missing.db", "web", "--no-open"), "Store not found"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    rekindle = Rekindle(tmp_path)
    done = rekindle.run(*words, code=2)
    assert said in done.stderr.decode()
    assert not list(rekindle.home.rglob("missing.db"))
