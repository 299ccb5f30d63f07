"""Classifies programs: searches, lookups, tests, linters and readers."""

from __future__ import annotations

import re

from rekindle.shell.command_reader import SimpleCommand

from .text_patterns import split_words


def _compile_commands(table: str) -> re.Pattern[str]:
    """Compile a table of command prefixes, one expression per line."""
    return re.compile("|".join(f"(?:{line.strip()})" for line in table.strip().splitlines()))


_SEARCHES = split_words(
    """
    grep egrep fgrep zgrep bzgrep xzgrep rg ag ack ugrep pt findstr find fd fdfind locate mdfind
    test [ [[ diff colordiff cmp sdiff
    """
)
# Each option has one reading only; with two, a long line of them would take for ever to give up on.
_GIT_OPTIONS = r"(?:-[Cc] (?!-)\S+ |-\S+ )*"
_GIT_SEARCH = _compile_commands(
    rf"""
    git {_GIT_OPTIONS}grep\b
    git {_GIT_OPTIONS}diff\b.*(?:--exit-code|--quiet|--no-index)\b
    """
)
# Their exit code says that something does not exist.
_LOOKUPS = _compile_commands(
    r"""
    (?:which|whereis|type|hash|pgrep|pidof|lsof|fuser|getent|cmp|ping|nc)\b
    command -[vV]\b
    tmux has-session\b
    git (?:-C \S+ )?(?:config --get|merge-base --is-ancestor|show-ref|check-ignore|diff --check)\b
    git (?:-C \S+ )?(?:rev-parse (?:--verify|-q)|ls-remote --exit-code|ls-files --error-unmatch)\b
    systemctl (?:is-active|is-enabled|status)\b
    (?:dpkg -[ls]|rpm -q|brew (?:ls|list)|pip3? show|docker inspect|gh pr (?:checks|view))\b
    jq .*-\w*e
    """
)
# Typical names of a project's test and check scripts.
_TEST_SCRIPT = r"\S*[-:_]?(?:tests?|spec|e2e|verify|ci|coverage)(?:[-:_]\S*)?(?:\s|$)"
_CHECK_NAME = (
    r"(?:lint|linter|check|typecheck|tsc|types|format|fmt|style|vet|validate|analy[sz]e|audit|knip)"
    r"(?:[-:_]\S*)?(?:\s|$)"
)
_CHECK_SCRIPT = rf"\S*{_CHECK_NAME}"
_PACKAGE_RUNNER = r"(?:bun|npm|pnpm|yarn)(?: -\S+(?: (?!-)\S+)?)* (?:run |run-script )?"
_TASK_RUNNER = (
    r"(?:g?make|mise|just|task|rake|ninja|invoke|inv|bazel|poe|doit|nx|turbo|mix|composer) (?:.* )?"
)
_TEST_COMMANDS = _compile_commands(
    rf"""
    (?:pytest|py\.test|unittest|tox|nox|nosetests|nose2?|trial|stestr|behave|gotestsum|ginkgo)(?:\s|$)
    (?:jest|vitest|mocha|ava|jasmine|karma|cypress|testem|newman|k6|playwright test)(?:\s|$)
    (?:rspec|minitest|cucumber|phpunit|pest|bats|busted|ctest)(?:\s|$)
    go test\b
    cargo (?:\+\S+ )?(?:nextest|test|t|bench|llvm-cov|tarpaulin|mutants)\b
    (?:mix|dotnet|swift|deno|forge|hardhat|truffle|flutter|dart|lein|stack|cabal|rails) \S*test
    (?:zig|meson|composer|nx|turbo|act|helm|anchor|rebar3|dune|gleam) (?:run |build )?\S*test
    {_PACKAGE_RUNNER}(?:t\b|{_TEST_SCRIPT})
    {_TASK_RUNNER}{_TEST_SCRIPT}
    node .*--test\b
    (?:\./)?(?:gradle|gradlew|mvn|mvnw|sbt|ant)\b.*(?:test|check|verify)\b
    xcodebuild .*test\b
    php artisan test\b
    (?:python[\d.]*|py|pypy3?) (?:-\S+ )*(?:\S*/)?(?:manage\.py test|runtests\.py|test\w*\.py)
    (?:python[\d.]*|py|pypy3?) (?:-\S+ )*(?:\S*/)?\w+_tests?\.py
    (?:python[\d.]*|py|pypy3?) (?:-\S+ )*(?:\w*tests?/\S+\.py|bin/test)
    (?:node|tsx|ts-node|bun|deno run|ruby|php|lua|bash|sh)(?: -\S+)* (?:\S*/)?test\w*\.\w+
    (?:node|tsx|ts-node|bun|deno run|ruby|php|lua|bash|sh)(?: -\S+)* (?:\S*/)?\w+[-_.](?:test|spec)\.\w+
    (?:\./|\S+/)(?:run[-_]?)?tests?(?:\.sh|\.py|\.exe)?(?:\s|$)
    \./\S*test\S*
    """
)
_LINT_COMMANDS = _compile_commands(
    rf"""
    (?:ruff|flake8|pylint|mypy|dmypy|pyright|basedpyright|pyre|pyflakes|pycodestyle|pydocstyle)(?:\s|$)
    (?:bandit|vulture|pip-audit|deptry|import-linter|lint-imports|codespell|typos|vale|semgrep)(?:\s|$)
    (?:eslint|tslint|oxlint|tsc|vue-tsc|biome|stylelint|xo|standard|jshint|svelte-check|knip)(?:\s|$)
    (?:depcheck|madge|dependency-cruiser|depcruise|lint-staged|commitlint|markdownlint\S*|mdl|lychee)(?:\s|$)
    (?:golangci-lint|staticcheck|revive|govulncheck|rubocop|standardrb|shellcheck|shfmt|hadolint)(?:\s|$)
    (?:yamllint|swiftlint|swiftformat|ktlint|detekt|checkstyle|actionlint|tflint|clang-tidy)(?:\s|$)
    (?:cppcheck|cpplint|credo|pre-commit|lefthook|sqlfluff|ansible-lint)(?:\s|$)
    (?:black|isort)\b.*--(?:check|diff)
    prettier\b.*(?:--check|-c\b|--list-different|-l\b)
    go (?:vet|fix -diff)\b
    gofmt\b
    cargo (?:\+\S+ )?(?:clippy|check|fmt\b.*--check|deny|audit|machete)
    deno (?:lint|check|fmt --check)
    {_PACKAGE_RUNNER}{_CHECK_SCRIPT}
    {_TASK_RUNNER}{_CHECK_SCRIPT}
    (?:\./)?gradlew? .*{_CHECK_NAME}
    terraform (?:fmt|validate|plan)\b
    (?:php -l|node --check|bash -n|sh -n)\b
    \S[^\s/]*+/\S*lint
    """
)


def is_search(command: SimpleCommand) -> bool:
    """Return whether exit code 1 of this command means no match (or a difference)."""
    return command.program in _SEARCHES or _GIT_SEARCH.match(command.text) is not None


def is_lookup(command: SimpleCommand) -> bool:
    """Return whether the command reports by its exit code that something does not exist."""
    return _LOOKUPS.match(command.text) is not None


def is_test_runner(command: SimpleCommand) -> bool:
    """Return whether the command runs tests."""
    return _TEST_COMMANDS.match(command.text) is not None


def is_linter(command: SimpleCommand) -> bool:
    """Return whether the command checks code and reports findings by its exit code."""
    return _LINT_COMMANDS.match(command.text) is not None


# They print other text (files, matches, logs, pages), or nothing but errors.
_READERS = split_words(
    """
    cat head tail less more bat batcat nl sed awk gawk mawk cut sort uniq tr wc xxd od hexdump strings
    tac rev column fold fmt jq yq xq ls ll tree exa eza stat file du df ps env printenv which type
    whereis echo printf grep egrep fgrep zgrep rg ag ack ugrep find fd fdfind diff cmp comm paste
    curl wget http https journalctl dmesg man tldr zcat gzcat zless base64 md5sum sha256sum shasum
    history date pwd uname id whoami hostname top free uptime lsof netstat ss realpath readlink basename
    dirname test [ [[ plutil defaults sw_vers xmllint glow delta pbpaste tig cd pushd popd mkdir rmdir
    rm cp mv ln touch chmod chown export source . sleep kill pkill tar zip unzip gzip gunzip open tee
    xargs glab aws gcloud az heroku fly vercel wrangler supabase sqlite3 psql mysql mongo redis-cli pydoc
    json.tool
    """
)
_READER_COMMANDS = _compile_commands(
    rf"""
    git {_GIT_OPTIONS}(?:log|show|diff|blame|status|branch|remote|tag|ls-files|ls-tree)\b
    git {_GIT_OPTIONS}(?:cat-file|grep|reflog|shortlog|config|describe)\b
    git {_GIT_OPTIONS}(?:rev-list|rev-parse|notes|stash (?:list|show)|whatchanged)\b
    gh (?:api|search|pr (?:view|diff|list|checks)|issue (?:view|list)|run (?:view|list)|repo view)\b
    gh release (?:view|list)\b
    (?:docker|podman|kubectl|oc)(?: compose)? (?:logs|ps|images|inspect|get|describe)\b
    (?:npm|pnpm|yarn|pip|pip3|brew|apt|cargo|gem) (?:ls|list|view|info|show|search|why|help)\b
    (?:npm|pnpm|yarn|pip|pip3|brew|apt|cargo|gem) (?:outdated|metadata)\b
    systemctl (?:status|list)
    tmux capture-pane\b
    go (?:doc|env|list)\b
    """
)
_HELP = re.compile(r"(?:^|\s)(?:--help|-h|help|--version|-V)(?:\s|$)")
# Inline scripts may print anything, but an exception is always their own.
_INLINE_SCRIPT = re.compile(
    r"(?:python[\d.]*|node|ruby|perl|php|deno|bun|tsx) (?:-\S+ )*(?:-[ec]\b|-(?:\s|$)|<<)"
)


def is_reader(command: SimpleCommand) -> bool:
    """Return whether the command prints other text, in which failures are only mentioned."""
    if (
        command.program in _READERS
        or is_inline_script(command)
        or _READER_COMMANDS.match(command.text)
    ):
        return True
    return _HELP.search(command.arguments) is not None


def is_inline_script(command: SimpleCommand) -> bool:
    """Return whether the command is a script given on the command line."""
    return _INLINE_SCRIPT.match(command.text) is not None
