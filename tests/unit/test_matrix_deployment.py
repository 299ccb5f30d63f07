"""The files that run a Matrix server in containers; tests/matrix/home loads them into Synapse."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rekindle.services.matrix import synapse_config
from rekindle.services.matrix.layout import ServerFiles, ServerSettings, generate_secrets

FOLDER = Path(__file__).parents[2] / "deploy" / "matrix"
SECRETS = Path("/run/secrets")


def load_yaml(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    folder = tmp_path / "matrix"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("private", ".env"))
    return folder


def prepare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(folder / "prepare.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_the_settings_are_those_of_the_command(tmp_path: Path) -> None:
    settings = ServerSettings("example.org", "/data", 5433)
    text = synapse_config.render_config(ServerFiles(tmp_path), settings, generate_secrets())
    ours, theirs = yaml.safe_load(text), load_yaml("homeserver.yaml")
    own = {"listeners", "database", "log_config", "media_store_path", "signing_key_path"}
    own |= {"server_name", "serve_server_wellknown"}
    own |= {"registration_shared_secret", "macaroon_secret_key", "form_secret"}
    paths = {name for name in theirs if name.endswith("_path")}
    assert {name: value for name, value in theirs.items() if name not in own | paths} == {
        name: value for name, value in ours.items() if name not in own
    }
    resources = [one["resources"] for one in theirs["listeners"]]
    assert resources == [one["resources"] for one in ours["listeners"]]
    assert [one["port"] for one in theirs["listeners"]] == [8008, 8448]


def test_ports_are_published_on_loopback_and_the_database_not_at_all() -> None:
    services = load_yaml("compose.yaml")["services"]
    assert {*services} == {"synapse", "postgres"}
    assert [port.rpartition(":")[2] for port in services["synapse"]["ports"]] == ["8008", "8448"]
    assert all(port.startswith("127.0.0.1:") for port in services["synapse"]["ports"])
    assert "ports" not in services["postgres"]


def test_images_have_a_version_and_no_registry() -> None:
    for service in load_yaml("compose.yaml")["services"].values():
        default = service["image"].partition(":-")[2].removesuffix("}")
        name, _, version = default.partition(":")
        assert "." not in name
        assert version not in ("", "latest")


def test_every_secret_is_a_file_that_is_generated_and_used(prepared: Path) -> None:
    compose, config = load_yaml("compose.yaml"), load_yaml("homeserver.yaml")
    assert prepare(prepared, "example.org").returncode == 0
    used: set[str] = set()
    for service in compose["services"].values():
        used |= set(service["secrets"])
        assert not any("SECRET" in f"{name}" for name in service.get("environment", {}))
    assert used == {*compose["secrets"]}
    for secret in compose["secrets"].values():
        assert (prepared / secret["file"]).stat().st_mode & 0o777 == 0o600
    named = {str(value) for name, value in config.items() if name.endswith("_path")}
    named |= {config["database"]["args"]["passfile"]}
    named |= {compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"]}
    assert {str(SECRETS / name) for name in used} == {
        one for one in named if one.startswith(str(SECRETS))
    }


def test_volumes_are_declared_or_files_of_this_folder(prepared: Path) -> None:
    compose = load_yaml("compose.yaml")
    prepare(prepared, "example.org")
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            is_named = source in compose["volumes"]
            assert is_named or (prepared / source).exists(), volume


def test_preparing_again_keeps_everything_and_another_name_is_refused(prepared: Path) -> None:
    assert prepare(prepared, "example.org").returncode == 0
    files = {path: path.read_bytes() for path in (prepared / "private").iterdir() if path.is_file()}
    assert len(files) == 7
    (prepared / "private" / "form_secret").unlink()  # as if it had been interrupted
    assert prepare(prepared, "example.org").returncode == 0
    del files[prepared / "private" / "form_secret"]
    assert {path: path.read_bytes() for path in files} == files
    assert len((prepared / "private" / "form_secret").read_text()) == 64
    refused = prepare(prepared, "other.org")
    assert refused.returncode == 1
    assert "cannot be changed" in refused.stderr
    kind, key, seed = (prepared / "private" / "signing_key").read_text().split()
    assert (kind, key[:2], len(base64.b64decode(seed + "="))) == ("ed25519", "a_", 32)


@pytest.mark.parametrize("words", [(), ("",), ("A.org",), ("a b",), ('a"\nx: y',), ("-a",)])
def test_a_name_that_no_server_can_have_is_refused(prepared: Path, words: tuple[str, ...]) -> None:
    done = prepare(prepared, *words)
    assert done.returncode == 2
    assert not (prepared / "private").exists()
