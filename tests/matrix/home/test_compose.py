"""The files of deploy/matrix: the schema of Compose, and a real Synapse that reads the settings."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest
import yaml

from .lab import MatrixLab

FOLDER = Path(__file__).parents[3] / "deploy" / "matrix"
# The last Compose in Python; it carries the schema of the Compose specification.
SCHEMA_PACKAGE = "docker-compose==1.29.2"


def test_the_compose_file_follows_the_schema(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*words, "-d", str(tmp_path), SCHEMA_PACKAGE], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"the schema cannot be had: {done.stderr[-300:]}")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        schema = json.loads(files.read("compose/config/compose_spec.json"))
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    del compose["name"]  # newer than this schema
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(compose)
    compose["services"]["synapse"]["prots"] = []
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(compose)


def test_synapse_accepts_the_settings_of_the_containers(lab: MatrixLab, uv: Path) -> None:
    from rekindle.services.matrix.environment import build_environment
    from rekindle.services.matrix.layout import ServerFiles

    files = ServerFiles(lab.home)
    files.create_folder()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PATH", "UV_CACHE_DIR", "UV_PYTHON_DOWNLOADS"):
            patch.setenv(name, lab.env[name])
        environment = build_environment(files)
    folder = lab.folder / "deploy"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("private", ".env"))
    subprocess.run(["sh", str(folder / "prepare.sh"), "example.org"], check=True, stdout=-3)
    config = folder / "homeserver.yaml"
    text = config.read_text().replace("/run/secrets", str(folder / "private"))
    text = text.replace("/config/", f"{folder}/").replace("/data/", f"{folder}/private/")
    config.write_text(text)
    code = (
        "import sys; from synapse.config.homeserver import HomeServerConfig as C\n"
        "c = C.load_config('', sys.argv[1:]);"
        "print(c.server.server_name, c.media.max_upload_size, c.registration.enable_registration,"
        " len(c.key.signing_key), bool(c.key.macaroon_secret_key),"
        " bool(c.registration.registration_shared_secret), c.retention.retention_enabled)"
    )
    words = [str(environment.python), "-c", code]
    words += ["-c", str(config), "-c", str(folder / "private" / "server.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=lab.folder)
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.split() == f"example.org {50 << 20} False 1 True True True".split()
    shutil.rmtree(files.folder)
