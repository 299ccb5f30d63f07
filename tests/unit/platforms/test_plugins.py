from pathlib import Path

import pytest

from rekindle.errors import InvalidSetting
from rekindle.platforms.folder import FolderPlatform
from rekindle.platforms.kind import PlatformField, PlatformKind
from rekindle.platforms.plugins import connect_platforms, find_kind, list_kind_names
from rekindle.platforms.settings_file import load_settings, write_settings

KIND = PlatformKind(
    "pigeon",
    "Pigeon post",
    lambda settings, folder: FolderPlatform(folder),
    fields=(
        PlatformField("token", "Token", is_secret=True, env="PIGEON_TOKEN"),
        PlatformField("loft", "Loft", default="north"),
    ),
)


def test_settings_come_from_the_file_then_the_environment_then_the_default(tmp_path: Path) -> None:
    assert load_settings(KIND, tmp_path, {"PIGEON_TOKEN": "e"}) == {"token": "e", "loft": "north"}
    path = write_settings("pigeon", tmp_path, {"token": 'a "quoted" \\ one\n', "loft": "ü"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_settings(KIND, tmp_path, {"PIGEON_TOKEN": "e"}) == {
        "token": 'a "quoted" \\ one\n',
        "loft": "ü",
    }


def test_a_missing_or_unknown_setting_is_named_and_no_token_is_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"token is missing; run `rekindle gateway setup"):
        load_settings(KIND, tmp_path, {})
    write_settings("pigeon", tmp_path, {"token": "hush", "lift": "x"})
    with pytest.raises(InvalidSetting, match="unknown setting 'lift'") as caught:
        load_settings(KIND, tmp_path, {})
    assert "hush" not in str(caught.value)


def test_an_unknown_platform_is_an_error_with_the_known_ones(tmp_path: Path) -> None:
    assert {"matrix", "telegram"} <= set(list_kind_names())
    with pytest.raises(InvalidSetting, match=r"'pigeon' is not a platform; known ones are matrix"):
        find_kind("pigeon")
    with pytest.raises(InvalidSetting, match=r"gateway.platforms: 'pigeon'"):
        connect_platforms("pigeon", tmp_path)
