"""The files that build, publish and run Rekindle elsewhere: nothing here can run them as a whole."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rekindle import __version__
from rekindle.cli.app import build_command_tree
from rekindle.config import SETTINGS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OTHER_VARIABLES = {"REKINDLE_HOME", "POSTGRES_PASSWORD", "PATH", "PYTHONUNBUFFERED"}


def load_yaml(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def read_release() -> dict[str, Any]:
    return load_yaml(ROOT / ".github" / "workflows" / "release.yml")["jobs"]


@cache
def read_instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and their arguments, in order."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [
        (word, " ".join(rest.split())) for word, _, rest in (one.partition(" ") for one in lines)
    ]


def find_instruction(name: str) -> str:
    """The last one of a kind, which is the one that counts."""
    return [rest for word, rest in read_instructions() if word == name][-1]


@cache
def read_image_variables() -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(find_instruction("ENV")))


def require_command(words: list[str]) -> None:
    """Fail if there is no such command."""
    command: Any = build_command_tree()
    for word in words:
        if word.startswith("-") or not hasattr(command, "commands"):
            return
        assert word in command.commands, words
        command = command.commands[word]


def list_run_lines(job: dict[str, Any]) -> list[str]:
    return [line.strip() for step in job["steps"] for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_jobs_with_limits_and_read_only_rights(path: Path) -> None:
    workflow = load_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert all("uses" in step or "run" in step for step in job["steps"])


def test_a_release_is_built_checked_and_tried_before_it_is_published() -> None:
    lines = list_run_lines(read_release()["build"])
    steps = ["python -m build", "python -m twine check", "-m venv", "pip", "rekindle --help"]
    places = [next(at for at, line in enumerate(lines) if step in line) for step in steps[:3]]
    assert places == sorted(places)
    assert all(any(step in line for line in lines) for step in steps)
    publish = read_release()["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "tag" in publish["if"]


def test_a_release_needs_no_secret() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "password" not in text
    assert not any("id-token" in job.get("permissions", {}) for job in [read_release()["build"]])


def test_the_commands_of_a_release_exist() -> None:
    words = [
        shlex.split(line.split("/rekindle ", 1)[1])
        for line in list_run_lines(read_release()["build"])
        if "bin/rekindle " in line
    ]
    assert len(words) > 2
    for one in words:
        require_command(one)


def test_the_image_runs_the_gateway_without_privileges_and_keeps_its_home() -> None:
    words = [*json.loads(find_instruction("ENTRYPOINT")), *json.loads(find_instruction("CMD"))]
    assert words == ["rekindle", "gateway", "run"]
    require_command(words[1:])
    names = [word for word, _ in read_instructions()]
    assert find_instruction("USER") == "rekindle"
    assert names.index("USER") > max(at for at, name in enumerate(names) if name == "RUN")
    assert find_instruction("VOLUME") == read_image_variables()["REKINDLE_HOME"]


def test_the_image_is_built_from_files_that_exist_and_are_not_ignored() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    copied = [rest.split()[:-1] for word, rest in read_instructions() if word == "COPY"]
    sources = [source for group in copied for source in group if not source.startswith("-")]
    local = [source for source in sources if not source.startswith("/")]
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} == {*local}
    for source in local:
        assert (ROOT / source).exists()
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source


def test_variables_of_the_image_and_of_compose_are_settings() -> None:
    known = {setting.env for setting in SETTINGS.values()} | OTHER_VARIABLES
    gateway = load_yaml(DEPLOY / "compose.yaml")["services"]["gateway"]
    assert {*read_image_variables(), *gateway["environment"]} <= known


def test_compose_keeps_the_home_and_starts_a_server_only_on_request() -> None:
    compose = load_yaml(DEPLOY / "compose.yaml")
    gateway, postgres = compose["services"]["gateway"], compose["services"]["postgres"]
    assert gateway["volumes"] == [f"home:{find_instruction('VOLUME')}"]
    assert {"home", "database"} == {*compose["volumes"]}
    assert (DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]).is_file()
    assert postgres["profiles"] == ["postgres"]
    assert gateway["depends_on"]["postgres"]["required"] is False
    grace = SETTINGS["gateway.grace_seconds"].default
    assert isinstance(grace, float)
    assert int(gateway["stop_grace_period"].removesuffix("s")) > grace


@contextmanager
def serve_status(status: int) -> Iterator[int]:
    """A health page that answers with this status."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False)])
def test_the_container_is_healthy_while_the_health_page_says_so(
    status: int, is_healthy: bool
) -> None:
    program, *words = json.loads(find_instruction("HEALTHCHECK").split(" CMD ", 1)[1])
    assert program == "python"
    variable = "REKINDLE_GATEWAY_HEALTH_PORT"
    assert read_image_variables()[variable].isdigit()
    with serve_status(status) as port:
        done = subprocess.run([sys.executable, *words], env={variable: str(port)}, stderr=-3)
    assert (done.returncode == 0) is is_healthy


def test_no_file_names_the_host_of_a_registry() -> None:
    compose = load_yaml(DEPLOY / "compose.yaml")
    images = [service["image"] for service in compose["services"].values()]
    images += re.findall(r"^ARG PYTHON=(\S+)", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert len(images) == 3
    assert not any("." in image.split(":")[0] or "/" in image for image in images)
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    hosts = re.compile(r"\b(docker|quay|ghcr|gcr|pypi|pythonhosted)\.(io|org|com)\b")
    for path in (ROOT / "README.md", ROOT / "pyproject.toml", *WORKFLOWS, *files):
        assert not hosts.search(path.read_text(encoding="utf-8")), path


def test_the_wheel_has_the_licence_all_data_files_and_the_command(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    source = ROOT / "src"
    with zipfile.ZipFile(built) as wheel:
        names = {*wheel.namelist()}
        info = f"rekindle-{__version__}.dist-info"
        scripts = wheel.read(f"{info}/entry_points.txt").decode()
        metadata = wheel.read(f"{info}/METADATA").decode()
    assert f"{info}/licenses/LICENSE" in names
    assert "rekindle = rekindle.cli:main" in scripts
    assert f"Version: {__version__}\n" in metadata
    needed = {
        path.relative_to(source).as_posix()
        for path in (source / "rekindle").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert needed - names == set()
    assert {name for name in names - needed if not name.startswith(info)} == set()


def test_the_readme_begins_with_installing_and_keeps_the_commands_for_a_clone() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Set-up", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"^\$ (.+)", section, re.M)
    assert commands == [
        "uv tool install rekindle", "uvx rekindle start", "pipx install rekindle",
        "python3 bootstrap.py", "python3 bootstrap.py test",
    ]  # fmt: skip
