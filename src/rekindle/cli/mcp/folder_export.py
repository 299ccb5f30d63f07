"""Write exported files into a folder; nothing that exists is changed without being asked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from rekindle.cli.output import format_count, print_line, print_notice, require_confirmation
from rekindle.errors import InvalidInput
from rekindle.files import write_new_file


def write_export(folder: Path, files: Mapping[str, str], *, yes: bool, dry_run: bool) -> None:
    """Write files below a folder: a new folder at once, an existing one after showing the change.

    Files of the folder that are not named stay as they are.
    """
    before = {name: _read_file(folder, name) for name in files}
    changed = {name: text for name, text in files.items() if before[name] != text}
    if not changed:
        print_notice(f"{folder} is up to date.")
        return
    is_new = not folder.exists()
    if dry_run or not is_new:
        for name, text in changed.items():
            _print_diff(folder / name, before[name] or "", text)
    if dry_run:
        return
    if not is_new:
        require_confirmation(f"Change {folder}?", yes=yes)
    for name, text in changed.items():
        _write_file(folder / name, text)
    print_line(f"Wrote {format_count(len(changed), 'file')} to {folder}")


def _read_file(folder: Path, name: str) -> str | None:
    """Return the text of a file, None if there is none; refuse links, which lead elsewhere."""
    file = folder / name
    for path in (file, *file.parents):
        if path == folder:
            break
        if path.is_symlink():
            raise InvalidInput(f"{path} is a link: remove it, or choose another folder")
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InvalidInput(f"{file}: not valid UTF-8") from None


def _print_diff(file: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file), str(file), lineterm=""
    )
    for line in lines:
        print_line(line)


def _write_file(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_new_file(file, text, mode=0o644, in_place=True)
