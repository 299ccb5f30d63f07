"""Options, variables and settings that skip a check."""

from __future__ import annotations

import pytest

from rekindle.shell.bypasses import find_bypass


@pytest.mark.parametrize(
    "command",
    [
        "git commit --no-verify", "git commit -n -m x", "curl -k x", "HUSKY=0 npm run build",
        "npm ci --ignore-scripts=false", "apt-get install --allow-unauthenticated x",
        "npm_config_strict_ssl=false npm ci", "npm config set strict-ssl false",
        "yarn install --skip-integrity-check", "npm install --unsafe-perm", "SKIP_TESTS=1 make",
        "git config http.sslVerify false", "git -c commit.gpgsign=false commit",
        "OVERCOMMIT_DISABLE=1 git x",
    ],
)  # fmt: skip
def test_what_skips_a_check_is_found(command: str) -> None:
    assert find_bypass(command.split(" ")) is not None


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m x", "npm ci --ignore-scripts", "npm ci --ignore-scripts=true", "make verify",
        "curl --fail x", "go test -run TestSkip ./...", "CI=1 npm test", "NO_COLOR=1 pytest",
    ],
)  # fmt: skip
def test_other_words_are_not(command: str) -> None:
    assert find_bypass(command.split(" ")) is None
