"""A secret goes if something announces it, even if it is a word; code that reads like it stays."""

from __future__ import annotations

import pytest

from rekindle.redaction.redactor import Redactor
from rekindle.redaction.vocabulary.secret_names import SECRET_LAST_PARTS
from tests.cases import check_each

RANDOM = "Xk93jq0Lm2pQz7Rt"


def check_gone(text: str, secret: str) -> None:
    """Check that the secret goes, alone, between other lines, and for good."""
    redacted = Redactor().redact_text(text)
    assert secret in text
    assert secret not in redacted
    assert Redactor().redact_text(redacted) == redacted
    assert secret not in Redactor().redact_text(f"see:\n{text}\nand more")


def check_kept(text: str) -> None:
    redactor = Redactor()
    assert redactor.redact_text(text) == text
    assert not redactor.report


# ── names


@pytest.mark.parametrize("name", sorted(SECRET_LAST_PARTS))
def test_every_name_of_a_secret_is_searched_for(name: str) -> None:
    for text in (f"{name}={RANDOM}", f"MY_{name.upper()}={RANDOM}", f"--{name}={RANDOM}"):
        check_gone(text, RANDOM)
    if name != "session":  # its identifiers are everywhere, and harmless
        check_gone(f'{{"{name}": "{RANDOM}"}}', RANDOM)


@check_each(
    "text, secret",
    (
        ("PIN=471122", "471122"),
        ('{"pin": 99118822}', "99118822"),
        ('{"userPin": "4711"}', "4711"),
        ("CARD_PIN: 4711", "4711"),
        ("CVC: 785", "785"),
        ("CVV=803", "803"),
        ("pswd=marzipan", "marzipan"),
        ("PAT=hunter-blue-42", "hunter-blue-42"),
        ('"kennwort": "marzipan"', "marzipan"),
    ),
)
def test_a_short_name_announces_a_secret(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text",
    (
        'pin = "latest"',
        "pin: 13",
        "spin=471122",
        "mapping: 471122",
        "side=123456",
        "inside: 4711",
        '"session": "2026-01-20-9de86e4e-9df7-46f3-abb7-09b836f8dc9b"',
        "path: 471122",
        "pinned=1000",
        "salt: bytes | None = None",
    ),
)
def test_a_piece_of_another_word_announces_nothing(text: str) -> None:
    check_kept(text)


# ── words joined by dots


@check_each(
    "text",
    (
        "deskctl sync --password Marzipan.Torte now",
        "mysqldump --password=Marzipan.Torte shop",
        "PGPASSWORD=Marzipan.Torte psql -h x",
        "docker run -e POSTGRES_PASSWORD=Marzipan.Torte postgres",
        "helm install x y --set db.password=Marzipan.Torte",
        "db:\n  password: Marzipan.Torte\n  port: 1",
        "[db]\nuser = ada\npassword = Marzipan.Torte",
        "Server=db;Database=x;User Id=sa;Password=Marzipan.Torte;",
        "jdbc:postgresql://db/x?user=ada&password=Marzipan.Torte",
        "<password>Marzipan.Torte</password>",
    ),
)
def test_a_password_may_be_words_joined_by_dots(text: str) -> None:
    check_gone(text, "Marzipan.Torte")


@check_each(
    "text",
    (
        "password = config.value",
        "    password: user.password,",
        "const password = form.value;",
        "connect(host=h, password=config.value)",
        "self.password=settings.db",
        "password: Joi.string().min(8)",
        "password: types.String",
        "tool --password-file secret.txt --password vault.yml",
        "[core]\n\tsigningkey = keys.pub",
        "password = make_password(raw)",
        "    password = other",
    ),
)
def test_an_attribute_is_no_password(text: str) -> None:
    check_kept(text)


# ── where only a secret is given


@check_each(
    "text, secret",
    (
        ("deskctl --token hunter-blue-42 ls", "hunter-blue-42"),
        ("deskctl --token=marzipan", "marzipan"),
        ("deskctl --secret marzipan", "marzipan"),
        ("deskctl --pass marzipan", "marzipan"),
        ("deskctl --api-key Marzipan.Torte", "Marzipan.Torte"),
        ("oc login --token=12345678", "12345678"),
        ("https://x.io/a?token=marzipan", "marzipan"),
        ("https://x.io/a?api_key=hunter42&x=1", "hunter42"),
        ("curl -H 'X-Api-Key: hunter-blue-42' https://x.io", "hunter-blue-42"),
        ("PRIVATE-TOKEN: marzipan", "marzipan"),
        ("curl -H 'Authorization: Bearer marzipan' https://x.io", "marzipan"),
        ('headers["Authorization"] = "Bearer marzipan"', "marzipan"),
        ("docker build --build-arg NPM_TOKEN=marzipan .", "marzipan"),
        ("cargo login marzipan", "marzipan"),
        ("vault login hunter-blue-42", "hunter-blue-42"),
        ("./bin/deskctl login ada marzipan", "marzipan"),
    ),
)
def test_a_word_given_as_a_secret_is_one(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text",
    (
        "deskctl --token <token> --secret $SECRET --api-key YOUR_API_KEY --pass xxx",
        "use the --token flag, or --secret instead",
        "      --token string     the token to use",
        "docker build --secret id=npm,src=.npmrc .",
        "https://x.io/a?token={token}&api_key=YOUR_KEY",
        "an `Authorization: Bearer header` or a `Bearer token`",
        'headers = {"Authorization": "Bearer " + token}',
        "curl -H 'X-Api-Key: your-api-key' https://x.io",
        "GITHUB_TOKEN=GH_TOKEN MAX_TOKENS=4096 MY_TOKEN=placeholder",
        "./bin/deskctl login --help && vault login -method=oidc",
        "cargo login <token>",
        "kubectl get pods -p 8080",
    ),
)
def test_what_stands_for_a_secret_or_speaks_about_it_stays(text: str) -> None:
    check_kept(text)


# ── sentences


@check_each(
    "text, secret",
    (
        ("use the password `hunter-blue-42` there", "hunter-blue-42"),
        ("Use password marzipan for the admin account", "marzipan"),
        ("always use the password marzipan", "marzipan"),
        ("log in as ada with password Marzipan.Torte", "Marzipan.Torte"),
        ("log in with ada / marzipan", "marzipan"),
        ("credentials: ada / 47118822", "47118822"),
        ("the token is hunter-blue-42", "hunter-blue-42"),
        ("our api key is marzipan", "marzipan"),
        ("the secret is marzipan", "marzipan"),
        ("I changed the password from x to marzipan", "marzipan"),
        ("the root password was set to marzipan", "marzipan"),
        ("The password for staging is marzipan.", "marzipan"),
        ("the password is marzipan", "marzipan"),
        ('the password is "marzipan" on staging', "marzipan"),
        ("My passphrase is correct horse battery staple", "horse battery staple"),
        ("password: correct horse battery staple", "horse battery staple"),
        ("the PIN is 4711", "4711"),
        ("cvv 803", "803"),
        ("Enter passphrase for key: marzipan", "marzipan"),
        ("Kennwort: 12345678", "12345678"),
        ("das Passwort ist marzipan", "marzipan"),
        ("пароль: marzipan", "marzipan"),
        ("密码是marzipan", "marzipan"),
    ),
)
def test_a_sentence_announces_any_word(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text",
    (
        "the password is wrong",
        "The password is required, and the token is invalid.",
        "the token is expired",
        "my password is stored in the vault",
        "The password is hashed.",
        "use password authentication instead",
        "with token counting the `password` field is `password`",
        "the password `reset` flow",
        "if password is None: raise",
        "assert token is marker",
        "use the password from the vault",
        "log in with google / github",
        "the key is username",
        "pin 13 and pin 7 of the chip",
        "Password for ada: ",
        "password must have at least eight characters",
        "das Passwort ist falsch",
    ),
)
def test_a_sentence_about_passwords_stays(text: str) -> None:
    check_kept(text)


# ── commands


@check_each(
    "text, secret",
    (
        ("deskctl login -u ada -p marzipan", "marzipan"),
        ("gh secret set DB_PASSWORD --body marzipan", "marzipan"),
        ("aws configure set aws_secret_access_key hunter42", "hunter42"),
        ("setx DB_PASSWORD marzipan", "marzipan"),
        ("set -x DB_PASSWORD marzipan", "marzipan"),
        ("set -gx API_TOKEN hunter-blue-42", "hunter-blue-42"),
        ("ConvertTo-SecureString 'correct horse' -AsPlainText -Force", "correct horse"),
        ("echo -n marzipan | gcloud secrets create db --data-file=-", "marzipan"),
        ("keyring set x ada <<< marzipan", "marzipan"),
        ("printf marzipan | secret-tool store --label=x k v", "marzipan"),
        ("npm config set //registry.x.io/:_authToken marzipan", "marzipan"),
        ("bw login ada@x.io marzipan", "marzipan"),
        (r"net use Z: \\h\s marzipan /user:ada", "marzipan"),
        ("mc alias set x http://h ada marzipan7", "marzipan7"),
        ("rclone obscure marzipan", "marzipan"),
        ("nmcli dev wifi connect Home password marzipan", "marzipan"),
        ("glab variable set DB_PASSWORD marzipan", "marzipan"),
        ("curl -u ada:47118822 https://x.io", "47118822"),
        ("smbclient //h/s -U ada%52082186", "52082186"),
        ("xxd -r -p <<< 6d61727a6970616e", "6d61727a6970616e"),
    ),
)
def test_a_command_takes_any_word_as_a_secret(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text",
    (
        "deskctl login -p 8080 && deskctl login -u ada -p 22",
        "set -x PATH /usr/local/bin $PATH",
        "set -euxo pipefail",
        "set -x MAX_TOKENS 4096",
        "setx JAVA_HOME C:/jdk",
        "gh pr create --body 'Fix the login'",
        "curl -u 1000:1000 https://x.io",
        "docker run -u 501:20 image",
        'grep x <<< "some text"',
        "net use Z: /delete",
        "git config set user.name ada",
    ),
)
def test_other_words_of_commands_stay(text: str) -> None:
    check_kept(text)


# ── files, pieces, codes and seeds

HEX64 = "328f7d5ad08a581deeb21a1df9af190f6946d7eb71678f833ca67ba8fb5c12ec"


@check_each(
    "text, secret",
    (
        ("deskctl login --password-stdin <<EOF\nmarzipan\nEOF", "marzipan"),
        ("cat > pw.txt <<EOF\nmarzipan\nEOF\ndeskctl --password-file pw.txt", "marzipan"),
        ("echo 'marzipan' > ~/.master && deskctl --password-file ~/.master", "marzipan"),
        ('export PASSWORD=marz""ipan', "ipan"),
    ),
)
def test_a_password_on_its_way_through_the_shell_goes(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text, secret",
    (
        (f"K10{HEX64}::server:{HEX64[:32]}", HEX64[:32]),
        ("kubeconfig-user-abcdefghij:" + "abcdefghi" * 6, "abcdefghi" * 6),
        ("kubeadm join h:6443 --token lcntmv.gnaiwkzhtrvt4rts", "gnaiwkzhtrvt4rts"),
        (f'"private_key_id": "{HEX64[:40]}"', HEX64[:40]),
        ("-".join(["356647"] * 8), "356647"),
        ("YYRPA-3K4GS-EHDFY-ODT2B-WQ89I", "3K4GS-EHDFY"),
        ("TOTP seed: XBQTUZF6BYRX6W3M", "XBQTUZF6BYRX6W3M"),
        ("recovery codes:\nbf1bf-a4e7f\n004d9-1212b", "004d9-1212b"),
        (f"seed phrase: {'marzipan ' * 11}torte", "torte"),
        ("Your code is 900945", "900945"),
        ("2FA code 566723", "566723"),
        ("app.secret_key = 'marzipan'", "marzipan"),
    ),
)
def test_a_code_seed_or_cluster_token_goes(text: str, secret: str) -> None:
    check_gone(text, secret)


@check_each(
    "text",
    (
        "the exit code is 1234 and the status code 404",
        "your code 2024 is fine, your code is 4711 lines long",
        "std::io::Error::new(kind) and foo::bar:deadbeef",
        "2026-01-20-123456-654321-111111",
        "random seed 1234567890, seed = 42",
        "app.secret_key = 'secret'",
        "tool --password-file secrets.txt",
        "the code is in src/app.py",
    ),
)
def test_other_codes_and_seeds_stay(text: str) -> None:
    check_kept(text)


# ── people


@check_each(
    "text",
    (
        "from hypothesis.internal.floats import clamp",
        "from a.b.internal import c and host.docker.internal:8080",
        "drwxr-xr-x 2 root root 4096 Jan 1 x",
        "-rw-r--r-- 1 runner docker 12 Jan 1 x",
        "uid=0(root) gid=0(root)",
        "scp git@box:/srv/x .",
        "Co-Authored-By: Claude Opus 4.7 <noreply@anthropic.com>",
        "Author: the <name> field",
        "published 2024-03-15, updated 14.03.2025",
        "0.12 34 56 78 90 and 2024 123456",
        "0163 7 8",
        "5E 43 79 CD 01 00 00 00 00 12",
        "01 22 33 44 55 66",
    ),
)
def test_what_names_nobody_stays(text: str) -> None:
    assert Redactor().redact_text(text).replace("<mail>", "noreply@anthropic.com") == text
