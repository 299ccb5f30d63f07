"""Plan the changes of an agent's files, show them as a diff, and apply them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from rekindle.errors import InvalidInput

from .agent import AgentFile, CodingAgent, InstallTarget
from .config_edit.config_file import (
    decode_config,
    delete_config,
    list_missing_folders,
    lock_config,
    read_config,
    remove_folders,
    replace_config,
)
from .install_records import InstallRecord, InstallRecords, digest_content


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file; None as content means that there is no file."""

    file: AgentFile
    before: bytes | None
    after: bytes | None
    original: bytes | None = None  # what an uninstallation will restore

    @property
    def path(self) -> Path:
        return self.file.path


def find_project(folder: Path, home: Path) -> Path:
    """Return the root of the repository that contains a folder, or the folder itself."""
    root = find_repository_root(folder) or folder.resolve()
    if root == home.resolve():
        raise InvalidInput(f"{root} is your home folder, not a project; run it in a project")
    return root


def find_repository_root(folder: Path) -> Path | None:
    """Return the folder of the worktree that contains a folder, if there is one."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def plan_install(
    agent: CodingAgent, target: InstallTarget, records: InstallRecords
) -> list[FileChange]:
    """Return the changes that install Rekindle into an agent; none if it is up to date."""
    changes: list[FileChange] = []
    for file in agent.list_files(target):
        before = _read_file(file, target)
        try:
            text = file.initial if before is None else decode_config(file.path, before)
            after = reduce(lambda one, part: part.add_to(one), file.parts, text).encode()
            original = _find_original(file, before, records)
        except InvalidInput as error:
            raise _add_file_name(file, error) from None
        if after != before:
            changes.append(FileChange(file, before, after, original))
    return changes


def plan_uninstall(
    agent: CodingAgent, target: InstallTarget, records: InstallRecords
) -> list[FileChange]:
    """Return the changes that remove Rekindle from an agent.

    A file that nobody else changed since the installation becomes what it was before, byte for byte.
    """
    changes: list[FileChange] = []
    # In reverse order: the first file has the record of the folders that all of them are in.
    for file in reversed(agent.list_files(target)):
        before = _read_file(file, target)
        if before is None:
            continue
        try:
            after = _find_original(file, before, records)
        except InvalidInput as error:
            raise _add_file_name(file, error) from None
        if after != before:
            changes.append(FileChange(file, before, after))
    return changes


def apply_install(change: FileChange, records: InstallRecords) -> Path | None:
    """Write the change of an installation; return the backup of the file, if there was one."""
    path, after = change.path, change.after
    assert after is not None
    with lock_config(path, lock_folder=change.file.has_lock_folder):
        previous = records.find_record(path)
        is_known = previous is not None and _is_unchanged(previous, change.before)
        backup = None if change.before is None else records.back_up(path, change.before)
        if is_known and previous is not None:
            original, folders = previous.original, previous.folders
        else:
            original = _save_original(change, backup, records)
            folders = tuple(map(str, list_missing_folders(path)))
        record = InstallRecord(str(path), digest_content(after), original, folders)
        records.save_record(path, record)
        try:
            replace_config(path, after, expected=change.before)
        except BaseException:
            records.save_record(path, previous)
            raise
    return records.get_backup_path(backup) if backup else None


def apply_uninstall(change: FileChange, records: InstallRecords) -> Path:
    """Write the change of an uninstallation; return the backup of the file."""
    path, before = change.path, change.before
    assert before is not None
    with lock_config(path, lock_folder=change.file.has_lock_folder):
        record = records.find_record(path)
        backup = records.back_up(path, before)
        if change.after is None:
            delete_config(path, expected=before)
            remove_folders([Path(folder) for folder in (record.folders if record else ())])
        else:
            replace_config(path, change.after, expected=before)
        records.save_record(path, None)
    return records.get_backup_path(backup)


def _read_file(file: AgentFile, target: InstallTarget) -> bytes | None:
    if target.project is not None:
        real = Path(os.path.realpath(file.path))
        if not real.is_relative_to(os.path.realpath(target.project)):
            raise InvalidInput(f"{file.path} leads out of the project, to {real}")
    return read_config(file.path)


def _find_original(file: AgentFile, content: bytes | None, records: InstallRecords) -> bytes | None:
    """Return the file as it would be without Rekindle; None for no file."""
    if content is None:
        return None
    record = records.find_record(file.path)
    kept = records.read_backup(record.original) if record and record.original else None
    if record is not None and _is_unchanged(record, content):
        if record.original is None:
            return None
        if kept is not None:
            return kept
    text = decode_config(file.path, content)
    before = (kept or b"").decode("utf-8", "replace")
    rest = reduce(lambda one, part: part.remove_from(one, before), file.parts, text)
    if rest == text:
        return content
    is_new = record is not None and record.original is None
    if not rest.strip() or (is_new and _is_blank(rest, file.initial)):
        return None
    return rest.encode()


def _is_unchanged(record: InstallRecord, content: bytes | None) -> bool:
    return content is not None and record.digest == digest_content(content)


def _is_blank(text: str, initial: str) -> bool:
    """Return whether a file that we created has nothing in it."""
    words = "".join(text.split())
    return words in ("", "{}", "".join(initial.split()))


def _save_original(change: FileChange, backup: str | None, records: InstallRecords) -> str | None:
    """Save the original for an uninstallation, and return its name."""
    if change.original is None:
        return None
    if change.original == change.before:
        return backup
    return records.back_up(change.path, change.original)


def _add_file_name(file: AgentFile, error: InvalidInput) -> InvalidInput:
    text = str(error)
    known = text if text.startswith(str(file.path)) else f"{file.path}: {text}"
    return InvalidInput(f"{known}. Nothing was changed" if "Nothing" not in known else known)
