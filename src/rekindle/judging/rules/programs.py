"""What programs are for: which only look, which test, which are made to say no."""

from __future__ import annotations

import re

from .shell_commands import Step
from .text_patterns import words


def _commands(table: str) -> re.Pattern[str]:
    """Commands by how they begin, one expression to a line."""
    return re.compile("|".join(f"(?:{line.strip()})" for line in table.strip().splitlines()))


_SEARCHES = words(
    """
    grep egrep fgrep zgrep bzgrep xzgrep rg ag ack ugrep pt findstr find fd fdfind locate mdfind
    test [ [[ diff colordiff cmp sdiff
    """
)
_GIT_SEARCH = _commands(
    r"""
    git (?:-\S+ |-C \S+ )*grep\b
    git (?:-\S+ |-C \S+ )*diff\b.*(?:--exit-code|--quiet|--no-index)\b
    """
)
# They answer by their exit code, but what they were asked for is not there.
_LOOKUPS = _commands(
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
# What scripts of a project are called that test, or check.
_TESTING = r"\S*[-:_]?(?:tests?|spec|e2e|verify|ci|coverage)(?:[-:_]\S*)?(?:\s|$)"
_CHECKING = (
    r"\S*[-:_]?(?:lint|linter|check|typecheck|tsc|types|format|fmt|style|vet|validate|analy[sz]e|audit|knip)"
    r"(?:[-:_]\S*)?(?:\s|$)"
)
_PACKAGER = r"(?:bun|npm|pnpm|yarn)(?: -\S+(?: \S+)?| --\S+)* (?:run |run-script )?"
_TASKS = (
    r"(?:g?make|mise|just|task|rake|ninja|invoke|inv|bazel|poe|doit|nx|turbo|mix|composer)"
    r"(?: -\S+(?: \S+)?)* (?:run |r )?(?:.* )?"
)
_TEST = _commands(
    rf"""
    (?:pytest|py\.test|unittest|tox|nox|nosetests|nose2?|trial|stestr|behave|gotestsum|ginkgo)(?:\s|$)
    (?:jest|vitest|mocha|ava|jasmine|karma|cypress|testem|newman|k6|playwright test)(?:\s|$)
    (?:rspec|minitest|cucumber|phpunit|pest|bats|busted|ctest)(?:\s|$)
    go test\b
    cargo (?:\+\S+ )?(?:nextest|test|t|bench|llvm-cov|tarpaulin|mutants)\b
    (?:mix|dotnet|swift|deno|forge|hardhat|truffle|flutter|dart|lein|stack|cabal|rails) \S*test
    (?:zig|meson|composer|nx|turbo|act|helm|anchor|rebar3|dune|gleam) (?:run |build )?\S*test
    {_PACKAGER}(?:t\b|{_TESTING})
    {_TASKS}{_TESTING}
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
_LINT = _commands(
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
    {_PACKAGER}{_CHECKING}
    {_TASKS}{_CHECKING}
    (?:\./)?gradlew? .*{_CHECKING}
    terraform (?:fmt|validate|plan)\b
    (?:php -l|node --check|bash -n|sh -n)\b
    (?:\./|\S+/)\S*lint\S*
    """
)


def is_search(step: Step) -> bool:
    """Whether exit code 1 of this command means: looked, and found nothing (or a difference)."""
    return step.program in _SEARCHES or _GIT_SEARCH.match(step.text) is not None


def is_lookup(step: Step) -> bool:
    """Whether a command answers by its exit code that something is not there."""
    return _LOOKUPS.match(step.text) is not None


def is_test(step: Step) -> bool:
    """Whether a command runs tests, which may be red."""
    return _TEST.match(step.text) is not None


def is_lint(step: Step) -> bool:
    """Whether a command checks code, and says by its exit code that it found something."""
    return _LINT.match(step.text) is not None


# What they print is somebody else's text (files, hits, logs, pages), or nothing but complaints.
_READERS = words(
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
_READING = _commands(
    r"""
    git (?:-\S+ |-C \S+ |--\S+ )*(?:log|show|diff|blame|status|branch|remote|tag|ls-files|ls-tree)\b
    git (?:-\S+ |-C \S+ |--\S+ )*(?:cat-file|grep|reflog|shortlog|config|describe)\b
    git (?:-\S+ |-C \S+ |--\S+ )*(?:rev-list|rev-parse|notes|stash (?:list|show)|whatchanged)\b
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
# Inline scripts print what they like, but an exception of theirs is their own.
_INLINE = re.compile(
    r"(?:python[\d.]*|node|ruby|perl|php|deno|bun|tsx) (?:-\S+ )*(?:-[ec]\b|-(?:\s|$)|<<)"
)


def is_reader(step: Step) -> bool:
    """Whether a command's output is text of others, in which failures are only spoken of."""
    if step.program in _READERS or is_inline(step) or _READING.match(step.text):
        return True
    return _HELP.search(step.rest) is not None


def is_inline(step: Step) -> bool:
    """Whether a command is a script on the command line."""
    return _INLINE.match(step.text) is not None
