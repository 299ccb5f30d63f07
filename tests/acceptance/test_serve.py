"""`rekindle serve` and `rekindle push`: the API, pushed transcripts, hostile clients, crashes."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from rekindle import open_store
from rekindle.api import values
from rekindle.api.client import ApiClient
from rekindle.api.operations import MAX_CHUNK_BYTES, MAX_JSON_BYTES, OPERATIONS
from rekindle.api.push import TranscriptPusher
from rekindle.errors import ServerRefused, ServerUnreachable
from rekindle.tenants import open_tenants
from tests import command
from tests.acceptance.api_server import ApiServer
from tests.acceptance.test_cli import Rekindle
from tests.acceptance.transcripts import Told, run, write_claude
from tests.waiting import PATIENCE, wait_until

NAME = hashlib.sha256(b"a transcript").hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("serve"))
    try:
        yield server
        assert server.stop() == 0
        assert server.key not in server.log.read_text()
    finally:
        server.kill()


def say(text: str, id: str) -> values.MessageValue:
    return values.MessageValue(role="user", content=text, id=id)


def send(
    server: ApiServer, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any]:
    """Send a request as it is, and return status and answer."""
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    given = {"Authorization": f"Bearer {server.key}"} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    try:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


# -- the contract


def test_every_operation_of_the_document_can_be_called_with_the_client(server: ApiServer) -> None:
    with server.client() as client:
        document = client.get_document()
        seen: dict[str, object] = {"get_document": document}
        seen["get_health"] = client.get_health()
        created = client.create_session(
            values.SessionInput(
                id="contract/1", title="Contract", messages=[say("zebra one", "m1")]
            )
        )
        seen["create_session"] = created
        seen["append_messages"] = client.append_messages(
            "contract/1", say("zebra two", "m2"), say("zebra one", "m1")
        )
        seen["get_session"] = client.get_session("contract/1")
        seen["list_sessions"] = client.list_sessions(filter="source=api", limit=1)
        seen["list_messages"] = client.list_messages("contract/1", after=0, limit=1)
        seen["search_messages"] = client.search_messages(
            values.SearchQuery(query="zebra", session="contract/1")
        )
        seen["recall_at_start"] = client.recall_at_start(values.StartRecall(folder="/nowhere"))
        seen["recall_at_failure"] = client.recall_at_failure(
            values.FailureRecall(folder="/nowhere", tool="Bash", result="not found")
        )
        seen["recall_before_call"] = client.recall_before_call(
            values.CallRecall(folder="/nowhere", tool="Bash", arguments={"command": "make"})
        )
        seen["get_transcript"] = client.get_transcript(NAME)
        seen["append_transcript"] = client.append_transcript(NAME, b"nothing known", offset=0)
        seen["import_transcript"] = client.import_transcript(NAME, values.TranscriptPlace())
    assert created.positions == [0]
    assert seen["append_messages"] == values.AppendedMessages(
        session="contract/1", positions=[1, 0]
    )
    assert {one.id for one in OPERATIONS} == {*seen}
    check_answers(document, seen)


def check_answers(document: dict[str, Any], seen: dict[str, object]) -> None:
    """Check the answers against what the document says of them."""
    import msgspec

    for path in document["paths"].values():
        for operation in path.values():
            answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
            schema = {**answer, "components": document["components"]}
            value = msgspec.to_builtins(seen[operation["operationId"]])
            jsonschema.validate(value, schema)


def test_lists_go_on_where_the_last_page_ended(server: ApiServer) -> None:
    with server.client() as client:
        for number in range(7):
            message = values.MessageValue(role="user", content="page", id="1", timestamp=100.0)
            client.create_session(
                values.SessionInput(id=f"page-{number}", source="pages", messages=[message])
            )
        ids = [one.id for one in client.iter_sessions(limit=2, filter="source=pages")]
        assert sorted(ids) == [f"page-{number}" for number in range(7)]
        with pytest.raises(ServerRefused, match="cursor"):
            client.list_sessions(cursor="!")


def test_a_repeated_request_stores_nothing_twice(server: ApiServer) -> None:
    with server.client() as client:
        new = values.SessionInput(id="repeated", messages=[say("a", "1"), say("b", "2")])
        first = client.create_session(new)
        assert client.create_session(new) == first
        assert len(client.list_messages("repeated").messages) == 2


def test_appends_of_many_connections_are_all_stored(server: ApiServer) -> None:
    with server.client() as client:
        client.create_session(values.SessionInput(id="crowd", messages=[say("begin", "begin")]))

    def append(number: int) -> None:
        with server.client() as client:
            for step in range(5):
                client.append_messages("crowd", say(f"{number} {step}", f"{number}-{step}"))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with server.client() as client:
        messages = client.list_messages("crowd", limit=1000).messages
    assert [message.position for message in messages] == list(range(41))
    assert len({message.id for message in messages}) == 41


# -- pushed transcripts


def write_session(folder: Path, id: str, word: str, steps: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    calls = [run(f"make {number}", f"{word} {number}") for number in range(steps)]
    write_claude(folder, Told(id, "/work/api", f"please find the {word}", calls))
    return folder / f"{id}.jsonl"


def push(server: ApiServer, home: Path, *words: object, code: int = 0) -> str:
    rekindle = Rekindle(home)
    done = rekindle.run("push", "--to", server.url, *words, code=code, REKINDLE_API_KEY=server.key)
    assert server.key not in (done.stdout + done.stderr).decode()
    return done.stdout.decode()


def test_pushed_transcripts_are_found_at_once_and_only_what_is_new_is_sent(
    server: ApiServer, tmp_path: Path
) -> None:
    file = write_session(tmp_path / ".claude" / "projects" / "api", "pushed-1", "wombat")
    (file.parent / "notes.txt").write_text("a password that is no transcript")
    assert "Sent 1 transcript" in push(server, tmp_path)
    with server.client() as client:
        hits = client.search_messages(values.SearchQuery(query="wombat")).hits
        assert {hit.session.id for hit in hits} == {"pushed-1"}
        assert "Nothing new" in push(server, tmp_path)
        before = file.read_bytes()
        write_session(file.parent, "other", "wombat")
        more = (file.parent / "other.jsonl").read_bytes().replace(b"other", b"pushed-1")
        file.write_bytes(before + more.replace(b'-u"', b'-later"'))
        (file.parent / "other.jsonl").unlink()
        said = json.loads(push(server, tmp_path, "--json"))
        assert said["files"] == 1
        assert said["sent_bytes"] == len(more.replace(b'-u"', b'-later"'))
        # Rewritten and shorter: it is sent anew.
        file.write_bytes(before.replace(b"wombat", b"badger"))
        said = json.loads(push(server, tmp_path, "--json"))
        assert said["sent_bytes"] == len(before)
    stored = [*(server.rekindle.home / "rekindle" / "serve" / "transcripts").rglob("content")]
    assert any(one.read_bytes() == file.read_bytes() for one in stored)
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in stored)
    assert not any(b"a password" in one.read_bytes() for one in stored)


def test_a_push_goes_on_after_kill_9_in_the_middle(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "server")
    try:
        file = write_session(tmp_path / "laptop", "long", "pelican", steps=60)
        content = file.read_bytes()
        chunk = len(content) // 4
        name = ""
        with server.client() as client:
            pusher = TranscriptPusher(client, server.url, tmp_path / "client")
            name = hashlib.sha256(f"{pusher._machine}\0{file}".encode()).hexdigest()  # pyright: ignore[reportPrivateUsage]
            client.append_transcript(name, content[:chunk], offset=0)
            client.append_transcript(name, content[chunk : 2 * chunk], offset=chunk)
            server.kill()
            with pytest.raises(ServerUnreachable):
                client.get_transcript(name)
        server.start()
        with server.client() as client:
            assert client.get_transcript(name).size == 2 * chunk  # what was acknowledged
            report = TranscriptPusher(client, server.url, tmp_path / "client").push_files([file])
            assert report.sent_bytes == len(content) - 2 * chunk
            assert report.sessions == 1
            hits = client.search_messages(values.SearchQuery(query="pelican 59")).hits
            assert {hit.session.id for hit in hits} == {"long"}
            client.create_session(values.SessionInput(id="kept", messages=[say("kept", "1")]))
            server.kill()
        with open_store(server.rekindle.store) as store:
            assert [message.text for message in store.messages("kept")] == ["kept"]
            assert store.verify() == []
    finally:
        server.kill()


def test_watch_sends_what_agents_write_also_after_the_server_was_away(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "server")
    laptop = Rekindle(tmp_path / "laptop")
    folder = laptop.home / ".claude" / "projects" / "api"
    write_session(folder, "first", "heron")
    watcher = command.start(
        ["push", "--to", server.url, "--watch"],
        env={**laptop.env, "REKINDLE_API_KEY": server.key},
        cwd=laptop.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with server.client(attempts=5) as client:
            heron = values.SearchQuery(query="heron")
            wait_until(lambda: client.search_messages(heron).hits)
            server.kill()
            write_session(folder, "second", "plover")
            server.start()
            plover = values.SearchQuery(query="plover")
            wait_until(lambda: client.search_messages(plover).hits)
    finally:
        watcher.kill()
        watcher.wait(PATIENCE)
        server.kill()


def test_hooks_of_another_machine_are_told_what_was_learned_from_pushed_sessions(
    server: ApiServer, tmp_path: Path
) -> None:
    for number in range(4):
        calls = [run("make check-all", "ok"), run("ls", "")]
        write_claude(tmp_path, Told(f"shop-{number}", "/work/shop", f"improve {number}", calls))
    assert "Sent 4 transcripts" in push(server, tmp_path, *tmp_path.glob("shop-*.jsonl"))
    with server.client() as client:
        asked = values.StartRecall(folder="/work/shop")
        wait_until(lambda: "make check-all" in client.recall_at_start(asked).text)
    laptop = Rekindle(tmp_path / "laptop")
    file = laptop.home / "rekindle" / "config.toml"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    file.write_text(
        f'[server]\nurl = "{server.url}"\napi_key = "{server.key}"\n[warm]\ncontrol_share = 0\n'
    )
    numbers = count()

    def is_told() -> bool:
        """A hook gives up on a server that is slow; the next session asks again."""
        given = json.dumps({"session_id": f"new-{next(numbers)}", "cwd": "/work/shop"}).encode()
        return "make check-all" in laptop("hook", "claude-code", "start", stdin=given)

    wait_until(is_told)
    assert not laptop.store.exists()
    kept = laptop.home / "rekindle" / "hooks" / "settings.json"
    assert not kept.exists() or stat.S_IMODE(kept.stat().st_mode) == 0o600
    # A server that is away costs the agent nothing but the notes.
    file.write_text(file.read_text().replace(server.url, "http://127.0.0.1:9"))
    again = json.dumps({"session_id": "other", "cwd": "/work/shop"}).encode()
    assert laptop("hook", "claude-code", "start", stdin=again) == ""


# -- who may do what


def test_keys_are_needed_and_have_scopes(server: ApiServer) -> None:
    reader = server.rekindle("serve", "add-key", "dashboard", "--scope", "read").strip()
    listed = server.rekindle("serve", "list-keys", "--json")
    assert reader not in listed
    file = server.rekindle.home / "rekindle" / "serve" / "api-keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert reader not in file.read_text()
    with server.client(reader) as client:
        client.list_sessions()
        with pytest.raises(ServerRefused, match="no write scope") as refused:
            client.create_session(values.SessionInput(messages=[say("x", "1")]))
        assert refused.value.status == 403
    for wrong in ("", "rks_wrong", "rk_0_wrong", "x" * 5000):
        with server.client(wrong) as client, pytest.raises(ServerRefused) as refused:
            client.list_sessions()
        assert refused.value.status == 401
    id = next(one["id"] for one in json.loads(listed) if one["name"] == "dashboard")
    server.rekindle("serve", "remove-key", id)
    # A running server forgets a key within seconds; a new one never knows it.
    assert server.rekindle.refusal("serve", "remove-key", id)


def test_a_tenant_reaches_nothing_of_another_tenant_or_of_the_server(server: ApiServer) -> None:
    with open_tenants(server.rekindle.store) as tenants:
        keys: dict[str, str] = {}
        for name in ("red", "blue"):
            tenants.add(name)
            keys[name] = tenants.keys.add(name, scopes=("read", "write")).token
    with (
        server.client() as own,
        server.client(keys["red"]) as red,
        server.client(keys["blue"]) as blue,
    ):
        own.create_session(values.SessionInput(id="shared-id", messages=[say("ours giraffe", "1")]))
        red.create_session(values.SessionInput(id="shared-id", messages=[say("red giraffe", "1")]))
        with pytest.raises(ServerRefused) as refused:
            blue.get_session("shared-id")
        assert refused.value.status == 404
        with pytest.raises(ServerRefused):
            blue.append_messages("shared-id", say("mine now", "2"))
        assert blue.search_messages(values.SearchQuery(query="giraffe")).hits == []
        assert blue.list_sessions().sessions == []
        red.append_transcript(NAME, b"red bytes", offset=0)
        assert blue.get_transcript(NAME).size == 0
        with pytest.raises(ServerRefused):
            blue.import_transcript(NAME, values.TranscriptPlace())
        found = red.search_messages(values.SearchQuery(query="giraffe")).hits
        assert [hit.message.content for hit in found] == ["red giraffe"]


def test_what_a_member_pushed_is_erased_with_them_and_the_rest_stays(
    server: ApiServer, tmp_path: Path
) -> None:
    with open_tenants(server.rekindle.store) as tenants:
        tenants.add("green")
        keys: dict[str, str] = {}
        for member in ("ada", "bob"):
            tenants.add_member("green", member)
            keys[member] = tenants.keys.add("green", scopes=("read", "write"), member=member).token
    for member, key in keys.items():
        folder = tmp_path / member
        write_session(
            folder / ".claude" / "projects" / "api", f"session-{member}", f"walrus {member}"
        )
        Rekindle(folder).run("push", "--to", server.url, REKINDLE_API_KEY=key)
    with server.client(keys["ada"]) as client:  # neither can be read; one names a session of hers
        for number, data in enumerate((b"\0garbage", b"\0 walrus ada of session-ada")):
            name = hashlib.sha256(data).hexdigest()
            client.append_transcript(name, data, offset=0)
            assert client.import_transcript(name, values.TranscriptPlace()).problem, number
    erased = server.rekindle.json("tenants", "erase-person", "green", "ada", "--yes")
    assert (erased["sessions"], erased["transcripts"]) == (["session-ada"], 2)
    pushed = [file.read_text() for file in server.rekindle.home.rglob("content")]
    assert not [text for text in pushed if "walrus ada" in text]
    assert [text for text in pushed if "walrus bob" in text]
    with server.client(keys["bob"]) as client:
        found = client.search_messages(values.SearchQuery(query="walrus")).hits
    assert {hit.session.id for hit in found} == {"session-bob"}


# -- hostile clients


def test_hostile_bodies_are_refused_and_the_server_goes_on(server: ApiServer) -> None:
    bomb = gzip.compress(b"0" * (MAX_JSON_BYTES + 1))
    chunk = f"/v1/transcripts/{NAME}"
    cases = [
        ("POST", "/v1/sessions", b"{", {}, 400),
        ("POST", "/v1/sessions", b'{"messages": []}', {}, 400),
        ("POST", "/v1/sessions", b'{"messages": [{"role": "\xff"}]}', {}, 400),
        ("POST", "/v1/sessions", b"[" * 100_000, {}, 400),
        ("POST", "/v1/sessions", b'{"messages":[{"role":"nobody"}]}', {}, 400),
        ("POST", "/v1/sessions", b" " * (MAX_JSON_BYTES + 1), {}, 413),
        ("POST", "/v1/sessions", bomb, {"Content_Encoding": "gzip"}, 413),
        ("POST", "/v1/sessions", bomb[:50], {"Content_Encoding": "gzip"}, 400),
        ("POST", "/v1/sessions", b"not gzip", {"Content_Encoding": "gzip"}, 400),
        ("POST", "/v1/sessions", b"{}", {"Content_Encoding": "br"}, 415),
        ("PUT", f"{chunk}?offset=0", b"0" * (MAX_CHUNK_BYTES + 1), {}, 413),
        ("PUT", f"{chunk}?offset=-1", b"x", {}, 400),
        ("PUT", f"{chunk}?offset=99", b"x", {}, 409),
        ("PUT", "/v1/transcripts/..%2F..%2Fetc?offset=0", b"x", {}, 400),
        ("PUT", "/v1/transcripts/../../etc?offset=0", b"x", {}, 404),
        ("GET", "/v1/sessions?limit=100000", b"", {}, 400),
        ("GET", "/v1/sessions?wrong=1", b"", {}, 400),
        ("GET", "/v1/sessions?filter=colour%3Dred", b"", {}, 400),
        ("GET", "/v1/sessions/%FF", b"", {}, 400),
        ("DELETE", "/v1/sessions", b"", {}, 405),
        ("GET", "/etc/passwd", b"", {}, 404),
    ]
    for method, path, body, headers, status in cases:
        try:
            found, answer = send(server, method, path, body, **headers)
        except (ConnectionError, http.client.HTTPException):
            assert status == 413, path  # answered and closed before all of it was sent
            continue
        assert (found, path) == (status, path), answer
        assert {*answer} == {"code", "message"}
        assert "Traceback" not in answer["message"]
    assert send(server, "GET", "/v1/health")[0] == 200
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /v1/",
        b"GET /v1/health HTTP/1.1\r\nhost: x\r\nx: ",
        b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
    ],
    ids=["address", "header", "trailer"],
)
def test_a_request_without_a_key_cannot_fill_the_memory(server: ApiServer, begin: bytes) -> None:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), PATIENCE) as connection:
        with suppress(ConnectionError):
            connection.sendall(begin)
            for _ in range(64):
                connection.sendall(b"a" * 65_536)
        with suppress(ConnectionError):  # it has ended the connection: this does not wait
            while connection.recv(65_536):
                pass
    assert send(server, "GET", "/v1/health")[0] == 200


def test_names_of_a_pushed_file_lead_nowhere_else(server: ApiServer, tmp_path: Path) -> None:
    content = write_session(tmp_path, "names", "otter").read_bytes()
    root = server.rekindle.home
    before = {path for path in root.rglob("*") if "transcripts" not in path.parts}
    with server.client() as client:
        for number, place in enumerate(
            [("..", ".."), ("../..", "../../../../escape"), ("/etc", "/etc/passwd"), ("a\0b", ".")]
        ):
            name = hashlib.sha256(str(number).encode()).hexdigest()
            client.append_transcript(name, content, offset=0)
            folder, file = place
            found = client.import_transcript(name, values.TranscriptPlace(folder=folder, file=file))
            assert found.problem is None
    after = {path for path in root.rglob("*") if "transcripts" not in path.parts}
    assert not [path for path in after - before if "escape" in path.name or path.name == "passwd"]
    assert not (root.parent / "escape").exists()


# -- options


def test_too_many_requests_of_a_key_are_told_to_wait(tmp_path: Path) -> None:
    server = ApiServer(tmp_path, "--rate", "1")
    try:
        with server.client() as client:

            def ask_often() -> None:
                for _ in range(50):
                    client.list_sessions()

            with pytest.raises(ServerRefused) as refused:
                ask_often()
            assert refused.value.status == 429
            assert refused.value.retry_after
            client.get_health()  # it needs no key
    finally:
        server.kill()


def test_a_certificate_makes_it_https(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    server = ApiServer(tmp_path / "home", "--tls-cert", str(files[0]), "--tls-key", str(files[1]))
    try:
        assert server.url.startswith("https://")
        with server.client(tls=ssl.create_default_context(cafile=files[0])) as client:
            client.list_sessions()
        with server.client() as stranger, pytest.raises(ServerUnreachable, match="certificate"):
            stranger.list_sessions()
    finally:
        server.kill()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that nobody signed."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(
        ["openssl", *words.split(), "-addext", "subjectAltName=IP:127.0.0.1", *files],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--listen", "nowhere"), "expected HOST:PORT"),
        (("serve", "--listen", "192.0.2.1:80"), "--insecure"),
        (("serve", "--tls-cert", "cert.pem"), "expected both"),
        (
            ("serve", "--tls-cert", "no.pem", "--tls-key", "no.pem", "--listen", "127.0.0.1:0"),
            "cert",
        ),
        (("serve", "add-key", "x", "--scope", "everything"), "scopes"),
        (("push",), "No server"),
        (("push", "--to", "ftp://x"), "No API key"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in Rekindle(tmp_path).run(*words, code=2).stderr.decode()


def test_a_key_in_a_file_that_others_can_read_is_not_sent(tmp_path: Path) -> None:
    rekindle = Rekindle(tmp_path)
    file = tmp_path / "rekindle" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text('[server]\nurl = "http://127.0.0.1:9"\napi_key = "rks_secret"\n')
    os.chmod(file, 0o644)
    said = rekindle.refusal("push")
    assert "chmod 600" in said
    assert "rks_secret" not in said


def test_the_client_refuses_what_is_no_server_and_no_key() -> None:
    for url in ("file:///etc", "http://", "http://user:word@host", "http://host:port"):
        with pytest.raises(ValueError, match="URL"):
            ApiClient(url)
    with pytest.raises(ValueError, match="API key"):
        ApiClient("http://host", "two\nlines")
