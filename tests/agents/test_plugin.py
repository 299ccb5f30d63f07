"""The plugin for Claude Code, loaded by the real program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import rekindle
from rekindle.hooks.context_text import HEADING
from tests import command
from tests.acceptance.test_notes import write_session

from .hook_setup import set_control_share, stop_helper, warm_up
from .lab import AGENT_SECONDS, AgentLab

TOOLS = {
    "search_sessions",
    "read_session",
    "recall_notes",
    "add_note",
    "list_processes",
    "read_process",
}


def test_claude_code_has_the_hooks_tools_and_skills_of_the_plugin(
    claude_code: AgentLab, tmp_path: Path
) -> None:
    lab, env = claude_code, {"PYTHONPATH": str(Path(rekindle.__file__).parents[1])}
    transcripts, plugin = tmp_path / "transcripts", tmp_path / "plugin"
    transcripts.mkdir()
    for number in range(6):
        write_session(
            transcripts, f"a{number}", ("make check", "ok", True), where=str(lab.repository)
        )
    for words in (["import", transcripts], ["plugin", "export", plugin, "--project", "repo"]):
        command.run(words, env=lab.build_env(env), cwd=lab.repository, check=True)
    validate = [str(lab.program), "plugin", "validate", str(plugin)]
    done = subprocess.run(validate, env=lab.build_env(), capture_output=True, timeout=AGENT_SECONDS)
    assert done.returncode == 0, done.stdout
    prompt = "Please go on.\ncall: mcp__plugin_rekindle_rekindle__search_sessions {}"
    set_control_share(lab, 0)
    warm_up(lab.rekindle_home)
    try:
        run = lab.run(prompt, env=env, arguments=["--plugin-dir", str(plugin)])
    finally:
        stop_helper(lab.rekindle_home)
    assert run.exit_code == 0, run.errors
    body = next(one.body for one in run.requests if one.body.get("tools"))
    offered = {one["name"]: one for one in body["tools"]}
    ours = {f"mcp__plugin_rekindle_rekindle__{name}" for name in TOOLS}
    assert ours <= offered.keys()
    search = offered["mcp__plugin_rekindle_rekindle__search_sessions"]
    assert "query" in json.dumps(search["input_schema"])
    assert "rekindle:past-sessions" in run.texts[0]
    assert "rekindle:repo-sessions" in run.texts[0]
    assert "session a5: fix the cart" in run.texts[-1]
    assert HEADING in run.texts[0]
    assert "`make check` (6 sessions)" in run.texts[0]
