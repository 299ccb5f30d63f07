"""The labs themselves: each agent runs, calls its shell, and goes on with its session."""

from __future__ import annotations

import pytest

from .conftest import OpenLab
from .model_server import LAST_WORDS
from .programs import PACKAGES


@pytest.mark.parametrize("agent", PACKAGES)
def test_an_agent_runs_the_commands_of_the_script_and_resumes(
    agent: str, open_lab: OpenLab
) -> None:
    lab = open_lab(agent)
    first = lab.run("Please go on.\nrun: expr 40000 + 2")
    assert first.exit_code == 0, first.errors
    assert LAST_WORDS in first.output
    assert "40002" in first.texts[-1]
    second = lab.run("And now?", resume=first.session)
    assert second.exit_code == 0, second.errors
    assert "40002" in second.texts[-1]
