"""Programs that a note may name.

Whatever an agent reads (a page, a log, a README) can make it run a program, so a name that nobody
vouches for is never repeated. Known are the tools of the trade, the repository's own scripts, and what
the user named in their own words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rekindle.judging.rules.text_patterns import split_words
from rekindle.shell.wrappers import is_assignment

from .records import fill_slots, is_slot

# Tools of the trade. Some run what others wrote: their arguments are slots unless they are known.
_KNOWN_PROGRAMS = split_words(
    """
    act air alembic ansible ansible-playbook ant apt apt-get artisan asdf astro autoconf automake
    ava aws az babel bash bats bazel bazelisk biome black brew buck buf bun bunx bundle bundler
    cabal caddy cargo cargo-nextest changeset clang clang-format clang-tidy clippy clj cmake
    codespell commitlint composer conan conda corepack coverage cpplint crystal ctest curl cypress
    dart delve deno detekt dbt direnv dlv django-admin docker docker-compose dotnet dprint
    drizzle-kit elixir elm erl esbuild eslint expo fastlane ffmpeg flake8 flask flutter flux fly
    flyctl forge foundry gatsby gcc gcloud gdb gem gh ghc git gitleaks glab gleam go gofmt gofumpt
    goimports golangci-lint golint goreleaser gradle gradlew grunt gulp hadolint hardhat hatch helm
    heroku hugo hypothesis iex invoke ipython isort jasmine java javac jekyll jest jq julia jupyter
    just k3d k6 k9s karma kind knip ko kotlin ktlint kubectl kustomize lefthook lein lerna libtool
    lint-staged lldb lua luacheck luarocks mage make mariadb markdownlint maturin meson migrate
    minikube mise mix mkdocs mocha mongosh mvn mvnw mypy mysql mysqldump nest netlify next next-lint
    ng nim ninja node nodemon nox npm npx nuxt nx nyc ocaml opam openapi-generator openssl ormolu
    oxlint pants pdm perl pg_dump phoenix php phpcs phpstan phpunit pip pip3 pip-compile pipenv pipx
    pixi playwright pnpm podman poe poetry pre-commit prettier prisma protoc psalm psql pulumi pyenv
    pylint pyre pyright pytest python python3 R racket rails rake rbenv rebar3 redis-cli remix
    revive rg rollup rspec Rscript rubocop ruby ruff rustc rustfmt rustup rye sbt scala scalafmt
    scons sea-orm semgrep serverless sequelize sh shellcheck shfmt skaffold snyk solc sphinx-build
    sqlfluff sqlite3 sqlx ssh stack standard staticcheck storybook stylelint supabase svelte-check
    svn swc swift swiftformat swiftlint tailwindcss taplo task terraform terragrunt tilt tox trivy
    tsc tsup tsx ts-node turbo twine typedoc typescript uv uvx uvicorn vagrant vercel vale vite
    vitest vue-tsc wasm-pack webpack wrangler xcodebuild yamllint yarn zig zola zsh
    counterfeiter fieldalignment ginkgo gotestsum govulncheck mockgen modernize nilaway powershell
    promptfoo pwsh rtk
    """
)

# Programs of the system: the first word behind them is a name, a pattern or a text of somebody.
_SYSTEM_PROGRAMS = split_words(
    """
    ack adduser addgroup ag alias apropos arping at banner base32 base64 batch bc bg bind bw cal chage
    chattr chfn chgrp chown chsh chroot cksum comm cowsay cpio crontab cscope csplit curlie dc dd
    declare deluser dig dnf dpkg egrep emacs expand expect expr fgrep fg figlet finger fold gawk getent
    getfacl gpasswd gpg groupadd groupdel groupmod groups groff hash hg host hostname hostnamectl http
    httpie https id iconv ifconfig ifdown ifup install ip join jobs killall last lastlog let local
    locate logger logname look lp lpr mail mailx mdfind mesg mkfifo mknod mktemp mlocate mount mutt
    nano nc ncat netcat newgrp nmap nmcli notify-send nslookup op osascript paste pacman pgrep ping pkill
    plocate printenv pt readonly rename renice rsync runuser say scp screen secret-tool security sendmail
    seq set setfacl sftp shift shuf smbclient spd-say split ssh strace strings su sudo systemctl
    tar telnet tmux toilet traceroute trap tput ugrep umask umount unalias uname unexpand unset unzip
    useradd userdel usermod vi vim visudo w wall wget whatis whereis who whoami whois write xdg-open
    yum zgrep zip zipgrep
    """
)
# A program with such a part in its name may be given a person's name or a secret.
_PERSONAL_PARTS = split_words(
    """
    account auth cert cred crypt keychain keyring ldap login mail member otp pass people person pgp psk
    pw secret sign ssh sql token user vault wallet wifi
    """
)
_OWN_PROGRAM = re.compile(r"[a-z][a-z0-9_-]{1,30}")

_WRAPPERS = split_words("env timeout nohup command exec nice stdbuf corepack")
INTERPRETERS = split_words("python python3 node bash sh zsh ruby perl deno bun tsx ts-node php")
# Programs that run what their first argument names, the latter behind `run` or such a word.
PROGRAM_RUNNERS = split_words("npx bunx uvx pipx nohup xvfb-run php rtk")
# Their first word is the name of a script.
SCRIPT_RUNNERS = split_words(
    """
    make gmake just task rake nox invoke poe composer ninja mage ant gulp grunt lerna yarn pnpm bun
    deno rails mix artisan gradle gradlew mvn mvnw moon melos
    """
)
_TASK_RUNNERS = split_words(
    "go npm pnpm yarn bun uv poetry pdm hatch rye pipenv mise task cargo dotnet docker deno"
)
_RUN_WORDS = split_words("run exec x tool task run-script dlx")
_REACHING_PROGRAMS = split_words("curl wget ssh scp rsync")
_ABOUT_WORDS = split_words("--version -V version --help -h help")
_EVERYWHERE = split_words("--help --version")  # what programs of a project take, too
_VERSION_BY_V = split_words("node npm npx pnpm yarn bun deno php ruby")
_SCRIPT_OPTIONS = split_words("- -- -c -e -lc -p -r -s")  # what follows is the script itself


def is_known_program(key: str) -> bool:
    """Return whether the program of a command's key is one that a note may name."""
    return get_program(key) in _KNOWN_PROGRAMS


@lru_cache(maxsize=10_000)
def is_own_program(name: str) -> bool:
    """Return whether a program seems to be made for the project: no known one, none for secrets."""
    return (
        _OWN_PROGRAM.fullmatch(name) is not None
        and name not in _KNOWN_PROGRAMS
        and name not in _SYSTEM_PROGRAMS
        and not any(part in name for part in _PERSONAL_PARTS)
        and "key" not in re.split("[-_]", name)
    )


def get_program(key: str) -> str:
    """Return the program of a command's key."""
    return key.partition(" ")[0]


def read_program(form: str) -> str:
    """Return the program that a form runs, as it is written, behind assignments and wrappers."""
    words = form.split()
    plain = (word for word in words if not is_assignment(word) and word not in _WRAPPERS)
    return next((word for word in plain if word[0] != "-" and not word.isdigit()), words[0])


def is_subcommand_hidden(form: str) -> bool:
    """Return whether a form has a slot where its own program takes a subcommand, and more behind it."""
    program, *words = form.split(" ")
    name = program.rsplit("/", 1)[-1]
    return len(words) > 1 and words[0] == "<value>" and is_own_program(name)


def is_check(form: str) -> bool:
    """Return whether a form runs tests or checks code."""
    from rekindle.judging.outcomes.events import is_code_check  # a chat needs none of these
    from rekindle.judging.rules.programs import is_test_runner
    from rekindle.shell.command_reader import split_commands

    commands = split_commands(fill_slots(form))[-1:]
    return any(is_test_runner(one) or is_code_check(one) for one in commands)


def _is_version_check(name: str, words: Sequence[str]) -> bool:
    """Return whether a program is only asked for its version, its help, or who is logged in."""
    if len(words) == 1:
        return words[0] in _ABOUT_WORDS or (words[0] == "-v" and name in _VERSION_BY_V)
    return name == "gh" and words[:1] == ["auth"]


def is_version_question(form: str) -> bool:
    """Return whether a form only asks a program for its version or the like."""
    program, *words = form.split(" ")
    name = program.rsplit("/", 1)[-1]
    if name in _KNOWN_PROGRAMS and _is_version_check(name, words):
        return True
    return bool(words) and words[-1] in _EVERYWHERE


def is_worth_telling(form: str) -> bool:
    """Return whether a form says more than that something was run that is not kept."""
    program, *words = form.split(" ")
    name = program.rsplit("/", 1)[-1]
    if is_version_question(form):
        return False
    if name in _REACHING_PROGRAMS and all(word[0] == "-" or is_slot(word) for word in words):
        return False
    if name in SCRIPT_RUNNERS and words and all(map(is_slot, words)):
        return False
    if name not in INTERPRETERS:
        target = next((word for word in words if word[0] != "-" and word not in _RUN_WORDS), "")
        runs = name in PROGRAM_RUNNERS or (
            name in _TASK_RUNNERS and not _RUN_WORDS.isdisjoint(words)
        )
        return not (runs and is_slot(target))
    return not all(is_slot(word) or word in _SCRIPT_OPTIONS for word in words)
