"""Settings: where they come from, and how a wrong one is refused."""

from pathlib import Path

import pytest

from rekindle.config import SETTINGS, find_home, load, masked, strangers
from rekindle.errors import InvalidSetting


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def written(home: Path, text: str) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text, encoding="utf-8")
    return {"REKINDLE_HOME": str(home)}


def refusal(env: dict[str, str]) -> str:
    with pytest.raises(InvalidSetting) as caught:
        load(env)
    return str(caught.value)


def test_without_a_file_every_setting_has_its_default_and_says_so(home: Path) -> None:
    config = load({"REKINDLE_HOME": str(home)})
    assert config.store.url == str(home / "sessions.db")
    assert config.store.durability == "full"
    assert config.store.busy_seconds == 30
    assert config.retention.undo_days == 7
    assert set(config.origins.values()) == {"default"}
    assert config.origins.keys() == SETTINGS.keys()


def test_the_file_wins_over_the_default_and_the_environment_over_the_file(home: Path) -> None:
    env = written(home, '[store]\ndurability = "relaxed"\nbusy_seconds = 5\n[list]\nlimit = 7\n')
    config = load({**env, "REKINDLE_STORE_BUSY_SECONDS": "2.5"})
    assert config.store.durability == "relaxed"
    assert config.origins["store.durability"] == "file"
    assert config.store.busy_seconds == 2.5
    assert config.origins["store.busy_seconds"] == "environment (REKINDLE_STORE_BUSY_SECONDS)"
    assert config.list.limit == 7


def test_the_command_line_wins_over_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    config = load({"REKINDLE_HOME": str(home), "REKINDLE_STORE": "other.db"}, store="mine.db")
    assert config.store.url == str(home.parent / "mine.db")
    assert config.origins["store.url"] == "command line (--store)"


def test_a_relative_store_starts_from_home_in_the_file_and_from_here_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    env = written(home, '[store]\nurl = "deep/a.db"')
    assert load(env).store.url == str(home / "deep" / "a.db")
    assert load({**env, "REKINDLE_STORE": "b.db"}).store.url == str(home.parent / "b.db")


def test_a_url_stays_as_it_is(home: Path) -> None:
    url = "postgresql://ada@db.example/rekindle"
    assert load({"REKINDLE_HOME": str(home), "REKINDLE_STORE": url}).store.url == url


def test_an_unknown_setting_is_refused_with_its_file_line_and_the_nearest_name(home: Path) -> None:
    env = written(home, '# mine\n[store]\nurl = "a.db"\ndurabilty = "full"\n')
    message = refusal(env)
    assert "store.durabilty" in message
    assert f"{home / 'config.toml'}, line 4" in message
    assert "did you mean store.durability?" in message


def test_a_setting_outside_of_any_section_is_refused_with_what_is_allowed(home: Path) -> None:
    message = refusal(written(home, "colour = 1\n"))
    assert "colour in" in message
    assert "line 1" in message
    assert "store.url" in message


def test_an_unknown_section_is_refused_even_when_it_is_empty(home: Path) -> None:
    assert "gateway" in refusal(written(home, "[gateway]\n"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            '[store]\ndurability = "fast"',
            ["store.durability", "line 2", "'fast'", "full or relaxed"],
        ),
        ("[store]\nbusy_seconds = -1", ["store.busy_seconds", "line 2", "-1", "a number from 0"]),
        ("[store]\nbusy_seconds = nan", ["store.busy_seconds", "a number from 0"]),
        ("[list]\nlimit = 2.5", ["list.limit", "2.5", "a whole number from 1 to 100000"]),
        ("[list]\nlimit = true", ["list.limit", "True", "a whole number"]),
        ('[list]\nlimit = "many"', ["list.limit", "'many'", "a whole number"]),
        ('[store]\nurl = ""', ["store.url", "''", "text"]),
        ("list.limit = 0", ["list.limit", "line 1", "0"]),
        ("[store\nurl = 1", ["not valid TOML", "line 1"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_place_and_what_is_allowed(
    home: Path, text: str, parts: list[str]
) -> None:
    message = refusal(written(home, text))
    assert str(home / "config.toml") in message
    assert [part for part in parts if part not in message] == []


def test_a_wrong_environment_variable_is_refused_by_its_name(home: Path) -> None:
    message = refusal({"REKINDLE_HOME": str(home), "REKINDLE_LIST_LIMIT": "many"})
    assert "list.limit" in message
    assert "REKINDLE_LIST_LIMIT" in message
    assert "'many'" in message


def test_home_is_the_users_data_folder_unless_the_environment_says_otherwise(
    tmp_path: Path,
) -> None:
    assert find_home({"REKINDLE_HOME": str(tmp_path)}) == tmp_path
    assert find_home({}).name == "rekindle"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://ada:s3cret@db/rekindle", "postgresql://ada:***@db/rekindle"),
        ("postgresql://ada:s3c:r@et@db/x", "postgresql://ada:***@db/x"),
        ("postgresql://db/x?user=ada&password=s3cret", "postgresql://db/x?user=ada&password=***"),
        ("postgresql://ada@db/rekindle", "postgresql://ada@db/rekindle"),
        ("/home/ada/sessions.db", "/home/ada/sessions.db"),
        (30.0, "30"),
    ],
)
def test_a_password_is_never_shown(value: str | float, shown: str) -> None:
    assert masked(value) == shown


def test_variables_that_look_like_settings_and_are_none_are_named() -> None:
    env = {"REKINDLE_HOME": "/x", "REKINDLE_STORE": "a", "REKINDLE_STOER": "b", "PATH": "/bin"}
    assert strangers(env) == ["REKINDLE_STOER"]


def test_every_setting_says_what_it_is_for() -> None:
    assert [one.name for one in SETTINGS.values() if not one.help or not one.expected] == []
    assert len({one.env for one in SETTINGS.values()}) == len(SETTINGS)
