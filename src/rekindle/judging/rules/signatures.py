# ruff: noqa: E501  (a pattern stays on one line)
"""Failure messages of test runners, linters, compilers, package managers and clients.

Every pattern is matched at the start of a line. ANYWHERE holds formats that a program uses only for
failures; LAST_LINES holds general words, which count only in the last lines of an output; SUCCESS
matches a last line that reports success, whatever came before.
"""

from __future__ import annotations

import re

from .deciding_commands import DecidingCommands
from .text_patterns import TextPattern, TextPatterns, exclude_source, parse_patterns

_RUNS_GO = r"go |gotestsum|ginkgo|g?make|mise|just|task|\./|bash|sh |[\w./-]+/"
_RUNS_GIT = r"git|gh|hub|glab|npm|pnpm|yarn|pip|uv|go |cargo|brew|g?make|mise|just|docker|bash|sh |source|\./"

TESTS = (
    *parse_patterns(
        r"""
        tests/pytest         =+ .*\b[1-9]\d* (?:failed|errors?)\b.* in [\d.:]+
        tests/pytest-short   [1-9]\d* (?:failed|errors?)\b.* in [\d.]+s\b
        tests/pytest-case    (?:FAILED|ERROR) \S+\.py(?:::| - |$)
        tests/pytest-part    =+ (?:ERRORS|FAILURES) =+$|!+ Interrupted: \d+ error|E   \w+(?:Error|Exception)\b
        tests/unittest       FAILED \((?:failures|errors|unexpected)
        tests/jest           (?:Tests|Test Suites|Snapshots):\s.*\b[1-9]\d* failed\b
        tests/vitest         \s*(?:Tests|Test Files)\s.*\b[1-9]\d* failed\b
        tests/jest-file      \s*FAIL {1,2}\S+\.[cm]?[jt]sx?\b|\s+● .* ›\s
        tests/mocha          \s+[1-9]\d* failing$
        tests/cargo          test result: FAILED|error: (?:\d+ targets? failed|test failed|doctest failed)
        tests/nextest        \s+Summary \[[^\]\n]*\].*[1-9]\d* failed
        tests/rspec          [1-9]\d* examples?, [1-9]\d* failures?
        tests/phpunit        (?:FAILURES|ERRORS)!$|Tests: \d+, .*(?:Failures|Errors): [1-9]
        tests/bun            \s*[1-9]\d* fail$
        tests/tap            [#ℹ] fail [1-9]|not ok \d+(?!.*# (?:TODO|SKIP))
        tests/ctest          \d+% tests passed, [1-9]\d* tests? failed
        tests/dotnet         Failed!\s+- Failed:
        tests/playwright     \s+[1-9]\d* failed$
        tests/deno           FAILED \| \d+ passed
        tests/minitest       \d+ runs, .*[1-9]\d* (?:failures|errors)
        tests/exunit         \d+ tests?, .*[1-9]\d* failures?\b
        tests/xcode          \*\* TEST FAILED \*\*|Executed \d+ tests?, with [1-9]\d* failures?
        tests/tox            evaluation failed :\(|\s*\S+: (?:commands failed|FAIL code)
        tests/nox            nox > (?:.*failed|Session .* aborted)
        tests/forge          Encountered (?:a total of )?[1-9]\d* failing tests?
        tests/some           Some tests (?:have )?failed|There (?:were|was) [1-9]\d* (?:failures?|errors?):
        """,
        outcome="expected",
        confidence=0.93,
    ),
    *parse_patterns(
        r"tests/go  FAIL(?:\t\S.*)?$|--- FAIL:\s",
        outcome="expected",
        confidence=0.93,
        command_pattern=_RUNS_GO,
    ),
    *parse_patterns(
        r"tests/sympy  =* ?tests finished: .*(?:[1-9]\d* failed|exceptions)|DO \*NOT\* COMMIT!",
        outcome="expected",
        learned_from=("mini-swe-agent",),
    ),
    *parse_patterns(
        r"tests/none  (?:=+ )?(?:no tests ran|collected 0 items)\b|ERROR: (?:file or directory )?not found:|ERROR: usage:\s",
        "arguments",
        command_pattern=r"pytest|tox|nox|make|uv",
        confidence=0.9,
    ),
    *parse_patterns(
        r"tests/deselected  =+ \d+ deselected(?!.*(?:passed|failed)).* in\s",
        "arguments",
        command_pattern=r"pytest|tox|nox|make|uv",
        learned_from=("openhands",),
    ),
)

LINTERS = (
    *parse_patterns(
        r"""
        lint/found           Found [1-9]\d* (?:errors?|problems?|issues?)\b(?!.*(?:, 0 remaining|\(all fixed\)))
        lint/pyright         [1-9]\d* errors?, \d+ warnings?
        lint/eslint          ✖ \d+ problems? \((?!0 errors)
        lint/rubocop         \d+ files? inspected, [1-9]\d* offenses?
        lint/black           [1-9]\d* files? would be reformatted|would reformat \S
        lint/prettier        \[warn\] Code style issues|\[error\] \S+: SyntaxError
        lint/tsc             \S+\(\d+,\d+\): error TS\d+:|\S+:\d+:\d+ - error TS\d+:|error TS\d+:\s
        lint/mypy            \S+\.pyi?:\d+: error:\s
        lint/flake8          \S+\.py:\d+:\d+: [A-Z]{1,3}\d{2,4}\s
        lint/isort           ERROR: \S+ Imports are incorrectly sorted
        lint/pre-commit      .+\.{3}Failed$
        lint/swiftlint       Done linting! Found [1-9]\d* violations?, [1-9]\d* serious
        lint/clippy          error: (?:(?! \().)*+ \(.*clippy
        """,
        outcome="expected",
        confidence=0.9,
    ),
    *parse_patterns(
        r"lint/golangci  (?:\[[\w:.-]+\] )?[1-9]\d* issues?:$",
        outcome="expected",
        confidence=0.93,
        learned_from=("claude-code", "codex"),
    ),
    *parse_patterns(
        r"lint/biome  \s*[×✖] (?:Some errors were emitted|No files were processed|The following)",
        outcome="expected",
        confidence=0.93,
        learned_from=("claude-code",),
    ),
    *parse_patterns(
        r"lint/knip  (?:Unused|Unlisted|Unresolved|Duplicate|Referenced) [\w ]+\(\d+\)$",
        outcome="expected",
        command_pattern=r"knip|npm|pnpm|yarn|bun",
        learned_from=("claude-code",),
    ),
    *parse_patterns(
        r"lint/go-vet  (?:vet: )?\S+\.go:\d+:\d+:\s",
        outcome="expected",
        command_pattern=r"go vet|staticcheck|revive|golangci-lint",
    ),
    *parse_patterns(
        r"lint/eslint-line  \s+\d+:\d+\s+error\s+\S",
        outcome="expected",
        command_pattern=r".*lint|npm|pnpm|yarn|bun|make|xo|standard|next",
    ),
    *parse_patterns(
        r"lint/shellcheck  In \S+ line \d+:$",
        outcome="expected",
        command_pattern=r"shellcheck|make|mise",
    ),
    *parse_patterns(
        r"lint/audit  (?!.*found 0)(?:found )?\d+ (?:\w+ )?(?:severity )?vulnerabilit",
        outcome="expected",
        command_pattern=r"(?:npm|pnpm|yarn|bun) audit",
    ),
)

BUILDS = (
    *parse_patterns(
        r"""
        build/make           g?make(?:\[\d+\])?: \*\*\*\s
        build/gradle         (?:FAILURE: )?(?:BUILD FAILED|Build failed with an exception|BUILD FAILURE)|> Task :\S+ FAILED
        build/maven          \[ERROR\] (?:BUILD FAILURE|Failed to execute goal|COMPILATION ERROR)|\[INFO\] BUILD FAILURE
        build/ninja          ninja: (?:build stopped|error)|FAILED: \S+\.(?:o|obj|so|a)\b
        build/cmake          CMake Error|-- Configuring incomplete
        build/dotnet         Build FAILED|.*: error (?:CS|MSB|NU|FS)\d{4}:|error (?:CS|MSB|NU|FS)\d{4}:
        build/xcode          \*\* BUILD FAILED \*\*
        build/bundler        ERROR in (?:\./|\S+\.\w+|\[)|Module not found:\s|✘ \[ERROR\]|error during build:|Failed to compile
        build/docker         ERROR: failed to (?:solve|build)|failed to solve:\s|ERROR: process "/bin
        build/nix            error: builder for
        build/just           error: Recipe `.*` failed|task: Failed to run task|rake aborted!
        build/bazel          ERROR: Build did NOT complete|FAILED: Build did NOT complete
        """,
        confidence=0.93,
    ),
    *parse_patterns(
        r"build/mise  (?:\[[\w:.-]+\] )?ERROR task failed\b",
        confidence=0.93,
        learned_from=("claude-code", "codex"),
    ),
    *parse_patterns(
        r"""
        build/gcc            \S+:\d+(?::\d+)?: (?:fatal )?error:[ ]|collect2: error|cc1(?:plus)?:\s|\d+ errors? generated
        build/linker         ld(?:\.\w+)?: (?:error|cannot|symbol|undefined)|Undefined symbols for|clang(?:\+\+)?: error
        build/rust           error(?:\[E\d+\]): |error: (?:could not compile|aborting due to|linking with|cannot find|expected|mismatched|unresolved|failed to (?:compile|run|select|parse|load))
        build/go             (?:\./|\.\./)?[\w./-]+\.go:\d+:\d+: (?:undefined|cannot|syntax|imported|declared|missing|not enough|too many|invalid|expected|undeclared|no required|assignment|unused|\S+ (?:redeclared|undefined|declared))
        build/go-module      go: (?:module|cannot find|no module|no such|errors parsing|unknown|go\.mod|updates to go\.mod|.*: (?:no such|invalid version|unknown revision|cannot find))
        build/go-package     (?:package|pattern) \S+(?: is not in|: )|no required module provides|.*: cannot find module providing
        build/java           \d+ errors?$|error: cannot find symbol
        build/haskell        \S+\.hs:\d+:\d+: error|\S+\.ml.{0,100}line \d+.{0,200}error
        build/swift          \S+\.swift:\d+:\d+: error:|error: (?:emit-module|link) command failed
        """,
        "syntax",
        confidence=0.92,
    ),
    *parse_patterns(
        r"build/mise-error  mise ERROR\s", command_pattern=r"mise", learned_from=("pi",)
    ),
)

PACKAGES = parse_patterns(
    r"""
    packages/npm         npm (?:ERR!|error)|lerna ERR!
    packages/pnpm        \s*ERR_PNPM_|.*\bELIFECYCLE\b|\s*ERROR  ?(?:Command failed|run failed)
    packages/yarn        error Command failed with exit code|error (?:Couldn't find|An unexpected)|➤ YN0000: .*[Ff]ailed|Usage Error:\s
    packages/bun         error: script "?.*"? exited with code|error: Cannot find package|error: Script not found
    packages/pip         ERROR: (?:Could not|No matching|Failed|Cannot|Invalid|Package|Directory|File|Exception|Operation|Ignored)
    packages/pip-build   error: (?:subprocess-exited-with-error|externally-managed-environment|metadata-generation|invalid command)
    packages/uv          error: (?:Failed to|No solution|Distribution|No `|Project|Could not)|\s*× (?:No solution|Failed|No module|No virtual)
    packages/apt         E: (?:Unable|Could not|Package|Failed|Sub-process|Version|The repository|Invalid)
    packages/brew        Error: (?:No (?:available|such)|Cannot install|Failure while|.* is not installed)
    packages/gem         ERROR:  (?:Could not|While executing|Error installing)|Could not find gem|Bundler could not
    packages/cargo       error: (?:failed to (?:get|download|resolve)|no matching package|package|manifest|no such (?:command|subcommand)|there is nothing to|no bin target|no test target)
    """,
    confidence=0.92,
)

GIT = (
    *parse_patterns(r"git/fatal  fatal:\s", command_pattern=_RUNS_GIT),
    *parse_patterns(
        r"""
        git/error            error: (?:pathspec|failed to push|Your local changes|The following untracked|cannot|could not|unable to|patch failed|unknown (?:option|switch)|src refspec|branch|commit|Merging|short|bad|object|invalid|unrecognized|corrupt|update_ref|Entry|your local|switch|no such|remote|tag|RPC failed|Pulling is not|Committing is not|The branch|refusing|the following|insufficient|did you mean|option|unexpected argument|not (?:possible|something))
        git/apply            error: .*: (?:patch does not apply|No such file|does not exist in|already exists)
        git/conflict         CONFLICT \(|Automatic merge failed|\s! \[(?:remote )?rejected\]|hint: Updates were rejected
        git/rebase           No rebase in progress|You have unstaged changes|Cannot rebase|Could not apply
        git/hook             husky - .*(?:failed|exited with code [1-9])|pre-(?:commit|push) hook (?:failed|exited)|error: hook declined
        git/lint-staged      ✖ .*(?:failed|found some errors)
        git/not-a-command    git: '.*' is not a git command
        """,
        "command",
        confidence=0.93,
        command_pattern=r"git|gh",
    ),
    *parse_patterns(
        r"git/nothing  nothing to commit|no changes added to commit|nothing added to commit|Aborting commit",
        "command",
        command_pattern=r"git (?:-[Cc] (?!-)\S+ |-\S+ )*commit",
    ),
    *parse_patterns(
        r"git/ignored  The following paths are ignored by one of your \.gitignore files",
        "path",
        command_pattern=r"git (?:-C (?!-)\S+ |-\S+ )*add",
        learned_from=("claude-code",),
    ),
    *parse_patterns(
        r"git/lefthook  🥊 .+ \([\d.]+ seconds?\)",
        "command",
        command_pattern=r"git|lefthook",
        learned_from=("claude-code",),
    ),
    *parse_patterns(
        r"""
        forge/gh             (?:gh: |GraphQL: |HTTP [45]\d\d: |error connecting to)
        forge/gh-said        (?:failed to |could not |X |accepts |invalid |must be |specify |release not found|argument required)
        forge/gh-none        no (?:pull requests|checks|default remote|git remotes|runs|commits)
        forge/gh-flag        unknown (?:flag|command|shorthand)|To (?:get started|authenticate)|a pull request for branch|pull request create failed
        """,
        "command",
        confidence=0.9,
        command_pattern=r"gh\s",
    ),
    *parse_patterns(
        r"forge/gh-field  Unknown JSON field",
        "arguments",
        command_pattern=r"gh\s",
        learned_from=("pi",),
    ),
)

RUNS = (
    *parse_patterns(
        r"""
        run/panic            panic:\s|thread '.*' (?:\(\d+\) )?panicked at|goroutine \d+ \[running\]|fatal error:\s
        run/signal           (?:.*\s)?(?:Segmentation fault|Bus error|Illegal instruction|Floating point exception)\b.*
        run/killed           (?:\S+: line \d+: +\d+ )?(?:Killed|Aborted|Terminated)(?: \(core dumped\))?(?:: \d+)?(?: {2,}.*)?$
        run/java             Exception in thread "|Error: (?:Could not find or load main class|Unable to access jarfile)
        run/php              (?:PHP )?(?:Fatal|Parse) error:\s
        run/perl             .* at \S+ line \d+\.$|(?:syntax|compilation) error.* at \S+ line
        run/powershell       \s*\+ (?:CategoryInfo|FullyQualifiedErrorId)
        run/node             node:internal/|Error: Cannot find module|Node\.js v\d
        run/hardhat          (?:Error )?HH\d{1,4}:\s
        """,
        "command",
        confidence=0.92,
    ),
    *parse_patterns(
        r"""
        run/no-module        (?:/\S+/)?python[\d.]*: (?:No module named|can't open file)
        run/import           (?:Module|Import)(?:NotFound)?Error:\s
        """,
        "path",
        confidence=0.92,
        learned_from=("mini-swe-agent",),
    ),
    *parse_patterns(
        r"run/exit-status  exit status [1-9]\d*\b",
        "command",
        confidence=0.9,
        learned_from=("claude-code", "codex"),
    ),
)

CLIENTS = (
    *parse_patterns(
        r"""
        client/curl          curl: \(\d+\)\s|wget:\s|.*ERROR [45]\d\d:\s
        client/ssh           ssh: (?:connect|Could not)|Host key verification failed|\S*Permission denied \(publickey|kex_exchange
        """,
        "network",
        confidence=0.93,
    ),
    *parse_patterns(
        r"""
        client/docker        docker:\s|Error response from daemon|Cannot connect to the Docker daemon|error during connect
        client/docker-none   Error: No such (?:container|image|object)|no such service|no configuration file provided|permission denied while trying to connect
        """,
        "service",
        confidence=0.93,
    ),
    *parse_patterns(
        r"""
        client/postgres      psql: error|(?:ERROR|FATAL):\s\s|psql:\S+:\d+: ERROR
        client/sqlite        (?:Error: |Parse error|Runtime error)(?: near|: near|: in prepare|: no such|, )|Error: (?:near|in prepare|no such table)
        client/mysql         ERROR \d{4} \(\w+\)
        """,
        "command",
        confidence=0.9,
    ),
    *parse_patterns(
        r"""
        client/aws           An error occurred \(
        client/kubectl       Error from server|error: (?:the server|You must be logged|no context)|The connection to the server
        client/gcloud        ERROR: \(gcloud
        client/terraform     │ Error:\s
        """,
        confidence=0.92,
    ),
    *parse_patterns(
        r"lookup/which  (?:which: no )?\S+(?: not found$| in \(.*\)$)|\S+: (?:not found|no such)",
        outcome="expected",
        confidence=0.9,
        command_pattern=r"which|type|command|where",
        learned_from=("codex",),
    ),
)

ANYWHERE = (*TESTS, *LINTERS, *BUILDS, *PACKAGES, *GIT, *RUNS, *CLIENTS)

# "0 failed" and "no errors" are not failures.
_NO_FAILURES = (
    r"(?!.*(?:\b0 (?:tests? )?(?:failed|failures?|errors?|failing)|\bno (?:errors?|failures?|issues|problems)\b"
    r"|(?:failed|errors?|failures?)[:=] ?0\b|without errors?|✓|✔|✅))"
)
LAST_LINES = (
    *parse_patterns(
        r"""
        end/error            (?:\S+: )?(?:[Ee]rror|ERROR|Uncaught(?: \w+)?|[Ff]atal|FATAL|Unhandled\w*)(?:\[\w+\])?(?:: |\s-\s|\s)\S
        end/tagged           \[(?:ERROR|error|ERR|fatal|FATAL)\]|error\b.{0,80}?:\s|(?:.* )?level=(?:error|fatal)
        end/exit             (?:.*\b)?(?:exit(?:ed)? (?:status|code|with(?: (?:code|status))?):? ?[1-9]\d*|failed with exit code [1-9]\d*|returned non-zero exit status)\b
        end/refused          .*: (?:No such file or directory|Permission denied|command not found|Operation not permitted|Is a directory|Not a directory|Connection refused|No space left on device)(?: \(os error \d+\))?$
        """,
        confidence=0.8,
    ),
    *parse_patterns(
        r"""
        end/exception        (?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?: \[\w+\])?:\s
        end/stack            \s+at [\w.$<>]+\(\S*:\d+\)|\s+from \S+\.rb:\d+
        """,
        confidence=0.85,
    ),
    *parse_patterns(
        r"""
        end/usage            [Uu]sage:(?:\s|$)|Try '.* --help'|\S+: error:\s|Unknown (?:command|option|argument|syntax)
        end/option           .*(?:unrecognized|unknown|invalid|illegal|unexpected) (?:option|argument|flag|command|subcommand|switch)s?\b
        end/required         .*(?:required|missing) (?:argument|option|parameter|flag)s?\b
        """,
        "arguments",
        confidence=0.8,
    ),
    *parse_patterns(
        r"""
        end/cannot           (?:.*: )?(?:[Cc]annot|[Cc]an't|[Cc]ould ?n[o']t|[Uu]nable to|[Ff]ailed to|FAILED to) \w+
        end/mark             (?:❌|✗|✘|✖) ?.*
        end/failed           (?:.*\b)?FAILED\b.*|(?:\S+ )?[Ff]ailed(?:[:.!]| -|$)|Aborted!?$|Aborting\b|.* failed(?: with .*|:.*|!|\.)?$|FAIL(?:URE)?\b.*
        """,
        confidence=0.75,
    ),
    *parse_patterns(
        r"end/interrupted  \^C$", "interrupted", confidence=0.75, learned_from=("codex",)
    ),
)

SUCCESS = re.compile(
    r"(?:=+ (?!.*\b(?:failed|error)).*\b\d+ passed.*=+|\d+ passed(?!.*(?:failed|error)).* in [\d.]+s.*"
    r"|OK(?: \(.*\))?|ok  ?\t\S+\t.*|test result: ok\. .*|All checks passed!|Success: no issues found.*"
    r"|0 errors, .*|BUILD SUCCESS(?:FUL)?\b.*|\[INFO\] BUILD SUCCESS|Build succeeded.*|.*[Cc]ompiled successfully.*"
    r"|Successfully (?:installed|built|tagged) .*|\s*Finished `\w+` profile.*|found 0 vulnerabilities|0 issues\."
    r"|(?:✨ +)?Done in [\d.]+m?s\.?|✓ built in .*|\s*Tests +\d+ passed \(\d+\)|Everything up-to-date"
    r"|(?:✅|✓|✔).*(?:pass|success|complete|done).*|All tests? passed.*|\s+create mode \d{6} .*"
    r"| \d+ files? changed, .*|\s*[0-9a-f]{7,}\.\.[0-9a-f]{7,}  .*)\s*$",
    re.MULTILINE,
)


class SignatureRules:
    """The tables above, compiled."""

    def __init__(self, excluded_source: str | None = None) -> None:
        anywhere = [
            _restrict_to_line(pattern) for pattern in exclude_source(ANYWHERE, excluded_source)
        ]
        last = [
            _restrict_to_line(pattern) for pattern in exclude_source(LAST_LINES, excluded_source)
        ]
        multiline = re.MULTILINE
        self._anywhere = TextPatterns(
            [pattern for pattern in anywhere if not pattern.command_pattern], multiline, "^"
        )
        command_patterns = dict.fromkeys(
            pattern.command_pattern for pattern in anywhere if pattern.command_pattern
        )
        self._by_command = [
            (
                re.compile(where),
                TextPatterns([w for w in anywhere if w.command_pattern == where], multiline, "^"),
            )
            for where in command_patterns
        ]
        self._last = TextPatterns(last, multiline, f"^{_NO_FAILURES}")

    def find_anywhere(
        self, text: str, deciding: DecidingCommands
    ) -> tuple[TextPattern, str] | None:
        """Return the first failure in a program's own format, and the line it is on."""
        if found := self._anywhere.search(text):
            return found[0], _get_line(text, found[1])
        for where, patterns in self._by_command:
            if deciding.commands and not any(
                where.match(command.text) for command in deciding.commands
            ):
                continue
            if found := patterns.search(text):
                return found[0], _get_line(text, found[1])
        return None

    def find_in_last_lines(self, lines: str) -> tuple[TextPattern, str] | None:
        """Return the first failure in `lines`, the last lines of an output."""
        found = self._last.search(lines)
        return (found[0], _get_line(lines, found[1])) if found else None


def _restrict_to_line(pattern: TextPattern) -> TextPattern:
    r"""Replace `\s` so that it cannot match a newline; many blank lines would be slow otherwise."""
    return pattern._replace(pattern=pattern.pattern.replace(r"\s", r"[^\S\n]"))


def _get_line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : end if end >= 0 else len(text)][:400]


ALL_SIGNATURES = SignatureRules()
