"""The real `rekindle` command, verb by verb, in a home of its own."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, ToolCall, open_store
from tests import command
from tests.acceptance.stores import make_store
from tests.waiting import PATIENCE, wait_until

DAY = 86_400.0


class Rekindle:
    """The command in a home; keeps what it said."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = home / "rekindle" / "sessions.db"
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("REKINDLE_")},
            "HOME": str(home),
            "REKINDLE_HOME": str(home / "rekindle"),
            "COLUMNS": "80",
            "TZ": "UTC",
        }

    def run(
        self, *words: object, code: int = 0, stdin: bytes = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        done = command.run(
            words,
            env={**self.env, **env},
            cwd=self.home,
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
        assert b"Traceback" not in done.stderr
        return done

    def __call__(self, *words: object, code: int = 0, **more: Any) -> str:
        return self.run(*words, code=code, **more).stdout.decode()

    def json(self, *words: object, code: int = 0, **more: Any) -> Any:
        return json.loads(self.run(*words, "--json", code=code, **more).stdout)

    def lines(self, *words: object, **more: Any) -> list[Any]:
        return [json.loads(line) for line in self.run(*words, **more).stdout.splitlines()]

    def refusal(self, *words: object, code: int = 2, **more: Any) -> str:
        """The one line that a mistake is answered with."""
        done = self.run(*words, code=code, **more)
        said = done.stderr.decode()
        assert said.startswith("rekindle: "), said
        assert said.count("\n") == 1, said
        return said

    def terminal(self, *words: str, answer: str = "", code: int = 0, **env: str) -> str:
        """What the command shows on a terminal."""
        ours, theirs = pty.openpty()
        env = {**self.env, "TERM": "xterm-256color", **env}
        child = command.start(
            words, env=env, cwd=self.home, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that the other side was closed
                break
            if not piece:
                break
            shown += piece
        os.close(ours)
        assert child.wait(PATIENCE) == code, shown
        return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


@pytest.fixture
def ids(rekindle: Rekindle) -> dict[str, str]:
    """Three sessions: a conversation with tools of today, a chat of last month, one of bob."""
    now = time.time()
    make_store(rekindle.store)
    with open_store(rekindle.store) as store:
        old = store.begin(source="telegram", owner="ada", title="Holiday", started=now - 40 * DAY)
        store.append(
            old,
            Message(role="user", content="Where to in March?", timestamp=now - 40 * DAY),
            Message(role="assistant", content="To the sea.", timestamp=now - 40 * DAY),
        )
        bob = store.begin(source="matrix", owner="bob", started=now - 10 * DAY)
        store.append(
            bob, Message(role="user", content="my secret parser", timestamp=now - 10 * DAY)
        )
        login = store.begin(source="local", owner="ada", title="Fix the login", model="gpt-5")
        call, broken = (
            ToolCall("1", "read_file", '{"path": "login.py"}'),
            ToolCall("2", "run", "{}"),
        )
        store.append(
            login,
            Message(role="user", content="Why does the login parser fail?"),
            Message(role="assistant", content="Let me look.", tool_calls=(call, broken)),
            Message(
                role="tool", tool_call_id="1", name="read_file", content="def login(): ..." * 90
            ),
            Message(role="tool", tool_call_id="2", content="make: exit 2", meta={"is_error": True}),
            Message(role="assistant", content="The parser drops the 日本語 name."),
            Message(role="user", content="Thanks, 再见"),
            Message(role="assistant", content="Welcome"),
        )
    return {"login": login.id, "old": old.id, "bob": bob.id}


# ── the command itself


def test_version_is_told_without_loading_the_command_line(rekindle: Rekindle) -> None:
    assert re.fullmatch(r"rekindle \d+\.\d+\.\d+\n", rekindle("--version"))
    loaded = imported_by("--version")
    assert loaded.isdisjoint({"typer", "rich", "platformdirs", "rekindle.store", "rekindle.config"})


def test_listing_loads_nothing_it_does_not_use(rekindle: Rekindle, ids: dict[str, str]) -> None:
    loaded = imported_by("sessions", "list", "--json", env=rekindle.env)
    assert "rekindle.store" in loaded
    unused = {"rich", "psycopg", "pydantic", "platformdirs", "asyncio"}
    unused |= {"rekindle.transcripts.importer", "rekindle.transcripts.detect", "rekindle.learning"}
    assert loaded.isdisjoint(unused)


def imported_by(*words: str, env: dict[str, str] | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", command.COMMAND, *words],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}


# One program asks for the help of many verbs: sixty programs would say the same.
HELPS = """
import json, sys
from rekindle.cli.app import run_command_line
for verb in json.load(sys.stdin):
    assert run_command_line([*verb, "--help"]) == 0
    print("\\f", end="")
"""


def test_every_verb_has_help_with_an_example(rekindle: Rekindle) -> None:
    names = (
        *("", "sessions", "gateway", "schedule", "deliver", "memory", "service", "skill", "plugin"),
        *(
            "warm",
            "warm experiment",
            "warm notes",
            "matrix",
            "tenants",
            "tenants keys",
            "tenants members",
            "serve",
        ),
    )
    groups = {name: rekindle(*name.split(), "--help") for name in names}
    verbs = [
        [*group.split(), verb]
        for group, shown in groups.items()
        for verb in re.findall(r"^  ([a-z-]+)  ", shown.split("message and exit.")[1], re.M)
        if " ".join([*group.split(), verb]) not in names
    ]
    assert len(verbs) == 143
    command = [sys.executable, "-c", HELPS]
    said = json.dumps(verbs)
    done = subprocess.run(command, env=rekindle.env, input=said, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for verb, shown in zip(verbs, done.stdout.split("\f"), strict=False):
        assert re.search(rf"^  .*rekindle .*{verb[-1]}", shown, re.M), verb


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["session"], "No such command 'session'"),
        (["sessions", "list", "--nonsense"], "No such option"),
        (["sessions", "show"], "Missing argument"),
        (["sessions", "list", "colour=red"], "colour=red"),
        (["sessions", "show", "nobody"], "'nobody'. List sessions with `rekindle sessions list`."),
        (["sessions", "list", "--limit", "0"], "--limit"),
        (["sessions", "list", "--limit", "ten"], "'ten' is not a number"),
        (["sessions", "import", "nothing.jsonl"], "nothing.jsonl: No such file or directory"),
        (["warm", "import", "."], ".: Is a directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    rekindle: Rekindle, words: list[str], said: str
) -> None:
    assert said in rekindle.refusal(*words)


def test_a_mistyped_store_is_refused_and_not_made(rekindle: Rekindle) -> None:
    assert "Store not found: " in rekindle.refusal("--store", "typo.db", "sessions", "list")
    assert not (rekindle.home / "typo.db").exists()


def test_a_closed_pipe_is_quiet(rekindle: Rekindle, ids: dict[str, str]) -> None:
    with open_store(rekindle.store) as store:
        store.append(ids["login"], *(Message(role="user", content="x" * 500) for _ in range(2000)))
    for words in (["show", ids["login"]], ["show", ids["login"], "--json"], ["export"]):
        child = command.start(
            ["sessions", *words],
            env=rekindle.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout
        assert child.stderr
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(PATIENCE) == -signal.SIGPIPE


def test_ctrl_c_leaves_with_130_and_no_traceback(rekindle: Rekindle) -> None:
    child = command.start(
        ["sessions", "import", "-"],
        env=rekindle.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what it puts into the background with Ctrl-C switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(rekindle.store.exists)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE) == 130
    assert child.stderr
    assert b"Traceback" not in child.stderr.read()


def test_colours_are_for_terminals_and_no_color_is_respected(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    assert "\x1b[" not in rekindle("sessions", "show", ids["login"])
    assert "\x1b[" not in rekindle("sessions", "list")
    for words in (["show", ids["login"]], ["list"]):
        assert "\x1b[36m" in rekindle.terminal("sessions", *words)
        plain = rekindle.terminal("sessions", *words, NO_COLOR="1")
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)


def test_colours_can_be_forced_into_a_pipe(rekindle: Rekindle, ids: dict[str, str]) -> None:
    for words in (["show", ids["login"]], ["list"]):
        forced = rekindle("sessions", *words, FORCE_COLOR="1")
        assert "\x1b[36m" in forced
        assert re.sub(r"\x1b\[[0-9;]*m", "", forced) == rekindle("sessions", *words)
        assert "\x1b[" not in rekindle("sessions", *words, FORCE_COLOR="1", NO_COLOR="1")
        assert "\x1b[" not in rekindle("sessions", *words, FORCE_COLOR="0")


def test_what_does_not_fit_the_terminal_goes_to_the_pager(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    paged = rekindle.home / "paged"
    pager = rekindle.home / "pager"
    pager.write_text(f'#!/bin/sh\ncat > "{paged}"\n')
    pager.chmod(0o755)
    rekindle.terminal("sessions", "list", PAGER=str(pager), LINES="24")
    assert not paged.exists()
    shown = rekindle.terminal("sessions", "show", ids["login"], PAGER=str(pager), LINES="5")
    assert "Thanks" not in shown
    assert "Fix the login" in paged.read_text()
    assert "Welcome" in paged.read_text()
    paged.unlink()
    words = ("sessions", "show", ids["login"], "--no-pager")
    assert "Thanks" in rekindle.terminal(*words, PAGER=str(pager), LINES="5")
    assert "Thanks" in rekindle.terminal(*words[:-1], PAGER="no-such-pager", LINES="5")
    assert "Thanks" in rekindle("sessions", "show", ids["login"], PAGER=str(pager))
    assert not paged.exists()
    pager.write_text("#!/bin/sh\nexit 0\n")  # left before everything was written
    rekindle.terminal("sessions", "show", ids["login"], "--full", PAGER=str(pager), LINES="2")


def test_a_narrow_terminal_leaves_columns_out_and_cuts_none(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    lines = rekindle.terminal("sessions", "list", NO_COLOR="1", COLUMNS="48").splitlines()
    assert "msgs" not in lines[0]
    assert lines[0].endswith("active")
    assert all(len(line) <= 48 for line in lines)


def test_a_title_keeps_room_beside_the_project_at_80_columns(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    with open_store(rekindle.store) as store:
        for number in range(3):
            session = store.begin(
                source="claude-code",
                cwd=f"/srv/a-project-with-a-name-{number}",
                title=f"{number} {'word ' * 9}",
            )
            store.append(session, Message(role="user", content="Hello"))
    lines = rekindle.terminal("sessions", "list", NO_COLOR="1").splitlines()
    assert "project" in lines[0]
    assert "0 word word word word w" in next(line for line in lines if " 0 word" in line)
    assert all(len(line) <= 80 for line in lines)


def test_help_is_grouped_by_purpose_and_leaves_no_command_out(rekindle: Rekindle) -> None:
    shown = rekindle("--help")
    assert "opens a picker" in shown
    sections = re.findall(r"^([A-Z][a-z ]+):$", shown, re.M)
    assert sections[1] == "Find and continue sessions"
    assert "Background processes" in sections
    assert "Other commands" not in sections
    assert max(map(len, rekindle("--help", COLUMNS="160").splitlines())) > 100


def test_a_wide_title_gives_way_on_a_narrow_terminal(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    rekindle("sessions", "rename", ids["login"], "日本語の長い題名" * 8)
    lines = rekindle.terminal("sessions", "list", NO_COLOR="1").splitlines()
    assert "日本語" in lines[1]
    assert "…" in lines[1]
    assert len(lines[1]) + len(re.findall(r"[\u3000-\u9fff]", lines[1])) <= 80
    assert lines[1].endswith("now")


def test_a_setting_with_an_old_name_works_and_is_noted_once(rekindle: Rekindle) -> None:
    folder = rekindle.home / "rekindle"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text("[gateway]\nturns = 7\n")
    done = rekindle.run("config", "--json")
    assert done.stderr.decode() == (
        f"Note: {folder / 'config.toml'}, line 2: gateway.turns is now gateway.max_turns\n"
    )
    settings = {one["name"]: one["value"] for one in json.loads(done.stdout)}
    assert settings["gateway.max_turns"] == 7


def test_a_pipe_gets_the_whole_table(rekindle: Rekindle, ids: dict[str, str]) -> None:
    rekindle("sessions", "rename", ids["login"], "日本語の長い題名" * 8)
    (line,) = [line for line in rekindle("sessions", "list").splitlines() if "日本語" in line]
    assert "日本語の長い題名" * 8 in line
    assert "…" not in line


@pytest.mark.parametrize(
    "group", [(), ("sessions",), ("warm",), ("warm", "experiment"), ("gateway",)]
)
def test_help_is_never_cut_and_fits_the_terminal(
    rekindle: Rekindle, group: tuple[str, ...]
) -> None:
    lines = rekindle(*group, "--help").splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert not [line for line in lines[1:] if "..." in line]


def test_the_shell_can_complete_session_ids(rekindle: Rekindle, ids: dict[str, str]) -> None:
    line = "rekindle sessions show 2"
    shown = rekindle(_REKINDLE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="3")
    assert ids["login"] in shown


# ── settings


def test_config_shows_every_setting_with_its_origin_and_masks_passwords(rekindle: Rekindle) -> None:
    (rekindle.home / "rekindle" / "config.toml").write_text("[list]\nlimit = 3\n")
    shown = rekindle("config", REKINDLE_STORE="postgresql://ada:s3cret@db/x")
    assert re.search(r"list\.limit +3 +file", shown)
    assert re.search(r"store\.durability +full +default", shown)
    assert "postgresql://ada:***@db/x" in shown
    assert "REKINDLE_STORE" in shown
    assert "s3cret" not in shown
    rows = rekindle.json("config", REKINDLE_STORE="postgresql://ada:s3cret@db/x")
    assert "s3cret" not in json.dumps(rows)
    by_name = {row["name"]: row for row in rows}
    assert by_name["list.limit"]["value"] == 3
    assert by_name["store.url"]["origin"] == "environment (REKINDLE_STORE)"


def test_config_shows_what_holds_in_some_places_only_and_never_the_key_for_the_model(
    rekindle: Rekindle,
) -> None:
    file = rekindle.home / "rekindle" / "config.toml"
    file.write_text(
        '[reset.platform.telegram.group]\nmode = "none"\n[model]\napi_key = "sk-1s3cret"\n'
    )
    shown = rekindle("config")
    assert re.search(r"reset\.platform\.telegram\.group\.mode +none +file", shown)
    assert re.search(r"model\.api_key +\*\*\* +file", shown)
    rows = rekindle.json("config", OPENAI_API_KEY="sk-2s3cret")
    assert "s3cret" not in shown + json.dumps(rows)
    by_name = {row["name"]: row for row in rows}
    assert by_name["model.api_key"]["value"] == "***"
    assert by_name["model.name"]["value"] is None
    assert by_name["reset.platform.telegram.group.mode"]["value"] == "none"
    file.write_text("[reset.type.dm]\nhour = 25\n")
    said = rekindle.refusal("config")
    assert f"reset.type.dm.hour in {file}, line 2: invalid value 25" in said
    assert "a whole number from 0 to 23" in said


def test_a_wrong_setting_stops_the_command_with_its_name_file_and_what_is_allowed(
    rekindle: Rekindle,
) -> None:
    file = rekindle.home / "rekindle" / "config.toml"
    file.write_text('[store]\ndurability = "fast"\n')
    said = rekindle.refusal("sessions", "list")
    assert f"store.durability in {file}, line 2: invalid value 'fast'" in said
    assert "full or relaxed" in said


def test_settings_have_their_effect(rekindle: Rekindle, ids: dict[str, str]) -> None:
    assert len(rekindle.json("sessions", "list", REKINDLE_LIST_LIMIT="1")) == 1
    other = rekindle.home / "other.db"
    open_store(other).close()
    assert rekindle.json("sessions", "list", REKINDLE_STORE=str(other)) == []


# ── looking


def test_list_has_the_newest_first_with_title_counts_and_activity(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    rows = rekindle.json("sessions", "list")
    assert [row["id"] for row in rows] == [ids["login"], ids["bob"], ids["old"]]
    assert rows[0]["title"] == "Fix the login"
    assert rows[0]["message_count"] == 7
    assert rows[0]["tool_call_count"] == 2
    shown = rekindle("sessions", "list").splitlines()
    assert all(len(line) <= 80 for line in shown)
    assert re.search(rf"{ids['login']} +Fix the login +local +7 +now", shown[1])
    assert "my secret parser" in shown[2]
    assert "40 d" in shown[3]


def test_list_filters_pages_and_keeps_to_an_owner(rekindle: Rekindle, ids: dict[str, str]) -> None:
    def listed(*words: object) -> list[str]:
        return [row["id"] for row in rekindle.json("sessions", "list", *words)]

    assert listed("source=telegram") == [ids["old"]]
    assert listed("idle>5d", "messages<2") == [ids["bob"]]
    assert listed("--limit", 1, "--offset", 1) == [ids["bob"]]
    assert listed("--owner", "bob") == [ids["bob"]]
    assert listed("owner=bob", "--owner", "ada") != [ids["bob"]]
    assert "--offset 1" in rekindle.run("sessions", "list", "--limit", 1).stderr.decode()


def test_an_empty_store_lists_nothing_and_says_how_to_start(rekindle: Rekindle) -> None:
    assert rekindle.json("sessions", "list") == []
    assert "rekindle start" in rekindle.run("sessions", "list").stderr.decode()


def test_show_reads_like_a_conversation(rekindle: Rekindle, ids: dict[str, str]) -> None:
    shown = rekindle("sessions", "show", "Fix the login")
    assert "Why does the login parser fail?" in shown
    assert '▸ read_file(path="login.py")  → 1.4 kB' in shown
    assert "def login()" not in shown
    assert "✗ run()" in shown
    assert "make: exit 2" in shown
    assert shown.index("Let me look.") < shown.index("read_file") < shown.index("日本語")
    assert "def login()" in rekindle("sessions", "show", "Fix the login", "--full")


def test_errors_are_red_on_a_terminal(rekindle: Rekindle, ids: dict[str, str]) -> None:
    shown = rekindle.terminal("sessions", "show", "Fix the login")
    assert re.search(r"\x1b\[31m[^\x1b]*make: exit 2", shown)


def test_show_takes_an_id_a_beginning_or_a_title_and_keeps_to_an_owner(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    for name in (ids["login"], ids["login"][:-2], "Fix the login"):
        roles = [row["role"] for row in rekindle.lines("sessions", "show", name, "--json")]
        assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert len(rekindle.lines("sessions", "show", ids["login"], "--json", "--last", 2)) == 2
    rekindle.refusal("sessions", "show", ids["bob"], "--owner", "ada")


def test_search_finds_words_marks_them_and_shows_what_stands_around(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    shown = rekindle("sessions", "search", "parser", "fail")
    assert "Fix the login" in shown
    assert ids["login"] in shown
    assert "«parser»" in shown
    assert "Let me look." in shown
    hits = rekindle.json("sessions", "search", "日本語")
    assert [hit["session"]["id"] for hit in hits] == [ids["login"]]
    assert hits[0]["message"]["role"] == "assistant"
    assert "«" not in rekindle.terminal("sessions", "search", "parser")


def test_search_is_narrowed_by_its_options(rekindle: Rekindle, ids: dict[str, str]) -> None:
    def found(*words: object) -> set[str]:
        return {hit["session"]["id"] for hit in rekindle.json("sessions", "search", *words)}

    assert found("parser") == {ids["login"], ids["bob"]}
    assert found("parser", "--owner", "ada") == {ids["login"]}
    assert found("parser", "--source", "matrix") == {ids["bob"]}
    assert found("parser", "--session", "Fix the login") == {ids["login"]}
    assert found("parser", "--role", "assistant") == {ids["login"]}
    assert found("login", "--tool", "read_file") == {ids["login"]}
    today = time.strftime("%Y-%m-%d", time.gmtime(time.time() - DAY))
    assert found("parser", "--since", today) == {ids["login"]}
    assert found("parser", "--until", today) == {ids["bob"]}
    assert found('"unbalanced (') == set()
    assert len(rekindle.json("sessions", "search", "parser", "--limit", 1)) == 1


def test_stats_show_counts_sizes_and_a_plot_by_source(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    held = rekindle.json("sessions", "stats")
    assert (held["sessions"], held["messages"]) == (3, 10)
    assert held["by_source"].keys() == {"local", "telegram", "matrix"}
    shown = rekindle("sessions", "stats")
    assert re.search(r"local +█+ ", shown)
    assert "messages    10 " in shown


# ── changing


def test_rename_gives_and_takes_titles_and_refuses_one_that_is_taken(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    assert rekindle.json("sessions", "rename", ids["bob"], "Parser")["title"] == "Parser"
    assert "my secret parser" in rekindle("sessions", "show", "Parser")
    assert "Holiday" in rekindle.refusal("sessions", "rename", ids["login"], "Holiday")
    rekindle("sessions", "rename", "Parser", "--clear")
    rekindle.refusal("sessions", "show", "Parser")
    rekindle.refusal("sessions", "rename", ids["bob"])


def test_fork_starts_a_child_at_any_message(rekindle: Rekindle, ids: dict[str, str]) -> None:
    at = rekindle.lines("sessions", "show", ids["login"], "--json")[4]["position"]
    child = rekindle.json("sessions", "fork", ids["login"], "--at", at, "--title", "Another way")
    assert child["parent"] == ids["login"]
    assert child["message_count"] == 5
    assert "continues" in rekindle("sessions", "show", "Another way")


def test_undo_takes_back_turns_and_redo_brings_them_back(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    before = rekindle.lines("sessions", "show", ids["login"], "--json")
    rewind = rekindle.json("sessions", "undo", ids["login"])
    assert rewind["messages"] == 2
    assert len(rekindle.lines("sessions", "show", ids["login"], "--json")) == 5
    assert "undone" in rekindle("sessions", "show", ids["login"], "--rewound")
    assert "Welcome" not in rekindle("sessions", "show", ids["login"])
    assert rekindle.json("sessions", "search", "Welcome") == []
    assert len(rekindle.json("sessions", "search", "Welcome", "--rewound")) == 1
    rekindle("sessions", "redo", ids["login"])
    assert rekindle.lines("sessions", "show", ids["login"], "--json") == before
    assert "7 messages undone" in rekindle("sessions", "undo", ids["login"], "--turns", 2)


def test_end_keeps_the_first_reason_and_reopen_takes_it_away(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    assert (
        rekindle.json("sessions", "end", ids["login"], "--reason", "done")["end_reason"] == "done"
    )
    assert (
        rekindle.json("sessions", "end", ids["login"], "--reason", "late")["end_reason"] == "done"
    )
    assert rekindle.json("sessions", "reopen", ids["login"])["end_reason"] is None


# ── going and coming back


def test_prune_shows_what_would_go_needs_yes_and_can_be_taken_back(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    shown = rekindle("sessions", "prune", "idle>5d", "--dry-run")
    assert ids["old"] in shown
    assert "2 sessions would be pruned" in shown
    assert len(rekindle.json("sessions", "list")) == 3
    assert "--yes" in rekindle.refusal("sessions", "prune", "idle>5d")
    rekindle.refusal("sessions", "prune")
    gone = rekindle.json("sessions", "prune", "idle>5d", "--yes")
    assert {row["id"] for row in gone} == {ids["old"], ids["bob"]}
    assert [row["id"] for row in rekindle.json("sessions", "list")] == [ids["login"]]
    assert len(rekindle.json("sessions", "list", "--pruned")) == 2
    assert rekindle.json("sessions", "restore", ids["old"])[0]["id"] == ids["old"]
    assert len(rekindle.json("sessions", "list")) == 2
    assert "To the sea." in rekindle("sessions", "show", "Holiday")


def test_prune_asks_on_a_terminal(rekindle: Rekindle, ids: dict[str, str]) -> None:
    said = rekindle.terminal("sessions", "prune", "idle>30d", answer="n\n", code=1)
    assert "Prune 1 session?" in said
    assert "Nothing was changed" in said
    assert len(rekindle.json("sessions", "list")) == 3
    rekindle.terminal("sessions", "prune", "idle>30d", answer="y\n")
    assert len(rekindle.json("sessions", "list")) == 2


def test_an_active_session_is_never_pruned(rekindle: Rekindle, ids: dict[str, str]) -> None:
    gone = rekindle.json("sessions", "prune", "messages>=0", "--yes")
    assert ids["login"] not in {row["id"] for row in gone}
    assert [row["id"] for row in rekindle.json("sessions", "list")] == [ids["login"]]


def test_what_was_pruned_is_really_gone_after_the_days_of_undo(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    rekindle("sessions", "prune", "source=telegram", "--yes")
    time.sleep(0.1)
    rekindle("sessions", "prune", "source=matrix", "--yes", REKINDLE_RETENTION_UNDO_DAYS="0")
    rekindle.refusal("sessions", "restore", ids["old"])


def test_archive_puts_aside_and_restore_brings_back(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    rekindle("sessions", "archive", "source=telegram", "--yes")
    assert len(rekindle.json("sessions", "list")) == 2
    assert [row["id"] for row in rekindle.json("sessions", "list", "archived=yes")] == [ids["old"]]
    rekindle("sessions", "restore", ids["old"])
    assert len(rekindle.json("sessions", "list")) == 3


# ── in and out


def test_what_export_writes_import_takes_in_without_loss(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    with open_store(rekindle.store) as store:
        store.append(ids["bob"], Message(role="user", content="odd: \ud800 \x00 日本"))
    rekindle("sessions", "undo", ids["login"])
    rekindle("sessions", "export", "-o", "all.jsonl")
    assert (rekindle.home / "all.jsonl").stat().st_mode & 0o777 == 0o600
    first = (rekindle.home / "all.jsonl").read_bytes()
    report = rekindle.json("--store", "second.db", "sessions", "import", "all.jsonl")
    assert report["sessions"] == 3
    assert sorted(
        rekindle.run("--store", "second.db", "sessions", "export").stdout.splitlines()
    ) == (sorted(first.splitlines()))
    again = rekindle.json("--store", "second.db", "sessions", "import", "-", stdin=first)
    assert (again["sessions"], again["messages"]) == (0, 0)
    assert rekindle.json("--store", "second.db", "sessions", "verify") == []


def test_one_session_a_lineage_or_a_choice_is_exported(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    def exported(*words: object) -> set[str]:
        rekindle("sessions", "export", *words, "-o", "some.jsonl")
        other = rekindle.home / "other.db"
        other.unlink(missing_ok=True)
        rekindle("--store", other, "sessions", "import", "some.jsonl")
        return {row["id"] for row in rekindle.json("--store", other, "sessions", "list")}

    child = rekindle.json("sessions", "fork", ids["login"])["id"]
    assert exported(ids["bob"]) == {ids["bob"]}
    assert exported(child, "--lineage") == {ids["login"], child}
    assert exported("owner=ada", "idle>30d") == {ids["old"]}
    assert exported("--owner", "bob") == {ids["bob"]}


def test_people_get_markdown_and_html_and_tools_get_atif(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    assert "Why does the login parser fail?" in rekindle(
        "sessions", "export", "Fix the login", "-f", "md"
    )
    rekindle("sessions", "export", "Fix the login", "-f", "html", "-o", "page.html")
    page = (rekindle.home / "page.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert "日本語" in page
    atif = json.loads(rekindle("sessions", "export", "Fix the login", "-f", "atif"))
    assert atif["schema_version"].startswith("ATIF-v1")
    folder = rekindle.home / "pages"
    folder.mkdir()
    rekindle("sessions", "export", "-f", "html", "-o", folder)
    assert len(list(folder.glob("*.html"))) == 3
    rekindle("sessions", "export", "-o", "new/notes/")
    written = list((rekindle.home / "new" / "notes").iterdir())
    assert {file.suffix for file in written} == {".jsonl"}
    assert len(written) == 3
    rekindle.refusal("sessions", "export", "-f", "html")


def test_an_export_that_fails_leaves_the_old_file_alone(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    (rekindle.home / "kept.jsonl").write_text("precious")
    rekindle.refusal("sessions", "export", "nobody", "-o", "kept.jsonl")
    rekindle.refusal("sessions", "export", "-o", "no/such/folder.jsonl")
    assert (rekindle.home / "kept.jsonl").read_text() == "precious"
    assert list(rekindle.home.glob(".*.part")) == []


def test_a_file_that_is_no_export_is_refused_or_reported(rekindle: Rekindle) -> None:
    done = command.run(
        ["sessions", "import", "-"],
        env=rekindle.env,
        input=b"this is not JSON\n",
        capture_output=True,
    )
    said = (done.stdout + done.stderr).decode()
    assert "Traceback" not in said
    assert "1" in said
    assert rekindle.json("sessions", "list") == []


def test_copy_moves_everything_to_another_store(rekindle: Rekindle, ids: dict[str, str]) -> None:
    shown = rekindle("sessions", "copy", rekindle.store, "other.db")
    assert "3 sessions and 10 messages copied" in shown
    here = sorted(rekindle.run("sessions", "export").stdout.splitlines())
    there = sorted(rekindle.run("--store", "other.db", "sessions", "export").stdout.splitlines())
    assert here == there
    assert "--yes" in rekindle.refusal("sessions", "copy", rekindle.store, "other.db")
    rekindle.refusal("sessions", "copy", "nowhere.db", "third.db")
    assert not (rekindle.home / "nowhere.db").exists()


# ── keeping it sound


def test_verify_is_silent_about_a_sound_store_and_backup_copies_it(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    assert rekindle.json("sessions", "verify") == []
    assert rekindle.json("sessions", "backup", "copy.db")["sessions"] == 3
    assert len(rekindle.json("--store", "copy.db", "sessions", "list")) == 3
    assert "--force" in rekindle.refusal("sessions", "backup", "copy.db")
    assert "folder not found" in rekindle.refusal("sessions", "backup", "no/such/copy.db")
    rekindle("sessions", "backup", "copy.db", "--force")


def test_verify_finds_a_wrong_count_with_exit_code_1_and_repair_mends_it(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    import apsw

    connection = apsw.Connection(str(rekindle.store))
    connection.execute("UPDATE sessions SET message_count = 99 WHERE id = ?", (ids["login"],))
    connection.close()
    findings = rekindle.json("sessions", "verify", code=1)
    assert any(ids["login"] in finding["where"] for finding in findings)
    assert "repair" in rekindle.run("sessions", "verify", code=1).stderr.decode()
    assert rekindle.json("sessions", "repair") != []
    assert rekindle.json("sessions", "verify") == []
    assert rekindle.json("sessions", "list")[0]["message_count"] == 7
    assert "Nothing to repair" in rekindle("sessions", "repair")


def test_a_damaged_file_is_one_clear_line_and_repair_salvages_it(
    rekindle: Rekindle, ids: dict[str, str]
) -> None:
    with open(rekindle.store, "r+b") as file:
        file.write(b"garbage " * 4)
    assert "repair" in rekindle.refusal("sessions", "list", code=1)
    damaged = rekindle.store.read_bytes()
    assert "--yes" in rekindle.refusal("sessions", "repair")
    assert rekindle.store.read_bytes() == damaged
    rekindle("sessions", "repair", "--yes")
    assert {row["id"] for row in rekindle.json("sessions", "list")} == set(ids.values())
    assert "To the sea." in rekindle("sessions", "show", "Holiday")
    assert rekindle.json("sessions", "verify") == []
    kept = [path for path in rekindle.store.parent.iterdir() if path.read_bytes()[:7] == b"garbage"]
    assert len(kept) == 1


# ── PostgreSQL


def test_everything_moves_to_postgresql_and_back_in_one_command_each(
    rekindle: Rekindle, ids: dict[str, str], postgres: Any
) -> None:
    url = postgres.database()
    rekindle("sessions", "undo", ids["login"])
    assert rekindle.json("sessions", "copy", rekindle.store, url)["sessions"] == 3
    assert rekindle.json("--store", url, "sessions", "verify") == []
    rekindle("sessions", "copy", url, "back.db")
    here = sorted(rekindle.run("sessions", "export").stdout.splitlines())
    for store in (url, "back.db"):
        there = sorted(rekindle.run("--store", store, "sessions", "export").stdout.splitlines())
        assert here == there


def test_the_verbs_work_on_postgresql(
    rekindle: Rekindle, ids: dict[str, str], postgres: Any
) -> None:
    url = postgres.database()
    rekindle("sessions", "copy", rekindle.store, url)
    rekindle.env["REKINDLE_STORE"] = url
    assert [row["id"] for row in rekindle.json("sessions", "list", "idle<1d")] == [ids["login"]]
    assert "Let me look." in rekindle("sessions", "show", "Fix the login")
    assert len(rekindle.json("sessions", "search", "parser", "--owner", "ada")) == 2
    rekindle("sessions", "undo", ids["login"])
    rekindle("sessions", "prune", "idle>30d", "--yes")
    rekindle("sessions", "restore", ids["old"])
    assert rekindle.json("sessions", "stats")["engine"].startswith("postgres")
    assert rekindle.json("sessions", "backup", "copy.db")["sessions"] == 3
    assert rekindle.json("sessions", "verify") == []


def test_a_server_that_is_not_there_is_one_line_without_the_password(rekindle: Rekindle) -> None:
    for url in (
        "postgresql://ada:s3cret@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?password=s3cret",
    ):
        said = rekindle.refusal("--store", url, "sessions", "list", code=1)
        assert "127.0.0.1" in said
        assert "s3cret" not in said


# ── agents' sessions


def claude_code_session(home: Path, session: str, text: str) -> Path:
    folder = home / ".claude" / "projects" / "-home-ada-app"
    folder.mkdir(parents=True, exist_ok=True)
    common = {
        "sessionId": session, "cwd": "/home/ada/app", "gitBranch": "main", "version": "2.0.1",
        "isSidechain": False, "userType": "external",
    }  # fmt: skip
    user = {
        **common, "type": "user", "uuid": "u1", "parentUuid": None,
        "timestamp": "2026-01-05T14:03:01.000Z", "message": {"role": "user", "content": text},
    }  # fmt: skip
    answer = {
        **common, "type": "assistant", "uuid": "u2", "parentUuid": "u1",
        "timestamp": "2026-01-05T14:03:05.000Z",
        "message": {
            "id": "m1", "type": "message", "role": "assistant", "model": "claude-opus-4",
            "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 2},
        },
    }  # fmt: skip
    file = folder / f"{session}.jsonl"
    file.write_text(json.dumps(user) + "\n" + json.dumps(answer) + "\n", encoding="utf-8")
    return file


def test_start_takes_in_the_sample_where_there_are_no_agents(rekindle: Rekindle) -> None:
    shown = rekindle("start")
    assert "sample" in shown
    assert "imported from" in shown
    assert "rekindle sessions show" in shown
    assert str(rekindle.store) in shown
    rows = rekindle.json("sessions", "list")
    assert len(rows) >= 2
    assert all(row["message_count"] for row in rows)
    suggested = re.search(r"rekindle (sessions show \S+)", shown)
    assert suggested
    rekindle(*suggested[1].split())


def test_start_finds_what_agents_left_and_takes_it_in_once(rekindle: Rekindle) -> None:
    session = "3f2b8c1e-0000-4000-8000-000000000001"
    claude_code_session(rekindle.home, session, "Rename the widget")
    shown = rekindle("start")
    assert "Scanned ~/.claude/projects." in shown
    assert "1 session and 2 messages imported from 1 file" in shown
    assert [row["id"] for row in rekindle.json("sessions", "list")] == [session]
    assert "Rename the widget" in rekindle("sessions", "show", session[:13])
    assert "1 file unchanged" in rekindle("start")
    assert len(rekindle.json("sessions", "list")) == 1


def test_import_takes_files_and_folders_and_tells_what_failed(rekindle: Rekindle) -> None:
    session = "3f2b8c1e-0000-4000-8000-000000000002"
    file = claude_code_session(rekindle.home / "elsewhere", session, "Paint it blue")
    report = rekindle.json("import", file)
    assert (report["sessions"], report["messages"]) == (1, 2)
    assert rekindle.json("import", file.parent)["unchanged"] == 1
    assert "does not exist" in rekindle.refusal("import", "nothing.jsonl")
    stranger = rekindle.home / "notes.txt"
    stranger.write_text("milk, eggs")
    assert rekindle.json("import", stranger, code=1)["unknown"] == [str(stranger)]
    with open(file, "a", encoding="utf-8") as lines:
        lines.write('{"type": "user", broken\n')
    report = rekindle.json("import", file, code=1)
    assert report["damage"][0]["line"] == 3
    assert "not JSON: " in report["damage"][0]["what"]
    assert "char " not in report["damage"][0]["what"]  # not in the words of Python


def test_an_import_that_had_to_skip_something_keeps_the_rest_and_exits_with_1(
    rekindle: Rekindle,
) -> None:
    lines = (
        b'{"type": "session", "format": 1, "id": "good", "started": 1.0}\n'
        b'{"type": "message", "position": 0, "role": "user", "content": "kept"}\n'
        b"not json\n"
    )
    done = rekindle.run("sessions", "import", "-", stdin=lines, code=1)
    assert b"skipped: line 3" in done.stderr
    assert "kept" in rekindle("sessions", "show", "good")
