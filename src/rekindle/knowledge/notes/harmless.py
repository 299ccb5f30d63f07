"""Decide which words of a transcript may stay in a note.

A note needs the structure of what happened (programs, subcommands, options, files of the repository)
and almost none of its values. So nothing is searched for that might be secret: a word stays only if its
form is known to be harmless, and becomes a slot such as `<path>` otherwise. A slot may say the shape of
a value (`<number>`, `<YYYY-MM-DD>`), which tells nothing but where its digits are.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.common_words import is_common_word
from rekindle.knowledge.path_names import (
    has_long_number,
    is_file_name,
    is_plain_folder,
    is_private_host,
    is_repository_path,
    looks_like_host,
    reads_like_sentence,
)

from .programs import (
    INTERPRETERS,
    PROGRAM_RUNNERS,
    SCRIPT_RUNNERS,
    is_known_program,
    is_own_program,
)

MAX_PATH_CHARS = 160
MAX_WORD_CHARS = 40
MAX_SEGMENT_CHARS = 60
MAX_RUN_CHARS = 24

_SUBCOMMAND = re.compile(r"[a-z][a-z_]*(?:[:.-][a-z0-9_]+){0,5}")
_LONG_OPTION = re.compile(r"--[a-z][a-z0-9]*(?:-[a-z0-9]+)*|--[a-z]{2,12}(?:[A-Z][a-z]{1,12}){1,3}")
_SHORT_OPTIONS = re.compile(r"-[A-Za-z]{1,3}")
_WORD_OPTION = re.compile(r"-[a-z]{2,16}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
_SMALL_NUMBER = re.compile(r"\d{1,2}[smhkMG]?")
_VERSION = re.compile(r"\d\.\d{1,2}")
_SEGMENT = re.compile(r"\.{0,3}[A-Za-z0-9_@+~*?-]+(?:\.[A-Za-z0-9_*+-]+)*|\.{1,3}|\*{1,2}")
_WORD_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NUMBERS = re.compile(r"\d{3}")
_OWN_SUBCOMMAND = re.compile(r"[a-z]+(?:-[a-z]+){0,3}")
_JUMBLE = re.compile(r"[^aeiouy-]{5}|(?<![a-z])[a-f]{8,}(?![a-z])|q(?!u)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,40}=(?!=)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MONTH, _DAY = "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"
_TIME = "(?:[01][0-9]|2[0-4]):[0-5][0-9]"
_TIMES = tuple(
    (re.compile(pattern), shape)
    for pattern, shape in (
        (rf"[12][0-9]{{3}}-{_MONTH}-{_DAY}", "<YYYY-MM-DD>"),
        (rf"[12][0-9]{{3}}/{_MONTH}/{_DAY}", "<YYYY/MM/DD>"),
        (rf"{_DAY}\.{_MONTH}\.[12][0-9]{{3}}", "<DD.MM.YYYY>"),
        (rf"{_DAY}/{_DAY}/[12][0-9]{{3}}", "<NN/NN/YYYY>"),
        (rf"[12][0-9]{{3}}-{_MONTH}", "<YYYY-MM>"),
        (_TIME, "<HH:MM>"),
        (rf"{_TIME}:[0-5][0-9]", "<HH:MM:SS>"),
        (rf"[12][0-9]{{3}}-{_MONTH}-{_DAY}T{_TIME}", "<YYYY-MM-DDTHH:MM>"),
        (rf"[12][0-9]{{3}}-{_MONTH}-{_DAY}T{_TIME}:[0-5][0-9]", "<YYYY-MM-DDTHH:MM:SS>"),
        (rf"[12][0-9]{{3}}-{_MONTH}-{_DAY}T{_TIME}:[0-5][0-9]Z", "<YYYY-MM-DDTHH:MM:SSZ>"),
    )
)
_NAMED_MONTH = re.compile(r"[0-3][0-9](-?)([A-Za-z]{3})\1([12][0-9]{3}|[0-9]{2})")
_CAPITALS = re.compile(r"[A-Z]{2,24}")
_CODE = re.compile(r"([A-Z]{1,4})-([0-9]{1,8})")
_MONTHS = split_words("jan feb mar apr may jun jul aug sep oct nov dec")
_UNITS = split_words(
    "% ms s sec min h hr d g kg mg t lb km m cm mm mi ft px pt em rem k kb mb gb tb hz khz mhz ghz kw"
)
MIN_OWN_CHARS, MAX_OWN_CHARS = 2, 20  # of a subcommand that is no common word
_PIECE = re.compile(r"[A-Za-z0-9]+")
_PLAIN_VALUE = split_words(
    """
    0 1 true false yes no on off none all auto always never short long line json text yaml plain table
    debug info warn warning error trace release dev development prod production test testing ci local
    linux darwin windows amd64 arm64 x86 wasm main master head origin utf-8 unit integration e2e
    """
)
# Words that programs take as subcommands; any other word may be somebody's value.
_SUBCOMMANDS = split_words(
    """
    add analyze api apply archive assemble attach audit auth autoscale autoupdate bench benchmark
    biome bisect blame branch browse build builder buildx bump bundle cache call cask cat check
    checkout ci clean clear clippy clone codegen codespace collect commit compile complete compose
    config configure connect console container context convert copy cordon cover coverage cp cquery
    create credo current cypress db debug dedupe delete deny dependencies deploy deps describe dev
    develop devices devtools dialyzer diff disable dist dlx doc docs doctor down download drain
    drive dump dump-autoload e2e edit ef enable env eslint eval exec expand export extension fetch
    filter fix fmt format freeze fsck gen generate get gist graph grep head heads help history image
    images import info init inspect install integration intellij issue jest jobs js kill label
    launch link lint lint-staged list lock log login logout logs ls machete make manage manifest
    merge metadata migrate migration migrations mod module modules msbuild mypy network new nextest
    node note notes nuget openapi outdated output pack package packages patch plan play playwright
    policy pr precache prepare prettier preview print process profile project projects providers
    prune ps pub publish pull push pyright pytest query rebuild record refresh reindex release
    remote remove rename repl replay repo report request require reset resolve restart restore
    resume review rm rmi rollback rollout root route routes rspec rubocop ruff ruleset run
    affected run-many run-script runs rustc rustdoc sbom scaffold scale scan schema search secrets seed
    serve server
    service services session set setup shell show shrinkwrap sign sln smoke snapshot src stack start
    stat stats status stop storybook submodule swarm switch symbolize sync tag tap target task tasks
    telemetry template test tests tidy tool toolchain top trace tree tsc tunnel type-check typecheck
    typegen types uncordon uninstall unit unlink unlock unpack up update upgrade upload use validate
    vendor venv verify version versions vet view visualize vitest volume wait watch web wheel why
    work workflow workflows workspace workspaces worktree write x xtask yank
    """
)
# What an option with such a name is given belongs to a person, or is their text.
_PERSONAL_OPTION = re.compile(
    r"account|address|alias|answer|assign|auth|author|body|cc$|client|code|comment|contact|cred|custom"
    r"|desc|domain|from|hint|host|key|login|mail|member|memo|message|msg|name|nick|note|owner|pass|person"
    r"|phone|phrase|pin$|pw|question|reason|remark|review|say|secret|server|sign|subject|text|title|token"
    r"|user|who|word|(?:^|-)(?:as|by|for|of|team|to|with)$"
    r"|bearer|clave|connection|contrase|cookie|csrf|cv[cv]|dsn|haslo|heslo|hmac|jwt|kennwort|mnemonic|motdepasse|otp$|parola"
    r"|pasahitza|pat$|pepper|private$|psk|pswd|salasana|salt$|senha|session|si[dg]$|sifre|wachtwoord|xsrf"
)
# What such an option is given may stay if it only turns something on or off.
_SWITCHES = split_words("0 1 true false yes no on off none auto always never")
# Programs that log in somewhere, and the letters by which they are given a host, a name or a password.
_LOGIN_PROGRAMS = split_words(
    """
    az curl docker ftp gpg helm http https ldapsearch lftp mariadb mongosh mysql mysqladmin mysqldump
    openssl pg_dump pg_restore podman psql redis-cli rsync scp sftp smbclient sqlcmd sqlplus ssh
    sshpass svn wget
    """
)
_LOGIN_LETTERS = frozenset("pakuUhPWb")
# Variables that name a folder for what can be made again.
_CACHE_VARIABLE = re.compile(
    r"[A-Z0-9_]*CACHE(?:_DIR|_HOME|_PATH)?|GOTMPDIR|TMPDIR|GOPATH|CARGO_TARGET_DIR"
)
# The name of a script is the first word behind one of `SCRIPT_RUNNERS`, and the word behind `run` and
# the like; elsewhere that is a container, a host or any argument.
_WORD_RUNNERS = SCRIPT_RUNNERS | split_words(
    "npm node mise uv poetry hatch pdm pipenv rye python python3 corepack"
)
_GRADLE_TASK = re.compile(
    r":?[a-z]{2,20}(?:-[a-z]{2,20}){0,3}(?::[a-z-]{2,30}){0,3}(?:[A-Z][a-z]{1,16}){0,5}"
)
_SCRIPT_WORDS = frozenset(("run", "run-script", "task", "x", "exec", "-m", "--run"))
# What these are given is a folder, as is what an option with such a name is given.
_FOLDER_OPTIONS = split_words(
    "-C --prefix --cwd --dir --directory --project --root --project-directory --filter --workspace"
)
_WORKSPACE = re.compile(
    r"@[a-z]{2,20}(?:-[a-z]{1,20}){0,2}/(?=[a-z])"
)  # of packages in one repository
# Options that take no value, before the subcommand of a program that runs scripts or builds.
_FLAGS = split_words(
    "-r -s -q -w -B -v -y -o --silent --quiet --verbose --recursive --offline --bun"
)
# Programs whose options are words behind one dash.
_WORD_OPTION_PROGRAMS = split_words(
    "go gofmt java javac find terraform ffmpeg ffprobe openssl clang gcc vet xcodebuild"
)


def keep_option(option: str, program: str) -> str | None:
    """Return an option as a note may show it, with a slot for its value, or None."""
    name, sign, value = option.partition("=")
    if program in _LOGIN_PROGRAMS and name[1:2] in _LOGIN_LETTERS and len(name) > 2:
        return f"{name[:2]}<value>"  # `-psecret`
    if reads_like_sentence(name):
        return None
    if not (
        (_LONG_OPTION.fullmatch(name) and not _is_random(name[2:]) and not _NUMBERS.search(name))
        or _SHORT_OPTIONS.fullmatch(name)
        or (program in _WORD_OPTION_PROGRAMS and _WORD_OPTION.fullmatch(name))
    ):
        return None
    if not sign:
        return name
    if is_personal_option(name, program):
        return f"{name}={keep_personal_value(value)}"
    is_kept = is_own_program(program) and is_constant(name, value)
    kept = value if is_kept else keep_option_value(value, name, program) or keep_value(value)
    return f"{name}={kept}"


def is_personal_option(name: str, program: str) -> bool:
    """Return whether what an option or variable is given belongs to a person, or may be a secret."""
    if program in _LOGIN_PROGRAMS and name[:1] == "-" and name[1:2] in _LOGIN_LETTERS:
        return True
    plain = name.lstrip("-").replace("_", "-").lower()
    return _PERSONAL_OPTION.search(plain) is not None and not name.startswith("--no-")


def keep_personal_value(word: str) -> str:
    """Return a slot for what is personal, unless it only turns something on or off."""
    bare = word.strip("'\"")
    return bare if bare.lower() in _SWITCHES else describe_shape(word)


def is_flag(option: str) -> bool:
    """Return whether an option before a subcommand takes no value, so that the next word is that."""
    return option in _FLAGS or option.startswith("--no-")


def is_command_word(word: str) -> bool:
    """Return whether a word is one that many programs take as a subcommand."""
    return word in _SUBCOMMANDS


def keep_option_value(word: str, option: str, program: str) -> str | None:
    """Return what an option of a known program is given, if that is harmless behind this option.

    That is a module to run, a folder with a common word as its name, or a word that is a subcommand.
    """
    if not is_known_program(program) or is_personal_option(option, program):
        return None
    is_kept = (option == "-m" and is_known_program(word)) or (
        option in _FOLDER_OPTIONS
        and (
            word in _SUBCOMMANDS
            or (word.isalpha() and word.islower() and is_common_word(word))
            or (_WORKSPACE.match(word) and is_plain_folder(word.partition("/")[2]))
        )
    )
    return word if is_kept else None


def is_constant(option: str, word: str) -> bool:
    """Return whether what an option of a project's own program is given is one of a few words."""
    return (
        _LONG_OPTION.fullmatch(option) is not None  # a letter does not say what it asks for
        and not is_personal_option(option, "")
        and word.isascii()
        and word.isalpha()
        and word.islower()
        and is_common_word(word)
    )


def keep_value(word: str) -> str:
    """Return a value if it is harmless, or else a slot for it."""
    bare = word.strip("'\"")
    if is_plain_value(bare):
        return bare
    is_version = _VERSION.fullmatch(bare) is not None
    return bare if is_version else keep_repository_path(bare) or describe_shape(word)


def keep_repository_path(word: str) -> str | None:
    """Return an argument that is written as a path of a repository, or None."""
    if not any(sign in word for sign in "/.*") or not is_repository_path(word):
        return None
    return keep_path(word)


def is_plain_value(word: str) -> bool:
    """Return whether a value is one that many programs take, or a small number."""
    return word.lower() in _PLAIN_VALUE or _SMALL_NUMBER.fullmatch(word) is not None


def is_number(word: str) -> bool:
    """Return whether a value consists of digits, perhaps with decimals and a unit."""
    found = _NUMBER.match(word)
    return found is not None and (found.end() == len(word) or word[found.end() :].lower() in _UNITS)


def describe_shape(word: str) -> str:
    """Return the slot for a value: it says where digits are, and whether it is a text."""
    bare = word.strip("'\"")
    if is_number(bare):
        return _NUMBER.sub("<number>", bare, count=1)
    if (shape := _describe_time(bare) or _describe_code(bare)) is not None:
        return shape
    if " " not in bare:
        return "<url>" if "://" in bare else "<path>" if "/" in bare else "<value>"
    is_text = word[0] in "'\"" and word[-1] == word[0] and "$(" not in word and "`" not in word
    return "'<text>'" if is_text else "<value>"


def _describe_time(value: str) -> str | None:
    """Return the shape of a date or a time; None if a value is neither."""
    shape = next((shape for pattern, shape in _TIMES if pattern.fullmatch(value)), None)
    named = _NAMED_MONTH.fullmatch(value)
    if shape is not None or named is None or named.group(2).lower() not in _MONTHS:
        return shape
    sign, month, year = named.groups()
    letters = "MMM" if month.isupper() else "mmm" if month.islower() else "Mmm"
    return f"<DD{sign}{letters}{sign}{'Y' * len(year)}>"


def _describe_code(value: str) -> str | None:
    """Return the shape of a word in capitals or of a numbered code; None if a value is neither."""
    if _CAPITALS.fullmatch(value):
        return "<VALUE>"
    if (code := _CODE.fullmatch(value)) is None:
        return None
    letters, digits = code.groups()
    # One letter tells nothing about anybody; several may be somebody's initials.
    return f"<{letters if len(letters) == 1 else 'X' * len(letters)}-{'N' * len(digits)}>"


def describe_assignment(word: str) -> str | None:
    """Return slots for an argument such as `speed=30`; None if it is no assignment."""
    found = _ASSIGNMENT.match(word)
    return f"<name>={describe_shape(word[found.end() :])}" if found else None


def keep_assignment(word: str) -> str | None:
    """Return `NAME=value` with a slot for any value that is not harmless, or None."""
    name, _, value = word.partition("=")
    if _VARIABLE.fullmatch(name) is None or _is_random(name) or has_long_number(name):
        return None
    if not name.isupper() and not is_plain_folder(name):
        return None
    if is_personal_option(name, ""):
        return f"{name}={keep_personal_value(value)}"
    below = value.strip("'\"").removeprefix("/tmp/")
    if below != value and _CACHE_VARIABLE.fullmatch(name.upper()):
        is_plain = is_plain_folder(below) or len(below) == 1
        return f"{name}={(keep_path(value) if is_plain else None) or '<path>'}"
    return f"{name}={keep_value(value)}"


def is_subcommand(word: str, program: str, previous: str) -> bool:
    """Return whether a word is a known subcommand, or a script's name behind a runner of scripts.

    The first word behind a program of the project's own is one if it is a common word.
    """
    if word in _SUBCOMMANDS or (program in PROGRAM_RUNNERS and is_known_program(word)):
        return True
    if not previous and "." not in program and not is_known_program(program):
        return word.isalpha() and word.islower() and is_common_word(word)
    names_script = (
        program in _WORD_RUNNERS and previous in _SCRIPT_WORDS
        if previous
        else program in SCRIPT_RUNNERS
    )
    if program in ("gradle", "gradlew") and _GRADLE_TASK.fullmatch(word):
        return not _is_random(word)
    return (
        names_script
        and len(word) <= MAX_WORD_CHARS
        and _SUBCOMMAND.fullmatch(word) is not None
        and not _is_random(word)
        and not is_private_host(word)
        and not reads_like_sentence(word)
    )


def is_own_subcommand(word: str, program: str) -> bool:
    """Return whether the word right behind a project's own program may be one of its subcommands.

    It need not be a known or common word, so that a note names it only if several sessions ran it.
    """
    return (
        is_own_program(program)
        and MIN_OWN_CHARS <= len(word) <= MAX_OWN_CHARS
        and _OWN_SUBCOMMAND.fullmatch(word) is not None
        and _JUMBLE.search(word) is None
    )


@lru_cache(maxsize=50_000)
def keep_path(path: str) -> str | None:
    """Return a path of a repository or of /tmp if each of its parts is harmless, or None."""
    return keep_name(path) if not reads_like_sentence(path) else None


def keep_name(path: str) -> str | None:
    """Return a path whose parts are harmless, whatever they say, or None."""
    if len(path) > MAX_PATH_CHARS or not path or "://" in path:
        return None
    parts = path.split("/")
    if parts[0] == "":
        if parts[1:2] != ["tmp"]:
            return None
        parts = parts[1:]
    if parts[-1] == "":
        parts.pop()
    if any(part.isdigit() and len(part) > 2 for part in parts):
        return None
    if parts and looks_like_host(parts[0], is_whole=len(parts) == 1):
        return None  # a server, or a package from elsewhere
    if any("@" in part[1:] for part in parts):
        return None  # a mail address, or a version of a package
    if not parts or any(_SEGMENT.fullmatch(part) is None or _is_random(part) for part in parts):
        return None
    return path


def is_own_command(form: str) -> bool:
    """Return whether only this project has what a command runs: its own program, or a script of it."""
    words = [word for word in form.split() if _ASSIGNMENT.match(word) is None]
    name = words[0].rsplit("/", 1)[-1] if words else ""
    return is_own_program(name) or (name in INTERPRETERS and is_file_name("".join(words[1:2])))


def _is_random(segment: str) -> bool:
    """Return whether a name looks generated: letters, digits and capitals in turns, or one long run."""
    if len(segment) > MAX_SEGMENT_CHARS:
        return True
    for piece in _PIECE.findall(segment):
        parts = _WORD_PART.findall(piece)
        digits = sum(part.isdigit() for part in parts)
        if max(map(len, parts), default=0) > MAX_RUN_CHARS or (digits > 1 and len(parts) > 3):
            return True
        if len(piece) >= 8 and len(parts) >= 4 and len(piece) < 3.5 * len(parts):
            return True
    whole = _WORD_PART.findall(segment)
    digits = sum(part.isdigit() for part in whole)
    return digits >= 3 and digits * 2 >= len(whole)
