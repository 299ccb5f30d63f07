"""Slots say the shape of a value, and words of a project's own programs stay if sessions share them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.command_forms import parse_command_line
from rekindle.knowledge.notes.note import list_notes
from rekindle.knowledge.notes.observations import observe_session
from rekindle.knowledge.notes.playbook import Playbook, build_playbook
from rekindle.knowledge.notes.records import (
    SessionObservation,
    drop_shapes,
    fill_slots,
    merge_slots,
)
from rekindle.knowledge.wishes.wishes import UserTurn
from rekindle.redaction.vocabulary import secret_names
from rekindle.types import ToolCall
from tests.unit.redaction.canaries import planted

SECRET_NAMES = [name for name in secret_names._BY_LAST_PART if name.isascii()]  # pyright: ignore[reportPrivateUsage]


def get_text(command: str) -> str:
    (form,) = parse_command_line(command, "/p").forms
    return form.text


def get_key(command: str) -> str:
    (form,) = parse_command_line(command, "/p").forms
    return form.key


def observe(number: int, request: str, *commands: str | tuple[str, bool]) -> SessionObservation:
    calls: list[ObservedCall] = []
    for one in commands:
        command, failed = (one, False) if isinstance(one, str) else one
        call = ToolCall("1", "Bash", {"command": command})
        calls.append(ObservedCall(call, "error: unknown" if failed else "", failed, "", 0))
    turns = [UserTurn(0, request)]
    return observe_session(f"s{number}", float(number), "/p", request, calls, turns)


def build(*sessions: Sequence[str | tuple[str, bool]], request: str = "desk") -> Playbook:
    """Learn from sessions with different requests, whose user names the program `deskctl`."""
    numbers = ("first", "second", "third", "fourth", "fifth")
    return build_playbook(
        observe(number, f"{request} {numbers[number]} with deskctl", *commands)
        for number, commands in enumerate(sessions)
    )


def list_texts(playbook: Playbook) -> list[str]:
    return [form.text for item in playbook.commands for form in item.forms]


# ── subcommands of a project's own program


@pytest.mark.parametrize(
    ("command", "key", "text"),
    [
        ("deskctl lamp show 913", "deskctl lamp show", "deskctl lamp show <number>"),
        ("deskctl lamp-post 913", "deskctl lamp-post", "deskctl lamp-post <number>"),
        ("deskctl lamp --dim", "deskctl lamp", "deskctl lamp --dim"),
        ("bin/deskctl lamp x1 --dim", "deskctl lamp", "bin/deskctl lamp <value> --dim"),
        ("deskctl import lamp 913", "deskctl import", "deskctl import <value> <number>"),
    ],
)
def test_the_word_behind_a_program_of_the_project_is_a_subcommand(
    command: str, key: str, text: str
) -> None:
    assert (get_key(command), get_text(command)) == (key, text)


@pytest.mark.parametrize(
    "command",
    [
        "deskctl swordfish",  # nothing follows
        "deskctl --open swordfish lamp",
        "deskctl -v swordfish",
        "deskctl import swordfish --dim",
        "deskctl --open 1 swordfish --dim",
        "deskctl Swordfish --dim",
        "deskctl swordfish7 --dim",
        "deskctl swordfishswordfishswordfish --dim",
        "deskctl-login swordfish --dim",
        "mypass swordfish --dim",
        "vaultctl swordfish --dim",
        "oursql swordfish --dim",
        "desk-key swordfish --dim",
        "ag swordfish --dim",
        "chown swordfish a.txt",
        "useradd swordfish -m",
        "Deskctl swordfish is it",
        "deskctl.sh swordfish --dim",
        "pytest swordfish --dim",
        "docker swordfish --dim",
    ],
)
def test_what_may_be_a_value_is_no_subcommand(command: str) -> None:
    assert "swordfish" not in str(parse_command_line(command, "/p")).lower()


@pytest.mark.parametrize("word", ["xkcdvbnm", "deadbeef", "qwertz", "bcdfghjkl-ab"])
def test_a_word_that_looks_random_is_no_subcommand(word: str) -> None:
    assert get_text(f"deskctl {word} --dim") == "deskctl <value> --dim"


def test_a_subcommand_is_told_only_if_independent_sessions_ran_it() -> None:
    shared = build(["deskctl lamp show 913"], ["deskctl lamp show 120"])
    assert list_texts(shared) == ["deskctl lamp show <number>"]
    alone = build(["deskctl lamp show 913", "make test"], ["make test"])
    assert sorted(list_texts(alone)) == ["deskctl <value> show <number>", "make test"]
    fork = observe(1, "desk with deskctl", "deskctl lamp show 913")
    forks = build_playbook([fork, msgspec.structs.replace(fork, session="s2", started=2.0)])
    assert b"lamp" not in msgspec.msgpack.encode(forks)


def test_a_rare_subcommand_is_in_no_fix_and_no_check() -> None:
    commands = [("deskctl lamp --odd", True), "deskctl lamp --dim", "git commit -m x"]
    playbook = build(commands, ["make test"])
    assert playbook.fixes
    assert b"lamp" not in msgspec.msgpack.encode(playbook)


def test_a_word_that_the_user_said_as_a_secret_is_in_no_observation() -> None:
    for said in (
        "the password is swordfish",
        "Passphrase: `swordfish`",
        "log in with ada / swordfish",
        "use the token swordfish.",
    ):
        seen = observe(1, said, "deskctl swordfish --dim 1", ("deskctl swordfish --odd", True))
        assert b"swordfish" not in msgspec.msgpack.encode(seen)
    seen = observe(1, "the password is short", "deskctl open --lane short --dim")
    assert [use.text for use in seen.commands] == ["deskctl open --lane short --dim"]
    seen = observe(1, "the password is dry", "deskctl open --lane dry", "deskctl open --lane=dry")
    assert [use.text for use in seen.commands] == [
        "deskctl open --lane <value>",
        "deskctl open --lane=<value>",
    ]


# ── constants of options


def test_a_common_word_behind_an_option_of_the_projects_program_stays() -> None:
    assert get_text("deskctl open --lane dry") == "deskctl open --lane dry"
    assert get_text("deskctl open --lane=dry 'x y'") == "deskctl open --lane=dry '<text>'"


@pytest.mark.parametrize(
    "command",
    [
        "deskctl open -l dry",  # a letter does not say what it asks for
        "deskctl open --password dry",
        "deskctl open --api-key=dry",
        "deskctl open --user dry",
        "deskctl open --display-name dry",
        "deskctl open --host dry",
        "deskctl open --mail-to dry",
        "deskctl open --message dry",
        "deskctl open --title dry",
        "deskctl open --say dry",
        "deskctl open --to dry",
        "pytest --lane dry",
        "mypass open --lane dry",
    ],
)
def test_what_an_option_asks_of_a_person_goes(command: str) -> None:
    assert "dry" not in get_text(command)


def test_a_name_behind_an_option_goes() -> None:
    assert get_text("deskctl open --lane swordfish") == "deskctl open --lane <value>"
    assert get_text("deskctl open --lane Dry") == "deskctl open --lane <value>"


def test_a_constant_is_told_only_if_independent_sessions_share_it() -> None:
    shared = build(["deskctl open a1 --lane dry"], ["deskctl open b2 --lane dry --dim"])
    assert sorted(list_texts(shared)) == [
        "deskctl open <value> --lane dry",
        "deskctl open <value> --lane dry --dim",
    ]
    alone = build(["deskctl open a1 --lane dry"], ["deskctl open b2 --lane=fast"])
    assert sorted(list_texts(alone)) == [
        "deskctl open <value> --lane <value>",
        "deskctl open <value> --lane=<value>",
    ]


# ── shapes


@pytest.mark.parametrize(
    ("value", "slot"),
    [
        ("913", "<number>"),
        ("7.25", "<number>"),
        ("2024-03-02", "<YYYY-MM-DD>"),
        ("2024/03/02", "<YYYY/MM/DD>"),
        ("02.03.2024", "<DD.MM.YYYY>"),
        ("03/02/2024", "<NN/NN/YYYY>"),
        ("2024-03", "<YYYY-MM>"),
        ("2024-03-02T10:15", "<YYYY-MM-DDTHH:MM>"),
        ("2024-03-02T10:15:30Z", "<YYYY-MM-DDTHH:MM:SSZ>"),
        ("04APR26", "<DDMMMYY>"),
        ("04-Apr-2026", "<DD-Mmm-YYYY>"),
        ("04ABC26", "<value>"),
        ("120min", "<number>min"),
        ("7.5kg", "<number>kg"),
        ("913abc", "<value>"),
        ("10:15", "<HH:MM>"),
        ("10:15:30", "<HH:MM:SS>"),
        ("'two words'", "'<text>'"),
        ('"two words"', "'<text>'"),
        ("speed=30", "<name>=<number>"),
        ("day=2024-03-02", "<name>=<YYYY-MM-DD>"),
        ("name=Ada", "<name>=<value>"),
        ("https://example.org/a?b=c", "<url>"),
        ("2024-13-02", "<value>"),
        ("80:80", "<value>"),
        ("OSPREY", "<VALUE>"),
        ("B-0457", "<B-NNNN>"),
        ("AK-17", "<XX-NN>"),
        ("ABCDE-17", "<value>"),
        ("Ada", "<value>"),
        ("'Ada'", "<value>"),
        ('"$(cat a b)"', "<value>"),
        ("/home/ada/x", "<path>"),
    ],
)
def test_a_slot_says_the_shape_of_its_value(value: str, slot: str) -> None:
    assert get_text(f"deskctl open {value}") == f"deskctl open {slot}"
    assert get_text(f"deskctl open --lane {value}") == f"deskctl open --lane {slot}"


def test_known_programs_keep_their_small_numbers_and_versions() -> None:
    assert get_text("gh pr view 17") == "gh pr view 17"
    assert get_text("gh pr view 1700") == "gh pr view <number>"
    assert get_text("pyenv install 3.12") == "pyenv install 3.12"


def test_keys_do_not_depend_on_shapes() -> None:
    for value in ("913", "2024-03-02", "'a b'", "Ada", "x=1"):
        assert get_key(f"go test -run {value}") == "go test"


def test_forms_that_differ_in_shapes_are_one() -> None:
    playbook = build(
        ["deskctl open 913 --at 10:15", "deskctl open 914 --at 10:16"],
        ["deskctl open Ada --at 11:20"],
        ["deskctl open 915 --at 12:20"],
    )
    (item,) = playbook.commands
    assert [(form.text, form.sessions, form.worked) for form in item.forms] == [
        ("deskctl open <value> --at <HH:MM>", 3, 4)
    ]
    assert [(one.text, one.sessions) for one in item.arguments] == [("--at <HH:MM>", (0, 1, 2))]


def test_fixes_that_differ_in_shapes_are_one_and_keep_their_id() -> None:
    def fix(value: str) -> list[str | tuple[str, bool]]:
        return [(f"deskctl open {value}", True), f"deskctl open --dim {value}"]

    (known,) = build(fix("913"), fix("Ada")).fixes
    assert len(known.sessions) == 2
    assert known.fix.fixed_text == "deskctl open --dim <value>"
    ids = {
        note.id
        for value in ("913", "Ada", "'a b'")
        for note in list_notes(build(fix(value), fix(value)))
        if note.kind == "pitfall"
    }
    assert len(ids) == 1


def test_shapes_merge_word_by_word_and_can_be_read_again() -> None:
    text = (
        "deskctl open <name>=<number> <YYYY-MM-DD> '<text>' <url> <HH:MM:SS> <number>kg <DDMMMYY>"
        " <VALUE> <B-NNNN> <XX-NN>"
    )
    assert merge_slots(text, text) == text
    assert merge_slots("a <name>=<number> <number>", "a <name>=<value> <HH:MM>") == (
        "a <name>=<value> <value>"
    )
    assert drop_shapes(text) == (
        "deskctl open <value> <value> <value> <path> <value> <value> <value> <value> <value> <value>"
    )
    assert get_text(fill_slots(text)) == text


# ── planted values


def test_no_planted_value_is_kept_behind_a_program_of_the_project() -> None:
    leaks: list[str] = []
    for canary in planted(11):
        for value in (one for one in canary.values if len(one) > 5):
            seen = observe(
                1,
                canary.text,
                f"deskctl {value} --dim",
                f"deskctl open --lane {value}",
                f"deskctl open --lane={value} {value}",
                (f"deskctl open speed={value} '{value} x'", True),
                f"deskctl open {value} https://{value}",
            )
            kept = msgspec.msgpack.encode(seen) + msgspec.msgpack.encode(build_playbook([seen] * 3))
            leaks += [f"{canary.kind}: {value}"] if value.encode() in kept else []
    assert leaks == []


@pytest.mark.parametrize(
    ("command", "made_up"),
    [
        ("deskctl open B-0457 --lane 3000", "deskctl open B-0012 --lane 120"),
        ("deskctl lamp OSPREY x1 --on 04APR26", "deskctl lamp ALPHA beta --on 01JAN26"),
        (
            "python3 tools/desk.py Ada --say 'two words'",
            "python3 tools/desk.py alpha --say 'some text'",
        ),
        ("cd desk && python3 lamp.py Ada", "cd desk && python3 lamp.py alpha"),
        ("DESK=local bin/deskctl lamp x1", "DESK=local bin/deskctl lamp alpha"),
        ("deskctl lamp list", None),  # nothing to fill
        ("gh pr view 1700", None),  # everybody knows how
        ("python3 -m pytest -k Ada", None),
    ],
)
def test_a_command_of_the_project_itself_is_shown_with_made_up_values(
    command: str, made_up: str | None
) -> None:
    playbook = build([command], [command], request="one")
    (note,) = [one for one in list_notes(playbook) if one.kind == "command"]
    shown, *rest = note.text.rsplit(" (", 1)[0].split(", such as ")
    assert shown.endswith(f"{note.command}`")
    assert rest == ([f"`{made_up}`"] if made_up else [])


# ── values that look like paths


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("DB_PASSWORD=Grazamol.Gronisen make test", "DB_PASSWORD=<value> make test"),
        ("DB_PASSWORD=tests/words.txt make test", "DB_PASSWORD=<path> make test"),
        ("SESSION_COOKIE=./build make test", "SESSION_COOKIE=<path> make test"),
        ("redis-cli -a Sosteplel.Kliklodok ping", "redis-cli -a <value> <value>"),
        ("mysql -pabc -u app.sql", "mysql -p<value> -u <value>"),
        ("pytest --password=grizzelmann/tapir tests", "pytest --password=<path> tests"),
        ("pytest --password src/app.py tests/app.py", "pytest --password <path> tests/app.py"),
        ("psql -h Kowalewski-MacBook.local", "psql -h <value>"),
        ("gh pr list --author Leokadia.Wisniewska", "gh pr list --author <value>"),
        ("gh pr list --author docs/team.md", "gh pr list --author <path>"),
        ("aws get --secret-id prod/kunde/db", "aws get --secret-id <path>"),
        ("./dial.sh 0171.5550199", "./dial.sh <number>"),
        ("./run.sh 'Regenbogen*Tanz'", "./run.sh <value>"),
        ("pytest ../steuerfahndung", "pytest <path>"),
        ("pytest @Anna.Kowalska tests/4917001234567.txt", "pytest <value> <path>"),
        (
            "golangci-lint run --new-from-rev=soph/ssh-transport ./...",
            "golangci-lint run --new-from-rev=<path> ./...",
        ),
        ("go test ./Baretrol.Vofurak/...", "go test <path>"),
        ("python3 /tmp/Sommer/Garten.py", "python3 <path>"),
        ("go build -o /tmp/sommer ./cmd", "go build -o <path> ./cmd"),
        ("GOCACHE=/tmp/sommergarten go vet ./...", "GOCACHE=<path> go vet ./..."),
        ("pytest --7f3a9c2e5d11", "pytest <option>"),
        ("pytest --e0b1c2d3-4455-6677-8899-aabbccddeeff", "pytest <option>"),
        ("pytest --eb539593f", "pytest <option>"),
        ("DE26526999211300272497=1 make check", "make check"),
        ("gukagrun=1 make check", "make check"),
    ],
)
def test_values_that_look_like_paths_are_slots(command: str, text: str) -> None:
    assert get_text(command) == text


@pytest.mark.parametrize(
    "command",
    [
        "go test ./internal/auth",
        "go test ./internal/...",
        "pytest tests/unit/web tests/test_words.py",
        "ruff check .",
        "prettier --check 'src/**/*.ts'",
        "go test -exec=true ./...",
        "GOCACHE=/tmp/go-build GOOS=windows go vet ./...",
        "CGO_ENABLED=0 npm_config_cache=/tmp/npm-cache npm test",
        "pnpm --filter @shop/core test",
        "pytest -c tests/pytest.ini --rootdir=src/app .github/workflows/ci.yml",
        "DEBUG_TOKEN=1 make test",
    ],
)
def test_paths_of_a_repository_stay(command: str) -> None:
    assert get_text(command) == command.replace("'", "")


@pytest.mark.parametrize("name", [*SECRET_NAMES, "api_key", "authtoken", "DB_PASS"])
def test_whatever_a_secret_name_is_given_is_a_slot(name: str) -> None:
    assert get_text(f"{name.upper()}=src/app.py make test").startswith(f"{name.upper()}=<")


@pytest.mark.parametrize(
    "path",
    ["Mibroklol.Pluvifik", "+4917407613678", "BOFOPIN.CORP", "'Domemor*Tuniston'", "rake+klen"],
)
def test_a_folder_that_is_called_like_a_value_is_not_told(path: str) -> None:
    line = parse_command_line(f"cd {path} && make test", "/p")
    assert line.folder == ""
    assert parse_command_line(f"./tools/{path} --list", "/p").forms == ()
    assert parse_command_line("cd src/parser && make test", "/p").folder == "src/parser"


# ── what is run inside of something


@pytest.mark.parametrize(
    "command",
    [
        "docker exec hospizverein-db cat /etc/hosts",
        "docker compose exec hospizverein rake test",
        "kubectl exec kundelbach-api-7 -- pytest",
        "cargo run -- pfefferminz",
        "./bin/deskctl exec pfefferminz",
        "vagrant run pfefferminz x",
        "npm run pfefferminz.wald.internal",
        "make wald.local",
    ],
)
def test_what_is_no_script_behind_run_is_a_slot(command: str) -> None:
    (form,) = parse_command_line(command, "/p").forms
    named = ("hospiz", "kundel", "pfeffer", "wald")
    assert not any(name in f"{form.key} {form.text}" for name in named)


@pytest.mark.parametrize(
    "command",
    ["npm run lint:fix", "uv run manage-web", "pnpm exec codegen-all", "mise run test:ci",
     "python3 -m bench", "node --run build-web", "make web-lint", "docker compose exec api pytest"],
)  # fmt: skip
def test_scripts_of_a_project_stay(command: str) -> None:
    assert get_text(command) == command


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("timeout 604853 make test", "timeout <number> make test"),
        ("timeout 4711 nohup make test", "timeout <number> nohup make test"),
        ("timeout 123s make test", "timeout <number>s make test"),
        ("timeout Lumaval make test", "timeout <value> make test"),
        ("timeout 300 make test", "timeout 300 make test"),
        ("timeout 60s make test", "timeout 60s make test"),
        ("timeout 1800 npm test", "timeout 1800 npm test"),
    ],
)
def test_how_long_a_program_may_take_is_told_if_it_is_round(command: str, text: str) -> None:
    assert get_text(command) == text
