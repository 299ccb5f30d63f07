"""Secrets go, whatever they are wrapped in; what only looks like one stays."""

from __future__ import annotations

import base64
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.redaction.environment import iter_encodings
from rekindle.redaction.redactor import Redactor, find_secret_values
from tests.cases import check_each
from tests.counts import choose_count
from tests.unit.redaction.canaries import ALNUM, Canary, Lot, planted

CANARIES = tuple(planted())


def leaks(canary: Canary, text: str) -> list[str]:
    """What of the canary is still there, as it is or encoded."""
    return [value for value in canary.values if any(form in text for form in iter_encodings(value))]


def test_there_are_over_two_hundred_kinds_of_canaries() -> None:
    assert len({canary.kind for canary in CANARIES}) == len(CANARIES) > 250
    assert all(leaks(canary, canary.text) for canary in CANARIES if canary.kind != "pem-base64")


@check_each("canary", CANARIES, ids=lambda canary: canary.kind)
def test_a_planted_secret_is_gone_in_every_form(canary: Canary) -> None:
    redactor = Redactor()
    text = redactor.redact_text(canary.text, "result")
    assert leaks(canary, text) == []
    assert redactor.redact_text(text) == text
    assert sum(redactor.report.values()) > 0
    assert {place for _, place in redactor.report} == {"result"}


@pytest.mark.parametrize("seed", range(100, 100 + choose_count(3, 10)))
def test_other_draws_of_the_same_shapes_are_gone_too(seed: int) -> None:
    left = [one.kind for one in planted(seed) if leaks(one, Redactor().redact_text(one.text))]
    assert left == []


@check_each("canary", CANARIES, ids=lambda canary: canary.kind)
def test_a_planted_secret_is_gone_inside_json_and_long_text(canary: Canary) -> None:
    filler = "The tests pass and nothing else is to be said about it.\n" * 20
    value = {"command": f"{filler}{canary.text}\n{filler}", "nested": [{"text": canary.text}]}
    redacted = Redactor().redact_value(value, "arguments")
    assert leaks(canary, redacted["command"]) == []
    assert leaks(canary, redacted["nested"][0]["text"]) == []
    assert redacted["command"].count("nothing else is to be said") == 40


HARMLESS = (
    "password: str",
    "def login(user: str, password: str | None = None) -> Token:",
    "token = next(tokens)",
    "token = self._tokens[position]",
    'api_key=os.environ["OPENAI_API_KEY"]',
    "api_key: process.env.API_KEY,",
    "const token = await getToken(user);",
    "if not password: raise ValueError",
    'raise ValueError("password must not be empty")',
    '"password": {"type": "string", "description": "The password of the user"}',
    "max_tokens=4096, input_tokens: 1234, token_count = 17",
    '"usage": {"input_tokens": 18223, "cache_read_input_tokens": 99121}',
    "git show 3f786850e387550fdab836ed7e6dc881de23001b",
    "commit 89e6c98d92887913cadf06b2adb97f26cde4849b",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    '"integrity": "sha512-Zk2VGp5lCQrXNpzPJ8zfGVV0dV+mOLAqLR7hT1cFvGfKk1J0xq2Jm6XkYwq8wTtWl3xw=="',
    "version 1.22.333-beta.4, released 2024-01-01T00:00:00Z",
    "export PATH=$PATH:/usr/local/bin",
    "export TOKEN=$(cat token.txt)",
    "PASSWORD=${DB_PASSWORD:?missing} TOKEN=$TOKEN",
    "curl -H 'Authorization: Bearer $TOKEN' https://example.com",
    'headers = {"Authorization": f"Bearer {token}"}',
    "docker run -u 1000:1000 -p 8080:80 image",
    "mkdir -p build && cp -p a b && tar -pxf x.tar",
    "--- PASS: TestTheWholeThing (0.00s)",
    "12 passed, 3 skipped; pass: 12",
    "npm install react@18.2.0 @types/node@20.1.1",
    "git clone git@github.com:owner/repo.git",
    "@pytest.fixture\ndef client(): ...",
    "icon@2x.png",
    "x = a @ b.T",
    "http://localhost:3000/@vite/client",
    "the keyboard, the key of the dict and the author are fine",
    "sort(key=lambda one: one.name)",
    "session_key = 'agent:main:matrix:dm'",
    "primary_key=True, foreign_key='user.id', cache_key = 'users:list'",
    "the secret of success is patience",
    "The password is required. The token is invalid.",
    "forgot your password? reset it with --password-stdin",
    "1234567890123456 is no card and 4111-1111-1111-1112 neither",
    "at line 4012, column 8888, took 1881 ms",
    "+ 12 lines added\n+1234567890\n-42",
    "/home is a folder, and so are /Users/Shared and /etc/passwd",
    "claude-3-5-sonnet-20241022 and gpt-4o-mini-2024-07-18",
    "<path:py> <url> <secret:github> <mail> ~/project",
    "TokenizerFast, tokenize(), detokenized, PasswordField, SecretStr",
    "ssh-ed25519 is an algorithm; -----BEGIN CERTIFICATE-----",
    "pk = models.AutoField(primary_key=True)",
    "printf '%s %d %%20' a 1",
    "100% of 50%ile",
    'print("Token:", token)',
    "secret: hvac.Client = make_client()",
    "cookie = request.cookies.get('x')",
    "Set PASSWORD to something safe.",
)  # fmt: skip


@check_each("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    redactor = Redactor(home="/root", user="root")
    assert redactor.redact_text(text) == text
    assert not redactor.report


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /home/ada/x.py", "see ~/x.py"),
        ("/Users/ada/My Files", "~/My Files"),
        (r"C:\Users\ada\x", r"~\x"),
        ("file:///home/ada/x", "file://~/x"),
        ("write to ada@example.com.", "write to <mail>."),
        ('{"password": "swordfish"}', '{"password": "<secret:password>"}'),
        ("postgres://ada:swordfish@db/app", "postgres://ada:<secret:password>@db/app"),
        ("curl -u ada:swordfish x", "curl -u ada:<secret:password> x"),
        ("tool --password swordfish --x", "tool --password <secret:password> --x"),
        ("Cookie: a=bcdefgh; d=e", "Cookie: <secret:cookie>"),
        ("pay with 4111 1111 1111 1111", "pay with <card>"),
        ("call +49 151 2345678", "call <phone>"),
    ],
)
def test_the_mask_says_what_stood_there_and_the_rest_is_kept(text: str, expected: str) -> None:
    assert Redactor().redact_text(text) == expected


def test_what_stands_under_a_secrets_name_is_masked_whatever_it_is() -> None:
    value = {
        "password": "a",
        "Authorization": {"scheme": "x", "value": ["b", 7]},
        "cookie": "no equals sign",
        "apiKey": 12345,
        "token": None,
        "max_tokens": 100,
        "argv": ["sshpass", "-p", "letmein", "ssh", "--token", "abc", "--password", "xyz"],
        "properties": {"password": {"type": "string"}},
    }
    redacted = Redactor().redact_value(value)
    assert redacted["password"] == "<secret:password>"
    assert redacted["Authorization"] == {
        "scheme": "<secret:authorization>",
        "value": ["<secret:authorization>", "<secret:authorization>"],
    }
    assert redacted["cookie"] == "<secret:cookie>"
    assert redacted["apiKey"] == "<secret:key>"
    assert redacted["token"] is None
    assert redacted["max_tokens"] == 100
    assert "letmein" not in redacted["argv"]
    assert "xyz" not in redacted["argv"]
    assert redacted["properties"] == value["properties"]
    assert Redactor().redact_value(redacted) == redacted


def test_a_value_beside_the_name_of_a_secret_is_masked() -> None:
    listed = [{"name": "API_KEY", "value": "short1"}, {"name": "COLOUR", "value": "short1"}]
    assert Redactor().redact_value(listed) == [
        {"name": "API_KEY", "value": "<secret:key>"},
        {"name": "COLOUR", "value": "short1"},
    ]


def test_values_of_the_environment_go_however_they_are_encoded() -> None:
    value = "tr0ub4dor&3 horse/+ü"
    redactor = Redactor({"DB_PASSWORD": value})
    for form in iter_encodings(value):
        assert form not in redactor.redact_text(f"x {form} y")
    for name in ("a:", "ad:", "ada:"):
        wrapped = base64.b64encode(f"{name}{value}:end".encode()).decode()
        text = redactor.redact_text(f"x {wrapped} y")
        assert wrapped not in text
        assert "<secret:env:db-password>" in text


def test_secret_values_are_chosen_by_name_or_by_chance() -> None:
    lot = Lot(1)
    drawn = lot.draw(ALNUM, 40)
    env = {
        "HOME": "/home/ada", "PATH": "/usr/bin:/bin", "LANG": "en_US.UTF-8", "EDITOR": "vim",
        "DB_PASSWORD": "swordfish", "PIN": "1234", "GITHUB_TOKEN": "abcdefgh12",
        "SOMETHING": drawn, "DATABASE_URL": "postgres://u:hunter22@db/x", "SSH_AUTH_SOCK": "/tmp/a/b",
        "TOKEN_LIMIT": "100000000000", "API_KEY": "${OTHER}", "TERM": "xterm-256color",
    }  # fmt: skip
    assert find_secret_values(env) == {
        "DB_PASSWORD": "swordfish",
        "GITHUB_TOKEN": "abcdefgh12",
        "SOMETHING": drawn,
        "DATABASE_URL": "hunter22",
    }


def test_home_and_user_of_this_machine_are_masked_as_whole_words() -> None:
    redactor = Redactor(home="/srv/people/ada", user="adalove")
    text = "cd /srv/people/ada/x; ls /srv/people/adamant; whoami: adalove; adalovelace"
    assert (
        redactor.redact_text(text) == "cd ~/x; ls /srv/people/adamant; whoami: <user>; adalovelace"
    )


def test_the_report_counts_kinds_and_places_and_holds_no_value() -> None:
    redactor = Redactor()
    redactor.redact_text('password = "swordfish"; mail ada@example.com, bob@example.com', "prompt")
    redactor.redact_value({"command": "curl -u a:opensesame x"}, "arguments")
    assert redactor.report == {
        ("password", "prompt"): 1,
        ("mail", "prompt"): 2,
        ("password", "arguments"): 1,
    }
    assert "swordfish" not in repr(redactor.report)


PIECES = st.sampled_from(
    [
        *(canary.text for canary in CANARIES[::3]),
        *HARMLESS,
        *'"\\\n %=:&;@<>(){}[]-_.+/ab1',
        *("password", "token=", "/home/", "://", "Bearer ", "%3D", "\\n", "\\u0022", "<secret:x>", "~"),
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
def test_redacting_twice_gives_the_same(text: str) -> None:
    once = Redactor(home="/root", user="adalove").redact_text(text)
    assert Redactor(home="/root", user="adalove").redact_text(once) == once


@given(st.text(max_size=400))
def test_any_text_is_redacted_without_a_fault_and_in_the_same_way(text: str) -> None:
    assert Redactor().redact_text(text) == Redactor().redact_text(text)


HOSTILE = (
    "password", "passwordpassword=", "token=", "sk-", "ghp_", "eyJ", "eyJa.", "://a:", "a@", "a.a@a.",
    "%41", "%", "-----BEGIN PRIVATE KEY", "PRIVATE KEY-----", "+1 ", "(555) ", "4111 ", "4", "home/",
    "/home/a", '"', "\\", "password: |\n ", 'password = "a" + ', "cookie: a=b; ", "Authorization: ",
    "curl -u a:", "mysql -p", "echo a | ", "$6$a", "$", "a_", "-", "A1", "base64 QUFBQUFBQUFBQUFB",
    "login a password ", "identified by '", "key=", "secret ", "\n", "api key ", "hook//",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_done_in_time_that_grows_with_its_length_alone(piece: str) -> None:
    """A rule whose time grows with the square of the length would take minutes here."""
    redactor = Redactor(home="/root")
    size = choose_count(60_000, 300_000) // len(piece)
    began = process_time()
    text = redactor.redact_text(piece * size)
    assert len(text) <= len(f"{piece}<secret:authorization>") * size
    assert process_time() - began < 5
