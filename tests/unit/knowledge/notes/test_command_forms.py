"""What a note may say of a command line."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.command_forms import (
    CommandForm,
    is_everyday,
    parse_command_line,
    relativize_path,
)
from tests.cases import check_each
from tests.unit.shell.risky_commands import RISKY_COMMANDS

ROOT = "/home/me/project"


def parse(command: str) -> list[CommandForm]:
    return list(parse_command_line(command, ROOT).forms)


@pytest.mark.parametrize(
    ("command", "key", "text"),
    [
        ("go test ./...", "go test", "go test ./..."),
        (
            "npm run test:unit -- --watch=false",
            "npm run test:unit",
            "npm run test:unit -- --watch=false",
        ),
        ("mise run lint 2>&1 | tail -20", "mise run lint", "mise run lint"),
        ("gh pr view 17 --json title", "gh pr view", "gh pr view 17 --json <value>"),
        ("python -m pytest -q tests/unit", "python -m pytest", "python -m pytest -q tests/unit"),
        ("node --run lint:fix -- --quiet", "node --run lint:fix", "node --run lint:fix -- --quiet"),
        ("corepack pnpm run check", "pnpm run check", "corepack pnpm run check"),
        ("cargo xtask lint", "cargo xtask", "cargo xtask lint"),
        (
            "python3 scripts/build.py --fast",
            "python3 scripts/build.py",
            "python3 scripts/build.py --fast",
        ),
        (f"go vet {ROOT}/cmd/x", "go vet", "go vet cmd/x"),
        ("cargo clippy --all", "cargo clippy", "cargo clippy --all"),
        ("npx eslint --fix", "npx eslint", "npx eslint --fix"),
        ("npx somebody --fix", "npx", "npx <value> --fix"),
        ("/usr/local/go/bin/go vet ./...", "go vet", "/usr/local/go/bin/go vet ./..."),
        ("/home/somebody/.cargo/bin/cargo test", "cargo test", "~/.cargo/bin/cargo test"),
        ("/home/somebody/secret/cargo test", "cargo test", "cargo test"),
        ("/usr/bin/python3 a.py", "python3 a.py", "python3 a.py"),
        (
            "CGO_ENABLED=0 go build -o /tmp/x ./cmd",
            "go build",
            "CGO_ENABLED=0 go build -o <path> ./cmd",
        ),
        ("go test -run 'TestSecret' ./x", "go test", "go test -run <value> ./x"),
        ("./scripts/check.sh all", "check.sh", "./scripts/check.sh all"),
    ],
)
def test_programs_options_and_files_stay(command: str, key: str, text: str) -> None:
    assert parse(command)[0] == (key, text, "")


@check_each(
    "command",
    [
        "bun run lint",
        "bun run lint:fix",
        "bun install",
        "bun test src/prices.test.ts",
        "bun --cwd apps/web run build",
        "bun --filter @shop/core test",
        "deno task test",
        "deno test -A",
        "npm --prefix web run build",
        "pnpm -r build",
        "pnpm --filter web test -- --runInBand",
        "pnpm -C apps/web lint",
        "pnpm exec tsc --noEmit",
        "npx vitest run src/prices.test.ts",
        "npx prisma generate",
        "npx nx test api",
        "nx run-many -t test",
        "turbo run build --filter=web",
        "cargo nextest run",
        "make -C backend lint",
        "uv run ruff check .",
        "uv run python -m pytest",
        "python manage.py migrate",
        "flask db upgrade",
        "bin/rails db:migrate",
        "php artisan test",
        "mix ecto.migrate",
        "mvn -q test",
        "./gradlew :app:testDebugUnitTest",
        "docker compose exec api pytest",
        "nox -s tests",
    ],
)
def test_the_words_that_a_build_is_run_by_stay(command: str) -> None:
    assert [one.text for one in parse(command)] == [command]


@check_each(
    "command, text",
    [
        ("bun agentry eval x.yaml", "bun agentry eval x.yaml"),
        ("bun run src/index.ts zebra", "bun run src/index.ts <value>"),
        ("bun zebra.ts zebra", "bun zebra.ts <value>"),
        ("pnpm --filter zebra9 test", "pnpm --filter <value> test"),
        ("pnpm web zebra", "pnpm web <value>"),
        ("npm test --password web", "npm test --password <value>"),
        ("npm run login --user=web", "npm run login --user=<value>"),
        ("tsc --aBcDeFgH", "tsc <option>"),
    ],
)
def test_other_words_behind_known_programs_go(command: str, text: str) -> None:
    assert [one.text for one in parse(command)] == [text]


def test_a_script_of_a_runtime_is_its_key() -> None:
    assert parse("bun run src/index.ts")[0].key == "bun run src/index.ts"
    assert parse("bun scripts/build.ts")[0].key == "bun scripts/build.ts"
    assert parse("bun run lint")[0].key == "bun run lint"


@pytest.mark.parametrize(
    "command",
    [
        "mysql -phunter2secret -u root",
        "curl -u admin:hunter2secret https://example.org/hunter2secret",
        "export TOKEN=hunter2secret && deploy --token=hunter2secret hunter2secret",
        "TOKEN=hunter2secret make release",
        "sshpass -p hunter2secret ssh me@host",
        "tool --password hunter2secret --key 'hunter2secret'",
        "cat <<EOF > .env\nPASSWORD=hunter2secret\nEOF\nmake test",
        "psql postgres://u:hunter2secret@host/db -c 'select 1'",
        "docker login -u me -p hunter2secret registry.example.org",
    ],
)
def test_values_that_are_not_known_to_be_harmless_go(command: str) -> None:
    assert "hunter2secret" not in str(parse(command))


def test_a_command_keeps_the_folder_it_ran_in() -> None:
    assert parse(f"cd {ROOT}/web && npm test")[0] == ("npm test", "npm test", "web")
    assert parse("cd web && cd app && npm test")[0][2] == "web/app"
    assert parse(f"cd {ROOT} && npm test")[0] == ("npm test", "npm test", "")
    assert parse("cd /elsewhere && npm test")[0] == ("npm test", "npm test", "")


def test_every_command_of_a_line_counts() -> None:
    keys = [form[0] for form in parse("mise run fmt && mise run lint; mise run test | tail -5")]
    assert keys[:3] == ["mise run fmt", "mise run lint", "mise run test"]


def test_loops_and_here_documents_are_no_commands() -> None:
    keys = [form[0] for form in parse("for i in 1 2 3; do go test ./x; done")]
    assert "go test" in keys
    assert not any(key.startswith("i") for key in keys)
    assert parse("python3 - <<'X'\nimport os\nrm = 1\nX\n")[0][0] == "python3"


def test_what_everybody_knows_is_everyday() -> None:
    assert is_everyday("ls")
    assert is_everyday("git status")
    assert not is_everyday("git bisect")
    assert not is_everyday("go test")


def test_paths_are_relative_to_the_root_or_none() -> None:
    assert relativize_path(f"{ROOT}/a/b.go", ROOT) == "a/b.go"
    assert relativize_path("./a/b.go", ROOT) == "a/b.go"
    assert relativize_path("C:\\w\\a\\b.go", "C:\\w") == "a/b.go"
    for outside in ("/etc/passwd", "~/x", "../x", "", "$HOME/x"):
        assert relativize_path(outside, ROOT) is None


@pytest.mark.parametrize(
    "path", ["x/557d6b9ae5b91716b1bae9d5d80fcc8a/y", "a/9f8e7d6c5b4a/b", "u/7ea4f904-0f4d-1c7d/x"]
)
def test_generated_names_are_no_files_of_the_repository(path: str) -> None:
    assert relativize_path(path, ROOT) is None


@check_each("command", RISKY_COMMANDS)
def test_what_needs_approval_is_never_noted(command: str) -> None:
    """Not even a harmless command beside it: the line is not one to repeat."""
    assert parse(f"{command}\nmake test") == parse(command) == []


@pytest.mark.parametrize("command", ["git push --force", "npm publish", "kubectl delete pod x"])
def test_what_reaches_others_is_never_noted(command: str) -> None:
    assert parse(command) == []


def test_a_program_alone_is_judged_too() -> None:
    assert parse("curl")[0].text == "curl"


def test_a_common_word_behind_a_program_of_the_project_is_its_subcommand() -> None:
    (form,) = parse_command_line("shopctl import --fast swordfish", "/p").forms
    assert form.key == "shopctl import"
    assert form.text == "shopctl import --fast <value>"
    (form,) = parse_command_line("shopctl swordfish", "/p").forms
    assert form.text == "shopctl <value>"
