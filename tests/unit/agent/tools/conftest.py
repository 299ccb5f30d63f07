from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.agent.tools.tool import ToolContext


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def context(work: Path) -> ToolContext:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work.parent / "home")}
    return ToolContext(session="s", cwd=work, owner="ada", environment=environment, notes={})
