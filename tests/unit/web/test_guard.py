"""Nobody sees or changes anything without having opened a link."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.routing import Route

from rekindle.store import Store
from rekindle.web import views
from rekindle.web.access import LINK_SECONDS, AccessKeys, parse_public_url
from tests.unit.web.conftest import WebClient, build_client

PAGES = [
    route.path
    for route in views.ROUTES
    if isinstance(route, Route) and "GET" in (route.methods or ()) and "{" not in route.path
]


@pytest.mark.parametrize("path", [*PAGES, "/sessions/some", "/nothing"])
def test_without_the_cookie_there_is_nothing_to_see(
    store: Store, tmp_path: Path, path: str
) -> None:
    stranger = build_client(store, tmp_path)
    for method in ("GET", "POST", "DELETE"):
        answer = stranger.request(method, path)
        assert answer.status_code == 401
        assert "rekindle web link" in answer.text


def test_a_link_works_once(store: Store, tmp_path: Path) -> None:
    client = build_client(store, tmp_path)
    token = client.keys.create_link_token()
    first = client.get("/open", params={"token": token, "to": "/projects"})
    assert first.headers["refresh"] == "0; url=/projects"
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=Strict" in first.headers["set-cookie"]
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.get("/open", params={"token": token}).status_code == 401
    assert client.get("/").status_code == 401


def test_a_preview_does_not_use_up_a_link(store: Store, tmp_path: Path) -> None:
    client = build_client(store, tmp_path)
    token = client.keys.create_link_token()
    assert client.head("/open", params={"token": token}).status_code == 405
    assert client.get("/open", params={"token": token}).status_code == 200


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil", "/\r\nx: y"]
)
def test_a_link_leads_to_our_own_pages_only(store: Store, tmp_path: Path, target: str) -> None:
    client = build_client(store, tmp_path)
    answer = client.get("/open", params={"token": client.keys.create_link_token(), "to": target})
    url = answer.headers["refresh"].removeprefix("0; url=")
    assert url.startswith("/")
    assert not url.startswith("//")
    assert "\\" not in url
    assert "x" not in answer.headers


def test_an_old_link_is_worthless(tmp_path: Path) -> None:
    now = [1000.0]
    keys = AccessKeys(tmp_path, "name", lambda: now[0])
    token = keys.create_link_token()
    now[0] += LINK_SECONDS + 1
    assert not keys.use_link_token(token)


def test_a_cookie_outlives_the_server_but_not_its_time(tmp_path: Path) -> None:
    now = [1000.0]
    cookie = AccessKeys(tmp_path, "name", lambda: now[0]).create_cookie()
    keys = AccessKeys(tmp_path, "name", lambda: now[0])
    assert keys.read_cookie(cookie) is not None
    assert keys.read_cookie(cookie + "0") is None
    assert keys.read_cookie("a.99999999999." + "0" * 64) is None
    now[0] += 31 * 86400
    assert keys.read_cookie(cookie) is None


def test_the_key_is_private(tmp_path: Path) -> None:
    AccessKeys(tmp_path / "web", "name").create_link_token()
    assert {file.stat().st_mode & 0o077 for file in (tmp_path / "web").rglob("*")} == {0}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "evil.example:8765", ""])
def test_a_name_that_points_here_is_refused(client: WebClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", ""])
def test_forms_of_other_sites_are_refused(client: WebClient, origin: str) -> None:
    fields = {"form_token": client.read_form_token(), "theme": "dark"}
    answer = client.post("/theme", data=fields, headers={"origin": origin})
    assert answer.status_code == 403


def test_a_form_needs_the_token_of_its_visitor(client: WebClient) -> None:
    assert client.post("/theme", data={"theme": "dark"}).status_code == 403
    assert client.post("/theme", data={"form_token": "é" * 9}).status_code == 403
    assert client.submit("/theme", theme="dark").status_code == 200
    assert 'data-theme="dark"' in client.get("/").text


def test_read_only_refuses_every_form(store: Store, tmp_path: Path) -> None:
    client = build_client(store, tmp_path, readonly=True)
    client.open_link()
    assert client.get("/").status_code == 200
    assert client.submit("/theme", theme="dark").status_code == 403


def test_answers_allow_no_script_of_others(client: WebClient) -> None:
    for path in ("/", "/nothing", "/static/app.js"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_large_and_strange_bodies_are_refused(client: WebClient) -> None:
    assert client.post("/theme", content=b"x" * 2_000_000).status_code == 413
    assert client.post("/theme", json={"theme": "dark"}).status_code == 415
    content_type = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/theme", content=b"a=%ff", headers=content_type).status_code == 400


def test_a_public_url_is_an_origin() -> None:
    origin = parse_public_url("https://Name.example/")
    assert origin.is_secure
    assert origin.accepts_host("name.example")
    assert origin.accepts_origin("https://name.example")
    assert not origin.accepts_origin("http://name.example")
    for text in ("name.example", "ftp://x", "https://", "https://a/b", "https://u@a"):
        with pytest.raises(ValueError, match="expected a URL"):
            parse_public_url(text)
