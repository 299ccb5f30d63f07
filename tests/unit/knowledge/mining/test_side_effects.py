"""Calls that are not learned, or not shown as calls to repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.agent.tools.builtin.terminal import find_command_risks
from rekindle.agent.tools.tool import ToolContext
from rekindle.knowledge.examples import build_example
from rekindle.knowledge.mining import candidates
from rekindle.knowledge.mining.side_effects import has_external_effect, is_destructive
from rekindle.types import Pattern, PatternStep
from tests.unit.agent.tools.conftest import context, work
from tests.unit.knowledge.mining.mining_sessions import Did, run
from tests.unit.shell.risky_commands import RISKY_COMMANDS

__all__ = ["context", "work"]

TOOLS = {"terminal": lambda arguments: True}


def call(command: str, tool: str = "terminal") -> PatternStep:
    return PatternStep(tool, {"command": command})


@pytest.mark.parametrize("command", RISKY_COMMANDS)
def test_what_needs_approval_is_never_learned(
    context: ToolContext, work: Path, command: str
) -> None:
    command = command.replace("%s", str(work))
    assert find_command_risks(command, context, str(work)) != ()
    worked = run("deskctl sync", command, "deskctl check")
    failed = run("deskctl sync", Did(command, ok=False), command, f"{command} again")
    for deeds in (worked, failed):
        assert 1 not in {at for one in candidates.find_candidates(deeds) for at in one.call_indexes}
    example = build_example(Pattern("p", "example", (call(command),), "do it"), TOOLS)
    assert example is not None
    assert not example.as_turns
    lesson = Pattern("p", "retry", (call("deskctl sync"),), "do it", before=call(command))
    example = build_example(lesson, TOOLS)
    assert example is not None
    assert example.wrong is None


@pytest.mark.parametrize(
    "command",
    [
        "uv run pytest -q tests/a.py 2>&1 | tail -3",
        "cargo build --release",
        "grep -rn 'rm -rf' src | wc -l",
        "git commit -m 'drop table users; rm -rf /'",
        "mkdir -p /tmp/out && cp a.txt /tmp",
        "make docs > $OUT",
        "python3 - << …",
        "deskctl add <text> --id <id> < <path:csv>",
        "kubectl get pods",
        "psql -c 'select 1'",
        "gh run view 12",
        "[ -f a ] && deskctl sync",
        "curl -sSfL https://example.org/a",
    ],
)
def test_an_ordinary_command_may_be_shown(command: str) -> None:
    assert not is_destructive("terminal", {"command": command, "workdir": "/srv/it's here"})
    assert not has_external_effect(call(command))


@pytest.mark.parametrize(
    "command",
    [
        "git push origin main",
        "git -C sub push",
        "sudo -u me git push",
        "docker push shop/web",
        "kubectl apply -f x.yaml",
        "helm upgrade web ./chart",
        "gh pr create --fill",
        "aws s3 cp a s3://b",
        "make release",
        "npm run deploy:prod",
        "./scripts/deploy.sh --fast",
        "rsync -a out/ web:/srv",
        "curl -X POST https://example.org/a",
        "curl -sXPUT https://example.org/a",
        "curl --data-binary @a https://example.org/a",
        "wget --post-data=a https://example.org/a",
        "bash -lc 'cd x && git push'",
    ],
)
def test_what_others_notice_is_described_but_not_repeated(command: str) -> None:
    assert not is_destructive("shell", {"command": command}) or command.startswith("sudo")
    assert has_external_effect(call(command))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mcp__db__query", {"sql": "DROP TABLE users"}),
        ("mcp__db__query", {"sql": "delete from users where id = 3"}),
        ("mcp__host__exec", {"line": "git reset --hard"}),
        ("shell", {"command": ["bash", "-lc", "rm -rf build"]}),
        ("shell", {"command": ["rm", "-rf", "build"]}),
        ("python", {"code": "import shutil\nshutil.rmtree('build')"}),
        ("python", {"code": "subprocess.run(['rm', '-rf', 'build'])"}),
        ("python", {"code": "!git clean -fd"}),
        ("Task", {"prompt": "Please run `git checkout -- src` first"}),
    ],
)
def test_destruction_is_seen_in_the_arguments_of_any_tool(
    tool: str, arguments: dict[str, object]
) -> None:
    assert is_destructive(tool, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Grep", {"pattern": "kill", "path": "src"}),
        ("Read", {"file_path": "/etc/init"}),
        ("shell", {"command": "ls", "shell": "bash", "description": "Show the user's files"}),
        ("python", {"code": "print(open('a').read())"}),
        ("Task", {"prompt": "Don't delete anything; look at the service (all of it)"}),
    ],
)
def test_names_and_prose_are_no_commands(tool: str, arguments: dict[str, object]) -> None:
    assert not is_destructive(tool, arguments)  # type: ignore[arg-type]
