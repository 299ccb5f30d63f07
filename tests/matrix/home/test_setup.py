"""A server that was set up, and what its settings mean to those who use it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.services.matrix.layout import ServerFiles, load_secrets, load_server_settings
from rekindle.services.matrix.synapse_config import render_config
from tests.waiting import wait_until

from .lab import NAME, MatrixClient, MatrixLab, find_free_ports


def list_private_files(home: Path) -> dict[str, tuple[int, bytes]]:
    """Return the modes and contents of the files that a set-up writes."""
    folder = home / "matrix"
    paths = [path for path in folder.iterdir() if path.is_file()]
    paths += [home / "platforms" / "matrix.toml", home / "config.toml"]
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def test_a_set_up_server_runs_and_says_so(running: MatrixLab) -> None:
    status = running.status()
    assert status["healthy"] is True
    assert status["server_name"] == NAME
    assert status["runner"] == "background"
    assert status["gateway_connected"] is True
    assert status["synapse"]["client_url"] == f"http://127.0.0.1:{running.port}"
    shown = running("matrix", "status")
    assert f"{NAME}: running" in shown
    assert f"connected as @rekindle:{NAME}" in shown


def test_secrets_are_for_the_user_alone_and_never_printed(running: MatrixLab) -> None:
    folder = running.home / "matrix"
    for name in ("secrets.json", "homeserver.yaml", "signing.key", "pgpass", "settings.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
    assert (running.home / "platforms" / "matrix.toml").stat().st_mode & 0o777 == 0o600
    for name in ("media", "logs", "run", "environments"):
        assert (folder / name).stat().st_mode & 0o777 == 0o700, name
    done = running.run("matrix", "setup")
    logs = running("matrix", "logs", "-n", 100_000) + running("matrix", "logs", "postgres")
    said = done.stdout + done.stderr + running("matrix", "status", "--json") + logs
    for name, value in running.secrets.items():
        if name != "bot_device_id":
            assert value.split()[-1] not in said, name


def test_a_second_set_up_changes_nothing_and_says_so(running: MatrixLab) -> None:
    before, state = list_private_files(running.home), running.status()
    assert "Nothing to do" in running("matrix", "setup")
    assert "Nothing to do" in running.set_up()
    assert list_private_files(running.home) == before
    assert running.status()["synapse"]["pid"] == state["synapse"]["pid"]
    assert running.status()["postgres"]["pid"] == state["postgres"]["pid"]


def test_the_gateway_has_the_token_of_the_bot_and_its_device(running: MatrixLab) -> None:
    settings = running.bot_settings
    assert settings["homeserver"] == f"http://127.0.0.1:{running.port}"
    assert settings["user"] == f"@rekindle:{NAME}"
    assert set(settings) == {"homeserver", "user", "access_token", "device_id"}
    found = running.connect_bot().whoami()
    assert (found["user_id"], found["device_id"]) == (settings["user"], settings["device_id"])
    assert 'platforms = "matrix"' in (running.home / "config.toml").read_text()


def test_the_status_shows_the_key_by_which_the_device_is_verified(running: MatrixLab) -> None:
    user, device = running.bot_settings["user"], running.bot_settings["device_id"]
    assert running.status()["device"] == {"id": device, "key": None}
    keys = {
        "user_id": user,
        "device_id": device,
        "algorithms": ["m.megolm.v1.aes-sha2"],
        "keys": {f"ed25519:{device}": "the+public/key"},
        "signatures": {user: {f"ed25519:{device}": "signature"}},
    }
    running.connect_bot().post("/_matrix/client/v3/keys/upload", {"device_keys": keys})
    assert running.status()["device"] == {"id": device, "key": "the+public/key"}
    assert f"{device}, key the+public/key" in running("matrix", "status")


def test_the_administrator_is_one_and_the_bot_is_not(running: MatrixLab) -> None:
    admin = running.log_in("admin", running.secrets["admin_password"])
    users = admin.get("/_synapse/admin/v2/users?guests=false")["users"]
    rights = {user["name"]: bool(user["admin"]) for user in users}
    assert rights[f"@admin:{NAME}"] is True
    assert rights[f"@rekindle:{NAME}"] is False


def test_strangers_cannot_register(running: MatrixLab) -> None:
    body = {
        "username": "stranger",
        "password": "a-long-password",
        "auth": {"type": "m.login.dummy"},
    }
    for kind in ("user", "guest"):
        path = f"/_matrix/client/v3/register?kind={kind}"
        status, answer = MatrixClient(running.port).request("POST", path, body)
        assert status == 403, answer


def test_uploads_have_a_limit_and_pages_are_not_fetched(running: MatrixLab) -> None:
    bot = running.connect_bot()
    assert bot.get("/_matrix/client/v1/media/config")["m.upload.size"] == 50 * 1024 * 1024
    try:
        status, _ = bot.request("POST", "/_matrix/media/v3/upload", bytes(50 * 1024 * 1024 + 1))
    except ConnectionError:  # what it does once a body is too long
        status = 413
    assert status == 413
    path = "/_matrix/client/v1/media/preview_url?url=http://example.org"
    assert bot.request("GET", path)[0] == 404


def test_messages_and_logins_are_limited(running: MatrixLab) -> None:
    running("matrix", "create-user", "eve", "--password-stdin", stdin="eves-password\n")
    eve = running.log_in("eve", "eves-password")
    room = eve.create_room()
    path = f"/_matrix/client/v3/rooms/{room}/send/m.room.message"
    sent = [200]
    while sent[-1] == 200 and len(sent) < 60:
        body = {"msgtype": "m.text", "body": "spam"}
        sent.append(eve.request("PUT", f"{path}/{len(sent)}", body)[0])
    assert (sent[1], sent[-1]) == (200, 429)
    body = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": "eve"},
        "password": "wrong",
    }
    login = "/_matrix/client/v3/login"
    tried = [403]
    while tried[-1] == 403 and len(tried) < 30:
        tried.append(MatrixClient(running.port).request("POST", login, body)[0])
    assert (tried[1], tried[-1]) == (403, 429)


def test_the_limits_of_registration_and_retention_are_configured(running: MatrixLab) -> None:
    text = (running.home / "matrix" / "homeserver.yaml").read_text()
    config = json.loads(text.split("\n", 1)[1])
    assert config["rc_registration"]["per_second"] < 1
    assert config["retention"]["enabled"] is True
    assert config["retention"]["default_policy"] == {"max_lifetime": "90d"}
    assert config["media_retention"]["local_media_lifetime"] == "90d"


def test_other_servers_have_a_port_of_their_own(running: MatrixLab) -> None:
    status, answer = MatrixClient(running.federation_port).request("GET", "/_matrix/key/v2/server")
    assert (status, answer["server_name"]) == (200, NAME)
    assert (
        MatrixClient(running.federation_port).request("GET", "/_matrix/client/versions")[0] == 404
    )
    assert MatrixClient(running.port).request("GET", "/_matrix/key/v2/server")[0] == 404


def test_nothing_is_reachable_from_outside_the_machine(running: MatrixLab) -> None:
    ports = {running.port, running.federation_port, running.postgres_port}
    found: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A" and int(port, 16) in ports:  # it listens
                assert address == "0100007F", line
                found.add(int(port, 16))
    assert found == ports


def test_synapse_accepts_a_certificate_for_other_servers(
    running: MatrixLab, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    # Not started: it would listen on all addresses.
    files = ServerFiles(running.home)
    settings = replace(load_server_settings(files), certificate=str(certificate), key=str(key))
    config = tmp_path / "homeserver.yaml"
    config.write_text(render_config(files, settings, load_secrets(files)))
    code = (
        "import sys; from synapse.config.homeserver import HomeServerConfig as C\n"
        "c = C.load_config('', sys.argv[1:]); c.tls.read_certificate_from_disk()\n"
        "print(c.tls.tls_certificate.get_subject().CN,"
        " [one.is_tls() for one in c.server.listeners])"
    )
    python = running.home / "matrix" / "environment" / "bin" / "python"
    done = subprocess.run([python, "-c", code, "-c", config], capture_output=True, text=True)
    assert done.stdout.strip() == f"{NAME} [False, True]", done.stderr[-1000:]


def test_a_user_is_created_once(running: MatrixLab) -> None:
    said = running("matrix", "create-user", "ada")
    file = running.home / "matrix" / "passwords" / "ada.txt"
    assert f"Created @ada:{NAME}" in said
    assert str(file) in said
    assert file.stat().st_mode & 0o777 == 0o600
    password = file.read_text().strip()
    assert password not in said
    assert running.log_in("ada", password).whoami()["user_id"] == f"@ada:{NAME}"
    assert "already" in running.refusal("matrix", "create-user", "ada")
    assert file.read_text().strip() == password
    assert "cannot be the name" in running.refusal("matrix", "create-user", "@Ada:example.org")


def test_killed_servers_are_noticed_and_restarted(running: MatrixLab) -> None:
    state = running.status()
    for program in ("synapse", "postgres"):
        os.kill(state[program]["pid"], signal.SIGKILL)
    wait_until(lambda: not running.status(code=1)["healthy"])
    refused = running.refusal("matrix", "create-user", "late", code=1)
    assert "does not answer" in refused
    assert "restart" in running.refusal("matrix", "backup", code=1)
    running("matrix", "restart")
    again = running.status()
    assert again["healthy"] is True
    assert again["synapse"]["pid"] != state["synapse"]["pid"]
    assert running.connect_bot().whoami()["user_id"] == f"@rekindle:{NAME}"


def test_ports_can_be_changed_but_not_the_name(running: MatrixLab) -> None:
    assert "cannot be changed" in running.refusal("matrix", "setup", "other.test")
    assert "cannot be changed" in running.refusal("matrix", "setup", "--bot", "other")
    (port,) = find_free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        refused = running.refusal("matrix", "setup", f"--client-port={port}", code=1)
    assert f"Port {port} is used by another program" in refused
    assert running.status()["healthy"] is True
    running("matrix", "setup", f"--client-port={port}")
    running.port = port
    assert running.bot_settings["homeserver"] == f"http://127.0.0.1:{port}"
    assert running.connect_bot().whoami()["user_id"] == f"@rekindle:{NAME}"


def test_settings_of_the_user_go_before_the_generated_ones(running: MatrixLab) -> None:
    (running.home / "matrix" / "local.yaml").write_text("max_upload_size: 1M\n")
    running("matrix", "restart")
    limit = running.connect_bot().get("/_matrix/client/v1/media/config")["m.upload.size"]
    assert limit == 1024 * 1024
    (running.home / "matrix" / "local.yaml").write_text("max_upload_size: [broken\n")
    refused = running.refusal("matrix", "restart", code=1)
    assert "ended right after its start" in refused
    (running.home / "matrix" / "local.yaml").unlink()
    running("matrix", "restart")
    assert running.status()["healthy"] is True


@pytest.mark.parametrize("option", ["--replace-gateway", ""])
def test_a_gateway_of_another_server_is_replaced_only_on_request(
    running: MatrixLab, option: str
) -> None:
    file = running.home / "platforms" / "matrix.toml"
    ours = file.read_text()
    other = 'homeserver = "https://other.example"\nuser = "@me:other.example"\naccess_token = "t"\n'
    file.write_text(other)
    done = running.run("matrix", "setup", *([option] if option else []))
    if option:
        assert running.bot_settings["user"] == f"@rekindle:{NAME}"
    else:
        assert "stays connected as @me:other.example" in done.stderr
        assert file.read_text() == other
    file.write_text(ours)
