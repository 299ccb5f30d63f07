"""A web application with a store of its own, and a client that has opened its link."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rekindle.config import load_config
from rekindle.config.address import Address
from rekindle.store import Store
from rekindle.store.store_executor import StoreExecutor
from rekindle.web.access import AccessKeys, build_origin
from rekindle.web.app import build_app
from rekindle.web.context import WebContext
from rekindle.web.guard import GuardOptions
from rekindle.web.rendering import PageRenderer
from tests.new_store import open_new_store

BASE_URL = "http://127.0.0.1:8765"


class WebClient(TestClient):
    """A browser: it sends the origin of our pages, and their form token."""

    keys: AccessKeys

    def open_link(self) -> None:
        """Sign in."""
        answer = self.get("/open", params={"token": self.keys.create_link_token()})
        assert answer.status_code == 200

    def submit(self, path: str, **fields: str):
        """Send a form of ours, and follow where it leads."""
        return self.post(path, data={"form_token": self.read_form_token(), **fields})

    def read_form_token(self) -> str:
        """Return the form token that our pages contain."""
        cookie = self.cookies[self.keys.cookie_name]
        visitor = self.keys.read_cookie(cookie)
        assert visitor is not None
        return visitor.form_token


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_new_store(tmp_path / "sessions.db") as opened:
        yield opened


@cache
def get_renderer() -> PageRenderer:
    """Return one for all tests: the templates are compiled once, which takes longer than most tests."""
    return PageRenderer()


def build_client(store: Store, home: Path, *, readonly: bool = False) -> WebClient:
    """Return a client of a new application that has not signed in."""
    config = load_config({"REKINDLE_HOME": str(home)})
    origin = build_origin(Address("127.0.0.1", 8765))
    keys = AccessKeys(home / "web", "rekindle_8765")
    context = WebContext(config, StoreExecutor(store, threads=2), get_renderer(), readonly)
    app = build_app(context, GuardOptions(keys, origin, readonly))
    client = WebClient(app, BASE_URL, raise_server_exceptions=False, headers={"origin": BASE_URL})
    client.keys = keys
    return client


@pytest.fixture
def client(store: Store, tmp_path: Path) -> WebClient:
    found = build_client(store, tmp_path)
    found.open_link()
    return found
