"""A backup restores everything on another machine."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tests.waiting import wait_until

from .lab import NAME, MatrixLab

TEXTS = ["Hello, bot!", "Hello, Ada. 日本語 🙂", "How are you?", "Running."]


def test_a_backup_restores_users_messages_media_and_keys_on_an_empty_machine(
    lab: MatrixLab, other_lab: MatrixLab
) -> None:
    lab.set_up()
    lab("matrix", "create-user", "ada", "--password-stdin", stdin="adas-password\n")
    ada, bot = lab.log_in("ada", "adas-password"), lab.connect_bot()
    room = ada.create_room(f"@rekindle:{NAME}")
    bot.join(room)
    for number, text in enumerate(TEXTS):
        (bot if number % 2 else ada).send(room, text)
    picture = bytes(range(256)) * 400
    media = ada.upload(picture)
    state = lab.home / "platforms" / "matrix"
    state.mkdir(exist_ok=True)
    (state / "device.key").write_text("the key of the device")
    secrets = lab.secrets

    archive = lab.folder / "backup.tar.gz"
    assert f"Wrote {archive}" in lab("matrix", "backup", archive)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert "already exists" in lab.refusal("matrix", "backup", archive)
    assert [path.name for path in lab.folder.glob(".*.part")] == []
    assert [path.name for path in (lab.home / "matrix").glob("backup-*")] == []
    assert "empty" in lab.refusal("matrix", "restore", archive)

    state_before = lab.status()
    lab("matrix", "teardown", "--yes-delete-everything")
    for program in ("synapse", "postgres"):
        process = Path(f"/proc/{state_before[program]['pid']}")
        wait_until(lambda process=process: not process.exists())  # until it is reaped
    assert not (lab.home / "matrix").exists()
    assert not (lab.home / "platforms" / "matrix.toml").exists()
    assert not state.exists()
    assert (lab.home / "config.toml").read_text() == "[gateway]\n"
    assert "no Matrix server" in lab("matrix", "status", code=1)

    options = other_lab.port_options
    # Killed with -9 in the middle, it begins anew.
    assert other_lab.kill_at(["Restored the database"], "matrix", "restore", archive, *options)
    assert "restore" in other_lab.refusal("matrix", "setup", code=1)
    assert other_lab.status(code=1)["interrupted"] == "restore"
    other_lab("matrix", "restore", archive, *options)
    assert other_lab.status()["interrupted"] is None
    assert other_lab.secrets == secrets
    found = other_lab.log_in("ada", "adas-password")
    users = {f"@ada:{NAME}", f"@rekindle:{NAME}"}
    assert {sender for sender, _ in found.read(room)} == users
    assert [text for _, text in found.read(room)] == TEXTS
    assert found.download(media) == picture
    restored = other_lab.connect_bot()
    assert restored.whoami()["device_id"] == secrets["bot_device_id"]
    restored.send(room, "I am back.")
    assert found.read(room)[-1] == (f"@rekindle:{NAME}", "I am back.")
    device = other_lab.home / "platforms" / "matrix" / "device.key"
    assert device.read_text() == "the key of the device"
    assert 'platforms = "matrix"' in (other_lab.home / "config.toml").read_text()
    assert "Nothing to do" in other_lab("matrix", "setup")

    broken = lab.folder / "broken.tar.gz"
    broken.write_bytes(archive.read_bytes()[:-2000])
    _add_entry(archive, lab.folder / "hostile.tar.gz", "../../evil")
    for name in ("broken.tar.gz", "hostile.tar.gz"):
        assert name in lab.refusal("matrix", "restore", lab.folder / name)
        assert not (lab.home / "matrix").exists()
    assert not (lab.folder.parent / "evil").exists()


def _add_entry(archive: Path, target: Path, name: str) -> None:
    """Copy an archive and put an entry into it, after the first."""
    with tarfile.open(archive) as source, tarfile.open(target, "w:gz") as tar:
        for number, entry in enumerate(source):
            tar.addfile(entry, source.extractfile(entry))
            if number == 0:
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())
