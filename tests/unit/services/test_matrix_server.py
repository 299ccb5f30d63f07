from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.errors import HomeServerError, InvalidInput
from rekindle.services.matrix.gateway_link import is_linked, link_gateway, unlink_gateway
from rekindle.services.matrix.layout import (
    ServerFiles,
    ServerSettings,
    check_server_name,
    check_user_name,
    find_server_settings,
    generate_secrets,
    load_secrets,
    save_secrets,
    save_settings,
)
from rekindle.services.matrix.setup import SetupOptions, choose_settings
from rekindle.services.matrix.synapse_config import render_config

SETTINGS = ServerSettings("example.org", "/", 5433)


@pytest.fixture
def files(tmp_path: Path) -> ServerFiles:
    made = ServerFiles(tmp_path)
    made.create_folder()
    return made


def parse_config(files: ServerFiles, settings: ServerSettings) -> dict[str, object]:
    text = render_config(files, settings, generate_secrets())
    return json.loads(text.split("\n", 1)[1])


@pytest.mark.parametrize("name", ["example.org", "localhost", "a-b.c", "10.0.0.1:8448"])
def test_names_of_servers_are_accepted(name: str) -> None:
    assert check_server_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "Example.org", "a b", "a..b", "-a.org", "a-.org", "a:b", "a:0", "a:99999"),
        *("a\nb", "https://example.org", "é.org", "x" * 300),
    ],
)
def test_names_that_no_server_can_have_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name"):
        check_server_name(name)


@pytest.mark.parametrize("name", ["", "Ada", "@ada:x", "a b", "a\n", "é", "a" * 300])
def test_names_that_no_user_can_have_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name"):
        check_user_name(name)


def test_secrets_differ_from_server_to_server_and_are_kept_privately(files: ServerFiles) -> None:
    one, two = generate_secrets(), generate_secrets()
    assert one != two
    values = [one.database_password, one.admin_password, one.bot_password, one.form_secret]
    assert len({*values}) == len(values)
    assert all(len(value) >= 24 for value in values)
    assert save_secrets(files, one) is True
    assert save_secrets(files, one) is False
    assert files.secrets.stat().st_mode & 0o777 == 0o600
    assert load_secrets(files) == one
    files.secrets.chmod(0o644)
    assert save_secrets(files, one) is True  # with its mode as it should be
    assert files.secrets.stat().st_mode & 0o777 == 0o600


def test_damaged_settings_are_an_error_that_says_which_file(files: ServerFiles) -> None:
    assert find_server_settings(files) is None
    files.settings.write_text('{"server_name": 5}')
    with pytest.raises(HomeServerError, match=r"settings\.json is damaged"):
        find_server_settings(files)


def test_without_a_certificate_everything_is_on_loopback(files: ServerFiles) -> None:
    listeners = parse_config(files, SETTINGS)["listeners"]
    assert isinstance(listeners, list)
    assert [one["bind_addresses"] for one in listeners] == [["127.0.0.1"], ["127.0.0.1"]]
    assert [one["port"] for one in listeners] == [8008, 8448]


def test_with_a_certificate_other_servers_can_reach_the_port(files: ServerFiles) -> None:
    settings = ServerSettings("example.org", "/data", 5433, certificate="/c", key="/k")
    config = parse_config(files, settings)
    client, federation = config["listeners"]  # type: ignore[misc]
    assert client["bind_addresses"] == ["127.0.0.1"]
    assert (federation["tls"], federation["bind_addresses"]) == (True, ["0.0.0.0"])
    assert (config["tls_certificate_path"], config["tls_private_key_path"]) == ("/c", "/k")


def test_the_first_set_up_needs_a_name(files: ServerFiles) -> None:
    with pytest.raises(InvalidInput, match="Name the server"):
        choose_settings(files, None, SetupOptions())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (SetupOptions(client_port=9000, federation_port=9000), "ports must differ"),
        (SetupOptions(certificate=Path("/no/such/file")), "belong together"),
        (SetupOptions(certificate=Path("/no/a"), key=Path("/no/b")), "no such file"),
        (SetupOptions(public_url="example.org"), "must begin with https"),
        (SetupOptions(admin="other"), "cannot be changed"),
        (SetupOptions(postgres_data=Path("/elsewhere")), "cannot be moved"),  # "/" exists
    ],
)
def test_options_that_do_not_fit_are_refused(
    files: ServerFiles, options: SetupOptions, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        choose_settings(files, SETTINGS, options)


def test_the_gateway_is_connected_and_disconnected_and_other_settings_stay(
    files: ServerFiles,
) -> None:
    save_settings(files, SETTINGS)
    secrets = generate_secrets()
    config = files.home / "config.toml"
    config.write_text('# mine\n[model]\nname = "m"\n\n[gateway]\nplatforms = "telegram"\n')
    assert link_gateway(files.home, SETTINGS, secrets, replace_other=False).is_changed is True
    assert link_gateway(files.home, SETTINGS, secrets, replace_other=False).is_changed is False
    assert 'platforms = "telegram matrix"' in config.read_text()
    assert config.read_text().startswith('# mine\n[model]\nname = "m"\n')
    (files.home / "platforms" / "matrix").mkdir()
    assert unlink_gateway(files.home, ServerSettings("other.org", "/d", 1)) is False
    assert unlink_gateway(files.home, SETTINGS) is True
    assert config.read_text().endswith('platforms = "telegram"\n')
    assert list((files.home / "platforms").iterdir()) == []
    assert is_linked(files.home, SETTINGS) is False
