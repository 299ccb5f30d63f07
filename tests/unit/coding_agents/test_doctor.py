import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.coding_agents import codex_trust
from rekindle.coding_agents.agent import CodingAgent, InstallTarget
from rekindle.coding_agents.agents import AGENTS
from rekindle.coding_agents.agents.claude_code import CLAUDE_CODE
from rekindle.coding_agents.agents.codex import CODEX
from rekindle.coding_agents.agents.gemini import GEMINI
from rekindle.coding_agents.codex_trust import HookTrust, read_codex_trust
from rekindle.coding_agents.doctor import DAY, Surroundings, diagnose_agent
from rekindle.coding_agents.findings import AgentReport
from rekindle.coding_agents.install import apply_install, plan_install
from rekindle.coding_agents.install_records import InstallRecords
from rekindle.hooks.command import get_launcher, write_launcher
from rekindle.hooks.troubles import HookTrouble
from rekindle.transcripts.discovery import DiscoveredFile

NOW = 1_790_000_000.0


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    target = InstallTarget(home, {"PATH": str(home / "bin")}, tmp_path / "rekindle")
    return Surroundings(
        targets=[target], now=NOW, find_pending=lambda files: [], read_trust=lambda program: []
    )


def install(agent: CodingAgent, around: Surroundings) -> None:
    records = InstallRecords(around.user.rekindle_home)
    for change in plan_install(agent, around.user, records):
        apply_install(change, records)
    write_launcher(around.user.rekindle_home)


def add_program(around: Surroundings, name: str) -> None:
    program = around.user.home / "bin" / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def add_session(around: Surroundings, name: str, *, days_old: float) -> Path:
    file = around.user.home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}\n")
    os.utime(file, (NOW - days_old * DAY, NOW - days_old * DAY))
    return file


def get_state(report: AgentReport) -> str:
    return report.installations[0].state


def list_problems(report: AgentReport) -> list[str]:
    return [one.kind for one in report.findings if one.needs_attention]


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_an_agent_is_not_installed_then_installed(agent: CodingAgent, around: Surroundings) -> None:
    report = diagnose_agent(agent, around)
    assert get_state(report) == "not installed"
    assert not report.is_present
    assert not report.needs_attention
    install(agent, around)
    report = diagnose_agent(agent, around)
    assert get_state(report) == "installed"
    assert not report.needs_attention


def test_a_missing_or_older_entry_is_stale(around: Surroundings) -> None:
    install(CLAUDE_CODE, around)
    file = around.user.home / ".claude" / "settings.json"
    text = file.read_text()
    file.write_text(text.replace("SessionEnd", "SessionOver"))
    report = diagnose_agent(CLAUDE_CODE, around)
    assert get_state(report) == "stale"
    (finding,) = report.findings
    assert finding.action == "rekindle install claude-code"
    file.write_text(text.replace("claude-code start 2>", "claude-code start --old 2>"))
    assert list_problems(diagnose_agent(CLAUDE_CODE, around)) == ["stale"]


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_a_hook_before_calls_that_does_not_fit_the_setting_is_stale(
    agent: CodingAgent, around: Surroundings
) -> None:
    asked = replace(around, targets=[replace(around.user, before_call=True)])
    for installed, seen, expected in ((around, asked, "is on"), (asked, around, "is off")):
        install(agent, installed)
        assert not diagnose_agent(agent, installed).needs_attention
        report = diagnose_agent(agent, seen)
        assert get_state(report) == "stale"
        (finding,) = report.findings
        assert f"warm.before_call {expected}" in finding.message
        assert finding.action == f"rekindle install {agent.name}"


def test_a_project_may_have_the_hook_before_calls_for_others(around: Surroundings) -> None:
    project = around.user.home / "project"
    project.mkdir()
    mine = replace(around, targets=[replace(around.user, project=project)])
    theirs = replace(mine, targets=[replace(mine.user, before_call=True)])
    install(CLAUDE_CODE, theirs)
    add_program(around, "rekindle")
    assert list_problems(diagnose_agent(CLAUDE_CODE, mine)) == []
    install(CLAUDE_CODE, mine)
    assert list_problems(diagnose_agent(CLAUDE_CODE, theirs)) == ["stale"]


def test_a_configuration_that_cannot_be_parsed_is_broken(around: Surroundings) -> None:
    file = around.user.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text("{broken")
    report = diagnose_agent(CLAUDE_CODE, around)
    assert get_state(report) == "broken"
    assert str(file) in report.findings[0].message


def test_a_program_that_is_gone_is_broken(around: Surroundings) -> None:
    install(CLAUDE_CODE, around)
    launcher = get_launcher(around.user.rekindle_home)
    launcher.unlink()
    report = diagnose_agent(CLAUDE_CODE, around)
    assert list_problems(report) == ["broken"]
    assert str(launcher) in report.findings[0].message


def test_a_launcher_of_another_installation_is_stale(around: Surroundings) -> None:
    install(CLAUDE_CODE, around)
    launcher = get_launcher(around.user.rekindle_home)
    launcher.write_text("#!/bin/sh\nexec /old/python client.py\n")
    assert list_problems(diagnose_agent(CLAUDE_CODE, around)) == ["stale"]


def test_hooks_that_codex_skips_need_attention(around: Surroundings) -> None:
    add_program(around, "codex")
    install(CODEX, around)
    skipped = [HookTrust("sessionStart", False, True), HookTrust("sessionEnd", True, False)]
    trusted = [HookTrust("sessionStart", True, True)]
    for hooks, expected in ((skipped, ["untrusted"]), ([], ["untrusted"]), (trusted, [])):
        seen = replace(around, read_trust=lambda program, hooks=hooks: hooks)
        assert list_problems(diagnose_agent(CODEX, seen)) == expected
    report = diagnose_agent(CODEX, replace(around, read_trust=lambda program: skipped))
    assert "sessionStart, sessionEnd" in report.findings[0].message
    silent = diagnose_agent(CODEX, replace(around, read_trust=lambda program: None))
    assert [one.kind for one in silent.findings] == ["untrusted"]
    assert not silent.needs_attention


def test_failures_of_hooks_are_reported_with_their_agent(around: Surroundings) -> None:
    install(CLAUDE_CODE, around)
    install(GEMINI, around)
    troubles = [
        HookTrouble(NOW - 30 * DAY, "gemini start", "long ago"),
        HookTrouble(NOW - 60, "claude-code start", "the store is damaged"),
        HookTrouble(NOW - 50, "claude-code end", "the disk is full"),
    ]
    seen = replace(around, troubles=troubles)
    report = diagnose_agent(CLAUDE_CODE, seen)
    assert list_problems(report) == ["hook-failures"]
    assert "2 hooks failed" in report.findings[0].message
    assert "the disk is full" in report.findings[0].message
    assert not diagnose_agent(GEMINI, seen).findings


def test_sessions_that_rest_without_being_imported_need_attention(around: Surroundings) -> None:
    old = add_session(around, ".codex/sessions/2026/old.jsonl", days_old=1)
    running = add_session(around, ".codex/sessions/2026/running.jsonl", days_old=0.001)

    def find_pending(files: Sequence[DiscoveredFile]) -> Sequence[DiscoveredFile]:
        return files

    report = diagnose_agent(CODEX, replace(around, find_pending=find_pending))
    assert report.is_present
    assert (report.session_files, report.pending_files) == (2, 2)
    assert list_problems(report) == ["not-imported"]
    assert report.findings[0].message.startswith("1 session file")
    old.unlink()
    assert not diagnose_agent(CODEX, replace(around, find_pending=find_pending)).needs_attention
    assert running.exists()


def test_sessions_that_the_agent_will_delete_are_listed_with_their_time(
    around: Surroundings,
) -> None:
    folder = ".claude/projects/-src"
    overdue = add_session(around, f"{folder}/a.jsonl", days_old=31)
    soon = add_session(around, f"{folder}/b.jsonl", days_old=25)
    add_session(around, f"{folder}/c.jsonl", days_old=20)
    seen = replace(
        around, find_pending=lambda files: [one for one in files if one.path == str(soon)]
    )
    report = diagnose_agent(CLAUDE_CODE, seen)
    assert [(one.file, one.is_imported) for one in report.deletions] == [
        (str(overdue), True),
        (str(soon), False),
    ]
    assert report.deletions[1].time == pytest.approx(NOW + 5 * DAY)
    assert list_problems(report) == ["not-imported", "deletion"]
    settings = around.user.home / ".claude" / "settings.json"
    settings.write_text('{"cleanupPeriodDays": 365}')
    assert diagnose_agent(CLAUDE_CODE, seen).deletions == ()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", 30),
        ("{broken", 30),
        ('{"general": {"sessionRetention": {"maxAge": "24h"}}}', 1),
        ('{"general": {"sessionRetention": {"maxAge": "2w"}}}', 14),
        ('{"general": {"sessionRetention": {"maxAge": "forever"}}}', 30),
        ('{"general": {"sessionRetention": {"enabled": false}}}', None),
    ],
)
def test_the_settings_of_gemini_say_when_it_deletes(
    around: Surroundings, settings: str, expected: float | None
) -> None:
    file = around.user.home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(settings)
    assert GEMINI.find_retention_days(around.user) == expected


@pytest.mark.parametrize(
    ("agent", "file", "setting"),
    [
        (CLAUDE_CODE, ".claude/settings.json", '{"disableAllHooks": true}'),
        (GEMINI, ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
    ],
)
def test_hooks_that_are_turned_off_need_attention(
    around: Surroundings, agent: CodingAgent, file: str, setting: str
) -> None:
    path = around.user.home / file
    path.parent.mkdir()
    path.write_text(setting)
    install(agent, around)
    assert list_problems(diagnose_agent(agent, around)) == ["disabled"]


FAKE_CODEX = """#!{python}
import json, sys, time
assert sys.argv[1:] == ["app-server"]
for line in sys.stdin:
    request = json.loads(line)
    if {is_silent}:
        time.sleep(600)
    print(json.dumps({{"method": "some/notice"}}))
    hooks = [
        {{"eventName": "sessionStart", "command": "/h/hooks/run codex start", "enabled": True,
          "trustStatus": "untrusted"}},
        {{"eventName": "stop", "command": "/h/hooks/run codex end", "trustStatus": "trusted"}},
        {{"eventName": "stop", "command": "another hook", "trustStatus": "untrusted"}},
    ]
    data = [{{"cwd": cwd, "hooks": hooks}} for cwd in request["params"].get("cwds", [])]
    print(json.dumps({{"id": request["id"], "result": {{"data": data}}}}), flush=True)
"""


def make_codex(folder: Path, *, is_silent: bool = False) -> str:
    program = folder / "codex"
    program.write_text(FAKE_CODEX.format(python=sys.executable, is_silent=is_silent))
    program.chmod(0o755)
    return str(program)


@pytest.mark.slow
def test_codex_is_asked_for_the_trust_in_our_hooks(tmp_path: Path) -> None:
    found = read_codex_trust(make_codex(tmp_path), tmp_path, os.environ)
    assert found == [HookTrust("sessionStart", False, True), HookTrust("stop", True, True)]


@pytest.mark.slow
def test_a_codex_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex_trust, "ANSWER_SECONDS", 0.2)
    began = time.monotonic()
    assert read_codex_trust(make_codex(tmp_path, is_silent=True), tmp_path, os.environ) is None
    assert time.monotonic() - began < 60
    assert read_codex_trust(str(tmp_path / "missing"), tmp_path, os.environ) is None
