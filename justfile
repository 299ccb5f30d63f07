# Commands for working on Rekindle; `just` lists them. Everything runs in .venv, which `just setup` creates.

set positional-arguments

python := ".venv/bin/python"

# Hide the theme's announcement of its successor.
export NO_MKDOCS_2_WARNING := "1"

# List the commands
default:
    @just --list

# Install Rekindle and everything for development into .venv
setup:
    python3 bootstrap.py setup --dev --frameworks

# Run the whole test suite, or pytest with ARGS
test *ARGS:
    python3 bootstrap.py test "$@"

# Run the tests of processes in containers and on other hosts
test-places *ARGS:
    {{ python }} -m pytest tests/contract tests/unit/agent -m places -n 3 --dist loadfile "$@"

# Run the unit tests that start no programs
test-fast *ARGS:
    {{ python }} -m pytest tests/unit -m "not slow" -n 2 "$@"

# Check formatting and lint rules
lint:
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .

# Format the code and fix what can be fixed automatically
format:
    .venv/bin/ruff format .
    .venv/bin/ruff check --fix .

# Check the types
types:
    .venv/bin/pyright --pythonpath {{ python }}

# Run a benchmark, such as `just bench store --quick`
bench *ARGS:
    {{ python }} -m bench "$@"

# Build the site into site/; fails on broken links
docs:
    python3 bootstrap.py setup --dev --docs
    .venv/bin/mkdocs build --strict

# Serve the site locally and rebuild it on changes
docs-serve:
    python3 bootstrap.py setup --dev --docs
    .venv/bin/mkdocs serve

# Run everything that must pass before a change is merged
ci:
    .ci/run

# Run a long test, such as `just soak crash --kills 50`
soak *ARGS:
    {{ python }} -m soak "$@"

# Feed damaged and hostile files to every transcript reader
fuzz *ARGS:
    {{ python }} -m soak fuzz "$@"

# Look for faults with many fresh examples, and in every pattern of the package
properties *ARGS:
    REKINDLE_FUZZ=1 {{ python }} -m pytest tests/unit tests/contract -n 2 "$@"
    {{ python }} -m tests.unit.pattern_sweep --all
