"""Which paths may stay in a note: files of a repository, and no hosts, addresses or made-up names."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.harmless import keep_path, keep_value


@pytest.mark.parametrize(
    "path",
    ["main.go", "src/app.test.ts", ".github/workflows/ci.yml", "@scope/pkg/index.js", "docs", "./...",
     "cmd/entire/cli/...", "settings.local.json", "Dockerfile.dev", "k8s/base.yaml", "/tmp/go-build",
     "kubernetes/postgresql_client.py"],
)  # fmt: skip
def test_files_of_a_repository_stay(path: str) -> None:
    assert keep_path(path) == path


@pytest.mark.parametrize(
    "word",
    ["ada@mail.example", "db.corp.internal", "evil.example/setup", "setup@latest", "github.com/a/b",
     "evil.example/setup@latest", "config.example", "/home/ada/x.py", "https://a.example/x"],
)  # fmt: skip
def test_hosts_addresses_packages_and_made_up_names_do_not(word: str) -> None:
    assert keep_path(word) is None
    assert word not in keep_value(word)
