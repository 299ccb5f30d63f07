"""Secrets of every class go; ordinary text of every kind stays."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.redaction.environment import find_secret_values, is_secret_variable
from rekindle.redaction.redactor import Redactor
from tests.cases import check_each
from tests.counts import choose_count
from tests.unit.redaction.canaries import ALNUM, HEX, Lot
from tests.unit.redaction.texts_by_class import NEWER_PROVIDERS, PERSONAL_TEXTS, TEXTS_BY_CLASS

WORDS = ("tiger", "winter", "dragon", "monkey", "sunset", "castle")
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def fill_text(text: str, lot: Lot) -> tuple[str, list[str]]:
    """Fill the fields of a text; return it, and the values that must be gone."""
    token = "gh" + "p_" + lot.draw(ALNUM, 36)
    pieces: list[str] = []
    values: list[str] = []
    for before, field, _, _ in string.Formatter().parse(text):
        pieces.append(before)
        if field is not None:
            value = draw_field(field, lot, token)
            pieces.append(value)
            values.append(value)
    return "".join(pieces), values


def draw_field(field: str, lot: Lot, token: str) -> str:
    if field[-1] == "T" or field[:1] == "T":
        return encode_token(field, token)
    line = f"DB_PASSWORD={lot.draw(ALNUM, 12)}"
    if field == "g":
        signs = lot.random.choice("!@#%*?+")
        return f"K{lot.draw(ALNUM, 7)}x3{signs}{lot.draw(ALNUM, 4)}"
    simple = {
        "m": lambda: f"{lot.random.choice(WORDS)}{lot.random.randint(10, 9999)}!",
        "b": lambda: base64.b64encode(lot.random.randbytes(32)).decode(),
        "b40": lambda: lot.draw(ALNUM, 40),
        "b64line": lambda: lot.draw(ALNUM, 64),
        "u": lot.uuid,
        "pw64": lambda: base64.b64encode(line.encode()).decode(),
        "utf16": lambda: base64.b64encode(f"$env:{line}".encode("utf-16-le")).decode(),
        "twice64": lambda: base64.b64encode(base64.b64encode(line.encode())).decode(),
    }.get(field)
    if simple:
        return simple()
    alphabet = {"h": HEX, "w": BASE58}.get(field[0], ALNUM)
    return lot.draw(alphabet, int(field[1:]))


def encode_token(field: str, token: str) -> str:
    """Encode a token, or return one half of it."""
    return {
        "T1": lambda: token[:22],
        "T2": lambda: token[22:],
        "hexT": token.encode().hex,
        "b32T": lambda: base64.b32encode(token.encode()).decode().rstrip("="),
        "octT": lambda: "".join(f"\\{ord(letter):03o}" for letter in token),
        "bytesT": lambda: ", ".join(str(ord(letter)) for letter in token),
        "escT": lambda: "".join(f"\\x{ord(letter):02x}" for letter in token),
        "entT": lambda: "".join(f"&#{ord(letter)};" for letter in token),
        "zwT": lambda: f"{token[:20]}\u200b{token[20:]}",
    }[field]()


def list_cases() -> Iterator[tuple[str, str]]:
    for kind, texts in TEXTS_BY_CLASS.items():
        yield from ((kind, text) for text in texts)
    for name, (one, two) in NEWER_PROVIDERS.items():
        yield f"provider {name}", f"Use {one}{two} for this."
        yield f"provider {name}", f'{{{{"cmd":"{{{{\\"v\\":\\"{one}{two}\\"}}}}"}}}}'


@check_each("kind, text", tuple(list_cases()))
def test_a_secret_of_this_class_is_gone(kind: str, text: str) -> None:
    for seed in range(choose_count(4, 40)):
        full, values = fill_text(text, Lot(seed))
        redactor = Redactor()
        redacted = redactor.redact_text(full, "result")
        left = [value for value in values if len(value) > 3 and value in redacted]
        assert left == [], f"{kind}: {redacted}"
        assert redactor.report, f"{kind}: {full}"
        assert {place for _, place in redactor.report} == {"result"}
        assert Redactor().redact_text(redacted) == redacted


@check_each("text, private", PERSONAL_TEXTS)
def test_personal_data_is_gone(text: str, private: str) -> None:
    assert private not in Redactor().redact_text(text)
    assert private not in Redactor().redact_text(f"see:\n{text}\nand more")


# ── what stays

HARMLESS_LINES = (
    "git show 3f786850e387550fdab836ed7e6dc881de23001b -- src/app.py",
    "session 7ea4f904-0f4d-4c7d-b509-451af9757d3e resumed",
    "image: nginx@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    '"integrity": "sha512-Zk2VGp5lCQrXNpzPJ8zfGVV0dV+mOLAqLR7hT1cFvGfKk1J0xq2Jm6XkYwq8wTtWl3xw=="',
    "github.com/kr/text v0.1.0/go.mod h1:4Jbv+DJW3UT/LiOwJeYQe1efqtUx/iVham/4vfdArNI=",
    '{"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9"}',
    '{"id": "call_9aB3dE5gH7jK9mN1pQ3rS5tU", "name": "bash"}',
    "API_KEY=your-api-key TOKEN=<token> SECRET=${SECRET} PASSWORD=$PASSWORD KEY=*** PIN=xxxx",
    'password = os.environ["DB_PASSWORD"]',
    "api_key: ${{ secrets.API_KEY }}",
    "The password must have at least 8 characters, one digit and one sign.",
    "| option | default | meaning |\n|---|---|---|\n| token | none | the token to use |",
    "--- PASS: TestRunFetchV2MalformedStream (0.05s)",
    "--- PASS: TestE2E_RewindAfterCommit/tool1",
    "see `shouldFallbackToV1AfterV2ProbeError` in the log",
    "from django.utils.deprecation import RemovedInDjango40Warning",
    "assert max_tokens == 4096 and token_count <= limit and next_token is None",
    "def set_password(self, password: str, *, salt: bytes | None = None) -> None:",
    "x = limit+1; y = a*b; if (a != b && c) { d += 1 }",
    "curl -s http://127.0.0.1:8080/healthz && ping 10.0.0.1 && ssh root@host",
    "pip install requests==2.31.0 && npm install react@18.2.0",
    "2026-01-20T12:33:22.123Z INFO step 3 of 10 took 1,204 ms (415 KB)",
    "at Object.<anonymous> (/app/src/index.test.ts:12:34)",
    "SELECT id, name FROM users WHERE token IS NOT NULL ORDER BY created_at",
    "log in with your account, then sign in to the console",
    "RUN useradd -m app && mkdir -p /srv/app/.cache",
    "PATH=/usr/local/bin:/usr/bin; LANG=en_US.UTF-8; TERM=xterm-256color",
    "The verification step 3 failed; see reset-password.tsx and /invite/list",
    "docker run -p 8080:80 -e MODE=dev --name web nginx:1.25",
    "12 rows, 3 columns, 100% of 4 Files changed, 2 Tests passed",
)


@check_each("line", HARMLESS_LINES)
def test_ordinary_lines_stay(line: str) -> None:
    redactor = Redactor()
    assert redactor.redact_text(line) == line
    assert not redactor.report
    inside = json.dumps({"output": line})
    assert redactor.redact_text(inside) == inside


@given(st.lists(st.sampled_from(HARMLESS_LINES), min_size=1, max_size=10).map("\n".join))
def test_ordinary_lines_stay_in_any_order(text: str) -> None:
    assert Redactor().redact_text(text) == text


@given(st.from_regex(r"\A[a-z]{2,9}([_ -][a-z]{2,9}){0,8}\Z"))
def test_words_stay_however_they_are_joined(text: str) -> None:
    if len(text.split()) < 12:  # twelve words may be the phrase of a wallet
        assert Redactor().redact_text(f"see {text}.") == f"see {text}."


@given(st.integers(0, 2**160 - 1))
def test_commits_and_uuids_stay(number: int) -> None:
    commit = f"{number:040x}"
    uuid = "-".join((commit[:8], commit[8:12], commit[12:16], commit[16:20], commit[20:32]))
    text = f"commit {commit}\nAuthor: x\nsession {uuid} at {commit[:12]}"
    assert Redactor().redact_text(text) == text


# ── variables of the environment


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.12", False),
        ("PWD", "/work", False),
        ("TERM_SESSION_ID", "w0t0p0:12345678-1234-1234-1234-123456789abc", False),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus", False),
        ("GIT_COMMIT", "3f786850e387550fdab836ed7e6dc881de23001b", False),
        ("EMAIL", "ada@example.com", False),
        ("LS_COLORS", "rs=0:di=01;34:ln=01;36", False),
        ("DB_PASS", "abc", True),
        ("GITHUB_TOKEN", "k2", True),
        ("HF", "hf" + "_aB3dE5gH7jK9aB3dE5gH7jK9aB3dE5gH7jK9", True),
        ("DATABASE_URL", "postgres://u:k4@h/d", True),
        ("SOMETHING", "qT7rudEUR6BtspedENfwQQNyJZ24OegNL4eumlg61", True),
        ("API_KEY", "${OTHER}", False),
    ],
)
def test_a_variable_is_secret_by_its_name_or_by_its_value(
    name: str, value: str, expected: bool
) -> None:
    assert is_secret_variable(name, value) is expected


def test_only_secret_variables_are_searched_for_in_texts() -> None:
    env = {"DESKTOP_SESSION": "gnome-xorg", "SSH_AUTH_SOCK": "/tmp/x", "API_TOKEN": "abcdefgh12"}
    assert find_secret_values(env) == {"API_TOKEN": "abcdefgh12"}
