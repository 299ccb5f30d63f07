"""Run a real agent headless, in an empty home, against a scripted model."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .model_server import ModelRequest, ModelServer

AGENT_SECONDS = 240  # a run takes a few seconds; more is a machine that is busy
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OPENCODE_ID = re.compile(r"ses_\w+")


class AgentRun(NamedTuple):
    """What became of one run of an agent."""

    output: str
    errors: str
    exit_code: int
    requests: tuple[ModelRequest, ...]  # that the model received during the run

    @property
    def session(self) -> str:
        """The id of the session, as the agent printed it."""
        found = _OPENCODE_ID.search(self.output) or _UUID.search(self.output)
        assert found, f"no session id in: {self.output[:2000]} {self.errors[-2000:]}"
        return found[0]

    @property
    def texts(self) -> list[str]:
        """The texts of the requests about the prompt: those that offer tools."""
        return [request.text for request in self.requests if request.body.get("tools")]


class AgentLab:
    """A home with one agent in it and nothing else, a repository, and a scripted model.

    `home` is $HOME of the agent and `rekindle_home` the home of Rekindle. What the tests have
    configured in `home` stays from run to run.
    """

    def __init__(self, agent: str, program: Path, folder: Path, model: ModelServer) -> None:
        self.agent = agent
        self.program = program
        self.model = model
        self.home = folder / "home"
        self.repository = folder / "work" / "repo"
        self.rekindle_home = folder / "rekindle"
        for path in (self.home, self.repository, self.rekindle_home):
            path.mkdir(parents=True)
        git = ["git", "-c", "init.defaultBranch=main", "init", "-q", str(self.repository)]
        subprocess.run(git, check=True, env=self.build_env())
        _PREPARE[agent](self)

    def build_env(self, extra: Mapping[str, str] = {}) -> dict[str, str]:
        """Return the environment of the agent: nothing of ours but the path."""
        path = f"{self.program.parent}{os.pathsep}{os.environ['PATH']}"
        return {
            "PATH": path,
            "HOME": str(self.home),
            "REKINDLE_HOME": str(self.rekindle_home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            **_ENVIRONMENTS[self.agent](self.model.url),
            **extra,
        }

    def run(
        self,
        prompt: str,
        *,
        resume: str | None = None,
        env: Mapping[str, str] = {},
        arguments: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> AgentRun:
        """Run the agent with a prompt, or go on with the session `resume`, until it exits."""
        before = len(self.model.requests)
        words = _COMMANDS[self.agent](prompt, resume, list(arguments))
        done = subprocess.run(
            [str(self.program), *words],
            cwd=cwd or self.repository,
            env=self.build_env(env),
            # OpenCode puts quotation marks around a prompt that is an argument.
            input=prompt if self.agent == "opencode" else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=AGENT_SECONDS,
        )
        requests = tuple(self.model.requests[before:])
        return AgentRun(done.stdout, done.stderr, done.returncode, requests)

    def read_json(self, name: str) -> Any:
        """Read a JSON file below the agent's home; an empty object if it does not exist."""
        file = self.home / name
        return json.loads(file.read_text("utf-8")) if file.exists() else {}

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file below the agent's home."""
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value, indent=2), "utf-8")


# ── what each agent needs to run without an account, a network and a person


def _prepare_codex(lab: AgentLab) -> None:
    file = lab.home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        f"""\
model = "gpt-5.1-codex"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{lab.model.url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false
""",
        "utf-8",
    )


def _prepare_opencode(lab: AgentLab) -> None:
    model = {"name": "scripted", "limit": {"context": 100000, "output": 4000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{lab.model.url}/v1", "apiKey": "none"},
        "models": {"scripted": model},
    }
    settings = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "provider": {"scripted": provider},
    }
    lab.write_json(".config/opencode/opencode.json", settings)


def _prepare_gemini(lab: AgentLab) -> None:
    security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
    settings = {
        "security": security,
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    lab.write_json(".gemini/settings.json", settings)


def _prepare_pi(lab: AgentLab) -> None:
    provider = {
        "baseUrl": f"{lab.model.url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": "scripted"}],
    }
    lab.write_json(".pi/agent/models.json", {"providers": {"scripted": provider}})


_PREPARE: Mapping[str, Callable[[AgentLab], None]] = {
    "claude-code": lambda lab: None,
    "codex": _prepare_codex,
    "opencode": _prepare_opencode,
    "gemini": _prepare_gemini,
    "pi": _prepare_pi,
}
_ENVIRONMENTS: Mapping[str, Callable[[str], dict[str, str]]] = {
    "claude-code": lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "IS_SANDBOX": "1",  # lets root skip permissions
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    },
    "codex": lambda url: {"SCRIPTED_KEY": "none"},
    "opencode": lambda url: {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    },
    "gemini": lambda url: {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",  # with more memory, which would be a second start
    },
    "pi": lambda url: {"PI_OFFLINE": "1"},
}


def _build_claude_code_command(prompt: str, resume: str | None, extra: list[str]) -> list[str]:
    chosen = ["--resume", resume] if resume else []
    options = ["--output-format", "json", "--dangerously-skip-permissions"]
    return ["-p", prompt, *options, *extra, *chosen]


def _build_codex_command(prompt: str, resume: str | None, extra: list[str]) -> list[str]:
    # Nobody is there to trust the hooks; a test of trust itself passes other arguments.
    trust = [] if "--no-trust" in extra else ["--dangerously-bypass-hook-trust"]
    rest = [word for word in extra if word != "--no-trust"]
    chosen = ["resume", resume] if resume else []
    return ["exec", *trust, "--json", *rest, *chosen, prompt]


def _build_opencode_command(prompt: str, resume: str | None, extra: list[str]) -> list[str]:
    return ["run", "--format", "json", *extra, *(["--session", resume] if resume else [])]


def _build_gemini_command(prompt: str, resume: str | None, extra: list[str]) -> list[str]:
    chosen = ["--resume", resume] if resume else []
    options = ["--model", "gemini-2.5-pro", "--yolo", "--output-format", "json"]
    return [*options, *extra, *chosen, "--prompt", prompt]


def _build_pi_command(prompt: str, resume: str | None, extra: list[str]) -> list[str]:
    chosen = ["--session", resume] if resume else []
    options = ["--provider", "scripted", "--model", "scripted", "--mode", "json", "-p"]
    return [*options, *extra, *chosen, prompt]


_COMMANDS: Mapping[str, Callable[[str, str | None, list[str]], list[str]]] = {
    "claude-code": _build_claude_code_command,
    "codex": _build_codex_command,
    "opencode": _build_opencode_command,
    "gemini": _build_gemini_command,
    "pi": _build_pi_command,
}
