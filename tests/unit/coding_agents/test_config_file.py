import os
import stat
import threading
import time
from pathlib import Path

import pytest

from rekindle.coding_agents.config_edit import config_file
from rekindle.coding_agents.config_edit.config_file import (
    ConfigChanged,
    decode_config,
    delete_config,
    lock_config,
    read_config,
    replace_config,
)
from rekindle.errors import InvalidInput, RekindleError


def test_a_file_is_replaced_with_its_mode_and_through_its_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_bytes(b"old")
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    replace_config(link, b"new", expected=b"old")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(real.parent) == ["settings.json"]


def test_a_new_file_has_the_usual_mode_and_its_folders(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "settings.json"
    replace_config(file, b"new", expected=None)
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    assert file.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("present", [b"someone else", None])
def test_a_file_that_changed_meanwhile_is_not_touched(
    tmp_path: Path, present: bytes | None
) -> None:
    file = tmp_path / "settings.json"
    if present is not None:
        file.write_bytes(present)
    with pytest.raises(ConfigChanged):
        replace_config(file, b"new", expected=b"old")
    with pytest.raises(ConfigChanged):
        delete_config(file, expected=b"old")
    assert read_config(file) == present
    assert os.listdir(tmp_path) == ([] if present is None else ["settings.json"])


def test_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInput, match="not a regular file"):
        read_config(tmp_path / "pipe")
    with pytest.raises((InvalidInput, IsADirectoryError)):
        read_config(tmp_path / "folder")


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not valid UTF-8"):
        decode_config(tmp_path / "x", b"\xff\xfe")


def test_installers_wait_for_each_other(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(b"0")

    def increment() -> None:
        for _ in range(5):
            with lock_config(file):
                content = read_config(file)
                assert content is not None
                replace_config(file, b"%d" % (int(content) + 1), expected=content)

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_bytes() == b"20"
    assert os.listdir(tmp_path) == ["settings.json"]


def test_folders_that_an_installer_just_created_do_not_let_the_next_one_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "LOCK_SECONDS", 0.0)
    file = tmp_path / "agent" / "settings" / "x.json"
    with lock_config(file):
        file.parent.mkdir(parents=True)
        with pytest.raises(RekindleError, match="locked by another program"), lock_config(file):
            pass
    with lock_config(file):
        pass


def test_the_lock_folder_of_the_program_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "LOCK_SECONDS", 0.1)
    file, lock = tmp_path / "x.json", tmp_path / "x.json.lock"
    lock.mkdir()
    with (
        pytest.raises(RekindleError, match="held by another program"),
        lock_config(file, lock_folder=True),
    ):
        pass
    assert lock.exists()
    long_ago = time.time() - 60
    os.utime(lock, (long_ago, long_ago))
    with lock_config(file, lock_folder=True):
        assert lock.exists()
    assert not lock.exists()
