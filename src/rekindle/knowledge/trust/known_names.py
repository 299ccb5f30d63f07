"""Names of options and variables that texts about any project have."""

from __future__ import annotations

from rekindle.judging.rules.text_patterns import split_words

KNOWN_VARIABLES = split_words(
    """
    bun cargo cc cgo ci color cxx debug deno display django docker editor env flask force gh git go
    gocache gofl goflags gomodcache gopath goproxy gotmpdir goos goarch gocoverdir home java jvm
    lang ld log mise mypy next no node npm pager path pip pnpm prisma py pytest python rack rails
    ruff rust rustflags shell term test tests tmp tmpdir tz uv verbose vite yarn
    """
)
# What they are given is a script: a file or folder of that name is something else.
SCRIPT_RUNNERS = split_words(
    """
    npm pnpm yarn bun npx bunx make gmake just task mise rake nox poe invoke ninja gulp grunt deno
    composer uv uvx pipx poetry pdm hatch docker gradle mvn cargo nx turbo lerna rails mix
    artisan moon melos
    """
)
KNOWN_OPTIONS = split_words(
    """
    all amend api base body branch bail build cached cache-dir check ci color concurrency config
    count coverage cov cwd debug depth diff dir directory dry-run env exclude exit-code fail-fast
    features file filter fix follow force format frozen frozen-lockfile global grep group head help
    host ignore ignore-path include ignored info interactive jobs json key language lib limit line-
    length list locked log log-level manifest-path max-warnings message mode name no-cache no-color
    no-cov no-deps no-edit no-emit no-fix no-install no-pager no-run no-save no-watch noemit offline
    oneline only-changed out outdir output package parallel path patch pattern platform port prefix
    pretty profile project quiet quick raw recursive release repo reporter reset root run runinband
    script search select short show since silent skip sort src staged stat state strict summary tag
    target template test testpathpattern testnamepattern threads timeout title token-limit type
    types update upgrade user verbose version view volume watch wait workers workspace workspaces
    write yes no-verify-peer dev exact help-all group-by extra with only-group no-dev no-default-
    features all-features all-targets no-fail-fast tests benches collect-only maxfail lf tb
    durations numprocesses no-header no-summary markers co exitfirst last-failed
    """
)
KNOWN_PLATFORMS = split_words(
    """
    amd64 arm64 arm armv7 aarch64 x86_64 x64 x86 i386 i686 riscv64 s390x ppc64le wasm wasi
    linux windows darwin macos freebsd openbsd netbsd android ios js
    """
)
