"""Which command lines a person is asked about."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.agent.tools.builtin.terminal import find_command_risks as find_risks
from rekindle.agent.tools.tool import ToolContext
from tests.cases import check_each
from tests.unit.shell.risky_commands import OUTSIDE_COMMANDS, RISKY_COMMANDS

HARMLESS = [
    "ls -la",
    "git status",
    "git diff | head -50",
    "grep -rn 'rm -rf' src | wc -l",
    "cat a.txt | sort | uniq -c",
    "echo 'rm -rf /'",
    'echo "DROP TABLE users"',
    "python -m pytest -q 2>&1 | tail -5",
    "make test > out.log 2>&1",
    "find . -name '*.py' | xargs grep -n import",
    "cd src && ls",
    "git log --oneline --force-x 2>/dev/null",
    "rm build.log",
    "git push origin main",
    "git commit -m 'reset --hard'",
    "echo hi >> notes.txt",
    "mkdir -p a/b",
    "cat > new.txt <<'E'\nrm -rf /\nE",
    "python - <<'E'\nprint(1)\nE",
    "for f in *.py; do wc -l $f; done",
    "sed -n 1,5p a",
    "sed -i s/a/b/ a.txt",
    "curl -s https://example.com | jq .",
    "npm install left-pad",
    "pip install requests",
    "docker ps -a",
    "kubectl get pods",
    "systemctl status nginx",
    "psql -c 'select 1'",
    "git checkout main",
    "git stash",
    "git clean -n",
    "timeout 5 ls",
    "env A=1 ls",
    "nohup ls",
    "xargs -n1 echo < a",
    "cp a b",
    "mv a b",
    "tar xzf a.tgz",
    "bash script.sh",
    "sh -c 'ls | wc -l'",
    "command -v rm",
    "which rm",
    "test -f a && echo yes || echo no",
    "[[ -f a ]] && cat a",
    "[ -f a ] && cat a",
    "x=$(date); echo $x",
    "chmod +x run.sh",
    "dd if=a count=1",
    "git reset --soft HEAD~1",
    "git rm --cached a",
    "crontab -l",
    "ssh host uptime",
    "awk '{print $1}' a",
    "python -c 'print(1)'",
    "wget -O page.html https://example.com",
    "du -sh * | sort -h",
    "history",
    "ps aux | grep kill",
]


@check_each("line", HARMLESS)
def test_a_harmless_line_is_not_asked_about(context: ToolContext, work: Path, line: str) -> None:
    assert find_risks(line, context, str(work)) == ()


@check_each("line", RISKY_COMMANDS + OUTSIDE_COMMANDS)
def test_a_dangerous_line_is_asked_about(context: ToolContext, work: Path, line: str) -> None:
    assert find_risks(line.replace("%s", str(work)), context, str(work)) != ()


def test_the_reason_says_what_would_happen(context: ToolContext, work: Path) -> None:
    assert find_risks("ls && rm -rf x", context, str(work)) == (
        "rm deletes folders and their contents",
    )
    assert find_risks("echo x > /etc/a", context, str(work)) == (
        "writes outside the allowed folders: /etc/a",
    )


def test_a_redirection_through_a_link_is_followed(context: ToolContext, work: Path) -> None:
    (work / "out").symlink_to("/etc")
    assert find_risks("echo x > out/a", context, str(work))
    assert find_risks("echo x > inside", context, str(work)) == ()


def test_what_is_allowed_is_where_commands_may_write(context: ToolContext, tmp_path: Path) -> None:
    wide = context._replace(folders=(tmp_path,))
    line = f"echo x > {tmp_path}/a && cp a {tmp_path}/b && rm {tmp_path}/b"
    assert find_risks(line, wide, str(tmp_path)) == ()
    assert find_risks(line, context, str(tmp_path)) != ()


def wrapped(inner: str, way: str) -> str:
    return way.replace("@Q", shlex.quote(inner)).replace("@", inner)


WAYS = [
    "@",
    "ls; @",
    "@ && ls",
    "true | @",
    "@ | cat",
    "true; (@)",
    "{ @; }",
    "echo $(@)",
    'echo "$(@)"',
    "cat <(@)",
    "sh -c @Q",
    "bash -c @Q | cat",
    "eval @Q",
    "if true; then @; fi",
    "while false; do @; done",
    "x=$(@)",
    "echo hi\n@",
    "! @",
    "cat <<E\n$(@)\nE",
    "bash <<< @Q",
    "echo ${x:-$(@)}",
    "@ > /dev/null",
    "A=1 @",
    "@ &",
    "for i in 1 2; do @; done",
]
PREFIXES = ["", "env ", "nohup ", "nice ", "timeout 3 ", "command ", "time ", "env A=1 nohup "]
nested = st.lists(st.sampled_from(WAYS), max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["rm -r x", "git push --force", "kill 1", "dd of=a"]),
    st.sampled_from(PREFIXES),
    nested,
)
def test_danger_is_found_however_it_is_wrapped(
    context: ToolContext, work: Path, danger: str, prefix: str, ways: list[str]
) -> None:
    line = prefix + danger
    for way in ways:
        line = wrapped(line, way)
    assert find_risks(line, context, str(work)) != (), line


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["ls -l", "git status", "grep -r rm .", "echo 'rm -r x'"]),
    st.sampled_from(PREFIXES),
)
@pytest.mark.parametrize("way", [way for way in WAYS if "<<" not in way])
def test_harmless_commands_stay_so_when_wrapped(
    context: ToolContext, work: Path, way: str, harmless: str, prefix: str
) -> None:
    line = wrapped(prefix + harmless, way)
    assert find_risks(line, context, str(work)) == (), line


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="rm -f$()`'\"\\;|&<>{}[]~*ab/\n=#!c0", max_size=40))
def test_any_line_gets_an_answer(context: ToolContext, work: Path, line: str) -> None:
    assert all(
        isinstance(reason, str) and reason for reason in find_risks(line, context, str(work))
    )
