"""What helps with failures that are the same in every project: rules of common programs.

Each rule has a name, the programs it is about, how their failure looks, and what to do. It is told only
at such a failure, and only if the program does not say itself what it wants. Rules have fixed texts: no
word of any session is in them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import split_words
from rekindle.shell.command_reader import split_commands

MAX_RESULT_CHARS = 4_000
GH_REPOSITORY = "gh-repository"  # the rule whose advice the project may know better
REPOSITORY_SLOT = "<owner>/<repository>"  # in an advice, where the project's own may be known
MISSING_PROGRAM = "missing-program"
PLACE_RULES = ("pathspec", "go-module-folders", "program-folder")  # told where no place is known


class Remedy(NamedTuple):
    """A rule: its name, the programs that it is about, how the failure looks, and what to do."""

    name: str
    programs: frozenset[str]  # empty for any
    look: re.Pattern[str]
    advice: str
    has: str = ""  # the pattern that the command line must contain


def _create_rule(name: str, programs: str, look: str, advice: str, has: str = "") -> Remedy:
    return Remedy(
        name, split_words(programs), re.compile(look, re.IGNORECASE | re.MULTILINE), advice, has
    )


_DENIED = r"(?:operation not permitted|permission denied|read-only file system)"

REMEDIES: tuple[Remedy, ...] = (
    # ── Go
    _create_rule(
        "go-test-for-another-system",
        "go",
        r"exec format error|bad CPU type in executable",
        "A test for another system cannot run here: only compile it with"
        " `go test -c -o /dev/null <package>`, or all with `go test -exec=true ./...`.",
    ),
    _create_rule(
        "go-cache",
        "go golangci-lint mise make just task gopls staticcheck",
        rf"go-build[^\n]{{0,200}}{_DENIED}|build cache is required",
        "The build cache cannot be written: set `GOCACHE=/tmp/go-build`"
        " (`GOMODCACHE` and `GOLANGCI_LINT_CACHE` are the others).",
    ),
    _create_rule(
        "go-package-path",
        "go",
        r"package \S{1,200} is not in (?:std|GOROOT)",
        "A package of the module is named with `./` in front: `./<folder>`, or all with `./...`.",
    ),
    _create_rule(
        "go-single-files",
        "go",
        r"^# command-line-arguments[^\n]{0,200}\n[^\n]{0,300}undefined: ",
        "A single file is compiled without the rest of its package: name the package (`./<folder>`).",
    ),
    _create_rule(
        "go-build-tags",
        "go",
        r"build constraints exclude all Go files",
        "The files have a build tag: `-tags <tag>`, as in their `//go:build` line.",
    ),
    _create_rule(
        "gofmt-packages",
        "gofmt goimports gofumpt",
        r"\.\.\.: no such file or directory",
        "It takes files and folders, not packages: `-l .` instead of `./...`.",
    ),
    _create_rule(
        "gofmt-reports",
        "gofmt goimports gofumpt",
        r"^@@ -\d+,\d+ \+\d+,\d+ @@",
        "It only reports: `-w` formats the files.",
        "-d",
    ),
    _create_rule(
        "go-test-binaries",
        "go",
        r"cannot (?:write test binary|use -o flag)[^\n]{0,100}multiple packages|-c flag with multiple",
        "One binary holds one package: `-o <folder>/` for many, or compile all with"
        " `go test -exec=true ./...` and keep none.",
    ),
    _create_rule(
        "go-module-below",
        "go",
        r"cannot find main module, but found \.git",
        "The module is in a folder below: `git ls-files '*go.mod'` names it; run `go` in there.",
    ),
    _create_rule(
        "go-module-folders",
        "go golangci-lint staticcheck govulncheck",
        r"directory prefix \S{1,200} does not contain main module|\"\./\.\.\.\" matched no packages",
        "The modules are in folders below: `git ls-files '*go.mod'` names them; run it in the one that"
        " is meant.",
    ),
    _create_rule(
        "go-run-test-file",
        "go",
        r"go: cannot run \*_test\.go files",
        "`go run` takes no file whose name ends with `_test.go`: give it another name.",
    ),
    _create_rule(
        "go-build-output",
        "go",
        r"go: build output \"[^\"\n]{1,200}\" already exists and is a directory",
        "The binary would be named like a folder: `-o <file>` names it, `-o /dev/null` only compiles.",
    ),
    # ── git and gh
    _create_rule(
        "branch-in-worktree",
        "git",
        r"is already (?:used by worktree|checked out) at",
        "Another worktree has the branch: begin at the remote's with"
        " `git checkout -b <branch> origin/<branch>`, or look at it with `git checkout --detach`.",
    ),
    _create_rule(
        "unknown-revision",
        "git",
        r"(?:ambiguous argument|bad revision) '(?:origin|upstream)/",
        "`git fetch origin` gets what is new there; `git branch -a` names the branches.",
    ),
    _create_rule(
        "pr-diff-options",
        "gh",
        r"unknown flag: --(?:stat|name-status|numstat|shortstat)",
        "`gh pr diff` has `--name-only`; the counts are in `gh pr view <number> --json files`.",
        "pr diff",
    ),
    _create_rule(
        "classic-projects",
        "gh",
        r"Projects \(classic\) is being deprecated",
        "This `gh` asks for what was removed: name the fields (`gh pr view <number> --json title,body`),"
        " or use `gh api repos/{owner}/{repo}/pulls/<number>`.",
    ),
    _create_rule(
        "gh-typed-fields",
        "gh",
        r"is not (?:a|an) (?:number|integer|boolean)",
        "`-f` sends text: `-F <field>=<value>` sends numbers and booleans as such.",
        "gh api",
    ),
    _create_rule(
        GH_REPOSITORY,
        "gh",
        r"Could not resolve to a Repository",
        "`gh repo view --json nameWithOwner` names this repository; `gh api` puts it in place of"
        " `{owner}/{repo}`.",
    ),
    _create_rule(
        "not-fast-forward",
        "git",
        r"Not possible to fast-forward|have divergent branches",
        "Both sides have commits: `git pull --rebase` puts yours on top.",
        "pull",
    ),
    _create_rule(
        "no-pull-request",
        "gh",
        r"no pull requests found for branch",
        "The branch has none: `gh pr list --state all` shows their numbers.",
    ),
    _create_rule(
        "local-changes",
        "git gh",
        r"local changes to the following files would be overwritten"
        r"|cannot (?:pull with rebase|rebase): You have (?:unstaged|uncommitted) changes",
        "Uncommitted changes block this: `git stash` saves them, `git stash pop` restores them.",
    ),
    _create_rule(
        "protected-branch",
        "git",
        r"GH006: Protected branch|protected branch hook declined",
        "The branch is protected: `git push -u origin HEAD:<branch>` pushes another for `gh pr create`.",
    ),
    _create_rule(
        "ssh-key",
        "git",
        r"Permission denied \(publickey\)",
        "There is no key for SSH here: `https://github.com/<owner>/<repository>.git` in place of"
        " `origin` goes over HTTPS; `gh auth setup-git` lets git use the login of `gh`.",
    ),
    _create_rule(
        "pathspec",
        "git",
        r"pathspec '[^'\n]{1,300}' did not match any file",
        "git knows no such file below this folder: `git ls-files ':/*<name>'` shows where it is.",
        r"\bgit (?:-C \S{1,200} )?(?:add|rm|mv|commit|stash)\b",
    ),
    _create_rule(
        "auto-merge",
        "gh",
        r"Auto merge is not allowed",
        "Auto-merge is off here: `gh pr checks <number> --watch` waits, then merge without `--auto`.",
    ),
    _create_rule(
        "pending-checks",
        "gh",
        r"\bpending\b",
        "`gh pr checks` fails while checks are pending: `--watch` waits for them.",
        r"\bpr checks\b(?!.{0,200}--watch(?!=false))",
    ),
    _create_rule(
        "jq-not-equal",
        "jq gh",
        r"(?:unexpected INVALID_CHARACTER|unexpected token \"\\\\\")",
        "The shell tool changes `!`: write `(a == b | not)` instead of `a != b`.",
        "!=",
    ),
    _create_rule(
        "jq-missing-field",
        "",
        r"jq: error[^\n]{0,80}: (?:Cannot iterate over null|Cannot index (?:number|string|array) with)"
        r"|cannot have their containment checked",
        'A field is missing or of another type: `.a[]?` and `(.a // "")` go on without it.',
    ),
    _create_rule(
        "jq-types",
        "",
        r"jq: error[^\n]{0,300} cannot be added",
        'Values of different types are joined as text: `(.a | tostring)`, or `"\\(.a) \\(.b)"`.',
    ),
    _create_rule(
        "no-json",
        "jq python python3 node",
        r"jq: (?:parse )?error[^\n]{0,40}: Invalid (?:numeric )?literal|json\.decoder\.JSONDecodeError"
        r"|SyntaxError: Unexpected token [^\n]{0,80}JSON",
        "What came through the pipe is no JSON: look at it with `| head -c 300` in place of the reader."
        " `2>&1` mixes errors into it; a file (`-o <file>`, where there is such an option) does not.",
        r"[^|]\|[^|]",
    ),
    # ── shell
    _create_rule(
        "folder-of-output",
        "",
        r"^(?:/bin/)?(?:bash|zsh|sh|\(eval\))(?!\S{0,20} ?(?:line \d+: )?cd:)[^\n]{0,200}"
        r"no such file or directory",
        "The folder of the output may not exist: `mkdir -p <folder>` first.",
        r">\s?(?!&|/dev/)[^\s>&]",
    ),
    _create_rule(
        "backticks",
        "rg grep egrep git gh",
        r"unexpected EOF while looking for matching|unmatched [`\"]|command not found",
        "In double quotes the shell runs what is in backticks: put the text in single quotes.",
        r"\"[^\"]{0,500}`",
    ),
    _create_rule(
        "parentheses",
        "",
        r"syntax error near unexpected token `\('|\b(?:unknown file attribute|bad pattern): ",
        "The shell interprets `(` and `)`: put such a path in quotes.",
        r"[\w\]]?/\(\w|\w\)/",
    ),
    _create_rule(
        "zsh-variable",
        "",
        r"read-only variable: \w",
        "This name is reserved in zsh: use another one, such as `rc`.",
    ),
    _create_rule(
        "windows-path",
        "",
        r"\b[A-Z]:/Program Files/Git/(?!usr/|bin/|mingw|cmd/)",
        "Git Bash turned a path into one of Windows: `MSYS_NO_PATHCONV=1` in front prevents that.",
    ),
    _create_rule(
        "settings-in-sandbox",
        "",
        rf"(?:EPERM|EACCES|{_DENIED})[^\n]{{0,200}}/(?:Library/(?:Preferences|Caches)|\.config|\.npm)/",
        "It may not write its settings here: `env HOME=/tmp/home` in front gives it a folder for them.",
    ),
    _create_rule(
        "sql-not-equal",
        "psql sqlite3 mysql ssh",
        r"syntax error at or near \"\\\"|near \"\\\": syntax error|unrecognized token: \"\\\"",
        "The shell tool changes `!`: `<>` is the same in SQL.",
        "!=",
    ),
    _create_rule(
        "psql-peer",
        "",
        r"Peer authentication failed for user",
        "Only that user of the system may connect so: `sudo -u <user> psql`, or `-h localhost` with a"
        " password.",
    ),
    _create_rule(
        "quotes",
        "",
        r"unexpected EOF while looking for matching|unmatched ['\"]|unterminated quoted string",
        "Give such a text in a here-document with a quoted end (`<<'EOF'`), a commit's with `-F -`.",
    ),
    _create_rule(
        "zsh-pattern",
        "",
        r"no matches found: (?:-\S|\S{0,300}[?\[^])",
        "zsh takes `*`, `?` and `[` for patterns: put the word in quotes, as in `--include='*.go'`.",
    ),
    _create_rule(
        "zsh-equals",
        "",
        r"^(?:zsh|\(eval\)):\d+: =\S{0,60} not found",
        "zsh takes a word that begins with `=` for a program: put it in quotes, as in `echo '==='`.",
    ),
    _create_rule(
        "zsh-parser",
        "",
        r"^\(eval\):\d+: parse error near",
        "The tool's zsh cannot read the line: run it with `bash -c '<line>'`.",
    ),
    _create_rule(
        "search-pattern",
        "grep egrep rg git",
        r"regex parse error|(?:parentheses|brackets[^\n]{0,12}|braces) not balanced|unmatched [\[({]"
        r"|operand invalid|invalid preceding regular expression",
        "`-F` searches for the text as it stands; `-e` comes before a pattern that begins with `-`.",
    ),
    _create_rule(
        "rg-include",
        "rg",
        r"unrecognized flag --(?:include|exclude|exclude-dir)",
        "`-g '*.ext'` names the files to search, `-g '!folder'` those to leave out.",
    ),
    _create_rule(
        "bsd-grep",
        "grep egrep",
        r"invalid option -- P",
        "This `grep` has no `-P`: use `-E`, or `rg`.",
    ),
    _create_rule(
        "bsd-sed",
        "sed",
        r"sed: 1: \"[^\n]{0,300}(?:invalid command code|extra characters|undefined label|expects \\)",
        "This is the `sed` of BSD: `-i ''` to change a file, `-E` for groups.",
    ),
    _create_rule(
        "bsd-head",
        "head",
        r"illegal line count -- -",
        "This `head` cannot count from the end: `sed '$d'` leaves out the last line.",
    ),
    _create_rule(
        "port-in-use",
        "",
        r"EADDRINUSE|address already in use",
        "Another program has the port: `lsof -i :<port>` shows it; use another, or 0 for any free one.",
    ),
    # ── Python, Node
    _create_rule(
        "missing-script",
        "npm pnpm yarn bun",
        r"missing script:|script not found|ERR_PNPM_NO_SCRIPT|couldn't find a script named",
        "This folder's `package.json` has no such script: `npm run` lists those it has; another"
        " package of the repository may have it.",
    ),
    _create_rule(
        "pytest-plugin",
        "pytest python python3 uv poetry",
        r"unrecognized arguments: [^\n]{0,100}(?:-n\b|--timeout|--cov|--asyncio-mode)",
        "The plugin of the option is not installed: leave the option out.",
    ),
    _create_rule(
        "pytest-node",
        "pytest python python3 uv poetry",
        r"ERROR: not found: [^\n]{1,300}::",
        "`-k <name>` finds a test by its name, whatever class it is in.",
    ),
    _create_rule(
        "markdownlint",
        "",
        r"\bMD0\d\d/[a-z]",
        "`--fix` fixes most of what it reports.",
        r"^(?!.*--fix).*markdownlint",
    ),
    _create_rule(
        "node-module",
        "node",
        r"cannot use import statement outside a module|await is only valid in async",
        "Such a script needs `--input-type=module` behind `node`, or a file that ends with `.mjs`.",
    ),
    _create_rule(
        "node-typescript",
        "node",
        r"ERR_UNKNOWN_FILE_EXTENSION[^\n]{0,40}\.ts",
        "`npx tsx <file>` runs TypeScript; so does `node --experimental-strip-types`.",
    ),
)

# What runs instead of a program that is not installed.
_SUBSTITUTES: dict[str, str] = {
    "python": "`python3`",
    "pip": "`python3 -m pip`",
    "docker-compose": "`docker compose`",
    "timeout": "`gtimeout`, or the time limit of the tool",
    "rg": "`grep -rn`",
    "fd": "`find`",
    "tree": "`find . -maxdepth 2`",
    "gsed": "`sed`",
    **dict.fromkeys(split_words("tsc eslint prettier vitest jest tsx ts-node"), "`npx` in front"),
}
# Where programs are that a shell without its settings does not find.
_FOLDERS: dict[str, str] = {
    "go": "/usr/local/go/bin:$HOME/go/bin",
    "brew": "/opt/homebrew/bin:/usr/local/bin",
    **dict.fromkeys(("cargo", "rustc", "rustup"), "$HOME/.cargo/bin"),
    **dict.fromkeys(("bun", "bunx"), "$HOME/.bun/bin"),
    **dict.fromkeys(("uv", "uvx", "poetry", "pipx"), "$HOME/.local/bin"),
    "deno": "$HOME/.deno/bin",
}
_NOT_FOUND = re.compile(
    r"(?:command not found: ([\w.+-]{1,40})|\b([\w.+-]{1,40}): (?:command )?not found\b(?!:))"
)


def find_missing_program(result: str) -> str | None:
    """Return the program that a shell did not find, by its report."""
    match = _NOT_FOUND.search(result[-MAX_RESULT_CHARS:])
    return (match.group(1) or match.group(2)) if match else None


def find_remedy(command: str, result: str) -> tuple[str, str] | None:
    """Return the name and the advice of the rule that fits a failed command, if there is one."""
    missing = find_missing_program(result)
    if missing in _SUBSTITUTES and missing in command:
        return MISSING_PROGRAM, f"`{missing}` is not installed: {_SUBSTITUTES[missing]}."
    if missing in _FOLDERS and missing in command:
        advice = (
            f"The shell does not find `{missing}`: `export PATH=$PATH:{_FOLDERS[missing]}` first."
        )
        return "program-folder", advice
    end = result[-MAX_RESULT_CHARS:]
    programs = {one.program for one in split_commands(command)}
    for rule in REMEDIES:
        if rule.programs and rule.programs.isdisjoint(programs):
            continue
        if re.search(rule.has, command) and rule.look.search(end):
            return rule.name, rule.advice
    return None
