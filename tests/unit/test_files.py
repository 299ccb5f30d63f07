"""Files that appear complete or not at all."""

import errno
from pathlib import Path

import pytest

from rekindle.files import open_new_file, write_new_file


def test_a_file_is_private_and_appears_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "one"
    with open_new_file(file) as out:
        out.write(b"new")
        assert not file.exists()
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_text("old")
    with pytest.raises(TypeError), open_new_file(file) as out:
        out.writelines([b"half", None])  # type: ignore[list-item]
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="one") as caught, open_new_file(tmp_path / "one"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "one")


def test_in_place_a_link_stays_a_link_and_a_mode_a_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "one", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("one")
    write_new_file(link, "new", in_place=True)
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
