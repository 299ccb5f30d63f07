"""Settings: where they come from, and how a wrong one is refused."""

import os
from decimal import Decimal
from pathlib import Path

import pytest

from rekindle.config import (
    SETTINGS,
    find_home,
    find_unknown_env_vars,
    get_local_zone,
    load_config,
    mask_secrets,
)
from rekindle.config.schema import MOVED
from rekindle.errors import InvalidSetting
from rekindle.types import KeyRule, Price, ResetPolicy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def written(home: Path, text: str) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text, encoding="utf-8")
    return {"REKINDLE_HOME": str(home)}


def refusal(env: dict[str, str]) -> str:
    with pytest.raises(InvalidSetting) as caught:
        load_config(env)
    return str(caught.value)


def test_without_a_file_every_setting_has_its_default_and_says_so(home: Path) -> None:
    config = load_config({"REKINDLE_HOME": str(home)})
    assert config.store.url == str(home / "sessions.db")
    assert config.store.durability == "full"
    assert config.store.busy_seconds == 30
    assert config.retention.undo_days == 7
    assert set(config.origins.values()) == {"default"}
    assert config.origins.keys() == SETTINGS.keys()


def test_the_file_wins_over_the_default_and_the_environment_over_the_file(home: Path) -> None:
    env = written(home, '[store]\ndurability = "relaxed"\nbusy_seconds = 5\n[list]\nlimit = 7\n')
    config = load_config({**env, "REKINDLE_STORE_BUSY_SECONDS": "2.5"})
    assert config.store.durability == "relaxed"
    assert config.origins["store.durability"] == "file"
    assert config.store.busy_seconds == 2.5
    assert config.origins["store.busy_seconds"] == "environment (REKINDLE_STORE_BUSY_SECONDS)"
    assert config.list.limit == 7


def test_the_command_line_wins_over_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    config = load_config(
        {"REKINDLE_HOME": str(home), "REKINDLE_STORE": "other.db"}, store="mine.db"
    )
    assert config.store.url == str(home.parent / "mine.db")
    assert config.origins["store.url"] == "command line (--store)"


def test_a_relative_store_starts_from_home_in_the_file_and_from_here_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    env = written(home, '[store]\nurl = "deep/a.db"')
    assert load_config(env).store.url == str(home / "deep" / "a.db")
    assert load_config({**env, "REKINDLE_STORE": "b.db"}).store.url == str(home.parent / "b.db")


def test_a_url_stays_as_it_is(home: Path) -> None:
    url = "postgresql://ada@db.example/rekindle"
    assert load_config({"REKINDLE_HOME": str(home), "REKINDLE_STORE": url}).store.url == url


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
    assert "galaxy" in refusal(written(home, "[galaxy]\n"))


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
        ("[store]\nurl = {a = 1}", ["store.url", "line 2", "text"]),
        ("[reset]\nhour = 25", ["reset.hour", "line 2", "25", "a whole number from 0 to 23"]),
        ("[reset]\nhour = -1", ["reset.hour", "-1", "a whole number from 0 to 23"]),
        ("[reset]\nidle_minutes = 0", ["reset.idle_minutes", "0", "from 1 to 525600"]),
        (
            '[reset]\nmode = "weekly"',
            ["reset.mode", "'weekly'", "none or idle or daily or both"],
        ),
        ('[reset]\ntime_zone = "Berlin"', ["reset.time_zone", "'Berlin'", "such as Europe/Berlin"]),
        ('[reset]\ntime_zone = "Europe"', ["reset.time_zone", "'Europe'", "such as Europe/Berlin"]),
        ('[reset]\ntime_zone = "../UTC"', ["reset.time_zone", "'../UTC'", "such as Europe/Berlin"]),
        ('[keys]\ndirect = "both"', ["keys.direct", "'both'", "single or shared"]),
        ("[keys]\nper_thread = 1", ["keys.per_thread", "1", "true or false"]),
        ('[model]\nbase_url = "localhost:8080"', ["model.base_url", "an http:// or https:// URL"]),
        ("[agent]\nmax_cost = nan", ["agent.max_cost", "line 2", "an amount from 0"]),
        ("[agent]\nmax_cost = -0.5", ["agent.max_cost", "-0.5", "an amount from 0"]),
        ("[chat]\nsteps = 3", ["chat.steps", "line 2", "renamed to agent.max_steps"]),
        ('[gateway]\ntools = "all"', ["gateway.tools", "line 2", "renamed to agent.tools"]),
        ("[model.prices.small]\ninput = -1", ["model.prices.small.input", "line 2", "an amount"]),
        ("[model.prices.small-1.5]\ninput = 1", ["small-1.5", "quote a name"]),
        ("[mcp.servers.a]\n", ["mcp.servers.a", "line 1", "command, args, env"]),
        ("[mcp.servers.a]\nargs = []", ["mcp.servers.a", "needs either command or url"]),
        (
            '[mcp.servers.a]\ncommand = "x"\nurl = "http://x"',
            ["mcp.servers.a", "line 1", "needs either command or url"],
        ),
        ('[mcp.servers.a]\nurl = "ftp://x"', ["mcp.servers.a.url", "line 2", "an http://"]),
        (
            '[mcp.servers.a]\nurl = "http://x"\nargs = ["y"]',
            ["mcp.servers.a", "args: only valid with command"],
        ),
        ('[mcp.servers."a b"]\ncommand = "x"', ["'a b'", "letters, digits, _ and -"]),
        ('[mcp.servers.a]\ncommand = "x"\nargs = [1]', ["mcp.servers.a.args", "a list of strings"]),
        (
            '[mcp.servers.a]\ncommand = "x"\nenv = {K = 1}',
            ["mcp.servers.a.env", "a table of strings"],
        ),
        ('[mcp.servers.a]\ncommand = "x"\ntimeout = 0', ["mcp.servers.a.timeout", "0.1 to 3600"]),
        (
            '[mcp.servers.a]\nurl = "http://x"\ntype = "sse"',
            ["mcp.servers.a.type", "stdio or http"],
        ),
        ('[mcp.servers.a]\ncommand = "x"\ncomand = 0', ["mcp.servers.a.comand", "command, args"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_place_and_what_is_allowed(
    home: Path, text: str, parts: list[str]
) -> None:
    message = refusal(written(home, text))
    assert str(home / "config.toml") in message
    assert [part for part in parts if part not in message] == []


PLACES = """\
[reset]
hour = 5
time_zone = "Europe/Berlin"

[reset.type.group]
mode = "idle"

[reset.platform.telegram]
idle_minutes = 90

[ reset . platform . "my-chat" . channel ]
time_zone = "Asia/Tokyo"

[keys]
direct = "shared"
platform.slack.per_thread = true
type.group = {per_user = true}

[keys.platform.slack.dm]
direct = "single"

[keys.platform.irc]
"""


def test_reset_and_keys_may_differ_by_platform_and_type(home: Path) -> None:
    config = load_config(written(home, PLACES))
    assert config.policies == (
        ResetPolicy(hour=5, time_zone="Europe/Berlin"),
        {
            (None, "group"): {"mode": "idle"},
            ("telegram", None): {"idle_minutes": 90},
            ("my-chat", "channel"): {"time_zone": "Asia/Tokyo"},
        },
    )
    assert config.key_rules == (
        KeyRule("shared"),
        {
            ("slack", None): {"per_thread": True},
            (None, "group"): {"per_user": True},
            ("slack", "dm"): {"direct": "single"},
        },
    )
    name = "reset.platform.telegram.idle_minutes"
    assert config.get_value(name) == 90
    assert config.origins[name] == "file"
    assert list(config.extra_values) == [
        "reset.type.group.mode",
        name,
        "reset.platform.my-chat.channel.time_zone",
        "keys.platform.slack.per_thread",
        "keys.platform.slack.dm.direct",
        "keys.type.group.per_user",
    ]


def test_without_a_file_the_policy_and_the_keys_are_the_defaults(home: Path) -> None:
    config = load_config({"REKINDLE_HOME": str(home), "TZ": "Asia/Kathmandu"})
    assert config.policies == (ResetPolicy("both", 1440, 4, "Asia/Kathmandu"), {})
    assert config.key_rules == (KeyRule("single", per_thread=False, per_user=False), {})


def test_platforms_may_be_called_like_a_setting_or_a_type(home: Path) -> None:
    text = "[reset.platform.hour]\nhour = 1\n[reset.platform.type.dm]\nhour = 2\n"
    text += "[reset.platform.group]\nhour = 3\n[reset.platform.platform]\nhour = 4\n"
    assert load_config(written(home, text)).policies.overrides == {
        ("hour", None): {"hour": 1},
        ("type", "dm"): {"hour": 2},
        ("group", None): {"hour": 3},
        ("platform", None): {"hour": 4},
    }


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "[reset.platform.telegram]\nhour = 25",
            ["reset.platform.telegram.hour in", "line 2", "25", "from 0 to 23"],
        ),
        (
            "[reset]\nhour = 1\n[reset.type.dm]\n# late\nhour = 24",
            ["reset.type.dm.hour in", "line 5", "24", "from 0 to 23"],
        ),
        ("[reset]\ntype.dm = {hour = 24}", ["reset.type.dm.hour in", "line 2"]),
        ("[reset.type.groups]\nhour = 3", ["reset.type.groups.hour", "line 2", "dm, group"]),
        ("[reset.type.groups]", ["reset.type.groups", "line 1", "dm, group"]),
        ("[reset.telegram]\nhour = 3", ["reset.telegram.hour", "reset.platform.<platform>"]),
        ("[reset.telegram]", ["reset.telegram", "line 1"]),
        ("[reset.platform.Telegram]\nhour = 3", ["reset.platform.Telegram.hour", "line 2"]),
        ("[reset.platform.x.dm.y]\nhour = 3", ["reset.platform.x.dm.y.hour"]),
        (
            "[reset.platform.telegram]\nper_thread = true",
            ["reset.platform.telegram.per_thread", "hour"],
        ),
        ("[reset.platform]\ntelegram = 3", ["reset.platform.telegram", "line 2"]),
        ('[keys.type.group]\ndirect = "shared"', ["keys.type.group.direct", "line 2"]),
        ("[list.platform.x]\nlimit = 3", ["list.platform"]),
    ],
)
def test_a_wrong_place_is_refused_with_its_name_line_and_what_is_allowed(
    home: Path, text: str, parts: list[str]
) -> None:
    message = refusal(written(home, text))
    assert str(home / "config.toml") in message
    assert [part for part in parts if part not in message] == []


def test_the_model_comes_from_the_file_or_from_the_variables_that_openai_uses(home: Path) -> None:
    env = written(home, '[model]\nbase_url = "http://127.0.0.1:8080/v1"\nname = "small"\n')
    assert load_config(env).model.base_url == "http://127.0.0.1:8080/v1"
    assert load_config(env).model.api_key == ""
    said = {
        "OPENAI_BASE_URL": "https://models.example/v1",
        "OPENAI_API_KEY": "sk-s3cret",
        "REKINDLE_MODEL": "large",
    }
    model = load_config({**env, **said}).model
    assert (model.base_url, model.api_key, model.name) == tuple(said.values())
    assert find_unknown_env_vars(said) == []


def test_the_key_for_the_model_is_never_shown(home: Path) -> None:
    config = load_config({"REKINDLE_HOME": str(home), "OPENAI_API_KEY": "sk-s3cret"})
    assert config.format_value("model.api_key") == "***"
    assert "s3cret" not in repr(config)
    assert load_config({"REKINDLE_HOME": str(home)}).format_value("model.api_key") == "not set"
    message = refusal(written(home, "[model]\napi_key = 5534137"))
    assert "model.api_key" in message
    assert "5534137" not in message


@pytest.mark.parametrize(("tz", "zone"), [("Europe/Paris", "Europe/Paris"), (":UTC", "UTC")])
def test_the_zone_of_the_machine_is_the_one_its_environment_names(tz: str, zone: str) -> None:
    assert get_local_zone({"TZ": tz}) == zone


def test_a_machine_that_names_no_zone_has_the_one_its_clock_file_leads_to(home: Path) -> None:
    found = get_local_zone({})
    assert get_local_zone({"TZ": "Nowhere/Land"}) == found
    config = load_config(
        written(home, f'[reset]\ntime_zone = "{found}"\n[reset.type.dm]\ntime_zone = "local"')
    )
    assert config.reset.time_zone == found
    assert config.policies.overrides == {(None, "dm"): {"time_zone": found}}


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
    assert mask_secrets(value) == shown


def test_variables_that_look_like_settings_and_are_none_are_named() -> None:
    env = {"REKINDLE_HOME": "/x", "REKINDLE_STORE": "a", "REKINDLE_STOER": "b", "PATH": "/bin"}
    assert find_unknown_env_vars(env) == ["REKINDLE_STOER"]


def test_every_setting_says_what_it_is_for() -> None:
    assert [one.name for one in SETTINGS.values() if not one.help or not one.expected] == []
    assert len({one.env for one in SETTINGS.values()}) == len(SETTINGS)


def test_what_the_chat_may_do_is_checked_when_it_is_read(home: Path) -> None:
    config = load_config(written(home, '[chat]\napproval = "always"\nhistory = 0\n'))
    assert (config.chat.approval, config.chat.history) == ("always", 0)
    assert "always or dangerous or refuse or never" in refusal(
        written(home, '[chat]\napproval = "maybe"\n')
    )


def test_servers_of_tools_come_from_tables_with_names(home: Path) -> None:
    config = load_config(
        written(
            home,
            '[mcp.servers.files]\ncommand = "npx"\nargs = ["-y", "x"]\ntimeout = 5\n'
            'env = {KEY = "s3cret"}\n[mcp.servers.off]\ncommand = "x"\nenabled = false\n'
            '[mcp.servers.net]\nurl = "https://example.com/mcp"\ntype = "http"\n',
        )
    )
    assert [*config.servers] == ["files", "net"]
    files = config.servers["files"]
    assert (files.command, files.args, files.env) == ("npx", ("-y", "x"), {"KEY": "s3cret"})
    assert (files.timeout, config.servers["net"].url) == (5.0, "https://example.com/mcp")
    assert "s3cret" not in repr(files)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('env = {KEY = "s3cret", B = "x"}', "KEY=***, B=***"),
        ('args = ["--api-key", "s3cret", "on"]', "--api-key *** on"),
        ('args = ["--token=s3cret", "/data"]', "--token=*** /data"),
        ('args = ["postgresql://ada:s3cret@db/x"]', "postgresql://ada:***@db/x"),
    ],
)
def test_the_secrets_of_a_server_are_never_shown(home: Path, given: str, shown: str) -> None:
    config = load_config(written(home, f'[mcp.servers.a]\ncommand = "x"\n{given}\n'))
    name = f"mcp.servers.a.{given.split()[0]}"
    assert config.format_value(name) == shown
    assert config.origins[name] == "file"


def test_a_key_in_the_address_of_a_server_is_not_shown(home: Path) -> None:
    config = load_config(
        written(home, '[mcp.servers.a]\nurl = "https://x.example/mcp?api_key=s3cret"\n')
    )
    assert config.format_value("mcp.servers.a.url") == "https://x.example/mcp?api_key=***"


def test_prices_are_exact_and_the_cache_costs_like_input_unless_said(home: Path) -> None:
    config = load_config(
        written(
            home,
            '[model.prices."a-1.5"]\ninput = 0.1\noutput = 3\n'
            "[model.prices.b]\ninput = 1\ncache_read = 0.1\ncache_write = 1.25\n",
        )
    )
    tenth = Decimal("0.1")
    assert config.get_price("a-1.5") == Price(tenth, Decimal(3), tenth, tenth, tenth)
    assert config.get_price("b") == Price(
        Decimal(1), Decimal(0), tenth, Decimal("1.25"), Decimal("1.25")
    )
    assert config.get_price("c") == Price()


def test_a_limit_of_cost_needs_a_price(home: Path) -> None:
    config = load_config(
        {**written(home, "[model.prices.a]\ninput = 1\n"), "REKINDLE_AGENT_MAX_COST": "0.5"}
    )
    assert (config.agent.max_cost, config.get_price("a").input) == (Decimal("0.5"), Decimal(1))
    with pytest.raises(InvalidSetting, match=r'\[model.prices."b"\]'):
        config.get_price("b")


def test_a_variable_that_has_moved_is_refused_with_its_new_name(home: Path) -> None:
    message = refusal({"REKINDLE_HOME": str(home), "REKINDLE_GATEWAY_TOKENS": "9"})
    assert "REKINDLE_GATEWAY_TOKENS was renamed to REKINDLE_AGENT_MAX_TOKENS" in message


def test_a_file_with_old_names_is_read_under_the_new_ones_and_says_so(home: Path) -> None:
    file = '[agent]\nsteps = 7\n[gateway]\narriving = "steer"\n[warm]\nshare_cold = 0.25\n'
    config = load_config(written(home, file))
    assert (config.agent.max_steps, config.gateway.busy_mode) == (7, "steer")
    assert (config.warm.control_share, config.origins["agent.max_steps"]) == (0.25, "file")
    assert config.notes == (
        f"{home / 'config.toml'}, line 2: agent.steps is now agent.max_steps",
        f"{home / 'config.toml'}, line 4: gateway.arriving is now gateway.busy_mode",
        f"{home / 'config.toml'}, line 6: warm.share_cold is now warm.control_share",
    )


def test_an_override_with_an_old_name_is_read_under_the_new_one(home: Path) -> None:
    file = '[keys.type.group]\nuser = true\n[reset.platform.telegram.dm]\nzone = "Asia/Tokyo"\n'
    config = load_config(written(home, file))
    assert config.key_rules.overrides == {(None, "group"): {"per_user": True}}
    assert config.policies.overrides == {("telegram", "dm"): {"time_zone": "Asia/Tokyo"}}
    assert [note.partition(": ")[2] for note in config.notes] == [
        "keys.type.group.user is now keys.type.group.per_user",
        "reset.platform.telegram.dm.zone is now reset.platform.telegram.dm.time_zone",
    ]


def test_a_value_under_an_old_name_is_checked_like_one_under_the_new(home: Path) -> None:
    message = refusal(written(home, '[gateway]\narriving = "shout"\n'))
    assert "line 2" in message
    assert "queue or steer or interrupt" in message


def test_an_old_and_a_new_name_together_are_refused(home: Path) -> None:
    message = refusal(written(home, "[agent]\nsteps = 7\nmax_steps = 8\n"))
    assert "agent.steps" in message
    assert "renamed to agent.max_steps, which is set too" in message


def test_every_old_name_leads_to_a_setting() -> None:
    assert set(MOVED.values()) <= set(SETTINGS)
    assert not set(MOVED) & set(SETTINGS)


def test_a_home_that_is_not_utf8_is_refused_with_a_way_out(tmp_path: Path) -> None:
    home = os.fsdecode(os.fsencode(tmp_path) + b"/h\xff")
    with pytest.raises(InvalidSetting, match=r"/h\\xff: the path is not UTF-8; set REKINDLE_HOME"):
        load_config({"REKINDLE_HOME": home})
