"""What a refresh says to whoever reads."""

from __future__ import annotations

import pytest

from rekindle.cli import store_access
from rekindle.cli.store_access import _format_counts, _show_late_progress  # pyright: ignore[reportPrivateUsage]
from rekindle.transcripts.importer import FormatCount, ImportReport


def make_report(**formats: tuple[int, int]) -> ImportReport:
    """A report of sessions, and of those that are new, by format."""
    counts = {
        name.replace("_", "-"): FormatCount(sessions=sessions, new_sessions=new)
        for name, (sessions, new) in formats.items()
    }
    return ImportReport(
        sessions=sum(one.sessions for one in counts.values()),
        new_sessions=sum(one.new_sessions for one in counts.values()),
        formats=counts,
    )


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (make_report(claude_code=(3, 3)), "3 new sessions from Claude Code."),
        (make_report(codex=(1, 1)), "1 new session from Codex."),
        (
            make_report(claude_code=(5, 3), codex=(1_200, 1_200), pi=(0, 0)),
            "3 new sessions from Claude Code, 1,200 from Codex; 2 updated.",
        ),
        (make_report(codex=(1, 0)), "1 session updated from Codex."),
        (make_report(codex=(1, 0), pi=(1, 0)), "2 sessions updated from Codex, pi."),
    ],
)
def test_the_line_says_how_many_sessions_came_from_which_agents(
    report: ImportReport, said: str
) -> None:
    assert _format_counts(report) == said


def test_only_work_that_lasts_is_announced_and_only_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with _show_late_progress("Importing 3 files") as show:
        show(1, 3)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(store_access, "_QUIET_SECONDS", -1.0)
    with _show_late_progress("Importing 3 files") as show:
        show(1, 3)
        show(2, 3)
    assert capsys.readouterr() == ("", "Importing 3 files …\n")
