from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rekindle.config import load_config
from rekindle.config.file_edit import write_setting
from rekindle.errors import InvalidSetting

NAME = "gateway.platforms"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[gateway]\nplatforms = "a b"\n'),
        ("[model]\nname = 'm'", "[model]\nname = 'm'\n\n[gateway]\nplatforms = \"a b\"\n"),
        (
            "[gateway] # mine\nhealth_port = 1\n[model]\n",
            '[gateway] # mine\nplatforms = "a b"\nhealth_port = 1\n[model]\n',
        ),
        ('[gateway]\n  platforms = "x" # old\n', '[gateway]\nplatforms = "a b"\n'),
        (
            "[model]\nplatforms = 1\n[gateway]\n",
            '[model]\nplatforms = 1\n[gateway]\nplatforms = "a b"\n',
        ),
    ],
)
def test_one_line_is_changed_and_the_rest_stays(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(before)
    assert write_setting(file, NAME, "a b") is True
    assert file.read_text() == after
    assert write_setting(file, NAME, "a b") is False
    assert tomllib.loads(after)["gateway"]["platforms"] == "a b"


def test_a_setting_is_removed_and_the_file_can_still_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert write_setting(file, NAME, None) is False
    write_setting(file, NAME, "folder")
    assert write_setting(file, NAME, None) is True
    assert file.read_text() == "[gateway]\n"
    assert load_config({"REKINDLE_HOME": str(tmp_path)}).gateway.platforms == ""


def test_a_new_file_is_for_the_user_alone_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    write_setting(file, NAME, "a")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    write_setting(link, NAME, 'quote " and \\')
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert tomllib.loads(file.read_text())["gateway"]["platforms"] == 'quote " and \\'


@pytest.mark.parametrize(
    "text",
    [
        'gateway.platforms = "x"\n',
        'gateway = { platforms = "x" }\n',
        'x = """\n[gateway]\nplatforms = 1\n"""\n[gateway]\n',
        "[gateway\n",
        "gateway = 5\n",
        '[gateway]\nplatforms = """\nx"""\n',
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(InvalidSetting, match=r"config\.toml"):
        write_setting(file, NAME, "y")
    assert file.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
