"""A launcher for tests of what hooks say: as the real one, but with patience for a busy machine."""

from __future__ import annotations

from pathlib import Path

from rekindle.hooks import client
from rekindle.hooks.command import write_launcher

PATIENT_SECONDS = 60.0


def write_patient_launcher(home: Path) -> None:
    """Write a launcher whose client waits longer for an answer than an agent should."""
    launcher = write_launcher(home)
    source = Path(client.__file__)
    old, new = f"SECONDS = {client.SECONDS}", f"SECONDS = {PATIENT_SECONDS}"
    text = source.read_text()
    assert text.count(old) == 1
    text = text.replace(old, new).replace(
        "import sys\n", f"import sys\n__file__ = {str(source)!r}\n"
    )
    copy = home / "patient_client.py"
    copy.write_text(text)
    launcher.write_text(launcher.read_text().replace(str(source), str(copy)))
