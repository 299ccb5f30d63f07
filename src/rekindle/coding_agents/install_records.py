"""Records of installations and of the original files, kept in Rekindle's home.

<home>/installed/<id>.json                 the record of one file
<home>/installed/backups/<time>-<name>     the content of a file before a change
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from rekindle.files import write_new_file


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """A file that Rekindle was installed into."""

    file: str
    digest: str  # of the content that the installation left
    original: str | None  # the backup that an uninstallation restores; None: there was no file
    folders: tuple[str, ...] = ()  # that the installation created


def digest_content(content: bytes) -> str:
    """Return the digest by which an unchanged file is recognized."""
    return hashlib.sha256(content).hexdigest()


class InstallRecords:
    """The records of one home."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "installed"

    def find_record(self, file: Path) -> InstallRecord | None:
        """Return the record of a file, or None if there is none that can be read."""
        try:
            # By json: the name of a file may hold surrogates.
            fields = json.loads(self._get_path(file).read_text("utf-8"))
            return msgspec.convert(fields, InstallRecord)
        except (OSError, ValueError, msgspec.ValidationError):
            return None

    def save_record(self, file: Path, record: InstallRecord | None) -> None:
        """Save the record of a file; None removes it."""
        path = self._get_path(file)
        if record is None:
            path.unlink(missing_ok=True)
            return
        self._create_folder(self.folder)
        write_new_file(path, json.dumps(asdict(record), indent=2) + "\n")

    def back_up(self, file: Path, content: bytes) -> str:
        """Save the content of a file and return the name of the backup."""
        folder = self._create_folder(self.folder / "backups")
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        stem = f"{moment}-{file.name}"
        for number in range(1, 1000):
            name = stem if number == 1 else f"{stem}.{number}"
            try:
                fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            with os.fdopen(fd, "wb") as backup:
                backup.write(content)
                backup.flush()
                os.fsync(backup.fileno())
            return name
        raise FileExistsError(f"{folder}: too many backups of {file.name}")

    def read_backup(self, name: str) -> bytes | None:
        """Return the content of a backup, or None if it is gone."""
        try:
            return self.get_backup_path(name).read_bytes()
        except OSError:
            return None

    def get_backup_path(self, name: str) -> Path:
        """Return the path of a backup."""
        return self.folder / "backups" / Path(name).name

    def _get_path(self, file: Path) -> Path:
        key = digest_content(os.fsencode(os.path.realpath(file)))[:16]
        return self.folder / f"{key}.json"

    def _create_folder(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder
