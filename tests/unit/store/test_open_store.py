from __future__ import annotations

import sys

import pytest

from rekindle import open_store
from rekindle.errors import InvalidInput


def test_a_server_without_its_client_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "rekindle.store.engines.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidInput, match=r"pip install 'rekindle\[postgres\]'") as raised:
        open_store("postgresql://localhost/x")
    assert "\n" not in str(raised.value)
